"""The routes of the label page: what is shown, what is stored, and what is refused."""

from __future__ import annotations

import json
import uuid

import pytest
from annotating import SECRETS, check, pair, place, png, steps, tasks
from stores import fix_secret

from prefrl.data.comparisons import Clip, Item
from prefrl.data.project import Criterion
from prefrl.data.store import Gold
from prefrl.types import Completion, Prompt

FORBIDDEN = ("model", "polic", "checkpoint", "round", "gold", "judge", "uncertain", "guess", "verdict", "exchanged")


def keys_of(value):
    if isinstance(value, dict):
        return {*value, *(key for inner in value.values() for key in keys_of(inner))}
    return {key for inner in value for key in keys_of(inner)} if isinstance(value, list) else set()


def left(view):
    """The side on which the first of a pair is shown."""
    return next(side for side in "ab" if view[side]["raw"].startswith("Left"))


def test_nothing_that_reaches_an_annotator_says_more_than_the_texts(tmp_path):
    with place(tmp_path, gold_share=0.5, flag_reasons=("Broken",)) as there:
        there.store.add_tasks(tasks(), gold={pair().id: Gold(outcome="first", note="known-note")})
        ann, seen = there.enter("ann"), []
        seen.append(ann.get("/api/me").json())
        views = []
        outcomes = {"pair": {"outcome": "a"}, "steps": {"outcome": "steps", "ratings": [1, 0, -1]}}
        for view in ann.views():
            views.append(view)
            said = outcomes.get(view["kind"], {"outcome": "unsure"})
            seen.append(ann.label(view["assignment"], **said).json())
            seen.append(ann.get(f"/api/mine/{view['assignment']}").json())
        seen += [views, ann.get("/api/mine").json(), ann.post("/api/next").json()]
        assert {view["kind"] for view in views} == {"pair", "steps", "check"}
        text = json.dumps(seen)
        assert [word for word in (*SECRETS, there.store.secret) if word in text] == []
        assert sorted(key for key in keys_of(seen) if any(word in key.lower() for word in FORBIDDEN)) == []
        assert pair().id not in text and '"first"' not in text and '"second"' not in text


def test_what_is_shown_is_the_item(tmp_path):
    with place(tmp_path) as there:
        there.store.add_tasks(tasks())
        shown = {view["kind"]: view for view in there.enter("ann").next(3)}
    sides = {shown["pair"][side]["raw"]: shown["pair"][side]["cut_off"] for side in "ab"}
    assert sides == {"Left 0": False, "Right 0": True}
    assert shown["pair"]["prompt"][0]["role"] == "user" and "<p" in shown["pair"]["prompt"][0]["html"]
    assert [step["raw"] for step in shown["steps"]["steps"]] == ["One", "Two", "Three"]
    assert shown["steps"]["answer"]["raw"] == "4"
    assert (shown["check"]["question"], shown["check"]["answer"]) == ("Is it?", "No")


def test_every_part_of_every_turn_is_shown(tmp_path):
    turns = (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "image", "url": "x.png"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "sum"}]},
    )
    prompt = Prompt(id="p", messages=turns)
    with place(tmp_path) as there:
        there.store.add_items([Item(prompt=prompt, first=Completion(text="1"), second=Completion(text="2"))])
        shown = there.enter("ann").next()[0]["prompt"]
    assert [turn["role"] for turn in shown] == ["system", "user", "assistant"]
    assert "Look" in shown[1]["raw"] and "x.png" in shown[1]["raw"] and "sum" in shown[2]["raw"]


def test_sides_are_stable_even_and_undone_in_the_store(tmp_path):
    with place(tmp_path, overlap=2) as there:
        fix_secret(there.store)
        there.store.add_items([pair(number, overlap=2) for number in range(100)])
        left_is_a = 0
        for name in ("ann", "bob"):
            browser = there.enter(name)
            for view in browser.views():
                again = browser.get(f"/api/mine/{view['assignment']}").json()
                assert again["a"] == view["a"] and again["b"] == view["b"]
                left_is_a += left(view) == "a"
                assert browser.label(view["assignment"], left(view)).status_code == 200
        labels = there.store.labels()
    assert len(labels) == 200 and {label.outcome for label in labels} == {"first"}
    assert 86 <= left_is_a <= 114  # 50 +- 7 % of 200


