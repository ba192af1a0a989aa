"""Extraction, reading, exact values and the guard, each alone."""

from __future__ import annotations

from fractions import Fraction
from time import process_time

import pytest

from prefrl.rewards.verifiers.math.answers import Many, Matrix, Raw, Relation, Scalar, Union, Words
from prefrl.rewards.verifiers.math.exact import LIGHT, approximate, rational, refuse
from prefrl.rewards.verifiers.math.extract import final_answers, gold_answer
from prefrl.rewards.verifiers.math.parser import names, parse
from prefrl.rewards.verifiers.math.reading import read
from prefrl.rewards.verifiers.math.text import clean
from prefrl.rewards.verifiers.math.tokens import Hostile, Unreadable


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        (r"so \boxed{\frac{1}{2}}.", [r"\frac{1}{2}"]),
        (r"\boxed{1} or \boxed{2}, no: \boxed{1}", ["1", "2"]),
        (r"\boxed{\boxed{3}}", ["3"]),
        (r"\boxed 7", ["7"]),
        (r"\boxed{5", [r"\boxed{5"]),
        ("a\n#### 5\nb\n#### 6", ["5", "6"]),
        ("<answer> 4 </answer>", ["4"]),
        ("The answer is 3. But the final answer is 4.", ["4"]),
        ("Answer: 3.5", ["3.5"]),
        ("**Final Answer:** 12", ["12"]),
        ("The answer is $x = 3$.", ["x = 3"]),
        ("The answer to the first part is 9.", ["9"]),
        ("The answer is 4. Alternatively, 5 fits.", ["4", "5"]),
        ("The answer is 4, since 5 is odd.", ["4"]),
        ("<think>The answer is 3.</think>\n8", ["8"]),
        ("<think>The answer is 3.</think>", []),
        ("We get $a$ and so $b = 2$.", ["b = 2"]),
        ("2 + 2\n\n= 4", ["= 4"]),
        ("She has 5 left, which is 10 in all.", ["10 in all"]),
        ("", []),
        ("\n \n", []),
    ],
)
def test_final_answers(text, answers):
    assert final_answers(text) == answers


@pytest.mark.parametrize(
    ("gold", "answer"), [("a #### b #### 72", "72"), (r"so \boxed{x}", "x"), (" 3/4 ", "3/4"), ("####", "")]
)
def test_gold_answer(gold, answer):
    assert gold_answer(gold) == answer


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        ("-1,234.50", Fraction("-1234.5")),
        (r"\frac12", Fraction(1, 2)),
        (r"1\frac{2}{3}", Fraction(5, 3)),
        ("2 3/4", Fraction(11, 4)),
        (r"2\frac{4}{3}", Fraction(8, 3)),
        ("-2^2", -4),
        ("2^{-2}", Fraction(1, 4)),
        ("2^3^2", 512),
        ("8^{2/3}", 4),
        (r"\sqrt[3]{-8}", None),
        (r"0.1\overline{6}", Fraction(1, 6)),
        (r"\binom{5}{2}", 10),
        ("5!", 120),
        ("1.5e3", 1500),
        ("6 / 2 * 3", 9),
        ("1 - 2 - 3", -4),
        (r"\lfloor -5/2 \rfloor", -3),
        ("|-7/2|", Fraction(7, 2)),
        ("gcd(12, 18)", 6),
        (r"\pi", None),
        ("0^0", 1),
        (r"(-1)^{1000001}", -1),
        ("1^{9999999999}", 1),
    ],
)
def test_exact_values(text, value):
    assert rational(parse(clean(text))) == value


def test_no_value_of_a_division_by_zero():
    for text in ("1/0", "0^{-1}"):
        with pytest.raises(ZeroDivisionError):
            rational(parse(text))
    assert approximate(parse("1/0")) is None


@pytest.mark.parametrize(
    ("text", "value"), [(r"2\pi", 6.283185307179586), (r"\sqrt2", 2**0.5), (r"e^{i\pi}", -1), (r"\sin 90^\circ", 1)]
)
def test_approximate_values(text, value):
    assert approximate(parse(clean(text))) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(
    "text", ["x +", "2 3", "(1", "1)", r"\frac{1}", r"\foo", "even", "3 $", r"1 - \frac{1}{\mystery{e}}", ""]
)
def test_what_is_not_understood_to_its_end_is_not_read(text):
    with pytest.raises(Unreadable):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "9^{9^{9^{9}}}",
        "(10!)!",
        "2^{2^{30}}",
        r"\frac{1}{10^{10^{9}}}",
        "x^{10^{10}}",
        r"\binom{10^9}{5}",
        r"\sum_{k=1}^{10000000} k^{k}",
        r"\sum_{k=1}^{3} 9^{9^{9}}",
        "(" * 300 + "1" + ")" * 300,
        "1+" * 2000 + "1",
        "1e9!",
    ],
)
def test_hostile_expressions_are_refused_at_once(text):
    start = process_time()
    with pytest.raises(Hostile):
        refuse(parse(text))
    assert process_time() - start < 0.2


def test_the_caller_works_out_less_than_a_worker():
    tree = parse("2004!")
    assert rational(tree) > 10**5000
    with pytest.raises(Hostile):
        rational(tree, LIGHT)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("42 apples", Scalar),
        ("Monday", Words),
        (r"\{1, 2\}", Many),
        ("1 and 2", Many),
        ("x = 1", Relation),
        (r"x < 1 or x > 2", Union),
        (r"\begin{pmatrix} 1 & 2 \end{pmatrix}", Matrix),
        (r"1 \oplus 2", Raw),
        ("x = ", Raw),
    ],
)
def test_kinds_of_answers(text, kind):
    assert isinstance(read(text), kind)


def test_names():
    assert names(parse("x_1 + 2 y e^{i z}")) == {"x_1", "y", "z"}
    assert names(parse(r"\sum_{k=1}^{n} k")) == {"n"}


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (r"\left( \dfrac{1}{2},\; 3 \right)", r"( \frac{1}{2}, 3 )"),
        ("½ x²", r"\frac{1}{2} x^{2}"),
        (r"\text{5 cm}.", "5 cm"),
        (r"**\$5\,000**", "USD 5000"),
        ("\u22125", "-5"),
    ],
)
def test_one_spelling(text, plain):
    assert clean(text) == plain


@pytest.mark.parametrize(
    "text", ["\\" * 5000, "{" * 5000, "$" * 5000, "a " * 5000, "1," * 5000, "=" * 5000, "^" * 5000]
)
def test_long_nonsense_takes_linear_time(text):
    start = process_time()
    for wrapped in (text, rf"\boxed{{{text}}}", f"The answer is {text}", f"#### {text}"):
        final_answers(wrapped * 4)
    assert process_time() - start < 2


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        ("The vertex is at (2, 3).", ["(2, 3)"]),
        ("The primes are 7, 11 and 13.", ["7, 11 and 13"]),
        ("So there are 17 marbles in the jar.", ["17 marbles in the jar"]),
        ("The answer is not 5.", []),
        ("The answer isn't 5.", []),
        ("The graph is an ellipse.", ["an ellipse"]),
        ("There are no real solutions.", ["There are no real solutions."]),
        ("Tom and Mia share 12 sweets", ["12"]),
    ],
)
def test_the_answer_of_a_last_line_in_prose(line, answers):
    assert final_answers("Some steps: 1, 2.\n" + line) == answers
