"""The pages of Manage over a project of six simulated people."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from simulated_crowd import CROWD, GOLD_ITEMS, START, simulated

from annotate.manage import adjudicate, items, leaderboard, overview, people, quality, settings
from annotate.studio import Studio
from prefrl.data.comparisons import CheckItem, Item, StepItem
from prefrl.data.preferences import PreferenceStore
from prefrl.data.project import Criterion, ProjectSettings
from prefrl.data.store.records import Gold
from prefrl.evaluate.adjudication import settle, unsettled
from prefrl.evaluate.behaviour import Thresholds
from prefrl.types import Completion, Prompt

ITEMS, OVERLAP = 90, 4
NO_FILTERS = ("", "Anywhere", "All kinds", "Any marks", "As added")
Ask = Callable[[str], Any]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that is only read: every test gets a copy."""
    path = tmp_path_factory.mktemp("crowd") / "preferences.db"
    simulated(path, ITEMS)
    with PreferenceStore(path) as store:
        for name, role in (("boss", "admin"), ("mona", "manager"), ("ruth", "reviewer")):
            store.people.add(name, role, "a hash")  # type: ignore[arg-type]
        return store.backup()


@pytest.fixture
def studio(filled: Path, tmp_path: Path) -> Iterator[Studio]:
    copy = tmp_path / "preferences.db"
    copy.write_bytes(filled.read_bytes())
    with PreferenceStore(copy) as store:
        yield Studio(folder=tmp_path, store=store, url="https://labels.example")
        assert store.check() == []


@pytest.fixture
def ask(studio: Studio) -> Ask:
    """A request of a person."""

    def request(name: str) -> Any:
        token = studio.store.people.open_session(name, 1.0).token
        return SimpleNamespace(cookies={studio.cookie: token})

    return request


def press(action: str, **data: Any) -> gr.EventData:
    return gr.EventData(None, {"action": action, **data})


def test_the_report_names_exactly_those_who_are_remarkable(studio: Studio) -> None:
    report = quality.Quality(studio).report(Thresholds())
    concerns = {person.name: set(person.concerns) for person in report.people}
    assert concerns == {
        "ann": set(),
        "bob": set(),
        "cat": set(),
        "hasty": {"speed"},
        "mallory": {"adversarial", "gold"},
        "sid": {"side"},
    }
    noisy = {person.name: person.noisy.verdict for person in report.people if person.noisy}
    assert [name for name, verdict in noisy.items() if verdict == "adversarial"] == ["mallory"]
    raw = report.agreement[0]
    assert 0.5 < raw.value < 0.65 and raw.items == ITEMS


def test_quality_shows_them(studio: Studio, ask: Ask) -> None:
    page = quality.Quality(studio).show(ask("boss"), 70, 2, 1)
    start = page.index("To look at")
    shown = page[start : page.index("Agreement", start)]
    assert [name for name in CROWD if f"<th>{name}</th>" in shown] == ["mallory", "sid", "hasty"]
    assert "gives " in shown and "fast: " in shown and "chose A " in shown
    assert "Krippendorff" in page and "not defined" not in page


def test_quality_of_an_empty_project(tmp_path: Path) -> None:
    with PreferenceStore(tmp_path / "empty.db") as store:
        page = quality.Quality(Studio(folder=tmp_path, store=store))
        report = page.report(Thresholds())
        assert not report.people and report.agreement[0].undefined == "nobody rated anything yet"
        assert "Nobody has labelled anything yet" in page._page(report, Thresholds())


def test_overview(studio: Studio, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview.time, "time", lambda: START)
    labels = len(studio.store.labels())
    monkeypatch.setattr(Studio, "person_of", lambda *_: None)
    page = overview.Overview(studio).show(ask("boss"), "Last day", "All kinds")
    assert f"<dd>{labels}<small>{labels} in the last day" in page
    assert ">0<small>of 360 that open items ask for" in page and "<dd>done<" in page
    steps = overview.Overview(studio).show(ask("boss"), "Two weeks", "Steps")
    assert "There are no items yet" in steps


def ids_in(table: str) -> list[str]:
    return [part.split('"')[0] for part in table.split('data-pick value="')[1:]]


