"""Answers to questions of the package reasoning-gym, judged by the dataset that made the question."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from prefrl.errors import ConfigError
from prefrl.rewards.verifiers import pool
from prefrl.rewards.verifiers.common import Verifier, gold_of
from prefrl.rewards.verifiers.verdict import Status, Verdict
from prefrl.sandbox.inside.values import encode
from prefrl.types import Rollout

TASK = "prefrl.rewards.verifiers.reasoning_gym_worker:score"
FULL = 1.0 - 1e-9


def reasoning_gym(
    *, partial: bool = False, tag: str = "answer", timeout: float = 2.0, workers: int | None = None
) -> Verifier:
    """Whether the dataset of a question, in the column `reasoning_gym`, gives the answer full marks.

    It is asked by its `score_answer`, in a worker that can be killed. Beware of what that pays for less than a right
    answer: about half of the datasets give `len(gold) / len(answer)` to any text that holds the gold answer somewhere,
    and some give 0.01 or 0.05 to any text at all, so that a policy can be paid for listing many answers. That is why
    only full marks count here unless `partial` is true. An answer on which `score_answer` raises, although
    it takes the gold answer, cannot be read and gets 0.

    Parts: `parsed` (is there an answer), `correct` (full marks), `own` (what the dataset gives).

    Args:
        partial: pay what the dataset gives.
        tag: the answer is what stands in the last `<tag>...</tag>`; an empty tag takes the whole text.
        timeout: seconds of processor time for one answer.
        workers: processes, as many as there are processors by default and at most four.

    Raises:
        ConfigError: the package is not installed.
    """
    if importlib.util.find_spec("reasoning_gym") is None:
        raise ConfigError("the reward 'reasoning_gym' needs its package; type: pip install reasoning-gym")
    read = functools.partial(_answer, tag)

    def key(rollout: Rollout) -> Hashable:
        return repr(_job(rollout, read(rollout.text) or ""))

    def batch(rollouts: Sequence[Rollout]) -> list[Verdict]:
        answers = [read(rollout.text) for rollout in rollouts]
        jobs = [_job(rollout, said) for rollout, said in zip(rollouts, answers, strict=True) if said is not None]
        done = iter(pool.shared(TASK, timeout, workers).map(jobs))
        return [_NO_ANSWER if said is None else _verdict(next(done), partial) for said in answers]

    return Verifier("reasoning_gym", batch=batch, key=key, gold=_gold(tag))


_NOTHING = {"correct": 0.0, "own": 0.0}
_NO_ANSWER = Verdict(status=Status.INVALID, parts=_NOTHING, evidence="there is no final answer")


def _answer(tag: str, text: str) -> str | None:
    if not tag:
        return text.strip() or None
    found = re.findall(rf"<{re.escape(tag)}>(.*?)</{re.escape(tag)}>", text, re.DOTALL)
    return found[-1].strip() or None if found else None


def _job(rollout: Rollout, answer: str) -> dict[str, Any]:
    """What the worker is asked; tuples and keys that are no texts arrive there as they are."""
    entry = {column: gold_of(rollout, column, "reasoning_gym") for column in ("question", "answer", "metadata")}
    return {"dataset": str(gold_of(rollout, "reasoning_gym", "reasoning_gym")), "said": answer, "entry": encode(entry)}


def _verdict(done: pool.Done, partial: bool) -> Verdict:
    if done.status is not Status.OK:
        return Verdict(status=done.status, evidence=done.evidence, cost=done.cost)
    if "unreadable" in done.value:
        return Verdict(status=Status.INVALID, parts=_NOTHING, evidence=done.value["unreadable"], cost=done.cost)
    own = float(done.value["score"])
    correct = float(own >= FULL)
    parts = {"parsed": 1.0, "correct": correct, "own": own}
    evidence = f"the dataset gives {own:g}"
    return Verdict(status=Status.OK, score=own if partial else correct, parts=parts, evidence=evidence, cost=done.cost)


def _gold(tag: str) -> Callable[[Mapping[str, Any]], str | None]:
    def gold(row: Mapping[str, Any]) -> str | None:
        answer = row.get("answer")
        if answer is None:  # a question with many right answers
            return None
        return f"<{tag}>{answer}</{tag}>" if tag else str(answer)

    return gold
