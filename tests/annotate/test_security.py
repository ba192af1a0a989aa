"""Passwords, rates and origins, apart from the server."""

from __future__ import annotations

import pytest

from annotate.security import Passwords, RateLimiter, foreign, same_token


def test_passwords_are_salted_and_an_empty_hash_opens_to_nothing():
    passwords = Passwords()
    one, other = passwords.hash("correct horse"), passwords.hash("correct horse")
    assert one != other and one.startswith("$argon2id$") and "correct horse" not in one
    assert passwords.verify("correct horse", one) and not passwords.verify("correct horses", one)
    assert not passwords.verify("", "") and not passwords.verify("the password of nobody", "")


def test_a_bucket_gives_its_burst_and_then_its_rate():
    now = [0.0]
    limiter = RateLimiter(burst=2, rate=0.5, clock=lambda: now[0])
    assert [limiter.take("a") for _ in range(3)] == [0.0, 0.0, 2.0]
    assert limiter.take("b") == 0.0
    now[0] = 1.0
    assert limiter.take("a") == 1.0  # waiting in vain costs nothing
    now[0] = 2.0
    assert (limiter.take("a"), limiter.take("a")) == (0.0, 2.0)


def test_buckets_that_are_full_again_are_forgotten():
    now = [0.0]
    limiter = RateLimiter(burst=1, rate=1.0, clock=lambda: now[0], keys=100)
    for number in range(100):
        limiter.take(number)
    now[0] = 2.0
    limiter.take("new")
    assert len(limiter._levels) == 1 and limiter.take("new") == 1.0


def test_secrets_are_the_same_or_not():
    assert same_token("abc", "abc") and not same_token("abd", "abc")
    assert not same_token("", "") and not same_token("\N{SNOWMAN}", "abc")


@pytest.mark.parametrize(
    ("method", "headers", "expected"),
    [
        ("POST", {"origin": "http://a.example", "host": "a.example"}, False),
        ("POST", {"origin": "https://A.example", "host": "a.example"}, False),  # TLS ends at a proxy
        ("POST", {"origin": "http://a.example:81", "host": "a.example:80"}, True),
        ("POST", {"origin": "null", "host": "a.example"}, True),
        ("POST", {"host": "a.example"}, True),
        ("POST", {"host": "a.example", "sec-fetch-site": "none"}, False),
        ("POST", {"origin": "http://b.example", "host": "a.example", "sec-fetch-mode": "navigate"}, True),
        ("GET", {"host": "a.example"}, False),
        ("GET", {"host": "a.example", "sec-fetch-site": "cross-site"}, True),
        ("GET", {"host": "a.example", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, False),
    ],
)
def test_where_a_request_comes_from(method, headers, expected):
    assert foreign(method, headers) is expected


def test_the_public_address_is_ours_where_a_proxy_changes_the_host():
    headers = {"origin": "https://label.example", "host": "10.0.0.5:7860"}
    assert foreign("POST", headers) and not foreign("POST", headers, "https://label.example/")