def test_items_are_found_and_paged(studio: Studio, ask: Ask) -> None:
    page, boss = items.Items(studio), ask("boss")
    number, table = page.show(boss, 1, "", *NO_FILTERS)
    assert number == 1 and ids_in(table) == [f"item-{k:04}" for k in range(25)]
    number, table = page.show(boss, 99, "", *NO_FILTERS)  # a page that is not there
    assert number == 4 and ids_in(table) == [f"item-{k:04}" for k in range(75, 90)]
    assert ids_in(page.search(boss, "Question 42: BREAD", *NO_FILTERS[1:])[1]) == ["item-0042"]
    assert ids_in(page.search(boss, "item-0007", *NO_FILTERS[1:])[1]) == ["item-0007"]
    known = page.search(boss, "", "Anywhere", "All kinds", "Known answer", "Newest first")[1]
    assert ids_in(known) == [f"item-{k:04}" for k in reversed(range(GOLD_ITEMS))]
    assert "No item passes these filters" in page.search(boss, "", "Closed", *NO_FILTERS[2:])[1]
    disputed = ids_in(page.search(boss, "", "Anywhere", "All kinds", "Disputed", "As added")[1])
    assert set(disputed) <= unsettled(studio.store.labels()).keys()


def test_items_are_changed(studio: Studio, ask: Ask) -> None:
    page, boss, store = items.Items(studio), ask("boss"), studio.store
    both = ["item-0001", "item-0002"]
    page.act(boss, press("closed", ids=both), 1, "", *NO_FILTERS)
    page.act(boss, press("priority", ids=both, fields={"priority": "7"}), 1, "", *NO_FILTERS)
    page.act(boss, press("overlap", ids=both[:1], fields={"overlap": "9"}), 1, "", *NO_FILTERS)
    one, other = (store.item_states()[id] for id in both)
    assert (one.state, one.priority, one.overlap) == ("closed", 7, 9) and other.overlap == OVERLAP
    with pytest.raises(gr.Error, match=r"Got 'much' for the priority; expected a whole number"):
        page.act(boss, press("priority", ids=both, fields={"priority": "much"}), 1, "", *NO_FILTERS)
    with pytest.raises(gr.Error, match="There is no item 'forged'"):
        page.act(boss, press("closed", ids=["forged"]), 1, "", *NO_FILTERS)
    assert [event.person for event in store.events(kind="items state")] == ["boss"]


def test_a_label_becomes_a_known_answer(studio: Studio, ask: Ask) -> None:
    page, store = items.Items(studio), studio.store
    label = next(label for label in store.labels() if label.item == "item-0050")
    shown = page.act_on_item(ask("mona"), press("gold", id=label.id), "item-0050")
    assert store.gold()["item-0050"].outcome == label.outcome and "known: " in shown
    page.act_on_item(ask("mona"), press("no-gold", id="item-0050"), "item-0050")
    assert "item-0050" not in store.gold()


def test_reports_are_looked_at(studio: Studio, ask: Ask) -> None:
    store = studio.store
    mine = store.work.mine("ann", 1)[0][0]
    store.work.flag("f1", mine.id, "ann", "Broken text", "<b>cut off</b>")
    page = items.Items(studio)
    _, _, _, shown = page.act(ask("boss"), press("show", id=mine.item), 1, "", *NO_FILTERS)
    assert "&lt;b&gt;cut off&lt;/b&gt;" in shown and "<b>cut off" not in shown
    page.act_on_item(ask("boss"), press("resolve", id="f1"), mine.item)
    assert store.flags() == []


def test_items_of_all_kinds_are_drawn_and_nothing_in_them_runs(studio: Studio, ask: Ask) -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)> {{value}} ${1+1}"
    tasks = [
        StepItem(prompt=Prompt(id="s", text=evil), steps=(evil, "2"), guesses=(0.5, 0.25), answer="14", id="steps"),
        CheckItem(
            prompt=Prompt(id="c", text=evil), completion=Completion(text=evil), verdicts={"math": 0.0}, id="check"
        ),
        Item(prompt=Prompt(id="p", text=evil), first=Completion(text=evil), second=Completion(text="b"), id="pair"),
    ]
    studio.store.add_tasks(tasks)
    page = items.Items(studio)
    for id, words in (("steps", "Guesses of steps: 0.50, 0.25"), ("check", "math: 0"), ("pair", "First answer")):
        _, chosen, table, shown = page.act(ask("boss"), press("show", id=id), 4, "", *NO_FILTERS)
        assert chosen == id and words in shown
        for drawn in (table, shown):
            assert "<script" not in drawn and "<img" not in drawn


