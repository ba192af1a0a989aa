"""The yes-probability measured: speed of the two paths, and what SmolLM2 knows of easy arithmetic, asked and taught.

    python benchmarks/yes_probability.py speed [--tokens 512] [--points 32]
    python benchmarks/yes_probability.py arithmetic [--train 320] [--test 150] [--top_layers 6]

`speed` prints CPU seconds of both paths, their ratio, and the largest difference of any probability. `arithmetic` asks
whether statements such as `17 + 25 = 42` are correct, half of which are wrong by a little; held-out sums are never
trained on, and intervals are of a bootstrap over sums.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from prefrl.config import ModelConfig
from prefrl.data.chat import encode_completion
from prefrl.evaluate.yes_quality import platt, yes_quality
from prefrl.model.engine import Engine
from prefrl.model.load import load
from prefrl.model.yes_probability import YesModel, query_row
from prefrl.policy.values import yes_objective
from prefrl.types import Completion, Prompt, Row

Statement = tuple[int, int, int]
PASSES = 3


def speed(tokens: int, points: int, model: str) -> None:
    """Both paths on one conversation of so many tokens, asked at evenly spaced points of it; the best of two runs."""
    language = load(model)
    language.module.requires_grad_(False)
    prompt = language.encode(Prompt(id="a", messages=({"role": "user", "content": "How much is 17 + 25? " * 4},)))
    text = language.tokenizer("It is 42, as 17 and 25 are 42. " * tokens)["input_ids"][: tokens - len(prompt)]
    row = query_row(prompt, text, [len(text) * (k + 1) // points for k in range(points)])
    fast, naive = YesModel(language), YesModel(language, shared=False)
    naive.token_budget = 1  # one history at a time: no padding is computed
    seconds, found = {}, {}
    for name, asked in (("shared", fast), ("naive", naive)) * 2:
        began = time.process_time()
        with torch.no_grad():
            found[name] = asked.token_outputs([row])
        seconds[name] = min(time.process_time() - began, seconds.get(name, float("inf")))
    gap = (found["shared"][:, 0].sigmoid() - found["naive"][:, 0].sigmoid()).abs().max()
    print(
        f"{len(prompt) + len(text)} tokens, {points} questions of {len(fast.question.opened)}: shared "
        f"{seconds['shared']:.2f} s, naive {seconds['naive']:.2f} s ({seconds['naive'] / seconds['shared']:.1f}x); "
        f"largest difference of a probability {float(gap):.1e}"
    )


def statements(count: int, seed: int) -> list[Statement]:
    """Distinct sums of two numbers below 100, every second with a claim that is off by 1, 2 or 10."""
    rng = random.Random(seed)
    sums = rng.sample([(a, b) for a in range(10, 100) for b in range(10, 100)], count)
    return [(a, b, a + b + (rng.choice((-10, -2, -1, 1, 2, 10)) if i % 2 else 0)) for i, (a, b) in enumerate(sums)]


def rows_of(given: Sequence[Statement], model: YesModel) -> list[Row]:
    """Every claim as an answer to its sum, asked about at its end."""
    rows = []
    for a, b, claim in given:
        prompt = Prompt(id="sum", messages=({"role": "user", "content": f"What is {a} + {b}?"},))
        ids = encode_completion(model.model.tokenizer, prompt, Completion(text=f"{a} + {b} = {claim}"))
        row = query_row(model.model.encode(prompt), ids, [len(ids)])
        row.streams["returns"] = torch.full((len(row.mask),), float(claim == a + b))
        rows.append(row)
    return rows


def show(name: str, model: YesModel, fitting: Sequence[Row], held_out: Sequence[Row]) -> None:
    """Figures on held-out sums, as the model is and calibrated on other sums."""
    ours, others = ([own[0] for own in model.ask(rows)] for rows in (held_out, fitting))
    outcomes, known = ([float(r.streams["returns"][-1]) for r in rows] for rows in (held_out, fitting))
    temperature, bias = platt([a.logit for a in others], known)
    for how, slope, shift in (("", 1.0, 0.0), (", calibrated", temperature, bias)):
        logits = [a.logit / slope + shift for a in ours]
        found = yes_quality(logits, outcomes, masses=[a.mass for a in ours])
        print(
            f"{name}{how}: AUROC {found.auroc}, NLL {found.nll:.3f}, Brier {found.brier:.3f}, ECE {found.ece:.3f}, "
            f"explained variance {found.explained_variance:.3f}, mass {found.mass:.3f}",
            flush=True,
        )


def arithmetic(train: int, test: int, top_layers: int, model: str) -> None:
    """Zero-shot and trained figures on held-out sums."""
    asked = YesModel(load(model, top_layers=top_layers))
    rows = rows_of(statements(train + 2 * test, seed=0), asked)
    learnt, fitting, held_out = rows[:train], rows[train : train + test], rows[train + test :]
    show("zero-shot", asked, fitting, held_out)
    rng, size = random.Random(0), 16
    steps = PASSES * (train // size)
    engine = Engine(asked, ModelConfig(lr=3e-4, schedule="linear", warmup=5), total_steps=steps)
    for _ in range(PASSES):
        order = rng.sample(learnt, len(learnt))
        for at in range(0, len(order) // size * size, size):
            batch = [
                replace(r, streams={**r.streams, "vf": torch.full((len(r.mask),), 1 / size)})
                for r in order[at : at + size]
            ]
            engine.step(batch, partial(yes_objective, full=False))
    show("trained", asked, fitting, held_out)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "arithmetic"))
    parser.add_argument("--model", default="smollm2-135m")
    for name, default in (("tokens", 512), ("points", 32), ("train", 320), ("test", 150), ("top_layers", 6)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "speed":
        speed(options.tokens, options.points, options.model)
    else:
        arithmetic(options.train, options.test, options.top_layers, options.model)


if __name__ == "__main__":
    main()
