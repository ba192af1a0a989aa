"""How good a critic is, and how far training has moved it: explained variance of plain returns, and drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from prefrl.policy.advantages import TotalOf
from prefrl.policy.credit import CreditState, Scored, credit, decisions_of
from prefrl.policy.metrics import explained_variance
from prefrl.policy.parts import Algorithm
from prefrl.policy.rows import history_rows
from prefrl.types import Row

PROBE_ROLLOUTS = 32  # of the first step, whose histories are valued again at every later one


class Valuing(Protocol):
    """What is asked for values here."""

    def values(self, rows: Sequence[Row]) -> list[Tensor]:
        """Value (n,) of the history before every token, without gradient; 0 where the mask is False."""
        ...


@dataclass(frozen=True)
class Probe:
    """Histories of the first step and what they were worth then."""

    rows: list[Row]
    start: Tensor

    @classmethod
    def of(cls, scored: Sequence[Scored], algorithm: Algorithm) -> Probe:
        """The first rollouts' histories, with the values that the critic gave them."""
        some = [replace(item, score=replace(item.score, value=0.0)) for item in scored[:PROBE_ROLLOUTS]]
        return cls(history_rows(some, algorithm), starting_values(some, algorithm))

    def state_dict(self) -> dict[str, Any]:
        """The histories and their first values, for an exact continuation."""
        rows = [
            {
                "prompt": row.prompt_ids,
                "ids": row.completion_ids,
                "mask": row.mask,
                "observations": row.observations,
                "actions": row.actions,
            }
            for row in self.rows
        ]
        return {"rows": rows, "start": self.start}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Probe:
        """What `state_dict` returned."""
        rows = [
            Row(
                prompt_ids=row.get("prompt", ()),
                completion_ids=row["ids"],
                mask=row["mask"],
                observations=row["observations"],
                actions=row["actions"],
            )
            for row in state["rows"]
        ]
        return cls(rows, state["start"])

    def drift(self, critic: Valuing, total_of: TotalOf) -> float:
        """Mean |V now - V at the start| over the histories of all processes."""
        found = critic.values(self.rows) if self.rows else []
        now = torch.cat([torch.zeros(0), *(v[torch.tensor(r.mask)] for v, r in zip(found, self.rows, strict=True))])
        moved, count = total_of(torch.stack([(now - self.start).abs().sum(), torch.tensor(float(len(now)))])).tolist()
        return float(moved / max(1.0, count))


def starting_values(scored: Sequence[Scored], algorithm: Algorithm) -> Tensor:
    """Values of the histories before each decision of every rollout, end to end."""
    found = [torch.zeros(0)]
    for item in scored:
        assert item.values is not None, "the baseline 'critic' has valued every rollout"
        found.append(item.values[[tokens[0] for tokens in decisions_of(item, algorithm)]].float())
    return torch.cat(found)


def plain_explained_variance(
    scored: Sequence[Scored], algorithm: Algorithm, state: CreditState, total_of: TotalOf
) -> float:
    """Explained variance of what was really earned after each history, which no value of the critic's is part of.

    With lambda below 1 the returns that a critic learns hold its own values, and flatter it.
    """
    plain = replace(algorithm, credit=replace(algorithm.credit, lam=1.0))
    returns = credit(scored, plain, state, total_of).returns
    assert returns is not None, "only the baseline 'critic' has returns"
    at = [[tokens[0] for tokens in decisions_of(item, algorithm)] for item in scored]
    earned = torch.cat([torch.zeros(0), *(r[a].float() for r, a in zip(returns, at, strict=True))])
    return explained_variance(starting_values(scored, algorithm), earned, total_of)
