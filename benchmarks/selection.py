"""Which pairs to label: at random, or where an ensemble disagrees? The same budget of labels, on a synthetic taste.

    OMP_NUM_THREADS=1 python benchmarks/selection.py [--seeds 8]

Every prompt has four completions, vectors of eight numbers, of which a random network is the taste. Each round takes
20 pairs of a pool of 150 prompts as the loop does (prefrl.recipes.loop_select), has them labelled, and trains five small
reward models afresh on bootstrapped labels. Measured on 400 other prompts: pairs ranked as the taste ranks them, and how
much of the possible gain the best of four by the reward model brings. Prints a table and writes docs/loop_selection.svg.
"""

from __future__ import annotations

import argparse
import itertools
import math
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
from prefrl.policy.judgement import LabelModel
from prefrl.recipes.labelling import probability
from prefrl.recipes.loop_select import select, uncertainty
from prefrl.recipes.pairs import weighted
from prefrl.recipes.reward_fit import update
from prefrl.types import Completion, Prompt

FIGURE = Path(__file__).parents[1] / "docs" / "loop_selection.svg"
PROMPTS, TESTED, COMPLETIONS, SIZE = 150, 400, 4, 8
ROUNDS, LABELS, MEMBERS, UPDATES, MAX_PER_PROMPT = 6, 20, 5, 60, 2
WAYS = {"random": None, "uncertainty, a quarter at random": 0.25, "uncertainty alone": 0.0}
NOISES = {"exact labels": 0.0, "noisy labels": 0.5}
PAIRS = tuple(itertools.combinations(range(COMPLETIONS), 2))


def world(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Completions (prompts, 4, 8) to train on and to measure on, and what they are worth, with spread 1."""
    generator = torch.Generator().manual_seed(seed)
    first, second = (torch.randn(shape, generator=generator) for shape in ((SIZE, 16), (16,)))
    features = torch.randn(PROMPTS + TESTED, COMPLETIONS, SIZE, generator=generator)
    taste = torch.tanh(features @ first / SIZE**0.5) @ second
    taste = taste / taste.std()
    return features[:PROMPTS], taste[:PROMPTS], features[PROMPTS:], taste[PROMPTS:]


def trained(features: Tensor, labelled: list[tuple[int, int, int]], seed: int) -> list[FeatureRewardModel]:
    """Reward models on resamplings of (prompt, better, worse)."""
    members = []
    for member in range(MEMBERS):
        torch.manual_seed(1000 * seed + member)
        model = FeatureRewardModel(nn.Sequential(nn.Linear(SIZE, 32), nn.Tanh(), nn.Linear(32, 1)))
        drawn = random.Random(f"{seed} {member}").choices(labelled, k=len(labelled))
        pairs = []
        for atom, (prompt, better, worse) in enumerate(drawn):
            sides = (model.encode(features[prompt, side]) for side in (better, worse))
            pairs.append(tuple(replace(row, atom=atom, side=s) for row, s in zip(sides, (1, -1), strict=True)))
        engine = Engine(model, ModelConfig(lr=2e-2, weight_decay=0.1, token_budget=10**6))
        labels, config = LabelModel(LabelConfig()), RewardConfig()
        for _ in range(UPDATES):
            update(engine, weighted(pairs), labels, config)
        members.append(model)
    return members


def scores(members: list[FeatureRewardModel], features: Tensor) -> Tensor:
    """(members, prompts, completions)."""
    return torch.stack([model.scores(features.flatten(0, 1)).reshape(features.shape[:2]) for model in members])


def measured(members: list[FeatureRewardModel], features: Tensor, taste: Tensor) -> tuple[float, float]:
    """Share of pairs ranked as the taste does, and the share of the possible gain that best-of-4 brings."""
    found = scores(members, features).mean(0)
    right = [((found[:, a] > found[:, b]) == (taste[:, a] > taste[:, b])).float().mean() for a, b in PAIRS]
    picked = taste.gather(1, found.argmax(1, keepdim=True)).mean()
    return float(sum(right) / len(right)), float(picked / taste.max(1).values.mean())


def run(seed: int, share: float | None, noise: float) -> list[tuple[float, float]]:
    """Both figures after every round."""
    features, taste, test_features, test_taste = world(seed)
    rng, members, labelled, curve = random.Random(seed), list[FeatureRewardModel](), [], []
    pool = {(p, a, b): item(p, a, b) for p in range(PROMPTS) for a, b in PAIRS}
    for number in range(ROUNDS):
        items = list(pool.values())
        if members and share is not None:
            found = scores(members, features)
            gains = [(found[:, p, a] - found[:, p, b]).tolist() for p, a, b in pool]
            items = [replace(i, uncertainty=uncertainty(gain)) for i, gain in zip(items, gains, strict=True)]
        seed_now = 1000 * seed + number
        chosen = select(items, LABELS, random_share=share or 0.0, max_per_prompt=MAX_PER_PROMPT, seed=seed_now)
        for one in chosen:
            prompt, a, b = (int(x) for x in (one.prompt.id, one.first.text, one.second.text))
            del pool[prompt, a, b]
            first = rng.random() < probability(float(taste[prompt, a] - taste[prompt, b]), noise)
            labelled.append((prompt, a, b) if first else (prompt, b, a))
        members = trained(features, labelled, seed)
        curve.append(measured(members, test_features, test_taste))
    return curve


def item(prompt: int, a: int, b: int) -> Item:
    """The pair as the selection knows it."""
    return Item(
        prompt=Prompt(id=str(prompt), text=str(prompt)), first=Completion(text=str(a)), second=Completion(text=str(b))
    )


def summary(values: list[float]) -> str:
    """Mean and standard error."""
    return f"{statistics.fmean(values):.3f} +- {statistics.stdev(values) / math.sqrt(len(values)):.3f}"


def main() -> None:
    """Run all, print the table, draw the figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=8)
    seeds = range(parser.parse_args().seeds)
    torch.set_num_threads(1)
    lines, bands = {}, {}
    budgets = [LABELS * (n + 1) for n in range(ROUNDS)]
    print(
        "| labels | selection | "
        + " | ".join(f"right after {n}" for n in budgets)
        + " | best of 4 | seeds above random |"
    )
    for kind, noise in NOISES.items():
        curves = {way: [run(seed, share, noise) for seed in seeds] for way, share in WAYS.items()}
        for way, runs in curves.items():
            columns = [[curve[n][0] for curve in runs] for n in range(ROUNDS)]
            better = sum(
                sum(a for a, _ in mine) > sum(a for a, _ in other)
                for mine, other in zip(runs, curves["random"], strict=True)
            )
            against = "" if way == "random" else f"{better} of {len(runs)}"
            last = summary([curve[-1][1] for curve in runs])
            print(f"| {kind} | {way} | " + " | ".join(map(summary, columns)) + f" | {last} | {against} |", flush=True)
            if noise == 0.0:
                lines[way] = (budgets, [statistics.fmean(column) for column in columns])
                bands[way] = ([min(column) for column in columns], [max(column) for column in columns])
    drawn = figures.curves(lines, bands=bands, percent=True, smooth=0.0, xlabel="labels", ylabel="pairs ranked right")
    figures.save(drawn, FIGURE)


if __name__ == "__main__":
    main()
