"""What the pages of Manage are made of: pace, filters, fragments."""

from __future__ import annotations

import gradio as gr
import pytest

from annotate.manage import parts
from annotate.manage.catalogue import page_of, searched, title, turns
from annotate.manage.overview import eta, labellers
from annotate.manage.pace import DAY, HOUR, by_kind, columns, pace, tally
from prefrl.data.comparisons import Item, Label
from prefrl.data.store.records import ItemState
from prefrl.types import Completion, Prompt

NOW = 1_000 * HOUR + 1_800.0


def state(id: str, *, labels: int = 0, overlap: int = 2, leases: int = 0, **more: object) -> ItemState:
    given = {"kind": "pair", "state": "open", "priority": 0, "skips": 0, "gold": False, **more}
    return ItemState(id=id, overlap=overlap, labels=labels, leases=leases, **given)  # type: ignore[arg-type]


def test_pace_by_hand() -> None:
    """Three labels in this hour, three in another one, one a fortnight ago: six in two hours of work."""
    times = [NOW - 60, NOW - 30, NOW, NOW - 5 * HOUR, NOW - 5 * HOUR - 1, NOW - 5 * HOUR - 2, NOW - 14 * DAY]
    found = pace(times, NOW)
    assert (found.total, found.last_hour, found.last_day, found.per_hour) == (7, 3, 6, 3.0)
    assert pace([], NOW).per_hour == 0.0


def test_columns_hold_every_label_once() -> None:
    times = [NOW - 23.5 * HOUR, NOW - HOUR - 1, NOW - 1, NOW, NOW - 30 * HOUR, NOW + 5]
    found = columns(times, NOW, step=HOUR, count=24)
    assert len(found) == 24 and found[0] == (NOW - 24 * HOUR, 1)
    assert [count for _, count in found[-2:]] == [1, 2] and sum(count for _, count in found) == 4


def test_where_items_stand() -> None:
    states = {
        s.id: s
        for s in (
            state("new"),
            state("half", labels=1, leases=1),
            state("full", labels=3),  # more than asked for: the rest is nobody's
            state("shut", labels=1, state="closed"),
            state("hard", labels=2, state="adjudication", kind="check"),
        )
    }
    found = tally(states.values())
    assert (found.open, found.complete, found.closed, found.adjudication, found.items) == (2, 1, 1, 1, 5)
    assert (found.wanted, found.given, found.left, found.leases) == (6, 3, 3, 1)
    assert {kind: t.items for kind, t in by_kind(states).items()} == {"check": 1, "pair": 4}
    assert eta(found, pace([NOW] * 3, NOW)) == "1 hour"
    assert eta(found, pace([], NOW)) == "\N{EN DASH}"
    assert eta(tally([states["full"]]), pace([], NOW)) == "done"


def test_who_labelled() -> None:
    said = [
        Label(id="1", item="a", annotator="ann", version=1, outcome="first", time="1970-02-11T16:00:00+00:00"),
        Label(id="2", item="b", annotator="ann", version=1, outcome="skip", time="1970-02-11T15:00:00+00:00"),
        Label(id="3", item="a", annotator="bob", version=1, outcome="tie", time="1970-01-02T00:00:00+00:00"),
    ]
    ann, bob = labellers(said, NOW)
    assert (ann.name, ann.labels, ann.skips, ann.last_day, ann.last) == ("ann", 1, 1, 1, 1_000 * HOUR)
    assert (bob.labels, bob.last_day, bob.last) == (1, 0, DAY)


def test_pages() -> None:
    ids = [str(k) for k in range(60)]
    assert page_of(ids, 2) == (ids[25:50], 2, 3)
    assert page_of(ids, 0)[1:] == (1, 3) and page_of(ids, 9) == (ids[50:], 3, 3)
    assert page_of([], 1) == ([], 1, 1)


def test_what_is_searched() -> None:
    messages = ({"role": "user", "content": "Why\nis the SKY blue?"}, {"role": "assistant", "content": "Light."})
    item = Item(prompt=Prompt(id="p", messages=messages), first=Completion(text="Straße"), second=Completion(text="no"))
    assert "strasse" in searched(item) and "sky" in searched(item)
    assert title(item) == "Why is the SKY blue?" and len(title(item, 9)) == 9
    assert turns(item)[1] == ("assistant", "Light.")


@pytest.mark.parametrize(
    ("seconds", "words"), [(5, "less than a minute"), (60, "1 minute"), (7300, "2 hours"), (90_000, "1 day")]
)
def test_time_spans(seconds: float, words: str) -> None:
    assert parts.ago(seconds) == words


def test_places_on_a_line() -> None:
    assert parts.place(0.25, 0.0, 1.0) == 25.0 and parts.place(-3, -1, 1) == 0.0 and parts.place(9, -1, 1) == 100.0
    assert parts.percent(0.256) == "26%" and parts.percent(float("nan")) == "\N{EN DASH}"


def test_what_a_button_sends_is_not_trusted() -> None:
    good = parts.Sent.of(gr.EventData(None, {"action": "page", "id": 3, "ids": ["a", 1], "fields": {"n": 2}}))
    assert good == parts.Sent(action="page", id="3", ids=("a", "1"), fields={"n": "2"})
    for data in (None, [], {"ids": "abc", "fields": 7}):
        assert parts.Sent.of(gr.EventData(None, data)) == parts.Sent(action="")


def test_notes_are_escaped() -> None:
    assert "&lt;b&gt;" in parts.note("<b>", "good") and "<b>" not in parts.note("<b>")
