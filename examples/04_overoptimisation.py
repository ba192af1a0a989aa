"""Over-optimisation: the harder a reward model is optimized, the less its reward means; an ensemble holds for longer.

Answers are vectors, and the gold reward is a random network that likes nothing extreme. Reward models learn it from
2,000 judgements as noisy as people's. Then the best of n answers by each is taken, for n up to 8,192, and the gold
reward tells what that was worth. Run it with: python examples/04_overoptimisation.py
"""

import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor, nn

from prefrl.config import LabelConfig, ModelConfig
from prefrl.evaluate import figures
from prefrl.evaluate.frontier_figures import golds, proxy_and_gold
from prefrl.evaluate.overoptimisation import Frontier, best_of_n
from prefrl.model.engine import Engine
from prefrl.model.features import FeatureRewardModel
from prefrl.policy.judgement import LabelModel
from prefrl.policy.objective import reward_objective
from prefrl.types import Row

FEATURES, WIDTH, PAIRS, MEMBERS, BATCH = 32, 512, 2000, 5, 40
NOISE = 0.7  # P(first preferred) = sigmoid(NOISE * gold difference, in standard deviations): 67 % agree with gold
OPTIM = ModelConfig(lr=1e-2)
LABELS = LabelModel(LabelConfig())
Pair = tuple[Row, Row]


def gold_reward(seed: int) -> Callable[[Tensor], Tensor]:
    """A random network minus the answer's squared length, of mean 0 and standard deviation 1 over answers (N, 32)."""
    g = torch.Generator().manual_seed(seed)
    into, bias, out = torch.randn(FEATURES, 32, generator=g), torch.randn(32, generator=g), torch.randn(32, generator=g)

    def raw(x: Tensor) -> Tensor:
        return torch.tanh(x @ into / math.sqrt(FEATURES) + bias / 2) @ out - 0.2 * (x**2).sum(-1)

    some = raw(torch.randn(20_000, FEATURES, generator=g))
    return lambda x: (raw(x) - some.mean()) / some.std()


def judged_pairs(gold: Callable[[Tensor], Tensor], seed: int) -> list[Pair]:
    """Pairs of answers, the preferred one first, in the eyes of a noisy judge."""
    g = torch.Generator().manual_seed(seed)
    x, encode = torch.randn(PAIRS, 2, FEATURES, generator=g), FeatureRewardModel(nn.Identity()).encode
    first = torch.rand(PAIRS, generator=g) < torch.sigmoid(NOISE * (gold(x[:, 0]) - gold(x[:, 1])))
    pairs = []
    for atom, (answers, wins) in enumerate(zip(x, first, strict=True)):
        chosen, rejected = encode(answers[0 if wins else 1]), encode(answers[1 if wins else 0])
        for row, side in ((chosen, 1), (rejected, -1)):
            row.atom, row.side, row.weight = atom, side, 1 / BATCH
        pairs.append((chosen, rejected))
    return pairs


def reward_model(pairs: list[Pair], seed: int, patience: int = 3) -> Callable[[Tensor], Tensor]:
    """Train on three quarters of the pairs until the NLL of the rest has not fallen for some passes; keep the best."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    model, rng = FeatureRewardModel(net), random.Random(seed)
    engine = Engine(model, OPTIM)
    train, held_out = pairs[len(pairs) // 4 :], [row for pair in pairs[: len(pairs) // 4] for row in pair]
    best, weights, worse = math.inf, engine.snapshot(), 0
    while worse < patience:
        shuffled = rng.sample(train, len(train))
        for at in range(0, len(train), BATCH):
            batch = [row for pair in shuffled[at : at + BATCH] for row in pair]
            engine.step(batch, lambda b: reward_objective(b, LABELS, 0.0))
        scores = torch.cat(engine.outputs(held_out))
        nll = float(nn.functional.softplus(scores[1::2] - scores[::2]).mean())
        worse = 0 if nll < best else worse + 1
        if nll < best:
            best, weights = nll, engine.snapshot()
    engine.restore(weights)
    # Preferences say nothing of a constant, so that scores of several models need the same mean to be compared.
    mean = torch.cat(engine.outputs([row for pair in pairs for row in pair])).mean()
    return lambda x: model.scores(x) - mean


def frontiers(seed: int, *, prompts: int = 24, samples: int = 8192) -> dict[str, Frontier]:
    """Best-of-n by every proxy; a prompt here is no more than a group of answers."""
    gold = gold_reward(seed)
    pairs = judged_pairs(gold, seed)
    share = PAIRS // MEMBERS
    members = [reward_model(pairs[i * share : (i + 1) * share], seed=100 * seed + i) for i in range(MEMBERS)]
    answers = torch.randn(prompts * samples, FEATURES, generator=torch.Generator().manual_seed(seed + 1_000_000))
    scores = torch.stack([member(answers) for member in members])
    proxies = {
        "gold itself": gold(answers),
        "one model, 400 pairs": scores[0],
        "one model, 2,000 pairs": reward_model(pairs, seed=seed)(answers),
        "5 of 400, mean": scores.mean(0),
        "5 of 400, minimum": scores.min(0).values,
        "5 of 400, mean - std": scores.mean(0) - scores.std(0, correction=0),
    }
    shape, judged = (prompts, samples), gold(answers)
    return {name: best_of_n(p.view(shape).numpy(), judged.view(shape).numpy()) for name, p in proxies.items()}


def mean_golds(runs: list[dict[str, Frontier]]) -> dict[str, list[float]]:
    """Gold reward at every KL, a mean over runs."""
    points = {name: [run[name].points for run in runs] for name in runs[0]}
    return {name: [fmean(p.gold.mean for p in at) for at in zip(*each, strict=True)] for name, each in points.items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, runs = Path(sys.argv[1] if len(sys.argv) > 1 else "."), [frontiers(seed) for seed in range(5)]
    single = runs[0]["one model, 400 pairs"]
    print(f"{'KL':<24}", *(f"{point.kl:6.2f}" for point in single.points))
    for name, golds_at in mean_golds(runs).items():
        print(f"{name:<24}", *(f"{gold:6.2f}" for gold in golds_at))
    for side, fit in single.fits.items():
        print(f"{side} of one model on 400 pairs: {fit}")
    figures.save(proxy_and_gold(single), folder / "overoptimisation.svg")
    figures.save(golds(runs[0]), folder / "overoptimisation_ensemble.svg")
