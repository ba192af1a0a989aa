"""The Python API: what was said comes back, and nothing that was not."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid

import httpx
import pytest
from annotating import without_gradio

import annotate
from annotate.session import Answer
from prefrl.errors import ConfigError, DataError

PAIR = ("Name a river.", ["The Nile.", "Paris."])


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    without_gradio(monkeypatch)


@pytest.fixture
def session(tmp_path):
    with annotate.start(tmp_path, browser=False) as session:
        yield session


@pytest.fixture
def enter():
    """Let somebody in."""
    with contextlib.ExitStack() as stack:

        def enter(session, name, role="annotator"):
            person = Person(session, name, role)
            stack.callback(person.http.close)
            return person

        yield enter


class Person:
    """Somebody who labels over HTTP."""

    def __init__(self, session, name, role):
        session.store.people.add(name, role)
        login = session.store.people.open_session(name, 1.0)
        cookies = {f"prefrl_{session.store.project_id}": login.token}
        headers = {"origin": session.url, "x-csrf-token": login.csrf}
        self.http = httpx.Client(base_url=session.url, headers=headers, cookies=cookies, timeout=60)
        self.view = None

    def next(self):
        items = self.http.post("/api/next", json={"count": 1}).json()["items"]
        self.view = items[0] if items else None
        return self.view

    def say(self, outcome, version=0, **more):
        body = {"id": uuid.uuid4().hex, "assignment": self.view["assignment"], "outcome": outcome, **more}
        return self.http.post("/api/labels", json={**body, "base_version": version}).status_code

    def side(self, text):
        return next(side for side in "ab" if self.view[side]["raw"] == text)


def skip(person, **more):
    return person.say("skip", reasons=["I cannot judge this"], **more)


def test_a_choice_comes_back_with_who_said_it(session, enter):
    asked = session.compare(*PAIR)
    ann = enter(session, "ann")
    ann.next()

    def later():
        time.sleep(0.3)
        ann.say(ann.side("Paris."), rationale="a joke")

    thread = threading.Thread(target=later)
    thread.start()
    answer = session.wait(timeout=60)
    thread.join()
    assert (answer.item, answer.outcome, answer.chosen, answer.rejected, answer.index) == (
        asked,
        "chosen",
        "Paris.",
        "The Nile.",
        1,
    )
    assert (answer.label.annotator, answer.label.note) == ("ann", "a joke")


def test_no_answer_is_a_timeout_and_a_skip_is_never_a_choice(session, enter):
    asked = session.compare(*PAIR)
    assert session.wait(asked, timeout=0.05) == Answer(item=asked, outcome="timeout")
    ann = enter(session, "ann")
    ann.next()
    assert skip(ann) == 200
    answer = session.wait(asked, timeout=60)
    assert (answer.outcome, answer.chosen, answer.rejected, answer.index) == ("skipped", None, None, None)


def test_a_skip_waits_for_others_who_may_still_judge(session, enter):
    asked = session.compare(*PAIR)
    ann, bob = enter(session, "ann"), enter(session, "bob")
    ann.next()
    assert skip(ann) == 200
    assert session.wait(asked, timeout=0.05).outcome == "timeout"
    bob.next()
    assert bob.say("both_bad") == 200
    answer = session.wait(asked, timeout=60)
    assert (answer.outcome, answer.chosen, answer.label.annotator) == ("both_bad", None, "bob")


def test_a_tie_is_a_tie_and_a_second_vote_is_a_version(session, enter):
    asked = session.compare(*PAIR)
    ann = enter(session, "ann")
    ann.next()
    assert ann.say("tie") == 200
    assert session.wait(asked, timeout=60).outcome == "tie"
    assert ann.say(ann.side("Paris.")) == 409  # a page that does not know of the first vote
    assert session.wait(asked, timeout=60).outcome == "tie"
    assert ann.say(ann.side("The Nile."), version=1) == 200
    answer = session.wait(asked, timeout=60)
    assert (answer.chosen, answer.label.version) == ("The Nile.", 2)
    assert len(session.store.labels(all_versions=True)) == 2


def test_a_stale_page_cannot_turn_a_label_into_a_skip(session, enter):
    asked = session.compare(*PAIR)
    ann = enter(session, "ann")
    ann.next()
    assert ann.say(ann.side("The Nile.")) == 200
    assert skip(ann) == 409
    assert session.wait(asked, timeout=60).chosen == "The Nile."


def test_unknown_comparisons_are_named_and_not_guessed(session, enter):
    with pytest.raises(DataError, match="call compare before wait"):
        session.wait()
    asked = session.compare(*PAIR)
    with pytest.raises(DataError, match=f"There is no comparison .* Did you mean '{asked}'"):
        session.wait(f"{asked}x")
    ann = enter(session, "ann")
    assert ann.http.get(f"/api/mine/{uuid.uuid4().hex}").status_code == 404


@pytest.mark.parametrize("outputs", [["one"], ["same", "same"], ["a", "b", "c"], "ab"])
def test_two_different_texts_are_compared(session, outputs):
    with pytest.raises(DataError, match="expected a list of two different texts"):
        session.compare("Q", outputs)
    assert session.store.count_items() == 0


def test_all_that_was_asked_is_answered_in_order_and_exported(session, tmp_path, enter):
    chat = [{"role": "user", "content": "Hi"}]
    asked = [session.compare(*PAIR), session.compare(chat, ["Hello!", "No."]), session.compare("Q", ["1", "2"])]
    assert session.compare(*PAIR) == asked[0]  # the same question is one item
    ann = enter(session, "ann")
    wanted = {"The Nile.": "The Nile.", "Hello!": "Hello!"}
    while view := ann.next():
        texts = {view[side]["raw"] for side in "ab"} & wanted.keys()
        ann.say(ann.side(texts.pop()) if texts else "tie")
    answers = session.wait_all(timeout=60)
    assert [answer.item for answer in answers] == [*asked, asked[0]]
    assert [answer.outcome for answer in answers] == ["chosen", "chosen", "tie", "chosen"]
    made = session.export(tmp_path / "pairs.jsonl")
    assert [row["chosen"][-1]["content"] for row in made.rows] == ["The Nile.", "Hello!"]
    assert sum(made.left_out.values()) == 1 and (tmp_path / "pairs.jsonl").read_text().count("\n") == 2
    with pytest.raises(ConfigError, match="Did you mean 'preference'"):
        session.export(format="preferences")


def test_what_was_said_is_there_when_the_project_is_started_again(tmp_path, capsys, enter):
    with annotate.start(tmp_path, browser=False) as session:
        asked = session.compare(*PAIR)
        ann = enter(session, "ann", "admin")
        ann.next()
        assert ann.say("tie") == 200
        assert repr(session) == f"Session({session.link})"
    assert f"Label at {session.link}" in capsys.readouterr().out
    with annotate.start(tmp_path, browser=False) as session:
        assert session.compare(*PAIR) == asked
        assert session.wait(timeout=60).outcome == "tie"
