from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest
import yaml
from math_pairs import says

from prefrl import plugins, rewards
from prefrl.rewards.specs import KINDS

PAGE = (Path(__file__).parents[3] / "docs" / "verifiers.md").read_text(encoding="utf-8")
CONTRACT = PAGE.partition("## The contract")[2].partition("\n## ")[0]
MATHEMATICS = PAGE.partition("## Mathematics")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (`.*?`) \| (`.*?) \| (`.*?) \|$", MATHEMATICS, re.MULTILINE)


def test_the_python_of_the_contract_runs(rollout):
    names = {}
    for block in re.findall(r"```python\n(.*?)```", CONTRACT, re.DOTALL):
        exec(block, names)
    verdicts = names["source"].verdicts([rollout("4"), rollout("5"), rollout("six")])
    assert [(str(v.status), v.score) for v in verdicts] == [("ok", 1.0), ("ok", 0.0), ("invalid", 0.0)]
    assert [str(v.status) for v in names["slow"].verdicts([rollout("[1]"), rollout("[1")])] == ["ok", "error"]
    names["pool"].close()


def test_the_signature_on_the_page_is_the_real_one():
    (shown,) = re.findall(r"^### `math(\(.*?\))`", MATHEMATICS, re.MULTILINE)
    parameters = inspect.signature(rewards.math).parameters.values()
    assert shown == str(inspect.Signature([p.replace(annotation=p.empty) for p in parameters])).replace("'", '"')


@pytest.mark.parametrize(("gold", "right", "wrong"), ROWS)
def test_the_examples_on_the_page(gold, right, wrong):
    def said(cell):
        return [says(gold.strip("`"), rf"\boxed{{{text}}}") for text in re.findall(r"`([^`]+)`", cell)]

    assert set(said(right)) == {1.0}
    assert set(said(wrong)) == {0.0}


def test_there_are_examples():
    assert len(ROWS) == 10


ALL = re.findall(r"^\| `(\w+)` \| `(\{kind: .*?\})` \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
SAID = {  # a text and the columns it is judged by
    "choice": ("A", {"answer": "A"}),
    "json": ('{"name": 1}', {"gold": {"name": 1}}),
    "json_schema": ("{}", {"schema": "{}"}),
    "units": ("5 km", {"answer": "5 km"}),
    "constraints": ("moss", {"instruction_id_list": ["punctuation:no_comma"]}),
}


@pytest.mark.parametrize(("kind", "spec", "arguments", "parts"), ALL)
def test_the_table_of_all_verifiers(rollout, kind, spec, arguments, parts):
    settings = yaml.safe_load(spec)
    taken = inspect.signature(plugins.import_path(KINDS[kind], "reward")).parameters
    named = {p.name for p in taken.values() if p.kind is not p.VAR_KEYWORD}
    assert {*re.findall(r"`(\w+)`", arguments)} | {*settings} - {"kind"} == named
    if kind in ("code", "stdio", "reasoning_gym", "shell", "http", "rubric"):
        return  # what they say is tested where they are
    text, columns = SAID.get(kind, ("5", {"answer": "5"}))
    more = {"column": "gold"} if kind == "json" else {}
    (score,) = rewards.build(settings | more).score([rollout(text, **columns)])
    assert {*re.findall(r"`(\w+)`", parts)} == {*score.parts}


def test_every_verifier_is_in_the_table():
    composed = {"tournament", "gate", "min", "product", "constraint", "environment", "judge"}
    learnt = {"bradley_terry", "ensemble", "process", "implicit_process", "yes", "trajectory_reward"}
    inverse = {"airl", "gail", "gcl", "reward_net", "text_airl", "text_gail", "text_gcl", "text_reward"}
    assert {kind for kind, *_ in ALL} == {*KINDS} - composed - learnt - inverse


def test_the_checker_on_the_page_is_one(rollout):
    (program,) = (text for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "input()" in text)
    verifier = rewards.shell([sys.executable, "-S", "-c", program])
    right, wrong = verifier.score([rollout("5\n", answer="5"), rollout("6", answer="5")])
    assert (right.value, wrong.value) == (1.0, 0.0)
