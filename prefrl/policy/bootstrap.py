"""How often each member of an ensemble sees each judgement: resampling that is tied to what is judged."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from prefrl.types import Row

# P(a Poisson variable of mean 1 is at most n).
_AT_MOST = (0.36787944, 0.73575888, 0.91969860, 0.98101184, 0.99634015, 0.99940582, 0.99991676, 0.99998980)


def bootstrap_counts(judgements: Sequence[Sequence[Row]], members: int, seed: int) -> Tensor:
    """Poisson(1) counts (P, members), what the bootstrap's become for many judgements, each independent of the others.

    A count depends on the seed, the member, and the judgement's content and annotator (by number): neither the order of
    the data nor what else the same people judged changes it, and exchanging the two sides of a pair does not either.
    """
    return torch.tensor(
        [[_count(_key(rows, seed), member) for member in range(members)] for rows in judgements]
    ).float()


def _key(rows: Sequence[Row], seed: int) -> bytes:
    sides = [f"{row.prompt_ids}{row.completion_ids}".encode() + _observed(row) for row in rows]
    return b"|".join([f"{seed}:{rows[0].annotator}".encode(), *sorted(sides)])


def _observed(row: Row) -> bytes:
    return b"" if row.observations is None else row.observations.double().cpu().numpy().tobytes()


def _count(key: bytes, member: int) -> int:
    digest = hashlib.sha256(key + f":{member}".encode()).digest()
    uniform = int.from_bytes(digest[:8], "big") / 2**64
    return sum(uniform >= bound for bound in _AT_MOST)
