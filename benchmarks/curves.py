"""The curve of every algorithm on its documentation page: copying three digits from random weights, three seeds.

    PYTHONPATH=tests:tests/learning python benchmarks/curves.py [--only grpo ppo] [--stale]

Writes docs/algorithms/curves/NAME.svg: the mean over seeds and their range. Algorithms with a teacher have tasks of
their own, those of tests/learning/test_distillation.py. `--stale` measures learning from samples that are four updates
old instead, and prints a table.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import deque
from pathlib import Path

import test_distillation as distillation
import torch
from copying import ends, free, fresh, learn, optimizer_of, prompts

from prefrl.evaluate import figures
from prefrl.model.teacher import Teacher
from prefrl.policy.algorithms import ALGORITHMS

FOLDER = Path(__file__).parents[1] / "docs" / "algorithms" / "curves"
SEEDS = (0, 1, 2)
LAG, STALE_LR = 4, 3e-3
STALE = {
    "`grpo`, its clip": {"name": "grpo"},
    "`cispo`": {"name": "cispo"},
    "`gspo`": {"name": "gspo"},
    "`gspo`, bounds .1": {"name": "gspo", "clip": {"low": 0.1, "high": 0.1}},
    "`ctpo`": {"name": "ctpo"},
    "`ctpo`, bounds .2, dual .3": {"name": "ctpo", "clip": {"low": 0.2, "high": 0.2, "dual": 0.3}},
    "`grpo`, ratio without a clip": {"name": "grpo", "clip": {"kind": "none"}},
    "`full_ratio`": {"name": "full_ratio"},
    "`grpo`, no ratio: taken for fresh": {"name": "grpo", "ratio": "none", "clip": {"kind": "none"}},
}


def distilled(name: str, seed: int) -> list[float]:
    """Share of right answers among the samples of each step, with a teacher and without a reward."""
    if ALGORITHMS[name].distill.privileged:
        coded, policy = distillation.coded_task(seed)
        teacher, steps, prompts = Teacher.frozen_copy(policy), 48, coded.train
    else:
        coded, policy = distillation.task(4, seed), distillation.new(seed, hidden=32)
        teacher, steps = Teacher.other(distillation.copier(4, seed, steps=200), policy), 160
        prompts = coded.train[:32]
    rollouts, _ = distillation.optimize(
        policy,
        coded,
        name,
        distillation.Unpaid(),
        seed,
        steps,
        teacher=teacher,
        shown=lambda rollout: policy.encode(distillation.with_solution(rollout.prompt)),
        prompts=prompts,
    )
    right = [score.total for score in distillation.Exact().score(rollouts)]
    size = len(right) // steps
    return [statistics.fmean(right[i : i + size]) for i in range(0, len(right), size)]


def draw(name: str) -> str:
    """Measure and draw the curve of one algorithm; a line that says how it ended."""
    runs, began, taught = [], time.perf_counter(), bool(ALGORITHMS[name].distill.coef)
    for seed in SEEDS:
        runs.append(distilled(name, seed) if taught else learn(optimizer_of(free(name), fresh(seed)), seed))
    columns = list(zip(*runs, strict=True))
    steps = list(range(1, len(columns) + 1))
    figure = figures.curves(
        {name: (steps, [statistics.fmean(column) for column in columns])},
        bands={name: ([min(column) for column in columns], [max(column) for column in columns])},
        smooth=0.8 if len(steps) > 100 else 0.3,  # a moving average lags on a short curve
        percent=True,
        ylabel="right answers" if taught else "digits copied",
    )
    FOLDER.mkdir(parents=True, exist_ok=True)
    figures.save(figure, FOLDER / f"{name}.svg")
    last = ", ".join(f"{ends(run)[1]:.2f}" for run in runs)
    half = [next((i for i, r in enumerate(run, 1) if r >= 0.5), None) for run in runs]
    return f"| `{name}` | {last} | {half} | {(time.perf_counter() - began) / len(SEEDS):.0f} s |"


def stale(spec: dict[str, object]) -> str:
    """Reward after 80 and 160 steps of samples that are four updates old, and the smallest effective sample size."""
    curves, sizes = [], []
    for seed in SEEDS:
        optimizer = optimizer_of({**spec, "kl": {"coef": 0.0}}, fresh(seed), lr=STALE_LR)
        rng, waiting, curve = random.Random(seed), deque(), []
        for step in range(160):
            rollouts = optimizer.policy.sample(prompts(rng), 8, seed=seed * 100_000 + step)
            scores = optimizer.reward.score(rollouts)
            curve.append(sum(score.total for score in scores) / len(scores))
            waiting.append((rollouts, scores))
            if len(waiting) > LAG:
                sizes.append(optimizer.learn(*waiting.popleft()).get("ratio/ess", 1.0))
        curves.append(curve)
    at = [" ".join(f"{statistics.fmean(c[end - 10 : end]):.2f}" for c in curves) for end in (80, 160)]
    return f"| {at[0]} | {at[1]} | {min(sizes):.3f} |"


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(ALGORITHMS))
    parser.add_argument("--stale", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.stale:
        for name, spec in STALE.items():
            print(f"| {name} {stale(spec)}", flush=True)
        return
    for name in arguments.only:
        print(draw(name), flush=True)


if __name__ == "__main__":
    main()
