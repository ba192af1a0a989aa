"""Verifiers that live elsewhere: a command of this machine, a service on the network."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from numbers import Real
from typing import Any

from prefrl.errors import ConfigError
from prefrl.rewards.calls import run_calls
from prefrl.rewards.verifiers.common import Verifier
from prefrl.rewards.verifiers.verdict import SCORED, Status, Verdict, failure
from prefrl.types import Rollout

LARGEST = 1_000_000  # bytes of a reply
_STATES = ", ".join(Status)


def shell(command: Sequence[str], *, timeout: float = 10.0, workers: int = 4, version: str = "1") -> Verifier:
    """What a command of yours says of each completion. It is trusted: it runs with all the rights of this process.

    It reads one line of JSON on its standard input, `{"prompt", "completion", "columns"}`, and prints a number, or one
    line of JSON: `{"score": 0.5, "status": "ok", "parts": {...}, "evidence": "..."}`. Another exit status than 0 is an
    error of the verifier, not a score of 0. After `timeout` seconds of work it is killed, with all its children.

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
    return Verifier("shell", batch=_each(ask, workers), version=version)


def http(
    url: str,
    *,
    timeout: float = 30.0,
    workers: int = 8,
    headers_env: Mapping[str, str] | None = None,
    version: str = "1",
) -> Verifier:
    """What a service of yours says of each completion: POST the JSON of `shell`, and read the same reply.

    A reply that is not 200, no connection and an unreadable reply are errors; none of them is a score of 0.

    Args:
        url: of the service, http or https.
        timeout: seconds for one request.
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
    return Verifier("http", batch=_each(ask, workers), version=version)


def _require(good: bool, kind: str, got: str, expected: str) -> None:
    if not good:
        raise ConfigError(f"{kind}: got {got}; expected {expected}")


def _each(ask: Callable[[bytes], Verdict], workers: int) -> Callable[[Sequence[Rollout]], list[Verdict]]:
    """Ask about many rollouts at once; the time of each is its own, however long it waited for a free worker."""

    def timed(rollout: Rollout) -> Verdict:
        start = time.perf_counter()
        return ask(_request(rollout)).stamped("", time.perf_counter() - start)

    def batch(rollouts: Sequence[Rollout]) -> list[Verdict]:
        calls = [functools.partial(timed, rollout) for rollout in rollouts]
        outcomes = run_calls(calls, timeout=None, workers=workers)
        return [failure(o.error) if o.error is not None else o.value for o in outcomes]

    return batch


def _request(rollout: Rollout) -> bytes:
    said = {"prompt": rollout.prompt.content, "completion": rollout.text, "columns": dict(rollout.prompt.columns)}
    return json.dumps(said, default=str).encode() + b"\n"


def _run(command: Sequence[str], timeout: float, request: bytes) -> Verdict:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        process = subprocess.Popen(command, start_new_session=True, **pipes)  # type: ignore[call-overload]
    except OSError as error:
        return failure(f"{command[0]} cannot be started: {error}")
    try:
        out, err = process.communicate(request, timeout=timeout)
    except subprocess.TimeoutExpired:
        return failure(f"{command[0]} took longer than {timeout:g} s", Status.TIMEOUT)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it started as well
        process.communicate()
    if process.returncode:
        return failure(f"{command[0]} ended with status {process.returncode}: {_short(err) or _short(out)}")
    return _read(out)


def _post(url: str, timeout: float, headers: Mapping[str, str], request: bytes) -> Verdict:
    own = {header: os.environ.get(variable, "") for header, variable in headers.items()}
    message = urllib.request.Request(url, request, {"Content-Type": "application/json", **own}, method="POST")
    try:
        with urllib.request.urlopen(message, timeout=timeout) as response:
            return _read(response.read(LARGEST))
    except urllib.error.HTTPError as error:
        with error:
            return failure(f"{url}: HTTP {error.code}: {_short(error.read(2000))}")
    except TimeoutError:
        return failure(f"{url} took longer than {timeout:g} s", Status.TIMEOUT)
    except OSError as error:
        late = isinstance(getattr(error, "reason", None), TimeoutError)
        return failure(f"{url}: {error}", Status.TIMEOUT if late else Status.ERROR)


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
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        expected = f'a number, or {{"score": number, "status": one of {_STATES}}}'
        return failure(f"the reply is {_short(reply)!r} ({error}); expected {expected}")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _short(text: bytes) -> str:
    return " ".join(text[:300].decode("utf-8", "replace").split())
