from __future__ import annotations

import pytest

from prefrl.evaluate.probes import CONSTANTS, probes_of, program
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
    [(GOLD, True), (f"```python\n{GOLD}```", True), ("5", False), ("x = 5", False), ("def f(:", False), ("\0", False)],
)
def test_what_counts_as_a_program(text, is_program):
    assert (program(text) is not None) == is_program