def test_a_reviewer_decides(studio: Studio, ask: Ask) -> None:
    page, store = adjudicate.Adjudicate(studio), studio.store
    disputed = list(unsettled(store.labels()))
    _, table = page.show(ask("ruth"), 1, "")
    assert ids_in(table) == disputed[:25]
    id = disputed[0]
    _, chosen, _, shown, *_ = page.act(ask("ruth"), press("show", id=id), 1, "")
    assert chosen == id and "The votes are split" in shown
    said, *_ = page.decide(ask("ruth"), 1, id, "tie", "Both keep bread.")
    assert f"{id}: Tie, as ruth decided" in said
    settled = settle([label for label in store.labels() if label.item == id])
    assert (settled.outcome, settled.means, settled.by) == ("tie", "adjudicated", "ruth")
    assert store.item_states()[id].state == "closed" and id not in unsettled(store.labels())
    assert quality.Quality(studio).report(Thresholds()).adjudicated == 1


def test_who_labels_too_sees_no_policy_no_side_and_no_known_answer(studio: Studio, ask: Ask) -> None:
    page, store = adjudicate.Adjudicate(studio), studio.store
    id = next(iter(unsettled(store.labels())))
    task = store.task(id)
    store.set_gold(id, Gold(outcome="first"), "boss")
    secrets = {*task.checkpoints, "first as A", "second as A", "known:"} - {""}
    shown = {name: page.act(ask(name), press("show", id=id), 1, "")[3] for name in ("ruth", "mona")}
    assert {words for words in secrets if words in shown["ruth"]} == set()
    assert {*task.checkpoints, "known:"} - {words for words in secrets if words in shown["mona"]} == set()
    assert all(label.annotator in shown["ruth"] for label in store.labels(items=[id]))  # what others said is there


def test_what_cannot_be_decided(studio: Studio, ask: Ask) -> None:
    page = adjudicate.Adjudicate(studio)
    before = studio.store.labels()
    for outcome, words in ((None, "Choose an item"), ("right", "the decision 'right'.*one of first, second")):
        with pytest.raises(gr.Error, match=words):
            page.decide(ask("ruth"), 1, "item-0001", outcome, "")
    assert studio.store.labels() == before


def test_disputes_are_sent_on(studio: Studio, ask: Ask) -> None:
    page, store = adjudicate.Adjudicate(studio), studio.store
    one, other = list(unsettled(store.labels()))[:2]
    page.act(ask("mona"), press("adjudication", ids=[one]), 1, "")
    (first,) = store.work.next("ruth", 1)
    assert first.item == one  # before everything else
    page.act(ask("mona"), press("more", ids=[other]), 1, "")
    state = store.item_states()[other]
    assert state.overlap == state.labels + 1
    asked = {task.id for task in store.open_items("somebody new")}
    assert other in asked


def test_the_leaderboard(studio: Studio, ask: Ask) -> None:
    page = leaderboard.Board(studio)
    drawn, _, _ = page.show(ask("boss"), ["mallory"], "All rounds")
    order = [drawn.index(f"<th>{name}</th>") for name in ("step-200", "step-100", "base")]
    assert order == sorted(order) and "Left out: mallory." in drawn
    everybody, _, _ = page.show(ask("boss"), [], "All rounds")
    assert f"{len(studio.store.labels())} votes on {ITEMS} items" in everybody
    nothing, _, _ = page.show(ask("boss"), [], "17")
    assert "No label compares two policies yet" in nothing


def test_people_are_invited(studio: Studio, ask: Ask) -> None:
    page, store = people.People(studio), studio.store
    said, _ = page.invite(ask("mona"), "reviewer", "", "One day")
    token = said.split("https://labels.example/join/")[1].split("<")[0]
    offer = store.people.invitation(token)
    assert offer is not None and (offer.role, offer.name) == ("reviewer", "")
    for role in ("admin", "manager"):
        with pytest.raises(gr.Error, match="An admin can give all roles"):
            page.invite(ask("mona"), role, "", "One day")
    with pytest.raises(gr.Error, match="somebody called 'ann' already"):
        page.invite(ask("boss"), "annotator", "ann", "One day")
    assert "becomes admin" in page.invite(ask("boss"), "admin", "", "One week")[0]


