"""One policy update, the same work three ways: shared prompts, padded rows, and full logits as `model(...)` gives them.

    python benchmarks/update.py [--model smollm2-135m] [--prompt 120] [--completion 64] [--prompts 4] [--group 8]

Prints seconds, the ratio to the first, and the largest difference of any log-prob: they must agree.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from prefrl.model.kernel import suffix_hidden
from prefrl.model.load import load
from prefrl.model.logprobs import token_logps
from prefrl.rollout.prefix import right_pad

Rows = list[tuple[tuple[int, ...], tuple[int, ...]]]


def kernel(model: Any, rows: Rows, *, share: bool) -> Tensor:
    """Our path: the head on completion tokens only, prompts shared or not."""
    prefixes = [p[:-1] for p, _ in rows]
    hidden = suffix_hidden(model.decoder, prefixes, [(p[-1], *c[:-1]) for p, c in rows], share=share)
    return token_logps(hidden, model.head, torch.tensor([t for _, c in rows for t in c]))


def plain(model: Any, rows: Rows) -> Tensor:
    """What a straightforward loop does: all rows padded, logits of every position."""
    ids, mask = right_pad([[*p, *c] for p, c in rows], torch.device("cpu"))
    logps = model.model(input_ids=ids, attention_mask=mask).logits[:, :-1].log_softmax(-1)
    picked = logps.gather(-1, ids[:, 1:, None]).squeeze(-1)
    return torch.cat([picked[i, len(p) - 1 : len(p) + len(c) - 1] for i, (p, c) in enumerate(rows)])


def timed(model: Any, rows: Rows, path: Callable[[Any, Rows], Tensor], micro: int) -> tuple[float, Tensor]:
    """Seconds of the second of two forward and backward passes over micro-batches, and the log-probs."""
    seconds, parts = 0.0, []
    for _ in range(2):
        model.model.zero_grad()
        began, parts = time.perf_counter(), []
        for start in range(0, len(rows), micro):
            logps = path(model, rows[start : start + micro])
            logps.sum().backward()
            parts.append(logps.detach())
        seconds = time.perf_counter() - began
    return seconds, torch.cat(parts)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    for name, default in (("prompt", 120), ("completion", 64), ("prompts", 4), ("group", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    model, rng = load(args.model), random.Random(0)
    vocabulary = model.model.config.vocab_size

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(vocabulary) for _ in range(count))

    prompts = [tokens(rng.randint(args.prompt // 2, args.prompt)) for _ in range(args.prompts)]
    rows = [(p, tokens(rng.randint(args.completion // 4, args.completion))) for p in prompts for _ in range(args.group)]
    paths: dict[str, Callable[[Any, Rows], Tensor]] = {
        "shared prompts": lambda m, r: kernel(m, r, share=True),
        "padded rows": lambda m, r: kernel(m, r, share=False),
        "full logits": plain,
    }
    results = {name: timed(model, rows, path, args.group) for name, path in paths.items()}
    fastest, reference = results["shared prompts"]
    for name, (seconds, logps) in results.items():
        gap = float((logps - reference).abs().max())
        print(f"{name:<15} {seconds:6.1f} s   {seconds / fastest:4.2f}x   largest log-prob difference {gap:.1e}")


if __name__ == "__main__":
    main()
