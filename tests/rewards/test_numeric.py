from __future__ import annotations

import math
from time import monotonic

import pytest

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards import checked_scores, numeric
from prefrl.rewards.verifiers.numeric import numbers_in


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("42", [42]),
        ("0", [0]),
        ("The answer is 42.", [42]),
        ("1. first 2. second", [1, 2]),
        ("3.14", [3.14]),
        (".5", [0.5]),
        ("it is ...5", [5]),
        ("1..5", [1, 5]),
        ("5.0.", [5.0]),
        ("1,234", [1234]),
        ("1,234,567.89", [1234567.89]),
        ("1\u202f234 and 1\u00a0234", [1234, 1234]),
        ("1, 2, 3", [1, 2, 3]),
        ("1,2", [1, 2]),
        ("1,2345", [1, 2345]),
        ("0,123", [0, 123]),
        ("1 234", [1, 234]),
        # signs
        ("-5", [-5]),
        ("+5", [5]),
        ("\u22125", [-5]),
        ("x = -5, y=-6, (-7)", [-5, -6, -7]),
        ("3-4", [3, 4]),
        ("3\u22124", [3, 4]),
        ("3 - 4", [3, 4]),
        ("x-5", [5]),
        ("(2)-5", [2, 5]),
        ("5%-6%", [5, 6]),
        ("- 5", [5]),
        ("2024-01-02", [2024, 1, 2]),
        ("\u20135", [5]),
        # units
        ("$5", [5]),
        ("-$5", [-5]),
        ("$-5", [-5]),
        ("$ 1,234.50", [1234.5]),
        ("US$7", [7]),
        ("50%", [50]),
        ("5km and 3rd", [5, 3]),
        ("12:30", [12, 30]),
        # fractions
        ("3/4", [0.75]),
        ("-3/4", [-0.75]),
        ("3 / 4", [0.75]),
        ("1 1/2", [1.5]),
        ("-1 1/2", [-1.5]),
        ("5 10/2", [5, 5]),
        ("3/0", []),
        ("1/2/2024", [1, 2, 2024]),
        ("3.5/2", [3.5, 2]),
        # scientific notation
        ("1.5e3", [1500]),
        ("1E-3", [0.001]),
        ("-2e+2", [-200]),
        ("2e", [2]),
        ("2e3m", [2]),
        ("1.5 x 10^3", [1500]),
        ("1.5 \u00d7 10^{-3}", [0.0015]),
        (r"2 \times 10^2", [200]),
        ("2 * 10 = 20", [2, 10, 20]),
        # not numbers
        ("", []),
        ("none", []),
        ("H2O and x1", []),
        ("1.2.3", []),
        ("192.168.0.1", []),
        ("\u0665", []),
        ("1e999", []),
        ("inf nan", []),
        # in context
        (r"\boxed{42}", [42]),
        ("**42**", [42]),
        ("5 + 3 = 8", [5, 3, 8]),
        ("#### 72", [72]),
    ],
)
def test_numbers_in(text, numbers):
    assert numbers_in(text) == pytest.approx(numbers, rel=1e-12)


def test_long_texts_take_linear_time():
    start = monotonic()
    assert len(numbers_in("1," * 50_000)) == 50_000
    assert numbers_in("7" * 100_000) == []  # beyond the range of a float
    assert numbers_in("1.2." * 25_000) == []
    assert monotonic() - start < 2.0


@pytest.mark.parametrize(
    ("text", "gold", "options", "parsed", "correct"),
    [
        ("6 * 7 = 42", 42, {}, 1, 1),
        ("42, that is 6 * 7", 42, {}, 1, 0),
        ("42, that is 6 * 7", 42, {"pick": "first"}, 1, 1),
        ("42", 42, {"pick": "only"}, 1, 1),
        ("42 or 43", 42, {"pick": "only"}, 0, 0),
        ("no idea", 42, {}, 0, 0),
        ("", 42, {}, 0, 0),
        ("-42", 42, {}, 1, 0),
        ("$1,234.50", "1234.5", {}, 1, 1),
        ("0.75", "3/4", {}, 1, 1),
        ("50%", "50", {}, 1, 1),
        ("50%", 0.5, {}, 1, 0),
        ("42", "6 * 7 is forty-two\n#### 42", {}, 1, 1),
        ("1,000", "First 3 then 4.\n#### 1,000", {}, 1, 1),
        ("0", 0, {}, 1, 1),
        ("0.0000000005", 0, {}, 1, 1),
        ("0.001", 0, {}, 1, 0),
        ("3.3333333", 10 / 3, {}, 1, 1),
        ("3.33", 10 / 3, {}, 1, 0),
        ("3.33", 10 / 3, {"rel_tol": 0.01}, 1, 1),
        ("1000000", 1000001, {}, 1, 1),
        ("1000000", 1000001, {"rel_tol": 0.0}, 1, 0),
    ],
)
def test_numeric(rollout, text, gold, options, parsed, correct):
    (got,) = numeric(**options).score([rollout(text, answer=gold)])
    assert (got.value, got.parts) == (correct, {"parsed": parsed, "correct": correct})


def test_parse_rate_and_accuracy_given_parsed_follow_from_the_parts(rollout):
    scores = numeric("gold").score([rollout(t, gold=4) for t in ("4", "5", "four", "")])
    parsed, correct = (sum(s.parts[part] for s in scores) for part in ("parsed", "correct"))
    assert (parsed / 4, correct / parsed) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("gold", "reason"),
    [
        ("forty-two", "holds 0 numbers, expected one: 'forty-two'"),
        ("3 or 4", "holds 2 numbers, expected one: '3 or 4'"),
        ("42 ####", "holds 0 numbers, expected one: '42 ####'"),
        (None, "is None; expected a number, or a text with one"),
        (True, "is True; expected a number, or a text with one"),
        ([42], "is [42]; expected a number, or a text with one"),
        (math.nan, "is nan, not a finite number"),
    ],
)
def test_a_gold_that_is_no_number_is_an_error(rollout, gold, reason):
    (got,) = numeric().score([rollout("42", answer=gold)])
    assert got.error == f"the column 'answer' {reason}"


def test_a_missing_column_stops(rollout):
    with pytest.raises(RewardError, match=r"'numeric' needs the dataset column 'answer'.*its columns: solution"):
        checked_scores(numeric(), [rollout("42", solution=42)])


@pytest.mark.parametrize("wrong", [{"pick": "best"}, {"rel_tol": -1.0}, {"abs_tol": math.nan}])
def test_settings_are_checked(wrong):
    with pytest.raises(ConfigError, match="numeric: "):
        numeric(**wrong)


def test_name():
    assert numeric().name == "numeric"