def test_people_are_changed(studio: Studio, ask: Ask) -> None:
    page, store = people.People(studio), studio.store
    mallory = ask("mallory")
    _, name, *_ = page.choose(ask("mona"), press("choose", id="mallory"))
    assert name == "mallory"
    page.set_active(ask("mona"), "mallory")
    assert studio.login(mallory.cookies[studio.cookie]) is None
    page.set_active(ask("mona"), "mallory")
    page.set_role(ask("mona"), "mallory", "reviewer")
    person = store.people.get("mallory")
    assert person is not None and (person.role, person.active) == ("reviewer", True)
    for act in (lambda: page.set_active(ask("mona"), "boss"), lambda: page.reset(ask("mona"), "boss")):
        with pytest.raises(gr.Error, match="boss is admin, whom an admin changes"):
            act()
    with pytest.raises(gr.Error, match="cannot shut yourself out"):
        page.set_active(ask("boss"), "boss")
    with pytest.raises(gr.Error, match="the last admin"):
        page.set_role(ask("boss"), "boss", "annotator")
    token = page.reset(ask("boss"), "ann").split("/join/")[1].split("<")[0]
    store.people.redeem(token, "ann", "another hash")
    ann = store.people.get("ann")
    assert ann is not None and (ann.password_hash, ann.role) == ("another hash", "annotator")


def test_settings_are_saved(studio: Studio, ask: Ask) -> None:
    page, store = settings.Settings(studio), studio.store
    *form, preview = page.show(ask("boss"))
    assert settings.from_form(form) == store.settings() and "A is clearly better" in preview
    wanted = replace(
        store.settings(),
        guidelines="Prefer what is **right**.",
        scale=7,
        criteria=(Criterion(name="Clear: to all", points=3),),
        skip_reasons=(),
        overlap=2,
    )
    said, preview = page.save(ask("boss"), *settings.to_form(wanted))
    assert store.settings() == wanted
    assert "Saved." in said and "old scale" in said and "keep their number of people" in said
    assert "B is much better" in preview and "<strong>right</strong>" in preview and "Clear: to all" in preview
    assert "hold already" in page.save(ask("boss"), *settings.to_form(wanted))[0]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("criteria", "Helpfulness: very", "expected a name and a number"),
        ("criteria", "Helpfulness: 9", "1 to 5 points"),
        ("overlap", None, "for overlap; expected a number"),
        ("gold_share", 0.9, "a share in"),
    ],
)
def test_settings_that_cannot_be(studio: Studio, ask: Ask, name: str, value: Any, words: str) -> None:
    page = settings.Settings(studio)
    form = settings.to_form(ProjectSettings())
    form[settings.FIELDS.index(name)] = value
    before = studio.store.settings()
    with pytest.raises(gr.Error, match=words):
        page.save(ask("boss"), *form)
    assert studio.store.settings() == before


PAGES = (
    overview.Overview,
    items.Items,
    people.People,
    quality.Quality,
    adjudicate.Adjudicate,
    leaderboard.Board,
    settings.Settings,
)
HANDLERS = [
    (page, name)
    for page in PAGES
    for name, method in inspect.getmembers(page, inspect.isfunction)
    if "request" in inspect.signature(method).parameters and not name.startswith("_")
]


@pytest.mark.parametrize(("page", "name"), HANDLERS, ids=[f"{page.__name__}.{name}" for page, name in HANDLERS])
def test_every_handler_asks_who_is_there(studio: Studio, ask: Ask, page: Any, name: str) -> None:
    handler = getattr(page(studio), name)
    kinds = [p.kind for p in inspect.signature(handler).parameters.values()]
    more = [press("closed", ids=["item-0001"]) if p == "event" else "" for p in inspect.signature(handler).parameters]
    rest = more[1 : len(kinds) - (kinds[-1] is inspect.Parameter.VAR_POSITIONAL)]
    before = (studio.store.events(), studio.store.settings())
    nobody = SimpleNamespace(cookies={})
    seen = studio.store.events()
    with pytest.raises(gr.Error, match="signed out"):
        handler(nobody, *rest)
    assert (studio.store.events(), studio.store.settings()) == before and seen
    with pytest.raises(gr.Error, match="only"):
        handler(ask("ann"), *rest)
    assert [event for event in studio.store.events() if event.person == "ann" and event.kind != "login"] == []


async def draw(studio: Studio) -> gr.Blocks:
    """All tabs, within a running event loop: without one each lock of a page leaves one open."""
    with gr.Blocks() as blocks, gr.Tabs():
        for module in (overview, items, people, quality, adjudicate, leaderboard, settings):
            with gr.Tab(module.__name__):
                module.build(studio)
    return blocks


def test_every_tab_builds_and_no_state_is_kept_on_the_page(studio: Studio) -> None:
    blocks = asyncio.run(draw(studio))
    kinds = {type(block).__name__ for block in blocks.blocks.values()}
    assert "HTML" in kinds and "State" not in kinds
    assert all(fn.api_visibility == "private" for fn in blocks.fns.values())
    asking = {getattr(fn.fn, "__self__", None).__class__ for fn in blocks.fns.values()}
    assert asking == set(PAGES)  # no handler is a function that nobody is asked in