def test_all_that_is_said_comes_back_as_it_was_said(tmp_path):
    criteria = (Criterion(name="Right"), Criterion(name="Clear"))
    said = {"strength": "much", "rationale": "shorter", "criteria": {"Right": -2, "Clear": 1}, "active_ms": 1200}
    answer = {"text": "A better one", "from": "b"}
    with place(tmp_path, scale=7, criteria=criteria) as there:
        there.store.add_items([pair(number) for number in range(12)])
        ann, exchanged = there.enter("ann"), set()
        for view in ann.views():
            assert ann.label(view["assignment"], "a", **said, answer=answer).status_code == 200
            back = ann.get(f"/api/mine/{view['assignment']}").json()
            assert back["label"] | said | {"answer": answer, "outcome": "a", "version": 1} == back["label"]
            label = there.store.labels()[-1]
            first = left(view) == "a"
            exchanged.add(not first)
            sign = 1 if first else -1  # negative says that A is better
            assert label.outcome == ("first" if first else "second")
            assert label.details["criteria"] == {"Right": -2 * sign, "Clear": sign}
            assert label.details["answer"] == {"text": "A better one", "from": "second" if first else "first"}
    assert exchanged == {True, False}


def test_the_same_label_sent_again_changes_nothing(tmp_path):
    with place(tmp_path) as there:
        there.store.add_items([pair()])
        ann = there.enter("ann")
        body = {"id": uuid.uuid4().hex, "assignment": ann.next()[0]["assignment"], "outcome": "tie"}
        answers = [ann.post("/api/labels", body).json() for _ in range(3)]
        assert [answer["version"] for answer in answers] == [1, 1, 1]
        other = ann.post("/api/labels", body | {"outcome": "both_bad"})
        assert (other.status_code, other.json()["error"]["code"]) == (409, "conflict")
        assert [label.outcome for label in there.store.labels(all_versions=True)] == ["tie"]


def test_a_change_is_a_version_and_a_stale_page_changes_nothing(tmp_path):
    with place(tmp_path) as there:
        there.store.add_items([pair()])
        ann = there.enter("ann")
        place_ = ann.next()[0]["assignment"]
        assert ann.label(place_, "tie").json()["version"] == 1
        assert ann.label(place_, "both_bad", base_version=1).json()["version"] == 2
        stale = ann.label(place_, "skip", base_version=1)
        assert (stale.status_code, stale.json()["error"]["code"]) == (409, "conflict")
        second_vote = ann.label(place_, "tie")  # as if there were no label yet
        assert second_vote.status_code == 409
        assert [(label.version, label.outcome) for label in there.store.labels()] == [(2, "both_bad")]
        assert [(label.version, label.outcome) for label in there.store.labels(all_versions=True)] == [
            (1, "tie"),
            (2, "both_bad"),
        ]


def test_a_full_item_is_given_to_nobody_else_and_takes_no_label(tmp_path):
    with place(tmp_path, lease_minutes=1e-9) as there:
        there.store.add_items([pair()])
        ann, bob = there.enter("ann"), there.enter("bob")
        late, early = ann.next()[0]["assignment"], bob.next()[0]["assignment"]
        assert bob.label(early, "tie").status_code == 200
        refused = ann.label(late, "tie")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "full")
        assert ann.post("/api/next").json() | {"items": [], "done": True} == ann.post("/api/next").json()
        assert len(there.store.labels()) == 1


def test_an_item_stays_open_for_the_second_of_two_people(tmp_path):
    with place(tmp_path) as there:
        there.store.add_items([pair(overlap=2)])
        ann, bob, eve = there.enter("ann"), there.enter("bob"), there.enter("eve")
        assert ann.label(ann.next()[0]["assignment"], "a").status_code == 200
        view = bob.next()[0]
        assert view["version"] == 0 and "label" not in view
        assert eve.next() == []  # the second place is taken
        assert bob.post("/api/release", {"assignment": view["assignment"]}).json() == {}
        assert len(eve.next()) == 1


def test_new_items_are_there_at_once_for_who_was_done(tmp_path):
    with place(tmp_path) as there:
        ann = there.enter("ann")
        assert ann.post("/api/next").json()["done"] is True
        there.store.add_items([pair()])
        assert len(ann.next()) == 1


def test_the_quota_holds_for_calls_without_the_page(tmp_path):
    with place(tmp_path, quota=2) as there:
        there.store.add_items([pair(number) for number in range(5)])
        ann = there.enter("ann")
        views = ann.next(5)
        assert len(views) == 2
        assert [ann.label(view["assignment"], "tie").status_code for view in views] == [200, 200]
        answer = ann.post("/api/next", {"count": 5}).json()
        assert answer["items"] == [] and answer["progress"]["left"] == 0


