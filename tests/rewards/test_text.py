from __future__ import annotations

import pytest

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards import checked_scores, choice, exact, length_band, regex


def one(source, rollout):
    return source.score([rollout])[0]


# --- exact --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "gold", "options", "value"),
    [
        ("Paris", "Paris", {}, 1.0),
        ("  Paris\n", "Paris ", {}, 1.0),
        (" Paris", "Paris", {"strip": False}, 0.0),
        (" Paris", " Paris", {"strip": False}, 1.0),
        ("paris", "Paris", {}, 0.0),
        ("pARIS", "Paris", {"ignore_case": True}, 1.0),
        ("STRASSE", "straße", {"ignore_case": True}, 1.0),
        ("Paris.", "Paris", {}, 0.0),
        ("The answer is Paris", "Paris", {}, 0.0),
        ("5", 5, {}, 1.0),
        ("", "Paris", {}, 0.0),
    ],
)
def test_exact(rollout, text, gold, options, value):
    got = one(exact(**options), rollout(text, answer=gold))
    assert got.value == value
    assert got.parts == {"parsed": float(text != ""), "correct": value}


@pytest.mark.parametrize("gold", [None, "", "  "])
def test_exact_needs_a_gold_text(rollout, gold):
    assert one(exact(), rollout("", answer=gold)).error == f"the column 'answer' is {gold!r}; expected a text"


@pytest.mark.parametrize("make", [exact, choice, lambda column: regex("a", column)])
def test_a_missing_column_stops_and_lists_the_columns(rollout, make):
    with pytest.raises(
        RewardError, match=r"needs the dataset column 'anser', which prompt 'p0'.*Did you mean 'answer'\?"
    ):
        checked_scores(make("anser"), [rollout("x", answer="x", level=1)])


# --- choice -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("B", "B"),
        ("b", "B"),
        (" B. ", "B"),
        ("(B)", "B"),
        ("(b)", "B"),
        ("[C]", "C"),
        ("B) because water boils", "B"),
        ("B: because", "B"),
        ("Reasons first.\nB. Paris", "B"),
        ("The answer is B", "B"),
        ("The answer is B because A is too small", "B"),
        ("The correct answer is: (C).", "C"),
        ("Answer: D", "D"),
        ("ANSWER = D", "D"),
        ("### Answer\nD", "D"),
        ("Final answer: **B**.", "B"),
        ("The answer is $\\boxed{\\text{C}}$.", "C"),
        ("The answer must be the option (A)", "A"),
        ("I choose C", "C"),
        ("Option A it is", "A"),
        ("So it has to be D.", "D"),
        ("The answer is (B), not (A).", "B"),
        ("The answer is not (A), so the answer is (B)", "B"),
        ("Option A is wrong. The answer is B.", "B"),
        ("The answer is B. I repeat, the answer is B.", "B"),
        # nothing chosen
        ("", None),
        ("E", None),
        ("I do not know", None),
        ("A cat sat on the mat", None),
        ("the answer is a mammal", None),
        ("a or b, hard to say", None),
        ("Answer: none", None),
        ("ABCD", None),
        ("The answer is A-level maths", None),
        ("The answer is B's brother", None),
        # several chosen
        ("The answer is either A or B.", None),
        ("The answer is A or B", None),
        ("The answer is A and (C).", None),
        ("Answer: A, B", None),
        ("The answer is A. No, wait: the answer is B", None),
        ("(A) or (B)", None),
        ("A. Paris\nB. Rome\nC. Bonn\nD. Wien", None),
        ("Option A is wrong, option B too", None),
        ("A dog barks, so it is B", None),
        ("The answer is not (A), it is (B)", None),
    ],
)
def test_choice_among_letters(rollout, text, chosen):
    for gold in "ABCD":
        got = one(choice(), rollout(text, answer=gold))
        assert (got.value, got.parts["parsed"]) == (float(gold == chosen), float(chosen is not None))
        assert got.parts["correct"] == got.value


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("Yes", "yes"),
        ("The answer is NO.", "no"),
        ("no, it cannot", "no"),
        ("Well, not sure", "not sure"),
        ("I know nothing", None),
        ("yes and no", None),
        ("yes... The answer is no", "no"),
        ("The answer is yes or no", None),
        ("", None),
    ],
)
def test_choice_among_words(rollout, text, chosen):
    got = one(choice("label", ["yes", "no", "not sure"]), rollout(text, label=chosen or "yes"))
    assert got.parts == {"parsed": float(chosen is not None), "correct": float(chosen is not None)}


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("The answer is 3", 1.0), ("The answer is 3.5", 0.0), ("13", 0.0), ("1.3", 0.0), ("(3)", 1.0)],
)
def test_choice_among_digits(rollout, text, parsed):
    assert one(choice(options="1234"), rollout(text, answer="3")).parts["parsed"] == parsed


def test_options_may_overlap_and_hold_markup(rollout):
    source = choice(options=["C", "C++", "not_sure"])
    assert one(source, rollout("Answer: C++", answer="C++")).value == 1.0
    assert one(source, rollout("Answer: C++", answer="C")).value == 0.0
    assert one(source, rollout("it is not_sure", answer="not_sure")).value == 1.0


@pytest.mark.parametrize(("gold", "value"), [("b", 1.0), ("(B)", 1.0), (" B. ", 1.0), (1, 1.0), (0, 0.0)])
def test_choice_reads_gold_options_and_indices(rollout, gold, value):
    assert one(choice(), rollout("B", answer=gold)).value == value


