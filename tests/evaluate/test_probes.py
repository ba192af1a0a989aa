from __future__ import annotations

import pytest

from prefrl.evaluate.probes import CONSTANTS, differ, probes_of, program
from prefrl.types import Prompt

GOLD = """def retries(config):
    # 0 is a number of retries too
    value = config.get("retries")
    if value is None:
        return 3
    else:
        return value
"""
CONFIGS = [{}, {"retries": None}, {"retries": 0}, {"retries": 2}]


def prompt(name="p", text="What is 2 + 3?"):
    return Prompt(id=name, text=text)


def run(text):
    scope = {}
    exec(text, scope)
    return [scope["retries"](config) for config in CONFIGS]


def test_probes_of_texts():
    prompts = [prompt("p", "What is 2 + 3?"), prompt("q", "What is 2 + 2?")]
    mine = [probe for probe in probes_of(prompts, ["5", "4"]) if probe.prompt.id == "p"]
    assert {probe.text for probe in mine if probe.good} == {"5"}
    assert {probe.name: probe.text for probe in mine if probe.good is False} == {
        "zero": "0",
        "another row's answer": "4",
        "the right one, or another": "5 or 4",
        "another, or the right one": "4 or 5",
        "every answer of the data": "4; 5",
        "nothing": "",
        "the question itself": "What is 2 + 3?",
    }
    assert [probe.text for probe in mine if probe.good is None] == ["The answer is 5.", "\\boxed{5}", "**5**"]


def test_what_would_be_right_is_not_called_wrong():
    names = {probe.name for probe in probes_of([prompt(text="0"), prompt()], ["0", " 0 "]) if probe.good is False}
    assert names == {"nothing", "the question itself"}  # 0 is right, no row has another answer
    assert "the question itself" not in {p.name for p in probes_of([prompt(text="0")], ["0"])}


def test_rewritten_programs_do_the_same_and_constant_ones_do_not():
    probes = probes_of([prompt()], [GOLD])
    right = {probe.name: probe.text for probe in probes if probe.good}
    assert set(right) == {"gold answer", "written differently", "other names inside", "conditions turned round"}
    assert [run(text) for text in right.values()] == [[3, 3, 0, 2]] * 4
    assert "0 is a number" not in right["written differently"]
    assert "value" not in right["other names inside"]
    assert "value is None" not in right["conditions turned round"]
    wrong = [probe.text for probe in probes if probe.name.startswith("return ")]
    assert len(wrong) == len(CONSTANTS)
    assert [run(text) for text in wrong[:2]] == [[0] * 4, [1] * 4]


def test_conditional_expressions_are_turned_round_and_kept_names_stay():
    gold = "def retries(config):\n    global last\n    last = config.get('retries')\n    return last if last else 3\n"
    found = {probe.name: probe.text for probe in probes_of([prompt()], [gold])}
    assert run(found["conditions turned round"]) == run(gold) == [3, 3, 3, 2]
    assert "other names inside" not in found
    assert "return 3 if not last else last" in found["conditions turned round"]


@pytest.mark.parametrize(
    ("text", "is_program"),
    [
        (GOLD, True),
        (f"```python\n{GOLD}```", True),
        (f"```python3\n{GOLD}```", True),
        ("class Solution:\n    def f(self, x):\n        return x\n", True),
        ("async def f(x):\n    return x\n", True),
        ("def f(x):\n    return re.sub('\\d', '', x)\n", True),  # a warning of the parser is no error
        ("5", False),
        ("x = 5", False),
        ("def f(:", False),
        ("\0", False),
        ("(" * 10_000, False),
    ],
)
def test_what_counts_as_a_program(text, is_program):
    assert (program(text) is not None) == is_program


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("5", "4"),
        ("-5", "5"),
        ("1/2", "3/4"),
        (r"\frac{1}{2}", r"\frac{3}{4}"),
        ("5 km", "7 km"),
        ("50%", "60%"),
        ("(1, 2)", "(3, 4)"),
        ("#### 5", "so 3\n#### 4"),
        (r"by this \boxed{3}", r"by that \boxed{4}"),
        ("A", "B"),
        ("(A) Paris", "(B) Rome"),
        ("yes", "no"),
        ("True", "False"),
        ("left", "right"),
        ("5", "Paris"),
    ],
)
def test_answers_that_surely_differ(one, other):
    assert differ(one, other)
    assert differ(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("5", "5.0"),
        ("1,000", "1000"),
        ("1/2", "0.5"),
        ("50%", "0.5"),
        ("3.14", "3.1416"),
        ("5 km", "5000 m"),
        ("$5", "5 dollars"),
        ("x=5", "5"),
        ("1, 2", "2"),
        ("1 or 2", "2"),
        (r"\frac{1}{2}", r"\frac{2}{4}"),
        (r"2\sqrt{2}", r"\sqrt{8}"),
        ("2(x+3)", "2x+6"),
        (r"one way \boxed{2}", r"another \boxed{2}"),
        ("B", "(B)"),
        ("A", "A. Paris"),
        ("Paris", "Paris, France"),
        ("yes", "True"),
        ("no", "False"),
        ("none", "no solution"),
        ("0", "none"),
        ("2", "two"),
        ("", "5"),
        ("?", "!"),
        ("a text of more than twelve words may well mean what another one of them means", "so nobody can tell"),
    ],
)
def test_answers_that_may_be_the_same(one, other):
    assert not differ(one, other)
    assert not differ(other, one)


