"""A server that speaks the OpenAI chat protocol, asked patiently, many questions at once, and never twice the same."""

from __future__ import annotations

import functools
import hashlib
import http.client
import itertools
import json
import logging
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards.calls import run_calls
from prefrl.rewards.questions import Question, Vote, last_line, read_verdict

AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})  # worth another try
LONGEST_WAIT = 60.0  # seconds between two tries, whatever the server asks for
LARGEST = 10_000_000  # bytes of a reply
CHUNK = 256  # questions between two visits to the cache: what a killed run asks again, at most

log = logging.getLogger("prefrl.rewards")


class _Refused(Exception):
    """A request that failed; `wait` is None where another try would fail as well."""

    def __init__(self, why: str, wait: float | None = None) -> None:
        super().__init__(why)
        self.wait = wait


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another server."""

    def redirect_request(self, *_: Any) -> None:
        """Never."""


@dataclass(kw_only=True)
class Endpoint:
    """A chat model behind an URL, which votes by the verdict it writes. Its temperature is 0.

    Attributes:
        url: base of the API, such as http://localhost:8000/v1.
        model: the name that the server knows the model by.
        api_key_env: name of the environment variable that holds the key; empty for none. The key is kept nowhere.
        timeout: seconds for one try.
        retries: further tries after a busy or broken server, with waits that double, or as long as it asks for.
        concurrency: questions at the same time.
        max_tokens: most tokens of a reply; one that is cut off is an error.
        cache: a .jsonl file of replies that outlives the process; empty remembers them in memory alone.
        extra: further fields of a request; null takes one out.
        backoff: seconds before the second try.
    """

    model: str
    url: str
    api_key_env: str = ""
    timeout: float = 60.0
    retries: int = 4
    concurrency: int = 8
    max_tokens: int = 512
    cache: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    backoff: float = 1.0
    name: str = field(default="", init=False)
    _replies: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.name = self.model
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"judge: url={self.url!r}; expected an http(s) address: url: http://localhost:8000/v1")
        if "@" in urllib.parse.urlsplit(self.url).netloc:
            raise ConfigError("judge: url holds a password, which runs would record; name a variable: api_key_env: KEY")
        numbers = (self.timeout, self.retries, self.concurrency, self.max_tokens, self.backoff)
        if not all(isinstance(number, int | float) for number in numbers) or not (
            self.timeout > 0 and self.retries >= 0 and self.concurrency >= 1 and self.max_tokens >= 1
        ):
            raise ConfigError(
                f"judge: timeout={self.timeout!r}, retries={self.retries!r}, concurrency={self.concurrency!r}, "
                f"max_tokens={self.max_tokens!r}, backoff={self.backoff!r}; expected positive numbers (retries and "
                "backoff may be 0)"
            )
        if self.api_key_env and not _is_key(os.environ.get(self.api_key_env, "")):
            raise ConfigError(
                f"judge: the environment variable {self.api_key_env} is not set, or holds white space or other "
                f"characters that no header can; set it to the API key of {self.url}"
            )
        if self.cache:
            self._replies = _read_cache(Path(self.cache))

    def vote(self, questions: Sequence[Question]) -> list[Vote]:
        """Ask what was not asked before; equal questions once. A failed request is the error of its vote."""
        keys = [self._key(question) for question in questions]
        new = {key: q for key, q in zip(keys, questions, strict=True) if key not in self._replies}
        errors: dict[str, str] = {}
        for start in range(0, len(new), CHUNK):
            errors |= self._ask(dict(itertools.islice(new.items(), start, start + CHUNK)))
        return [
            Vote(error=errors[key]) if key in errors else read_verdict(self._replies[key], question.options)
            for key, question in zip(keys, questions, strict=True)
        ]

    def _ask(self, questions: Mapping[str, Question]) -> dict[str, str]:
        """Remember the replies to questions; the errors of those that have none."""
        calls = [functools.partial(self._reply, question) for question in questions.values()]
        outcomes = run_calls(calls, timeout=self._deadline, workers=self.concurrency)
        found = dict(zip(questions, outcomes, strict=True))
        self._remember({key: outcome.value for key, outcome in found.items() if outcome.error is None})
        return {key: outcome.error for key, outcome in found.items() if outcome.error is not None}

    @property
    def _deadline(self) -> float:
        """Seconds for all tries of a question: a server that dribbles holds nobody up for ever."""
        return (self.retries + 1) * self.timeout + self.retries * LONGEST_WAIT

    def _body(self, question: Question) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": question.text}],
            "temperature": 0,
            "max_tokens": self.max_tokens,
            **self.extra,
        }
        return {name: value for name, value in body.items() if value is not None}

    def _key(self, question: Question) -> str:
        said = json.dumps([self.url, self._body(question)], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()

    def _reply(self, question: Question) -> str:
        for attempt in range(self.retries + 1):
            try:
                return self._post(self._body(question))
            except _Refused as refused:
                if refused.wait is None or attempt == self.retries:
                    tries = f" ({attempt + 1} tries)" if attempt else ""
                    raise RewardError(f"{self.url}: {refused}{tries}") from None
                time.sleep(min(max(refused.wait, self.backoff * 2**attempt), LONGEST_WAIT))
        raise AssertionError("the last attempt returns or raises")

    def _post(self, body: Mapping[str, Any]) -> str:
        key = os.environ.get(self.api_key_env, "") if self.api_key_env else ""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url.rstrip('/')}/chat/completions", data, headers, method="POST")
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=self.timeout) as response:
                raw = response.read(LARGEST)
        except urllib.error.HTTPError as error:
            with error:
                raise _http_failure(error, key) from None
        except (OSError, http.client.HTTPException) as error:  # no connection, or one that broke off or took too long
            why = getattr(error, "reason", error)
            raise _Refused(_hide(f"{type(error).__name__}: {why}", key), 0.0) from None
        return _content(raw)

    def _remember(self, replies: Mapping[str, str]) -> None:
        self._replies.update({key: last_line(reply) for key, reply in replies.items()})
        if not self.cache or not replies:
            return
        lines = "".join(json.dumps({"key": key, "reply": reply}) + "\n" for key, reply in replies.items())
        try:
            with open(self.cache, "a", encoding="utf-8") as file:
                file.write(lines)
        except OSError as error:
            raise RewardError(f"judge: cannot write the cache {self.cache}: {error}. Name another file.") from error


def _http_failure(error: urllib.error.HTTPError, key: str) -> _Refused:
    try:
        said = error.read(2000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        said = ""
    why = _hide(f"HTTP {error.code}: {' '.join(said.split())[:300] or error.reason}", key)
    return _Refused(why, _seconds(error.headers.get("Retry-After")) if error.code in AGAIN else None)


def _seconds(header: str | None) -> float:
    """Seconds of a Retry-After header; 0 for none, or for one that names a date."""
    try:
        return max(0.0, float(header or 0))
    except ValueError:
        return 0.0


def _is_key(key: str) -> bool:
    return key.isascii() and key.isprintable() and key == key.strip() != ""


def _hide(text: str, key: str) -> str:
    """Servers quote the key that they refuse."""
    return text.replace(key, "***") if key else text


def _content(raw: bytes) -> str:
    """The reply in what the server sent."""
    try:
        choice = json.loads(raw)["choices"][0]
        content, reason = choice["message"]["content"], choice.get("finish_reason")
    except (ValueError, LookupError, TypeError, AttributeError):
        shown = " ".join(raw[:200].decode("utf-8", "replace").split())
        raise _Refused(f"the server sent {shown!r}; expected a chat completion as JSON") from None
    if reason == "length":
        raise _Refused("the judge's reply was cut off; raise max_tokens")
    if not isinstance(content, str):
        raise _Refused(f"the judge's reply is {content!r}; expected a text")
    return content


def _read_cache(path: Path) -> dict[str, str]:
    """Replies of earlier processes; a damaged line is left out and told."""
    replies: dict[str, str] = {}
    damaged = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"judge: cannot read the cache {path}: {error}. Name another file.") from error
    for line in lines:
        try:
            entry = json.loads(line)
            replies[entry["key"]] = last_line(str(entry["reply"]))
        except (ValueError, LookupError, TypeError):
            damaged += 1
    if damaged:
        log.warning("%s: %d damaged lines left out; their questions are asked again", path, damaged)
    return replies
