from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
import tracemalloc
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy
import pytest

from prefrl.errors import ConfigError
from prefrl.rewards.verifiers.adapters import http, shell


def python(*lines: str) -> list[str]:
    return [sys.executable, "-S", "-c", "\n".join(("import json, sys, time", "said = json.loads(input())", *lines))]


def one(verifier, rollout):
    return verifier.verdicts([rollout])[0]


def test_a_command_says_a_number_or_a_verdict(rollout):
    length = shell(python("print(len(said['completion']) / said['columns']['most'])"))
    assert one(length, rollout("moss", most=8)).score == 0.5
    whole = "print(json.dumps({'score': 0.25, 'parts': {'a': 1}, 'evidence': said['prompt']}))"
    verdict = one(shell(python(whole), version="7"), rollout("moss", question="why?"))
    assert (verdict.score, verdict.parts, verdict.evidence, verdict.version) == (0.25, {"a": 1.0}, "why?", "7")
    skipped = one(shell(python('print(\'{"status": "skip"}\')')), rollout("moss"))
    assert (str(skipped.status), skipped.score) == ("skip", None)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("sys.exit('no moss')",), "ended with status 1: no moss"),
        (("print('moss')",), "the reply is 'moss'"),
        (("print('NaN')",), "the reply is 'NaN'"),
        (('print(\'{"status": "fine"}\')',), "expected a number, or"),
        (("print('true')",), "the reply is 'true'"),
    ],
)
def test_a_command_that_fails_is_an_error_and_not_a_zero(rollout, lines, said):
    verdict = one(shell(python(*lines)), rollout("moss"))
    assert (str(verdict.status), verdict.score) == ("error", None)
    assert said in verdict.evidence
    assert "cannot be started" in one(shell(["/no/such/program"]), rollout("moss")).evidence


def test_a_command_that_hangs_is_killed_with_its_children_and_alone(rollout, tmp_path):
    lines = (
        "import subprocess",
        "if said['completion'] == 'hang':",
        f"    child = subprocess.Popen(['sleep', '60']); open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))",
        "    time.sleep(60)",
        "print(1)",
    )
    start = time.perf_counter()
    verdicts = shell(python(*lines), timeout=2.0, workers=2).verdicts([rollout(t) for t in ("a", "hang", "b")])
    assert [str(verdict.status) for verdict in verdicts] == ["ok", "timeout", "ok"]
    assert time.perf_counter() - start < 20
    assert not alive_after(5.0, int((tmp_path / "pid").read_text()))


def alive_after(seconds, pid):
    """Whether a process is still there after some seconds."""
    ended = time.monotonic() + seconds
    while time.monotonic() < ended and os.path.exists(f"/proc/{pid}/exe"):
        time.sleep(0.01)
    return os.path.exists(f"/proc/{pid}/exe")


