from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from math_pairs import says

from prefrl import rewards

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
