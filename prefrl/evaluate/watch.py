"""What answers look like, whatever they were paid: repetition, copies, echoes, attempts to talk a judge round.

These are signs to look at, never rewards: a policy that is paid for their absence learns to hide them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from statistics import fmean

from prefrl.rewards.verifiers.style import repeated_share
from prefrl.types import Rollout, Score

ECHO = 8  # words in a row, taken from the question, that make an echo
ALIKE = 0.9  # share of word pairs that two near-duplicates have in common
_MOST = 4096  # words of a text that are looked at
_WORD = re.compile(r"\w+")
_INJECTIONS = (
    r"\b(?:ignore|disregard|forget)\b.{0,40}\b(?:instruction|rubric|previous|above|prompt|criteria)",
    r"\b(?:dear|attention|note to|as a|you are an?)\b.{0,20}\b(?:grader|judge|evaluator|grading)\b",
    r"\b(?:give|award|assign|deserves?)\b.{0,30}\b(?:full (?:marks|score|credit)|10 ?/ ?10|maximum score|top score)\b",
    r"^\W*(?:verdict|score|grade|rating)\W*:\s*\S+\s*$",
    r"\bthis (?:answer|response|solution) is (?:definitely |certainly |completely )?(?:correct|perfect|the best)\b",
)
_INJECTION = re.compile("|".join(_INJECTIONS), re.IGNORECASE | re.DOTALL | re.MULTILINE)

LABELS = {
    "repetition": "repeated word triples",
    "echo": "answers that copy the question",
    "near_duplicates": "near-duplicates within a group",
    "similarity": "likeness within a group",
    "fail_similarity": "likeness within groups that all fail",
    "injection": "answers that speak to a judge",
}


def watch_metrics(rollouts: Sequence[Rollout], scores: Sequence[Score]) -> dict[str, float]:
    """Shares and means over a batch, under `watch/`; see `LABELS`.

    Likeness is the Jaccard index of the sets of word pairs of two answers, its mean over all pairs of a group.
    """
    if not rollouts:
        return {}
    texts = [rollout.text for rollout in rollouts]
    metrics = {
        "repetition": fmean(repeated_share(text, 3) for text in texts),
        "echo": fmean(is_echo(rollout.prompt.question, rollout.text) for rollout in rollouts),
        "injection": fmean(speaks_to_judge(text) for text in texts),
    }
    groups: dict[str, list[int]] = {}
    for index, rollout in enumerate(rollouts):
        groups.setdefault(rollout.group, []).append(index)
    several = [members for members in groups.values() if len(members) > 1]
    if several:
        likeness = [_likeness([texts[i] for i in members]) for members in several]
        metrics["similarity"] = fmean(mean for mean, _ in likeness)
        metrics["near_duplicates"] = sum(copies for _, copies in likeness) / sum(map(len, several))
        failed = [
            mean
            for (mean, _), members in zip(likeness, several, strict=True)
            if _all_fail([scores[i] for i in members])
        ]
        if failed:
            metrics["fail_similarity"] = fmean(failed)
    return {f"watch/{name}": value for name, value in metrics.items()}


def is_echo(question: str, text: str) -> bool:
    """Whether a text has eight words in a row, or all of a shorter question, from the question."""
    asked, said = _words(question), _words(text)
    size = min(ECHO, len(asked))
    return size >= 4 and not _runs(asked, size).isdisjoint(_runs(said, size))


def speaks_to_judge(text: str) -> bool:
    """Whether a text has words that are meant for a grader, not for who asked."""
    return bool(_INJECTION.search(text))


def _likeness(texts: Sequence[str]) -> tuple[float, int]:
    """Mean Jaccard index over the pairs of a group, and how many of its texts have a near-duplicate."""
    sets = [_runs(_words(text), 2) or {tuple(_words(text))} for text in texts]
    copies: set[int] = set()
    indices = []
    for (i, one), (j, other) in itertools.combinations(enumerate(sets), 2):
        index = len(one & other) / len(one | other)
        indices.append(index)
        if index >= ALIKE:
            copies |= {i, j}
    return fmean(indices), len(copies)


def _all_fail(scores: Sequence[Score]) -> bool:
    return all(score.ok and score.total <= 0 for score in scores)


def _words(text: str) -> list[str]:
    return [word.casefold() for word in itertools.islice(_matches(text), _MOST)]


def _matches(text: str) -> Iterable[str]:
    return (found[0] for found in _WORD.finditer(text))


def _runs(words: Sequence[str], size: int) -> set[tuple[str, ...]]:
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}
