"""Verifiers that live elsewhere: a command of this machine, a service on the network."""

from __future__ import annotations

import functools
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from numbers import Real
from typing import Any

from prefrl.errors import ConfigError
from prefrl.rewards.calls import Outcome, run_calls
from prefrl.rewards.verifiers.common import Verifier
from prefrl.rewards.verifiers.verdict import SCORED, Status, Verdict, failure
from prefrl.types import Rollout

LARGEST = 1_000_000  # bytes of a reply
MARK = "PREFRL_SHELL"  # environment variable by which all processes of one call are found
POLL = 0.05  # seconds after which it is asked again whether a process that holds no pipe open has ended
GRACE = 5.0  # seconds by which a service may be late to notice that it is out of time
_STATES = ", ".join(Status)


def shell(command: Sequence[str], *, timeout: float = 10.0, workers: int = 4, version: str = "1") -> Verifier:
    """What a command of yours says of each completion. It is trusted: it runs with all the rights of this process.

    It reads one line of JSON on its standard input, `{"prompt", "completion", "columns"}`, and prints a number, or one
    line of JSON: `{"score": 0.5, "status": "ok", "parts": {...}, "evidence": "..."}`. Another exit status than 0 is an
    error of the verifier, not a score of 0, and so is more than a megabyte of output. After `timeout` seconds it is
    killed. All that it started ends with it, also in other sessions. What JSON does not know of a column is sent as
    text, arrays as lists.

    Args:
        command: program and arguments, such as [python, check.py].
        timeout: seconds of work for one completion.
        workers: how many run at the same time.
        version: of your command; raise it when its verdicts change.

    Raises:
        ConfigError: no command, or a timeout or number of workers that is not above 0.
    """
    words = [command] if isinstance(command, str) else [str(word) for word in command]
    _require(bool(words), "shell", f"command={list(words)}", "a program and its arguments: [python, check.py]")
    _require(timeout > 0 and workers > 0, "shell", f"timeout={timeout}, workers={workers}", "numbers above 0")
    ask = functools.partial(_run, words, timeout)
    return Verifier("shell", batch=_each(ask, workers, None), version=version)


def http(
    url: str,
    *,
    timeout: float = 30.0,
    workers: int = 8,
    headers_env: Mapping[str, str] | None = None,
    version: str = "1",
) -> Verifier:
    """What a service of yours says of each completion: POST the JSON of `shell`, and read the same reply.

    A reply that is not 200 (a redirection is not followed), no connection, a reply of more than a megabyte and an
    unreadable one are errors; none of them is a score of 0.

    Args:
        url: of the service, http or https.
        timeout: seconds for one request, from its first byte to the last one of the reply.
        workers: requests at the same time.
        headers_env: header name -> environment variable that holds its value, such as {Authorization: REWARD_TOKEN}.
        version: of your service; raise it when its verdicts change.

    Raises:
        ConfigError: another kind of address, a timeout or number of workers not above 0, or a variable that is unset.
    """
    _require(url.startswith(("http://", "https://")), "http", f"url={url!r}", "an address that starts with http")
    _require(timeout > 0 and workers > 0, "http", f"timeout={timeout}, workers={workers}", "numbers above 0")
    for header, variable in (headers_env or {}).items():
        _require(variable in os.environ, "http", f"no environment variable {variable!r}", f"the value of {header}")
    ask = functools.partial(_post, url, timeout, dict(headers_env or {}))
    return Verifier("http", batch=_each(ask, workers, timeout + GRACE), version=version)


def _require(good: bool, kind: str, got: str, expected: str) -> None:
    if not good:
        raise ConfigError(f"{kind}: got {got}; expected {expected}")


def _each(
    ask: Callable[[bytes], Verdict], workers: int, timeout: float | None
) -> Callable[[Sequence[Rollout]], list[Verdict]]:
    """Ask about many rollouts at once; the time of each is its own, however long it waited for a free worker."""

    def timed(rollout: Rollout) -> Verdict:
        start = time.perf_counter()
        return ask(_request(rollout)).stamped("", time.perf_counter() - start)

    def batch(rollouts: Sequence[Rollout]) -> list[Verdict]:
        calls = [functools.partial(timed, rollout) for rollout in rollouts]
        outcomes = run_calls(calls, timeout=timeout, workers=workers)
        return [_outcome(outcome) for outcome in outcomes]

    return batch


def _outcome(outcome: Outcome) -> Verdict:
    if outcome.error is None:
        verdict: Verdict = outcome.value
        return verdict
    return failure(outcome.error, Status.TIMEOUT if outcome.raised is None else Status.ERROR)


def _request(rollout: Rollout) -> bytes:
    said = {"prompt": rollout.prompt.content, "completion": rollout.text, "columns": dict(rollout.prompt.columns)}
    return json.dumps(said, default=lambda x: x.tolist() if hasattr(x, "tolist") else str(x)).encode() + b"\n"


