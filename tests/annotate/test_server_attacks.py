"""What somebody tries who wants in, or wants others out."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import uuid

import httpx
import pytest
from annotating import Place, pair, place, without_gradio

from annotate import connections, middleware, serve
from annotate.security import Passwords, RateLimiter, foreign, stranger
from annotate.studio import Limits, Studio
from prefrl.data.project import Criterion

PASSWORD = "correct horse"


@pytest.mark.parametrize(
    "origin", ["http://[::1", "null", "http://", "://", "file://", "http://testserver@evil.example"]
)
def test_no_origin_that_is_none_is_ours(tmp_path, origin):
    assert foreign("POST", {"origin": origin, "host": "testserver"})
    with place(tmp_path) as there:
        answer = there.enter("ann").post("/api/next", headers={"origin": origin})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:7860", False),
        ("localhost", False),
        ("LOCALHOST.:80", False),
        ("my.localhost:7860", False),
        ("[::1]:7860", False),
        ("label.example", False),
        ("evil.example:7860", True),
        ("127.0.0.1.evil.example", True),
        ("localhost.evil.example", True),
        ("evillocalhost", True),
        ("[::1", True),
        ("", True),
    ],
)
def test_which_names_a_server_of_this_machine_has(host, expected):
    assert stranger(host, serve.names_of("127.0.0.1", "https://label.example")) is expected
    assert stranger(host, serve.names_of("0.0.0.0", "")) is False  # nobody knows by what names others reach it


def test_a_page_whose_name_leads_to_this_machine_gets_nothing(tmp_path):
    """A page of evil.example lets its name lead here, so that a browser takes our answers for its own."""
    with place(tmp_path) as there:
        known = Place(Studio(folder=tmp_path, store=there.store, hosts=serve.names_of("127.0.0.1")))
        there.store.people.add("ann", "annotator", there.studio.passwords.hash(PASSWORD))
        client = known.client(host="evil.example:7860", origin="http://evil.example:7860")
        for answer in (client.get("/login"), client.post("/login", json={"name": "ann", "password": PASSWORD})):
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "host")
            assert "--url http://evil.example:7860" in answer.json()["error"]["message"]
        assert known.client(host="localhost:7860", origin="http://localhost:7860").get("/login").status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "", "application/x-www-form-urlencoded"])
def test_json_in_disguise_is_no_json(tmp_path, kind):
    """What a form of another page can send without asking first."""
    with place(tmp_path) as there:
        there.store.add_items([pair()])
        ann = there.enter("ann")
        label = {"id": uuid.uuid4().hex, "assignment": ann.next()[0]["assignment"], "outcome": "tie"}
        answer = ann.client.post("/api/labels", content=json.dumps(label), headers={"content-type": kind})
        assert answer.status_code == 400 and there.store.labels() == []


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ('"active_ms": NaN', "active_ms"),
        ('"active_ms": -Infinity', "active_ms"),
        ('"active_ms": 1e400', "active_ms"),
        ('"active_ms": ' + "9" * 5000, "parsing"),
        ('"base_version": ' + "9" * 400, "base_version"),
        ('"criteria": {"C": ' + "9" * 300 + "}", "criteria"),
        ('"criteria": {' + ", ".join(f'"c{n}": 1' for n in range(5000)) + "}", "criteria"),
        ('"criteria": {"\\ud800": 1}', "criteria"),
        ('"\\ud800": 1', ""),
        ('"reasons": ["' + "x" * 100_000 + '"]', "reasons"),
        ('"strength": "\\ud800"', "strength"),
        ('"id": "' + "a" * 900_000 + '"', "id"),
        ('"assignment": "../../etc/passwd"', "assignment"),
        ('"rationale": "' + "x" * 20_001 + '"', "rationale"),
        ('"alternatives": {"1": "' + "x" * 20_001 + '"}', "alternatives"),
        ('"details": {"adjudication": true}', "details"),
        ('"exchanged": true', "exchanged"),
    ],
    ids=range(17),
)
def test_a_label_of_nonsense_is_refused_in_few_words(tmp_path, more, says):
    with place(tmp_path, criteria=(Criterion(name="C"),)) as there:
        there.store.add_items([pair()])
        ann = there.enter("ann")
        label = {"id": uuid.uuid4().hex, "assignment": ann.next()[0]["assignment"], "outcome": "tie"}
        content = f"{json.dumps(label)[:-1]}, {more}}}"
        answer = ann.client.post("/api/labels", content=content, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid")
        message = answer.json()["error"]["message"]
        assert says in message and len(message) < 1000 and there.store.labels() == []


def test_half_an_emoji_is_kept_and_not_the_reason_to_lose_a_label(tmp_path):
    """A field that cuts off at its length leaves half of a pair behind."""
    with place(tmp_path) as there:
        there.store.add_items([pair()])
        ann = there.enter("ann")
        said = {"rationale": "good \\ud83d", "answer": {"text": "\\ude00 better", "from": ""}}
        content = json.dumps(
            {"id": uuid.uuid4().hex, "assignment": ann.next()[0]["assignment"], "outcome": "a", **said}
        )
        content = content.replace("\\\\u", "\\u")
        answer = ann.client.post("/api/labels", content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 200
        (label,) = there.store.labels()
        assert (label.note, label.details["answer"]["text"]) == ("good \\ud83d", "\\ude00 better")


def test_a_token_of_before_opens_nothing_after_a_new_password(tmp_path):
    with place(tmp_path) as there:
        there.store.people.add("ann", "annotator", there.studio.passwords.hash(PASSWORD))
        first, second = there.enter("ann"), there.enter("ann")
        there.store.people.set_password("ann", there.studio.passwords.hash("another horse"))
        assert [browser.get("/api/me").status_code for browser in (first, second)] == [401, 401]
        assert there.client().post("/login", json={"name": "ann", "password": PASSWORD}).status_code == 401


def test_a_session_that_was_planted_is_not_the_one_that_is_signed_in(tmp_path):
    with place(tmp_path) as there:
        there.store.people.add("ann", "annotator", there.studio.passwords.hash(PASSWORD))
        mallory, client = there.enter("mallory"), there.client()
        client.cookies.set(there.studio.cookie, mallory.login.token)
        assert client.post("/login", data={"name": "ann", "password": PASSWORD}).status_code == 303
        jar = [cookie.value for cookie in client.cookies.jar if cookie.name == there.studio.cookie]
        assert mallory.login.token not in jar[-1] and mallory.get("/api/me").status_code == 401
        for made_up in ("", "x", "a" * 10_000):
            cookie = {"cookie": f"{there.studio.cookie}={made_up}"}
            assert there.client().get("/api/me", headers=cookie).status_code == 401


def test_two_browsers_with_one_link_are_one_account(tmp_path):
    with place(tmp_path) as there:
        link, gate, codes = f"/join/{there.store.people.invite('annotator', 1.0)}", threading.Barrier(4), []

        def joins(number):
            client = there.client()
            gate.wait()
            codes.append(client.post(link, data={"name": f"person {number}"}).status_code)

        threads = [threading.Thread(target=joins, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert codes.count(303) == 1 and set(codes) <= {303, 400, 404} and len(there.store.people.list()) == 1


def test_an_unknown_name_costs_a_hash_from_the_first_attempt_on(monkeypatch):
    made = []

    class Hasher:
        def hash(self, password):
            made.append("hash")
            return "hash of nobody"

        def verify(self, password, hashed):
            made.append(hashed)
            return True

    work = []
    for hashed in ("known", ""):
        passwords = Passwords()
        monkeypatch.setitem(passwords.__dict__, "_hasher", Hasher())
        assert passwords.verify("x", hashed) is bool(hashed)
        work.append(len(made))
        made.clear()
    assert work[0] == work[1] == 2


def test_a_class_behind_one_address_joins_and_signs_in_at_once(tmp_path):
    limits = Limits(address=RateLimiter(burst=5, rate=0.01))
    with place(tmp_path, limits) as there:
        hashed = there.studio.passwords.hash(PASSWORD)
        for number in range(8):
            link = f"/join/{there.store.people.invite('annotator', 1.0)}"
            client = there.client()
            assert client.get(link).status_code == 200
            assert client.post(link, data={"name": f"pupil {number}"}).status_code == 303
            there.store.people.set_password(f"pupil {number}", hashed)
            signed_in = there.client().post("/login", json={"name": f"pupil {number}", "password": PASSWORD})
            assert signed_in.status_code == 200
        codes = [there.client().post("/login", json={"name": "eve", "password": "guess"}).status_code for _ in range(6)]
        assert codes == [401] * 5 + [429]  # who guesses is slowed all the same


def test_attempts_from_everywhere_leave_room_for_those_who_label(tmp_path):
    limits = Limits(everybody=RateLimiter(burst=3, rate=0.1, clock=lambda: 0.0))
    with place(tmp_path, limits) as there:
        codes = [there.client().post("/login", json={"name": f"n{n}", "password": "x"}).status_code for n in range(5)]
        assert codes == [401] * 3 + [429] * 2
        assert there.enter("ann").get("/api/me").status_code == 200


def test_addresses_of_one_network_are_one(tmp_path):
    limits = Limits(address=RateLimiter(burst=2, rate=0.01))
    with place(tmp_path, limits) as there:

        def attempt(address):
            client = there.client()
            client._transport.client = (address, 1)
            return client.post("/login", json={"name": "x", "password": "y"}).status_code

        assert [attempt(f"2001:db8:1:2::{n}") for n in range(3)] == [401, 401, 429]
        assert attempt("2001:db8:1:3::1") == 401
        assert [attempt("::ffff:10.0.0.1"), attempt("10.0.0.1"), attempt("10.0.0.1")] == [401, 401, 429]
        assert attempt("10.0.0.2") == 401


def test_a_defect_tells_no_secrets(tmp_path, monkeypatch):
    with place(tmp_path) as there:
        ann = there.enter("ann")

        def breaks(*_, **__):
            raise RuntimeError(f"at {tmp_path}")

        monkeypatch.setattr(type(there.store.work), "progress", breaks)
        ann.client._transport.raise_server_exceptions = False
        answer = ann.get("/api/me")
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "server")
        assert str(tmp_path) not in answer.text and "RuntimeError" not in answer.text
        assert answer.headers["x-frame-options"] == "DENY"


def test_a_picture_that_could_be_a_program_is_none(tmp_path):
    line = {"media": {"type": "image/svg+xml", "body": "PHN2Zy8+", "hash": "0"}}
    with place(tmp_path) as there:
        import base64
        import hashlib

        line["media"]["hash"] = hashlib.sha256(base64.b64decode("PHN2Zy8+")).hexdigest()
        (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n")
        with pytest.raises(Exception, match=r"image/svg\+xml"):
            there.store.import_(tmp_path / "a.jsonl")


@contextlib.contextmanager
def opened(server):
    """A connection that speaks for itself."""
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=10) as connection:
        yield connection


def test_who_says_nothing_or_never_ends_is_hung_up_on(tmp_path, monkeypatch):
    without_gradio(monkeypatch)
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.5)
    with serve.Running(tmp_path) as server:
        host = server.url.removeprefix("http://")
        begun = f"POST /login HTTP/1.1\r\nHost: {host}\r\nOrigin: {server.url}\r\n".encode()
        whole = b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        for sent in (b"", b"GET /health HT", begun, begun + whole):
            with opened(server) as slow:
                slow.sendall(sent)
                began = time.monotonic()
                answer = b""
                while piece := slow.recv(1000):
                    answer += piece
                assert time.monotonic() - began < 5 and (not answer or b" 408 " in answer), sent
        with opened(server) as dripping:
            with contextlib.suppress(OSError):
                for byte in b"GET /health HTTP/1.1\r\nX: " + b"a" * 100:
                    dripping.sendall(bytes([byte]))
                    time.sleep(0.05)
            with contextlib.suppress(ConnectionError):
                assert dripping.recv(1) == b""
        with httpx.Client(base_url=server.url) as patient:
            for _ in range(3):
                assert patient.get("/health").status_code == 200
                time.sleep(0.3)


def test_headers_have_an_end(tmp_path, monkeypatch):
    without_gradio(monkeypatch)
    with serve.Running(tmp_path) as server, opened(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        with contextlib.suppress(OSError):
            for number in range(3000):
                connection.sendall(f"X-{number}: {'a' * 100}\r\n".encode())
        with contextlib.suppress(ConnectionError):
            assert connection.recv(100).startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))
        assert httpx.get(f"{server.url}/health").status_code == 200
