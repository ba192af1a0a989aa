"""Which pairs to label: at random, or where an ensemble disagrees? The same budget of labels, on a synthetic taste.

    OMP_NUM_THREADS=1 python benchmarks/selection.py [--seeds 10]

Every prompt has four completions, vectors of eight numbers, of which a random network is the taste. Each round takes
20 pairs of a pool of 150 prompts as the loop does (prefrl.recipes.loop_select), has them labelled, and trains a fresh
ensemble of five small networks, each on its own resampling. Measured on 400 other prompts: pairs ranked as the taste
ranks them, and the share of the possible gain that the best of four by the ensemble's mean brings. Prints a table and
writes docs/figures/loop_selection_*.svg.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from prefrl.config import LabelConfig, ModelConfig, RewardConfig
from prefrl.data.comparisons import Item
from prefrl.evaluate import figures
from prefrl.model.engine import Engine
from prefrl.model.features import FeatureRewardModel
from prefrl.policy.bootstrap import bootstrap_counts
from prefrl.policy.judgement import LabelModel
from prefrl.recipes.labelling import probability
from prefrl.recipes.loop_select import select, uncertainty
from prefrl.recipes.pairs import weighted
from prefrl.recipes.reward_fit import resampled, update
from prefrl.types import Completion, Prompt

FOLDER = Path(__file__).parents[1] / "docs" / "figures"
PROMPTS, TESTED, COMPLETIONS, SIZE = 150, 400, 4, 8
ROUNDS, LABELS, MEMBERS, UPDATES, MAX_PER_PROMPT = 6, 20, 5, 60, 2
WAYS: dict[str, tuple[float, float]] = {  # the share taken at random, and how much diversity counts
    "random": (1.0, 0.0),
    "uncertainty, a quarter at random": (0.25, 0.0),
    "uncertainty x diversity, a quarter at random": (0.25, 1.0),
    "uncertainty alone": (0.0, 0.0),
    "uncertainty x diversity": (0.0, 1.0),
}
NOISES = {"exact": 0.0, "noisy": 0.5}  # temperatures; 0.5 turns about one label in six
SHOWN = (0, 1, 3, 5)  # rounds in the table
PAIRS = tuple(itertools.combinations(range(COMPLETIONS), 2))

Curve = list[tuple[float, float]]


def world(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Completions (prompts, 4, 8) to train on and to measure on, and what they are worth, with spread 1."""
    generator = torch.Generator().manual_seed(seed)
    first, second = (torch.randn(shape, generator=generator) for shape in ((SIZE, 16), (16,)))
    features = torch.randn(PROMPTS + TESTED, COMPLETIONS, SIZE, generator=generator)
    taste = torch.tanh(features @ first / SIZE**0.5) @ second
    taste = taste / taste.std()
    return features[:PROMPTS], taste[:PROMPTS], features[PROMPTS:], taste[PROMPTS:]


class Networks(nn.Module):
    """Independent networks side by side: features (N, 8) to scores (N, MEMBERS)."""

    def __init__(self) -> None:
        super().__init__()
        nets = (nn.Sequential(nn.Linear(SIZE, 32), nn.Tanh(), nn.Linear(32, 1)) for _ in range(MEMBERS))
        self.nets = nn.ModuleList(nets)

    def forward(self, features: Tensor) -> Tensor:
        """Scores of every network."""
        return torch.cat([net(features) for net in self.nets], dim=-1)


def trained(features: Tensor, labelled: list[tuple[int, int, int]], seed: int) -> FeatureRewardModel:
    """An ensemble from labels (prompt, better, worse)."""
    torch.manual_seed(seed)
    model = FeatureRewardModel(Networks())
    pairs = []
    for atom, (prompt, better, worse) in enumerate(labelled):
        sides = (model.encode(features[prompt, side]) for side in (better, worse))
        pairs.append(tuple(replace(row, atom=atom, side=s) for row, s in zip(sides, (1, -1), strict=True)))
    batch = weighted(resampled(pairs, bootstrap_counts(pairs, MEMBERS, seed)))
    optim = ModelConfig(lr=2e-2, weight_decay=0.1, max_grad_norm=0.0, token_budget=10**6)
    engine, labels, config = Engine(model, optim), LabelModel(LabelConfig()), RewardConfig()
    for _ in range(UPDATES):
        update(engine, batch, labels, config)
    return model


def scores(model: FeatureRewardModel, features: Tensor) -> Tensor:
    """Of every member (members, prompts, completions)."""
    return model.scores(features.flatten(0, 1)).T.reshape(MEMBERS, *features.shape[:2])


