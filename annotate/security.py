"""What keeps others out: passwords, how often one may try, and where a request may come from."""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pwdlib import PasswordHash

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
MIN_PASSWORD, MAX_PASSWORD = 8, 256


class Passwords:
    """Hashes of passwords by argon2id, each of which takes tens of milliseconds and 64 MB, so two at a time."""

    def __init__(self) -> None:
        self._turn = threading.BoundedSemaphore(2)

    def hash(self, password: str) -> str:
        """What is stored in place of a password."""
        with self._turn:
            return self._hasher.hash(password)

    def verify(self, password: str, hashed: str) -> bool:
        """Whether this is the password; with an empty hash it never is, and finding that out takes as long."""
        with self._turn:
            nobody = self._nobody  # made by whoever comes first, so that this does not tell who is unknown
            same = self._hasher.verify(password, hashed or nobody)
        return same and bool(hashed)

    @cached_property
    def _hasher(self) -> PasswordHash:
        from pwdlib import PasswordHash  # starts a C library, which those who stay signed in never need

        return PasswordHash.recommended()

    @cached_property
    def _nobody(self) -> str:
        return self._hasher.hash("the password of nobody")


@dataclass(kw_only=True)
class RateLimiter:
    """A token bucket for every key: `burst` at once, then `rate` a second."""

    burst: int
    rate: float
    clock: Callable[[], float] = time.monotonic
    keys: int = 10_000
    _levels: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, key: Hashable) -> float:
        """Take one; 0 where there was one, else the seconds until there is."""
        with self._lock:
            now = self.clock()
            level, before = self._levels.get(key, (float(self.burst), now))
            level = min(float(self.burst), level + (now - before) * self.rate)
            allowed = level >= 1.0
            self._levels[key] = (level - allowed, now)
            if len(self._levels) > self.keys:
                self._forget(now)
        return 0.0 if allowed else (1.0 - level) / self.rate

    def give_back(self, key: Hashable) -> None:
        """Put one back that was taken: what it was taken for was no guess."""
        with self._lock:
            if key in self._levels:
                level, before = self._levels[key]
                self._levels[key] = (min(float(self.burst), level + 1.0), before)

    def _forget(self, now: float) -> None:
        """Drop the keys whose buckets are full again: they are as good as new."""
        full = [k for k, (level, t) in self._levels.items() if level + (now - t) * self.rate >= self.burst]
        for key in full:
            del self._levels[key]


def same_token(given: str, expected: str) -> bool:
    """Whether two secrets are the same, in a time that says nothing of where they differ."""
    return bool(expected) and hmac.compare_digest(given.encode(), expected.encode())


def stranger(host: str, names: Collection[str]) -> bool:
    """Whether a request was made to a name that is none of ours.

    The name of any page can be made to lead to this machine. A browser then takes our answers for those of that page
    and lets it read them.

    Args:
        host: the header.
        names: ours, in lower case; none takes all.
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        name = ""
    return bool(names) and name not in names and not name.endswith(".localhost")


def network(address: str) -> str:
    """The address of who asks; of IPv6 the network, all of whose addresses are one person's."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or ip_network((parsed, 64), strict=False))
    return str(parsed)


def foreign(method: str, headers: Mapping[str, str], url: str = "") -> bool:
    """Whether a request was made by a page that is not ours.

    A browser says where a request comes from, in Origin or in Sec-Fetch-Site; ports are different origins though they
    share cookies. Following a link to us is the one thing that a foreign page may make a browser do.

    Args:
        method: of the request.
        headers: with names in lower case.
        url: our public address; empty takes the host that was asked for.
    """
    site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "")
    safe = method in SAFE_METHODS
    if safe and headers.get("sec-fetch-mode") == "navigate":
        return False
    if origin:
        ours = {headers.get("host", "").lower(), urlsplit(url).netloc.lower()} - {""}
        return _netloc(origin) not in ours
    return site not in (("same-origin", "none", "") if safe else ("same-origin", "none"))


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
