"""Annotators who like long answers teach a reward model to like them too; a penalty in training takes that out.

An answer is 16 features of quality and its length in characters. Its true worth is a sum over the quality alone, but
the labels also reward length. The penalty is the squared correlation of score and length; it needs no knowledge of the
truth. Run it with: python examples/03_length_bias.py (half a minute; it writes length_bias.png)
"""

import random
import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from prefrl.config import LabelConfig, LengthConfig, ModelConfig, RewardConfig
from prefrl.model.engine import Engine
from prefrl.model.features import FeatureRewardModel
from prefrl.policy.judgement import LabelModel
from prefrl.recipes.reward_fit import update
from prefrl.types import Row

QUALITIES, PAIRS, BIAS = 16, 1000, 1.0
COEFS = (0.0, 1.0, 10.0)


@dataclass
class Answers:
    """Answers (N, 17) with features of spread 1, their true worth (N,) and their lengths in characters (N,)."""

    features: Tensor
    worth: Tensor
    length: Tensor


def answers(count: int, direction: Tensor, seed: int) -> Answers:
    """Random answers; quality and length are independent."""
    features = torch.randn(count, QUALITIES + 1, generator=torch.Generator().manual_seed(seed))
    return Answers(features, features[:, :-1] @ direction, 400.0 + 100.0 * features[:, -1])


def judged(model: FeatureRewardModel, some: Answers, seed: int) -> list[Row]:
    """Every two answers in turn as a pair; P(a > b) = sigmoid of the difference in worth and, times BIAS, in length."""
    rows = []
    taste = some.worth + BIAS * some.features[:, -1]
    better = (
        torch.rand(len(taste) // 2, generator=torch.Generator().manual_seed(seed))
        < (taste[::2] - taste[1::2]).sigmoid()
    )
    for index, (features, length) in enumerate(zip(some.features, some.length, strict=True)):
        row = model.encode(features)
        first = index % 2 == 0
        row.atom, row.side = index // 2, 1 if first == bool(better[index // 2]) else -1
        row.streams = {"characters": length[None]}
        rows.append(row)
    return rows


def train(coef: float, some: Answers, epochs: int = 20, batch: int = 250) -> FeatureRewardModel:
    """A linear reward model from the labels, with the penalty where its weight is not 0."""
    torch.manual_seed(0)
    model = FeatureRewardModel(torch.nn.Linear(QUALITIES + 1, 1, bias=False))
    length = LengthConfig(kind="penalty", coef=coef) if coef else LengthConfig()
    config = RewardConfig(model=ModelConfig(lr=0.1, schedule="linear", max_grad_norm=0.0), length=length)
    rows, labels = judged(model, some, seed=2), LabelModel(LabelConfig())
    steps = epochs * PAIRS // batch
    engine = Engine(model, config.model, total_steps=steps)
    order, rng = list(range(PAIRS)), random.Random(0)
    for row in rows:
        row.weight = 1.0 / batch
    for step in range(steps):
        if step * batch % PAIRS == 0:
            rng.shuffle(order)
        at = order[step * batch % PAIRS :][:batch]
        update(engine, [row for pair in at for row in rows[2 * pair : 2 * pair + 2]], labels, config)
    return model


def correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


def main(figure: str = "length_bias.png") -> dict[float, tuple[float, float]]:
    """Correlation of score and length, and accuracy by true worth, on answers that were never trained on, by coef."""
    torch.set_num_threads(1)
    direction = torch.randn(QUALITIES, generator=torch.Generator().manual_seed(0))
    direction *= 2.42 / direction.norm()
    some, fresh = answers(2 * PAIRS, direction, seed=1), answers(20_000, direction, seed=3)
    found = {}
    for coef in COEFS:
        scores = train(coef, some).scores(fresh.features)
        right = ((scores[::2] > scores[1::2]) == (fresh.worth[::2] > fresh.worth[1::2])).float().mean()
        found[coef] = correlation(scores, fresh.length), float(right)
        print(f"penalty {coef:g}: correlation with length {found[coef][0]:.3f}, accuracy by worth {found[coef][1]:.3f}")
    draw(found, figure)
    return found


def draw(found: dict[float, tuple[float, float]], figure: str) -> None:
    """Both figures by the weight of the penalty."""
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(7.0, 3.0), layout="constrained")
    for place, name in enumerate(("correlation of score and length", "accuracy by true worth")):
        axes = canvas.add_subplot(1, 2, place + 1)
        bars = axes.bar([f"{coef:g}" for coef in found], [values[place] for values in found.values()])
        axes.bar_label(bars, fmt="%.3f")
        axes.set(title=name, xlabel="weight of the penalty", ylim=(0.0, 1.1) if place else (0.0, 0.5))
    canvas.savefig(figure, dpi=150)
    print(f"figure: {figure}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