def test_an_option_is_preferred_to_an_index(rollout):
    assert one(choice(options="1234"), rollout("2", answer=2)).value == 1.0


@pytest.mark.parametrize("gold", ["E", "", None, 4, -1, True, "AB"])
def test_choice_needs_a_gold_option(rollout, gold):
    assert one(choice(), rollout("B", answer=gold)).error == (
        f"the column 'answer' is {gold!r}; expected one of ['A', 'B', 'C', 'D']"
    )


@pytest.mark.parametrize("options", ["A", "", ["yes", "Yes"], ["a", " "]])
def test_choice_options_are_checked(options):
    with pytest.raises(ConfigError, match="choice: options="):
        choice(options=options)


# --- regex --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "value"),
    [
        (r"<b>.*</b>", "so <b>x</b>.", 1.0),
        (r"\A<b>.*</b>\Z", "so <b>x</b>.", 0.0),
        (r"<b>.*</b>", "<b>x\n</b>", 0.0),
        (r"(?s)<b>.*</b>", "<b>x\n</b>", 1.0),
        (r"yes", "YES", 0.0),
        (r"(?i)yes", "YES", 1.0),
        (r"yes", "", 0.0),
    ],
)
def test_regex_occurs(rollout, pattern, text, value):
    got = one(regex(pattern), rollout(text))
    assert (got.value, got.parts) == (value, {"parsed": value, "correct": value})


@pytest.mark.parametrize(
    ("options", "text", "gold", "parsed", "correct"),
    [
        ({"pattern": r"<a>(.*?)</a>"}, "<a> 42 </a>", "42", 1, 1),
        ({"pattern": r"<a>(.*?)</a>"}, "<a>42</a>", 42, 1, 1),
        ({"pattern": r"<a>(.*?)</a>"}, "<a>41</a> no, <a>42</a>", "42", 1, 1),
        ({"pattern": r"<a>(.*?)</a>"}, "<a>42</a> no, <a>41</a>", "42", 1, 0),
        ({"pattern": r"<a>(.*?)</a>"}, "42", "42", 0, 0),
        ({"pattern": r"<a>(.*?)</a>"}, "", "42", 0, 0),
        ({"pattern": r"\d+"}, "it is 42", "42", 1, 1),
        ({"pattern": r"(\w+)=(\d+)", "group": 2}, "x=42", "42", 1, 1),
        ({"pattern": r"(\w+)=(?P<v>\d+)", "group": "v"}, "x=42", "42", 1, 1),
        ({"pattern": r"(\w+)=(\d+)", "group": 0}, "x=42", "x=42", 1, 1),
        ({"pattern": r"a(b)?"}, "a", "b", 0, 0),
        ({"pattern": r"<(\w+)>"}, "<Yes>", "yes", 1, 0),
        ({"pattern": r"<A>(\w+)", "ignore_case": True}, "<a>Yes", "yES", 1, 1),
    ],
)
def test_regex_captures(rollout, options, text, gold, parsed, correct):
    got = one(regex(column="answer", **options), rollout(text, answer=gold))
    assert (got.value, got.parts) == (correct, {"parsed": parsed, "correct": correct})


def test_regex_needs_a_gold_text(rollout):
    assert one(regex("a", "answer"), rollout("a", answer=None)).error == "the column 'answer' is None; expected a text"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pattern": "(a"}, r"'\(a' is not valid: missing \), unterminated subpattern"),
        ({"pattern": 3}, "3 is not valid"),
        ({"pattern": "(a)", "column": "x", "group": 2}, "has no group 2; it has 1 groups"),
        ({"pattern": "(a)", "column": "x", "group": "v"}, "has no group 'v'"),
        ({"pattern": "(a)", "group": 1}, "needs a column"),
    ],
)
def test_regex_settings_are_checked_when_it_is_made(options, message):
    with pytest.raises(ConfigError, match=message):
        regex(**options)


# --- length band --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "length", "value"),
    [
        (10, 20, 10, 1.0), (10, 20, 15, 1.0), (10, 20, 20, 1.0), (10, 20, 25, 0.5), (10, 20, 30, 0.0),
        (10, 20, 99, 0.0), (10, 20, 9, 0.9), (10, 20, 1, 0.1), (2, 10, 1, 0.875),
        (3, 3, 3, 1.0), (3, 3, 4, 0.0), (3, 3, 2, 0.0),
        (2, 10, 0, 0.0), (0, 4, 0, 1.0), (0, 4, 5, 0.75), (0, 0, 0, 1.0),
    ],
)  # fmt: skip
def test_length_band(rollout, low, high, length, value):
    got = one(length_band(low, high), rollout("word " * length))
    assert (got.value, got.parts) == (pytest.approx(value), {"length": length})


def test_length_units(rollout):
    text = rollout("ab  cd\n", mask=[True, False, True, True])
    lengths = {u: one(length_band(1, 9, u), text).parts["length"] for u in ("words", "characters", "tokens")}
    assert lengths == {"words": 2.0, "characters": 7.0, "tokens": 3.0}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((5, 4), "low=5, high=4"),
        ((-1, 4), "low=-1"),
        ((1, 4, "word"), "unknown unit 'word'.*Did you mean 'words'"),
    ],
)
def test_length_band_settings_are_checked(args, message):
    with pytest.raises(ConfigError, match=message):
        length_band(*args)


def test_names():
    assert [s.name for s in (exact(), choice(), regex("a"), length_band(1, 2))] == [
        "exact", "choice", "regex", "length_band",
    ]  # fmt: skip
