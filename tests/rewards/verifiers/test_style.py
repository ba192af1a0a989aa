from __future__ import annotations

import pytest

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards.verifiers.style import language, repeated_share, repetition


@pytest.mark.parametrize(
    ("text", "n", "share"),
    [
        ("a b c d", 2, 0.0),
        ("a b a b a b", 2, 0.6),  # ab ba ab ba ab: three of five came before
        ("Moss, moss; MOSS", 1, 2 / 3),
        ("one two", 3, 0.0),
        ("", 3, 0.0),
        ("好好好好", 1, 0.75),  # without spaces a character is a word
        ("สวัส", 1, 0.25),
        ("हिन्दी में हिन्दी", 1, 1 / 3),  # vowel signs do not part words
        ("cafe\u0301 cafe\u0301", 1, 0.5),
        ("\u0130stanbul \u0130STANBUL", 1, 0.5),
        ("a好a", 1, 1 / 3),
    ],
)
def test_repeated_share(text, n, share):
    assert repeated_share(text, n) == pytest.approx(share)


def test_repetition_costs_beyond_what_is_free(rollout):
    text = rollout("a b a b a b")
    assert repetition(2).score([text])[0].value == pytest.approx(-0.6)
    assert repetition(2, free=0.2).score([text])[0].value == pytest.approx(-0.5)
    assert repetition(2, free=0.6).score([text])[0].value == pytest.approx(0.0)
    assert repetition(2).score([text])[0].parts == {"repeated": pytest.approx(0.6)}
    for wrong in ({"n": 0}, {"free": 1.0}):
        with pytest.raises(ConfigError, match="expected n of 1 or more"):
            repetition(**wrong)


def test_language_of_a_code_or_a_column(rollout):
    german, empty = "Wir gehen heute am Fluss spazieren und reden", "12 + 34"
    assert [s.value for s in language("de").score([rollout(german), rollout(empty)])] == [1.0, 0.0]
    assert language(column="code").score([rollout(german, code="en")])[0].value == 0.0
    with pytest.raises(ConfigError, match="give exactly one"):
        language()
    with pytest.raises(RewardError, match="unknown language 'english'"):
        language("english")
