"""Training and held-out data that never share a prompt."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from prefrl.data.formats import content_hash
from prefrl.errors import ConfigError, DataError
from prefrl.types import Prompt

T = TypeVar("T")


def prompt_of(item: Any) -> Prompt:
    """The prompt of an item: itself, its `prompt` attribute, or the first entry of a tuple."""
    found = item[0] if isinstance(item, tuple) else getattr(item, "prompt", item)
    if not isinstance(found, Prompt):
        raise TypeError(f"no prompt in a {type(item).__name__}; pass key= to say what must not be shared")
    return found


def prompt_key(item: Any) -> str:
    """Hash of the content of an item's prompt; ids and other columns do not enter."""
    return content_hash(prompt_of(item).content)


def episode_key(item: Any) -> str:
    """Hash of a prompt with its columns, ids left out: in an environment the same words may open different episodes."""
    prompt = prompt_of(item)
    return content_hash([{"content": prompt.content, "columns": dict(prompt.columns)}])


def split_by_prompt(
    items: Sequence[T], fraction: float, seed: int, *, key: Callable[[T], str] = prompt_key
) -> tuple[list[T], list[T]]:
    """Split into (train, held out): a prompt is held out where hash(seed, content) is below `fraction`.

    All items of a prompt go to the same side, whatever their order and whatever else is in the data; only
    where chance would leave a side empty, the prompt nearest to the border changes sides.

    Args:
        items: prompts, pairs, rollouts, or tuples that start with a prompt.
        fraction: expected share of prompts held out, 0 <= fraction < 1; 0 holds out nothing.
        seed: another seed, another split.
        key: what two items must share to be kept together.

    Raises:
        ConfigError: `fraction` is out of range.
        DataError: something is to be held out, but there are fewer than two prompts.
    """
    if not 0.0 <= fraction < 1.0:
        raise ConfigError(f"The held-out fraction is {fraction}; it is at least 0 and below 1, such as 0.1.")
    if fraction == 0.0:
        return list(items), []
    keys = [key(item) for item in items]
    place = {k: _uniform(k, seed) for k in keys}
    if len(place) < 2:
        raise DataError(
            f"Distinct prompts in {len(items)} rows: {len(place)}; at least 2 are needed to hold one out. "
            "Bring more prompts, or set the held-out fraction to 0."
        )
    held = {k for k, u in place.items() if u < fraction}
    if not held:
        held = {min(place, key=place.__getitem__)}
    elif len(held) == len(place):
        held.remove(max(place, key=place.__getitem__))
    train = [item for item, k in zip(items, keys, strict=True) if k not in held]
    return train, [item for item, k in zip(items, keys, strict=True) if k in held]


def check_disjoint(train: Sequence[T], held_out: Sequence[T], *, key: Callable[[T], str] = prompt_key) -> None:
    """Make sure that no prompt is on both sides.

    Raises:
        DataError: some are; the message counts them and says where the first one is.
    """
    seen = {key(item): number for number, item in reversed(list(enumerate(train, start=1)))}
    shared = [(seen[k], number) for number, item in enumerate(held_out, start=1) if (k := key(item)) in seen]
    if shared:
        raise DataError(
            f"{len(shared)} of {len(held_out)} held-out rows have a prompt that is trained on (held-out row "
            f"{shared[0][1]} is training row {shared[0][0]}). Remove them, or split with split_by_prompt."
        )


def _uniform(key: str, seed: int) -> float:
    digest = hashlib.sha256(f"{seed}:{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