def _run(command: Sequence[str], timeout: float, request: bytes) -> Verdict:
    mark = uuid.uuid4().hex
    with tempfile.TemporaryFile() as asked:  # not a pipe, which would have to be fed while the output is read
        asked.write(request)
        asked.seek(0)
        try:
            process = subprocess.Popen(
                command,
                stdin=asked,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, MARK: mark},
            )
        except OSError as error:
            return failure(f"{command[0]} cannot be started: {error}")
    assert process.stdout is not None and process.stderr is not None
    with process.stdout, process.stderr:
        try:
            said = _output(process, time.monotonic() + timeout)
        finally:
            _kill(process, mark)
            process.wait()
    if said is None:
        return failure(f"{command[0]} took longer than {timeout:g} s", Status.TIMEOUT)
    out, err = said
    if len(out) > LARGEST or len(err) > LARGEST:
        return failure(f"{command[0]} wrote more than {LARGEST} bytes")
    if process.returncode:
        return failure(f"{command[0]} ended with status {process.returncode}: {_short(err) or _short(out)}")
    return _read(out)


def _output(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes] | None:
    """What a process writes until it ends, or until that is too much; None where it takes too long.

    A process it has started may hold the pipes open for longer, so its end counts, not theirs.
    """
    streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
    said = {stream.fileno(): bytearray() for stream in streams}
    with selectors.DefaultSelector() as selector:
        for descriptor in said:
            selector.register(descriptor, selectors.EVENT_READ)
        while not (process.poll() is not None and not _take(selector, said, 0.0)):
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if selector.get_map():
                _take(selector, said, min(POLL, left))
            else:  # nobody can write any more
                _wait(process, left)
            if max(map(len, said.values())) > LARGEST:
                break
    out, err = map(bytes, said.values())
    return out, err


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def _take(selector: selectors.BaseSelector, said: Mapping[int, bytearray], seconds: float) -> bool:
    """Read what is there, or comes within some seconds; whether there was anything."""
    ready = selector.select(seconds)
    for key, _ in ready:
        part = os.read(key.fd, 1 << 16)
        said[key.fd].extend(part)
        if not part:
            selector.unregister(key.fd)
    return bool(ready)


def _kill(process: subprocess.Popen[bytes], mark: str) -> None:
    """End a process and all that it started: its session, and whatever else has its mark."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for _ in range(100):  # a process may start another one while it is looked for
        found = _marked(f"{MARK}={mark}".encode())
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


def _marked(mark: bytes) -> list[int]:
    """Living processes with a variable in their environment; none where there is no /proc."""
    names = os.listdir("/proc") if os.path.isdir("/proc") else []
    return [int(name) for name in names if name.isdigit() and mark in _environment(name)]


def _environment(pid: str) -> list[bytes]:
    """The variables that a process was started with; none for a dead one, or somebody else's."""
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as environment:
        return environment.read().split(b"\0")
    return []


class _Refused(urllib.request.HTTPRedirectHandler):
    """Follows nothing: a request and its secrets are for one address."""

    def redirect_request(self, *args: Any) -> None:
        """Make no other request."""


def _post(url: str, timeout: float, headers: Mapping[str, str], request: bytes) -> Verdict:
    own = {header: os.environ.get(variable, "") for header, variable in headers.items()}
    message = urllib.request.Request(url, request, {"Content-Type": "application/json", **own}, method="POST")
    late = failure(f"{url} took longer than {timeout:g} s", Status.TIMEOUT)
    deadline = time.monotonic() + timeout
    try:
        with urllib.request.build_opener(_Refused).open(message, timeout=timeout) as response:
            reply = _body(response, deadline)
            status, missing = response.status, response.length
    except urllib.error.HTTPError as error:
        with error:
            return failure(f"{url}: HTTP {error.code}: {_short(error.read(2000))}")
    except TimeoutError:
        return late
    except OSError as error:
        return late if isinstance(getattr(error, "reason", None), TimeoutError) else failure(f"{url}: {error}")
    if len(reply) > LARGEST:
        return failure(f"{url}: a reply of more than {LARGEST} bytes")
    if status != 200 or missing:
        how = f"{missing} bytes of the reply are missing" if missing else f"HTTP {status}"
        return failure(f"{url}: {how}: {_short(reply)}")
    return _read(reply)


def _body(response: Any, deadline: float) -> bytes:
    """What a service replies, until that is too much; raises TimeoutError where it takes too long."""
    reply = bytearray()
    while len(reply) <= LARGEST and (part := response.read1(1 << 16)):
        reply += part
        if time.monotonic() > deadline:
            raise TimeoutError
    return bytes(reply)


def _read(reply: bytes) -> Verdict:
    """The verdict in a reply: a number, or a mapping; anything else is an error."""
    try:
        said: Any = json.loads(reply)
        if _is_number(said):
            said = {"score": said}
        status = Status(said.get("status", Status.OK))
        parts = {str(name): float(value) for name, value in (said.get("parts") or {}).items()}
        score = float(said["score"]) if status in SCORED and _is_number(said.get("score")) else None
        return Verdict(status=status, score=score, parts=parts, evidence=str(said.get("evidence", "")))
    except (ArithmeticError, ValueError, TypeError, AttributeError, RecursionError) as error:
        expected = f'a number, or {{"score": number, "status": one of {_STATES}}}'
        return failure(f"the reply is {_short(reply)!r} ({error}); expected {expected}")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _short(text: bytes) -> str:
    return " ".join(text[:300].decode("utf-8", "replace").split())