@pytest.mark.parametrize("how", ["killed", "done"])
def test_what_a_command_started_ends_with_it_also_in_another_session(rollout, tmp_path, how):
    lines = (
        "import os, subprocess",
        "if os.fork() == 0:",  # a daemon that holds the pipes open
        "    os.setsid()",
        "    if os.fork() == 0:",
        f"        open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))",
        "        time.sleep(60)",
        "    os._exit(0)",
        f"while not os.path.exists({str(tmp_path / 'pid')!r}): time.sleep(0.01)",
        "print(1, flush=True)",
        f"time.sleep({60 if how == 'killed' else 0})",
    )
    start = time.perf_counter()
    verdict = one(shell(python(*lines), timeout=2.0 if how == "killed" else 30.0), rollout("moss"))
    assert str(verdict.status) == ("timeout" if how == "killed" else "ok")
    assert time.perf_counter() - start < 20  # the daemon is not waited for
    assert not alive_after(5.0, int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_endless_output_is_cut_off(rollout, stream):
    tracemalloc.start()
    verdict = one(shell(python(f"while True: sys.{stream}.write('moss' * 20_000)"), timeout=60.0), rollout("moss"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (str(verdict.status), verdict.score) == ("error", None)
    assert "wrote more than 1000000 bytes" in verdict.evidence
    assert peak < 10_000_000


def test_a_command_may_leave_its_input_unread(rollout):
    loud = [sys.executable, "-S", "-c", "print(1)"]
    assert one(shell(loud), rollout("moss" * 500_000)).score == 1.0
    echo = shell(python("print(len(said['completion']))"))
    assert one(echo, rollout("moss" * 500_000)).score == 2_000_000


class Column:
    """What JSON does not know."""

    def __str__(self):
        return "a column"


def test_columns_that_json_does_not_know(rollout):
    verifier = shell(python("print(json.dumps({'score': 0, 'evidence': json.dumps(said['columns'])}))"))
    columns = {"when": Column(), "many": numpy.arange(2000), "odd": "\ud800", "nan": math.nan}
    said = json.loads(one(verifier, rollout("moss", **columns)).evidence)
    assert (said["when"], said["many"], said["odd"]) == ("a column", list(range(2000)), "\ud800")
    good, failed = verifier.verdicts([rollout("moss"), rollout("moss", wrong={(1, 2): 3})])
    assert (good.score, failed.score, str(failed.status)) == (0.0, None, "error")  # costs itself alone


def test_many_at_once_are_answered_in_order(rollout):
    verifier = shell(python("print(said['completion'])"), workers=8)
    assert [verdict.score for verdict in verifier.verdicts([rollout(str(n)) for n in range(40)])] == list(range(40))


def test_wrong_settings(monkeypatch):
    monkeypatch.delenv("REWARD_TOKEN", raising=False)
    for make in (
        lambda: shell([]),
        lambda: shell(["a"], timeout=0),
        lambda: http("file:///etc/passwd"),
        lambda: http("http://127.0.0.1", workers=0),
        lambda: http("http://127.0.0.1", headers_env={"Authorization": "REWARD_TOKEN"}),
    ):
        with pytest.raises(ConfigError, match="expected"):
            make()


@pytest.fixture
def service():
    """A server that answers by the completion it is asked about; what headers it saw."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append(self.headers.get("Authorization"))
            said = asked["completion"]
            replies = {
                "good": (200, b"1"),
                "bad": (500, b"moss fell over"),
                "odd": (200, b"<html>"),
                "made": (201, b"1"),
            }
            if said == "slow":
                time.sleep(1.0)
            status, body = replies.get(said, (302 if said == "elsewhere" else 200, b'{"score": 0.5}'))
            self.send_response(status)
            if said == "elsewhere":
                self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/good")
            if said == "cut":
                self.send_header("Content-Length", "100")
                body = b"10"
            self.end_headers()
            while said == "endless":
                self.wfile.write(b"1" * 100_000)
            for _ in range(40 if said == "drip" else 0):
                self.wfile.write(b" ")
                time.sleep(0.1)
            self.wfile.write(body)

        def do_GET(self):
            seen.append("GET")

        def log_message(self, *args):
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256  # as many as come at once

        def handle_error(self, *args):
            """A client that gave up is what the test is about."""

    server = Quiet(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/", seen
    server.shutdown()
    server.server_close()


def test_a_service(rollout, service, monkeypatch):
    url, seen = service
    monkeypatch.setenv("REWARD_TOKEN", "secret")
    verifier = http(url, timeout=0.5, headers_env={"Authorization": "REWARD_TOKEN"})
    verdicts = verifier.verdicts([rollout(text) for text in ("good", "bad", "odd", "slow", "other")])
    assert [str(v.status) for v in verdicts] == ["ok", "error", "error", "timeout", "ok"]
    assert [v.score for v in verdicts] == [1.0, None, None, None, 0.5]
    assert "HTTP 500: moss fell over" in verdicts[1].evidence
    assert "the reply is '<html>'" in verdicts[2].evidence
    assert seen == ["secret"] * 5
    assert str(one(http("http://127.0.0.1:9/", timeout=0.5), rollout("good")).status) == "error"


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("made", "error", "HTTP 201"),
        ("elsewhere", "error", "HTTP 302"),
        ("cut", "error", "98 bytes of the reply are missing"),
        ("endless", "error", "a reply of more than 1000000 bytes"),
        ("drip", "timeout", "took longer than 1 s"),
    ],
)
def test_a_service_that_misbehaves_is_no_score(rollout, service, text, status, said):
    url, seen = service
    verdict = one(http(url, timeout=1.0 if text == "drip" else 10.0), rollout(text))
    assert (str(verdict.status), verdict.score) == (status, None)
    assert said in verdict.evidence
    assert "GET" not in seen  # where it points to is not asked


def test_many_requests_at_once(rollout, service):
    verdicts = http(service[0], workers=16).verdicts([rollout("good" if n % 2 else "other") for n in range(200)])
    assert [verdict.score for verdict in verdicts] == [0.5, 1.0] * 100
