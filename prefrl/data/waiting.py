"""Which items still wait for people."""

from __future__ import annotations

from collections.abc import Iterable

from prefrl.data.preferences import PreferenceStore


def unanswered(store: PreferenceStore, ids: Iterable[str]) -> list[str]:
    """Those of the items that are open and have fewer answers than people were to label them.

    A skip is an answer: nobody has to wait for an item that cannot be judged. Ids that the store does not know are
    unanswered.
    """
    states = store.item_states()
    return [
        name
        for name in ids
        if (at := states.get(name)) is None or (at.state == "open" and at.labels + at.skips < at.overlap)
    ]
