from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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
    child = int((tmp_path / "pid").read_text())
    ended = time.monotonic() + 5
    while time.monotonic() < ended and os.path.exists(f"/proc/{child}/exe"):
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{child}/exe")


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
            replies = {"good": (200, b"1"), "bad": (500, b"moss fell over"), "odd": (200, b"<html>")}
            if asked["completion"] == "slow":
                time.sleep(1.0)
            status, body = replies.get(asked["completion"], (200, b'{"score": 0.5}'))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

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