def names_of(prompts, golds, good=False):
    return [
        {probe.name for probe in probes_of(prompts, golds) if probe.prompt is p and probe.good is good} for p in prompts
    ]


def test_other_rows_whose_answer_may_be_right_make_no_probe():
    yes_no = [prompt(f"p{n}", f"Is {n} prime?") for n in range(4)]
    found = probes_of(yes_no, ["yes", "True", "No", "false"])
    other = {probe.prompt.id: probe.text for probe in found if probe.name == "another row's answer"}
    assert other == {"p0": "No", "p1": "No", "p2": "yes", "p3": "yes"}
    same = [prompt("p"), prompt("q")]  # one question with two answers
    assert "another row's answer" not in names_of(same, ["5", "6"])[0]
    several = [prompt("p", "a?"), prompt("q", "b?"), prompt("r", "c?")]
    texts = {probe.name: probe.text for probe in probes_of(several, [["5", "6"], "6", "7"]) if probe.prompt.id == "p"}
    assert (texts["gold answer"], texts["another row's answer"]) == ("5", "7")  # 6 is right too
    assert "zero" not in names_of([prompt()], ["0.0"])[0]
    assert "zero" not in names_of([prompt()], ["none"])[0]
    assert "the question itself" not in names_of([prompt(text="Yes!")], ["yes"])[0]


TRAPS = [
    "def f(n):\n    n = abs(n)\n    total = n\n    return total + n\n",  # a parameter that is assigned to
    "def f(n):\n    x = 1\n    def g(x):\n        return x + n\n    return g(2) + x\n",
    "def f(n):\n    x = n\n    return sorted([n, -n], key=lambda x: -x)[0] + x\n",
    "def f(n):\n    e = n\n    try:\n        return [][n]\n    except IndexError as e:\n        return len(str(e))\n",
    "def f(n):\n    class C:\n        size = n\n    size = 2\n    return C().size + size\n",
    "def f(n):\n    import math\n    math_ = math.sqrt(n)\n    return math_ + math.pi\n",
    "def f(n):\n    match [n, 1]:\n        case [first, *rest]:\n            rest = rest + [first]\n    return rest\n",
    "def f(n):\n    a = n\n    return eval('a + 1')\n",
    "def f(n):\n    a = [b := n, b + 1]\n    return sum(x * x for x in a)\n",
    "def f(n):\n    a: int = n\n    for i, a in enumerate([n, 2]):\n        a += i\n    del i\n    return f'{a=}'\n",
    "def f(n):\n    if n > 3:\n        return 1\n    elif n > 1:\n        return 2\n    else:\n        return 3\n",
]


@pytest.mark.parametrize("gold", TRAPS)
def test_right_programs_stay_right_when_they_are_rewritten(gold):
    def said(text):
        scope = {}
        exec(text, scope)
        return [scope["f"](n) for n in (1, 2, 4)]

    rewritten = [probe.text for probe in probes_of([prompt()], [gold]) if probe.good]
    assert [said(text) for text in rewritten] == [said(gold)] * len(rewritten)


@pytest.mark.parametrize(
    ("gold", "sure"),
    [
        ("def f(n):\n    return n\n", set(CONSTANTS)),
        ("def f(n):\n    return False\n", set(CONSTANTS) - {"0", "False"}),
        ("def f(n):\n    return []\n", set(CONSTANTS) - {"[]"}),
        ("def f(n):\n    print(n)\n", set(CONSTANTS) - {"None"}),
        ("def f(n):\n    yield n\n", set(CONSTANTS)),
        ("def f():\n    return 6 * 7\n", set()),  # without an input every constant may be right
    ],
)
def test_a_constant_that_the_right_program_may_return_is_only_counted(gold, sure):
    probes = probes_of([prompt()], [gold])
    assert {probe.name.removeprefix("return ") for probe in probes if probe.good is False} - {
        "nothing",
        "the question itself",
    } == sure
    assert len([probe for probe in probes if probe.name.startswith("return ")]) == len(CONSTANTS)


def test_an_answer_that_goes_on_where_the_question_ends_is_a_program():
    asked = prompt(text='def double(n):\n    """Twice a number."""\n')
    names = {probe.name for probe in probes_of([asked], ["  return n * 2\n"])}
    assert {"gold answer", "written differently", "return 0"} <= names
