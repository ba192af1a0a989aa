"""What the verifiers share: verdicts of whole batches, a memory of them, and a gold column."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from threading import Lock
from time import perf_counter
from typing import Any

from prefrl.errors import PrefrlError, RewardError, did_you_mean
from prefrl.rewards.base import Reward
from prefrl.rewards.verifiers.verdict import Verdict, failure
from prefrl.types import Rollout, Score

__all__ = ["Verifier", "gold_of", "gold_text"]

REMEMBERED = 65_536  # verdicts; the oldest go first


class Verifier(Reward):
    """A source that judges each rollout on its own.

    Args:
        name: shown in metrics and errors.
        check: judges one rollout, in the caller's thread. An exception costs that rollout alone.
        batch: judges many, one verdict each, in order; for work that can hang, which belongs into a pool of workers.
            Exactly one of `check` and `batch` is given.
        version: goes into every verdict; raise it whenever a verdict may come out differently.
        key: what the verdict depends on, say the gold answer and the text. With it a verdict that has a score is
            remembered, and equal rollouts of a batch are judged once.
        gold: an answer that must pass, of the columns of a prompt, or None; runs try it before anything is learnt.

    Raises:
        ValueError: both or neither of `check` and `batch`.
    """

    def __init__(
        self,
        name: str,
        check: Callable[[Rollout], Verdict] | None = None,
        *,
        batch: Callable[[Sequence[Rollout]], Sequence[Verdict]] | None = None,
        version: str = "1",
        key: Callable[[Rollout], Hashable] | None = None,
        gold: Callable[[Mapping[str, Any]], str | None] | None = None,
    ) -> None:
        if (check is None) == (batch is None):
            raise ValueError(f"verifier {name!r}: give exactly one of check and batch")
        self.name, self.check, self.batch, self.version, self.key = name, check, batch, version, key
        self.gold = gold
        self._seen: dict[Hashable, Verdict] = {}
        self._lock = Lock()

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return [verdict.to_score() for verdict in self.verdicts(rollouts)]

    def verdicts(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        """One verdict per rollout, in order.

        Raises:
            RewardError: a missing column, or a `batch` function that does not return one verdict per rollout.
        """
        if self.key is None:
            return self._judge(rollouts)
        keys = [self.key(rollout) for rollout in rollouts]
        with self._lock:
            known = {key: self._seen[key] for key in keys if key in self._seen}
        new = {key: rollout for key, rollout in zip(keys, rollouts, strict=True) if key not in known}
        made = dict(zip(new, self._judge(list(new.values())), strict=True))
        self._remember({key: verdict for key, verdict in made.items() if verdict.scored})
        return [known[key] if key in known else made[key] for key in keys]

    def _remember(self, made: dict[Hashable, Verdict]) -> None:
        with self._lock:
            self._seen.update(made)
            for key in list(self._seen)[: max(0, len(self._seen) - REMEMBERED)]:
                del self._seen[key]

    def _judge(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        if self.check is not None:
            return [self._checked(self.check, rollout) for rollout in rollouts]
        assert self.batch is not None
        verdicts = list(self.batch(rollouts)) if rollouts else []
        if len(verdicts) != len(rollouts):
            raise RewardError(
                f"verifier {self.name!r} returned {len(verdicts)} verdicts for {len(rollouts)} rollouts; "
                "expected one each, in order"
            )
        return [verdict.stamped(self.version, 0.0) for verdict in verdicts]

    def _checked(self, check: Callable[[Rollout], Verdict], rollout: Rollout) -> Verdict:
        start = perf_counter()
        try:
            verdict = check(rollout)
        except PrefrlError:  # settings or data: the same for every rollout
            raise
        except Exception as error:
            verdict = failure(f"{type(error).__name__}: {error}")
        return verdict.stamped(self.version, perf_counter() - start)


def gold_of(rollout: Rollout, column: str, source: str) -> Any:
    """The dataset column of a rollout's prompt; raises RewardError listing the columns there are."""
    columns = rollout.prompt.columns
    if column not in columns:
        raise RewardError(
            f"reward {source!r} needs the dataset column {column!r}, which prompt {rollout.prompt.id!r} does "
            f"not have; its columns: {', '.join(columns) or 'none'}.{did_you_mean(column, columns)}"
        )
    return columns[column]


def gold_text(*columns: str) -> Callable[[Mapping[str, Any]], str | None]:
    """The gold answer of the first of some columns that has one; of a list of right answers the first."""

    def gold(row: Mapping[str, Any]) -> str | None:
        value = next((row[name] for name in columns if row.get(name) is not None), None)
        if isinstance(value, list | tuple):
            value = value[0] if value else None
        return None if value is None else str(value)

    return gold