def test_renewed_places_are_kept(tmp_path):
    with place(tmp_path, lease_minutes=60) as there:
        there.store.add_items([pair()])
        ann = there.enter("ann")
        view = ann.next()[0]
        kept = ann.post("/api/renew", {"assignment": view["assignment"]}).json()
        assert kept["lease_until"] >= view["lease_until"]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"outcome": "right"}, "outcome"),
        ({"outcome": "a", "strength": "enormously"}, "strength"),
        ({"outcome": "a", "criteria": {"Beauty": 1}}, "criterion"),
        ({"outcome": "a", "criteria": {"Right": 99}}, "Right"),
        ({"outcome": "a", "ratings": [1]}, "ratings"),
    ],
)
def test_what_the_project_does_not_ask_is_refused_without_telling_the_side(tmp_path, said, words):
    with place(tmp_path, criteria=(Criterion(name="Right"),)) as there:
        there.store.add_items([pair(number) for number in range(12)])
        ann, messages = there.enter("ann"), set()
        some = ann.next(5)
        for view in some + ann.next(5, held=tuple(view["assignment"] for view in some)):
            refused = ann.label(view["assignment"], **said)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid")
            messages.add(refused.json()["error"]["message"])
        assert len(messages) == 1 and words in messages.pop()
        assert there.store.labels() == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"outcome": "a", "model": "x"},
        {"outcome": "first"},
        {"outcome": "a", "active_ms": -1},
        {"outcome": "a", "rationale": "x" * 20_001},
        {"outcome": "a", "id": "short"},
    ],
)
def test_a_body_of_another_form_is_refused(tmp_path, body):
    with place(tmp_path) as there:
        there.store.add_items([pair()])
        ann = there.enter("ann")
        whole = {"id": uuid.uuid4().hex, "assignment": ann.next()[0]["assignment"], **body}
        refused = ann.post("/api/labels", whole)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid")
        assert refused.json()["error"]["message"].startswith("This was sent in another form than expected.")


def test_numbers_that_are_none_are_refused(tmp_path):
    with place(tmp_path) as there:
        there.store.add_items([pair()])
        ann = there.enter("ann")
        body = {"id": uuid.uuid4().hex, "assignment": ann.next()[0]["assignment"], "outcome": "a", "active_ms": 1}
        for word in ("NaN", "Infinity", "1e999"):
            raw = json.dumps(body).replace('"active_ms": 1', f'"active_ms": {word}')
            answer = ann.client.post("/api/labels", content=raw, headers={"content-type": "application/json"})
            assert answer.status_code == 400, word
        assert there.store.labels() == []


def test_flags_are_kept_once(tmp_path):
    with place(tmp_path, flag_reasons=("Broken",)) as there:
        there.store.add_items([pair()])
        ann = there.enter("ann")
        body = {
            "id": uuid.uuid4().hex,
            "assignment": ann.next()[0]["assignment"],
            "reason": "Broken",
            "note": "ends early",
        }
        assert [ann.post("/api/flags", body).json() for _ in range(2)] == [{"id": body["id"]}] * 2
        assert [(flag.item, flag.reason, flag.note) for flag in there.store.flags()] == [
            (pair().id, "Broken", "ends early")
        ]
        other = ann.post("/api/flags", body | {"id": uuid.uuid4().hex, "reason": "Boring"})
        assert (other.status_code, other.json()["error"]["code"]) == (400, "invalid")


def test_my_work_lists_what_i_said_and_says_until_when_it_can_change(tmp_path):
    with place(tmp_path, edit_minutes=60) as there:
        there.store.add_tasks([pair(1), check(2), steps(3)])
        ann = there.enter("ann")
        for view in ann.next(3):
            said = {"pair": {"outcome": "b"}, "check": {"outcome": "wrong"}}
            more = {"outcome": "steps", "ratings": [1, 1, -1]}
            assert ann.label(view["assignment"], **said.get(view["kind"], more)).status_code == 200
        mine = ann.get("/api/mine").json()
        assert [(row["outcome"], row["title"], row["editable"]) for row in mine] == [
            ("steps", "Sum 3?", True),
            ("wrong", "Fact 2?", True),
            ("b", "Question 1?", True),
        ]
        there.store.save_settings(type(there.store.settings())(edit_minutes=1e-9))
        assert [row["editable"] for row in ann.get("/api/mine").json()] == [False] * 3
        late = ann.label(mine[2]["assignment"], "a", base_version=1)
        assert (late.status_code, late.json()["error"]["code"]) == (409, "conflict")


def test_pictures_are_for_those_who_were_given_their_item(tmp_path):
    with place(tmp_path) as there:
        hashes = [there.store.media.put("image/png", png(shade)) for shade in range(3)]
        clips = (Clip(frames=(hashes[0],)), Clip(frames=(hashes[1],), states=((0.5,),), names=("angle",)))
        there.store.add_items([pair(clips=clips)])
        ann, bob = there.enter("ann"), there.enter("bob")
        view = ann.next()[0]
        urls = [url for side in "ab" for url in view[side]["frames"]]
        assert view["kind"] == "clips" and len(urls) == 2
        answers = [ann.get(url) for url in urls]
        assert {answer.content for answer in answers} == {png(0), png(1)}
        assert {answer.headers["content-type"] for answer in answers} == {"image/png"}
        assert [bob.get(url).status_code for url in urls] == [404, 404]
        assert ann.get(urls[0].replace(urls[0].split("/")[3].split("?")[0], hashes[2])).status_code == 404
        assert {side: view[side]["states"] for side in "ab" if view[side]["states"]} in ({"a": [[0.5]]}, {"b": [[0.5]]})