def measured(model: FeatureRewardModel, features: Tensor, taste: Tensor) -> tuple[float, float]:
    """Share of pairs ranked as the taste does, and the share of the possible gain that best-of-4 brings."""
    found = scores(model, features).mean(0)
    right = [((found[:, a] > found[:, b]) == (taste[:, a] > taste[:, b])).float().mean() for a, b in PAIRS]
    picked = taste.gather(1, found.argmax(1, keepdim=True)).mean()
    return float(sum(right) / len(right)), float(picked / taste.max(1).values.mean())


def run(seed: int, share: float, diversity: float, noise: float) -> Curve:
    """Both figures after every round."""
    features, taste, test_features, test_taste = world(seed)

    def similarity(one: Item, other: Item) -> float:
        """|cosine| of what tells the two completions of each item apart."""
        gaps = (
            features[int(i.prompt.id), int(i.first.text)] - features[int(i.prompt.id), int(i.second.text)]
            for i in (one, other)
        )
        return float(torch.cosine_similarity(*gaps, dim=0).abs())

    rng, model, labelled, curve = random.Random(seed), None, list[tuple[int, int, int]](), Curve()
    pool = {(p, a, b): item(p, a, b) for p in range(PROMPTS) for a, b in PAIRS}
    for number in range(ROUNDS):
        items = list(pool.values())
        if model is not None and share < 1.0:
            found = scores(model, features)
            gains = [(found[:, p, a] - found[:, p, b]).tolist() for p, a, b in pool]
            items = [replace(i, uncertainty=uncertainty(gain)) for i, gain in zip(items, gains, strict=True)]
        seed_now = 1000 * seed + number
        chosen = select(
            items,
            LABELS,
            random_share=share,
            max_per_prompt=MAX_PER_PROMPT,
            seed=seed_now,
            diversity=diversity,
            similarity=similarity,
        )
        for one in chosen:
            prompt, a, b = (int(x) for x in (one.prompt.id, one.first.text, one.second.text))
            del pool[prompt, a, b]
            first = rng.random() < probability(float(taste[prompt, a] - taste[prompt, b]), noise)
            labelled.append((prompt, a, b) if first else (prompt, b, a))
        model = trained(features, labelled, seed)
        curve.append(measured(model, test_features, test_taste))
    return curve


def item(prompt: int, a: int, b: int) -> Item:
    """The pair as the selection knows it."""
    return Item(
        prompt=Prompt(id=str(prompt), text=str(prompt)), first=Completion(text=str(a)), second=Completion(text=str(b))
    )


def summary(values: list[float]) -> str:
    """Mean and standard error, in per cent."""
    return f"{statistics.fmean(values):.1%} ± {statistics.stdev(values) / len(values) ** 0.5:.1%}"


def table_row(runs: list[Curve], other: list[Curve]) -> str:
    """Accuracies on the way, best-of-4 at the end, and in how many seeds the mean accuracy is above the other's."""
    right = [summary([curve[n][0] for curve in runs]) for n in SHOWN]
    means = [[statistics.fmean(accuracy for accuracy, _ in curve) for curve in some] for some in (runs, other)]
    above = sum(mine > theirs for mine, theirs in zip(*means, strict=True))
    return " | ".join([*right, summary([curve[-1][1] for curve in runs]), f"{above} of {len(runs)}"])


def main() -> None:
    """Run all, print the table, draw the figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    torch.set_num_threads(1)
    budgets = [LABELS * (n + 1) for n in range(ROUNDS)]
    print("| labels | selection |", *(f"{budgets[n]} labels |" for n in SHOWN), "best of 4 | seeds above random |")
    for kind, noise in NOISES.items():
        curves = {way: [run(seed, *how, noise) for seed in seeds] for way, how in WAYS.items()}
        for way, runs in curves.items():
            print(f"| {kind} | {way} | {table_row(runs, curves['random'])} |", flush=True)
        columns = {way: [[curve[n][0] for curve in runs] for n in range(ROUNDS)] for way, runs in curves.items()}
        lines = {way: (budgets, [statistics.fmean(column) for column in found]) for way, found in columns.items()}
        bands = {way: ([min(c) for c in found], [max(c) for c in found]) for way, found in columns.items()}
        drawn = figures.curves(lines, bands=bands, percent=True, smooth=0.0, xlabel="labels", ylabel="ranked right")
        figures.save(drawn, FOLDER / f"loop_selection_{kind}.svg")


if __name__ == "__main__":
    main()
