"""What the server refuses: those who are not signed in, other pages, others' items, too much and too often."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest
from annotating import ORIGIN, pair, place

from annotate.middleware import LIMIT, Shield
from annotate.security import RateLimiter
from annotate.studio import Limits

WRITES = ("/api/next", "/api/labels", "/api/flags", "/api/release", "/api/renew")
READS = ("/api/me", "/api/mine", f"/api/mine/{'0' * 32}", "/api/media/00?assignment=00")


def bodies(assignment):
    known = {"assignment": assignment}
    return {
        "/api/labels": {**known, "id": uuid.uuid4().hex, "outcome": "tie"},
        "/api/flags": {**known, "id": uuid.uuid4().hex, "reason": "Offensive"},
        "/api/release": known,
        "/api/renew": known,
    }


def code(answer):
    return answer.status_code, answer.json()["error"]["code"]


def test_nobody_gets_anything_without_signing_in(tmp_path):
    with place(tmp_path) as there:
        client = there.client()
        assert {path: code(client.get(path)) for path in READS} == dict.fromkeys(READS, (401, "login"))
        assert {path: code(client.post(path, json={"assignment": "x"})) for path in WRITES[:1]} == {
            WRITES[0]: (401, "login")
        }
        for path, body in bodies("0" * 32).items():
            assert code(client.post(path, json=body)) == (401, "login"), path


def test_a_session_that_ended_is_told_to_sign_in_and_nothing_is_lost(tmp_path):
    with place(tmp_path) as there:
        there.store.add_items([pair()])
        ann = there.enter("ann")
        body = bodies(ann.next()[0]["assignment"])["/api/labels"]
        there.store.people.close_sessions("ann")
        refused = ann.post("/api/labels", body)
        assert code(refused) == (401, "login") and "kept" in refused.json()["error"]["message"]
        again = there.enter("ann")  # the page sends the same label once more
        assert again.post("/api/labels", body).json()["version"] == 1


def test_a_token_that_was_used_to_sign_out_opens_nothing(tmp_path):
    with place(tmp_path) as there:
        ann = there.enter("ann")
        cookie = {"cookie": f"{there.studio.cookie}={ann.login.token}"}
        assert ann.post("/logout").status_code == 200
        assert code(there.client().get("/api/me", headers=cookie)) == (401, "login")


def test_who_may_not_work_any_more_is_out_at_once(tmp_path):
    with place(tmp_path) as there:
        ann = there.enter("ann")
        assert ann.get("/api/me").status_code == 200
        there.store.people.set_active("ann", False)
        assert code(ann.get("/api/me")) == (401, "login")


@pytest.mark.parametrize("token", ["", "x", "other person"])
def test_a_change_needs_the_token_of_its_own_session(tmp_path, token):
    with place(tmp_path) as there:
        there.store.add_items([pair()])
        ann, bob = there.enter("ann"), there.enter("bob")
        given = {"x-csrf-token": bob.login.csrf if token == "other person" else token}
        for path, body in {**bodies(ann.next()[0]["assignment"]), "/logout": {}, "/api/next": {}}.items():
            assert code(ann.post(path, body, headers=given)) == (403, "csrf"), path
        assert there.store.labels() == [] and ann.get("/api/me").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://testserver.evil.example"},
        {"origin": "http://testserver:9999"},  # another port of the machine shares its cookies
        {"origin": "null"},
        {"origin": "", "sec-fetch-site": "same-site"},
        {"origin": "", "sec-fetch-site": "cross-site"},
        {"origin": "", "sec-fetch-site": ""},
    ],
)
def test_a_change_from_another_page_is_refused(tmp_path, headers):
    with place(tmp_path) as there:
        there.store.people.add("ann", "annotator", there.studio.passwords.hash("correct horse"))
        there.store.add_items([pair()])
        ann = there.enter("ann")
        label = bodies(ann.next()[0]["assignment"])["/api/labels"]
        for path, body in {"/api/labels": label, "/login": {"name": "ann", "password": "correct horse"}}.items():
            assert code(ann.post(path, body, headers=headers)) == (403, "origin"), path
        assert there.store.labels() == []
        ours = {"origin": "", "sec-fetch-site": "same-origin"}
        assert ann.post("/api/labels", label, headers=ours).status_code == 200


def test_another_page_can_lead_here_and_read_nothing(tmp_path):
    with place(tmp_path) as there:
        ann = there.enter("ann")
        read = {"origin": "http://testserver:9999", "sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}
        assert code(ann.client.get("/api/me", headers=read)) == (403, "origin")
        embed = {"origin": "", "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
        assert code(ann.client.get("/api/me", headers=embed)) == (403, "origin")
        follow = {"origin": "", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        assert ann.client.get("/login", headers=follow).status_code == 200


def test_what_is_not_there_and_what_is_somebody_elses_look_the_same(tmp_path):
    with place(tmp_path) as there:
        there.store.add_items([pair()])
        ann, bob = there.enter("ann"), there.enter("bob")
        others, none = ann.next()[0]["assignment"], uuid.uuid4().hex
        for path in bodies(none):
            answers = [bob.post(path, bodies(place_)[path]) for place_ in (others, none)]
            assert code(answers[0]) == (404, "not_yours"), path
            assert answers[0].content == answers[1].content, path
        for path in ("/api/mine/{}", "/api/media/00?assignment={}"):
            answers = [bob.get(path.format(place_)) for place_ in (others, none)]
            assert code(answers[0]) == (404, "not_yours"), path
            assert answers[0].content == answers[1].content, path
        assert there.store.labels() == [] and there.store.flags() == []
        assert ann.label(others, "tie").status_code == 200  # still hers


def test_a_managers_role_gives_no_label_of_others(tmp_path):
    with place(tmp_path) as there:
        there.store.add_items([pair()])
        ann, boss = there.enter("ann"), there.enter("boss", "admin")
        assert code(boss.label(ann.next()[0]["assignment"], "tie")) == (404, "not_yours")


@pytest.mark.parametrize("size", [1024 * 1024 + 1, 10 * 1000 * 1000])
def test_a_body_that_is_too_large_is_refused_before_it_is_read(tmp_path, size):
    with place(tmp_path) as there:
        ann = there.enter("ann")
        declared = ann.client.post("/api/labels", content=b" " * size)
        assert code(declared) == (413, "too_large")
        streamed = ann.client.post("/api/labels", content=(b" " * 10_000 for _ in range(0, size, 10_000)))
        assert code(streamed) == (413, "too_large")


@pytest.mark.parametrize(("declared", "pieces"), [(10_000_000, 0), (0, LIMIT // 100_000 + 1)])
def test_the_rest_of_a_large_body_is_not_asked_for(declared, pieces):
    asked, answers = 0, []

    async def app(scope, receive, send):
        while (await receive())["type"] == "http.request":
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    async def receive():
        nonlocal asked
        asked += 1
        assert asked < 50
        return {"type": "http.request", "body": b" " * 100_000, "more_body": True}

    async def send(message):
        answers.append(message)

    headers = [(b"host", b"testserver"), (b"origin", ORIGIN.encode())]
    headers += [(b"content-length", str(declared).encode())] if declared else []
    scope = {"type": "http", "method": "POST", "path": "/api/labels", "headers": headers}
    asyncio.run(Shield(app)(scope, receive, send))
    assert answers[0]["status"] == 413 and json.loads(answers[1]["body"])["error"]["code"] == "too_large"
    assert asked == pieces


def test_a_long_answer_that_is_allowed_is_kept_whole(tmp_path):
    with place(tmp_path) as there:
        there.store.add_items([pair()])
        ann = there.enter("ann")
        text = "\N{SNOWMAN}" * 60_000
        answer = ann.label(ann.next()[0]["assignment"], "a", answer={"text": text[:30_000], "from": ""})
        assert answer.status_code == 200
        assert there.store.labels()[0].details["answer"]["text"] == text[:30_000]


@pytest.mark.parametrize("content", [b"[" * 900_000, b"{", b"\xff\xfe", b'"x"', b"null"])
def test_broken_json_is_refused(tmp_path, content):
    with place(tmp_path) as there:
        ann = there.enter("ann")
        for path in ("/api/labels", "/login"):
            answer = ann.client.post(path, content=content, headers={"content-type": "application/json"})
            assert code(answer) == (400, "invalid"), path


def test_too_many_changes_are_slowed_for_this_person_only(tmp_path):
    clock = [0.0]
    limits = Limits(writes=RateLimiter(burst=3, rate=0.5, clock=lambda: clock[0]))
    with place(tmp_path, limits) as there:
        ann, bob = there.enter("ann"), there.enter("bob")
        assert [ann.post("/api/next").status_code for _ in range(4)] == [200, 200, 200, 429]
        slowed = ann.post("/api/next")
        assert code(slowed) == (429, "slow_down") and slowed.headers["retry-after"] == "2"
        assert bob.post("/api/next").status_code == 200
        clock[0] = 2.0
        assert ann.post("/api/next").status_code == 200


def test_guessing_a_password_is_slowed_for_one_name_and_for_one_address(tmp_path):
    def limiter(burst):
        return RateLimiter(burst=burst, rate=0.1, clock=lambda: 0.0)

    limits = Limits(sign_in=limiter(2), address=limiter(5), name=limiter(100))
    with place(tmp_path, limits) as there:
        there.store.people.add("ann", "annotator", there.studio.passwords.hash("correct horse"))
        client = there.client()

        def attempt(name, password="wrong one"):
            return client.post("/login", json={"name": name, "password": password}).status_code

        assert [attempt("ann") for _ in range(3)] == [401, 401, 429]
        assert attempt("ann", "correct horse") == 429  # the right one too, or guessing on would show it
        assert [attempt(name) for name in ("bob", "eve")] == [401, 429]  # five from this address


def test_headers_tie_the_hands_of_every_page(tmp_path):
    with place(tmp_path) as there:
        ann = there.enter("ann")
        for path in ("/login", "/api/me", "/health", "/assets/plain.css", "/join/x", "/nothing"):
            headers = ann.get(path).headers
            assert headers["x-frame-options"] == "DENY" and headers["x-content-type-options"] == "nosniff", path
            assert headers["referrer-policy"] == "same-origin", path
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy, path
            assert "unsafe" not in policy and "script-src" not in policy, path
        assert ann.get("/api/me").headers["cache-control"] == "no-store"
        assert ann.get("/login").headers["cache-control"] == "no-store"


def test_files_outside_of_the_assets_are_not_served(tmp_path):
    with place(tmp_path) as there:
        client = there.client()
        for path in ("/assets/../app.py", "/assets/%2e%2e/app.py", "/assets/..%2fapp.py", "/assets//etc/passwd"):
            assert client.get(path).status_code == 404, path


def test_two_projects_on_one_machine_do_not_sign_each_other_out(tmp_path):
    with place(tmp_path / "one") as one, place(tmp_path / "two") as two:
        assert one.studio.cookie != two.studio.cookie
        jar = {one.studio.cookie: one.enter("ann").login.token, two.studio.cookie: two.enter("bob").login.token}
        header = {"cookie": "; ".join(f"{name}={token}" for name, token in jar.items())}
        answers = [there.client().get("/api/me", headers=header).json()["name"] for there in (one, two)]
        assert answers == ["ann", "bob"]
        crossed = {"cookie": f"{two.studio.cookie}={jar[one.studio.cookie]}"}
        assert code(two.client().get("/api/me", headers=crossed)) == (401, "login")


def test_two_people_at_once_are_two_people(tmp_path):
    with place(tmp_path) as there:
        ann, bob = there.enter("ann"), there.enter("bob")
        names = [browser.get("/api/me").json()["name"] for browser in (ann, bob, ann, bob)]
        assert names == ["ann", "bob", "ann", "bob"]
