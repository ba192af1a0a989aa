from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from prefrl import rewards
from prefrl.rewards import checked_scores
from prefrl.rewards.functions import BATCH, ONE
from prefrl.rewards.verifiers.numeric import numbers_in

PAGE = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_python_of_the_page_runs_and_its_rewards_score(rollout):
    names = {}
    for block in PYTHON[1:]:  # the first one shows the protocol
        exec(block, names)
    batch = [rollout("The answer is 4", answer="4"), rollout("sorry, no idea", answer="5")]
    values = {
        name: [round(s.value, 6) for s in checked_scores(rewards.as_source(names[name]), batch)]
        for name in ("short_and_right", "graded", "length_reward", "total", "gated", "tame", "reward", "ranked")
    }
    assert values == {
        "short_and_right": [0.85, -0.14],
        "graded": [0.0, -0.1],
        "length_reward": [-15.0, -14.0],
        "total": [1.0, 0.3],
        "gated": [0.0, 0.0],
        "tame": [1.0, -1.0],
        "reward": [1.0, 0.2],
        "ranked": [0.0, 1.0],
    }


@pytest.mark.parametrize("kind", ["exact", "numeric", "choice", "regex", "json_object", "length_band"])
def test_the_signatures_on_the_page_are_the_real_ones(kind):
    (shown,) = re.findall(rf"^### `{kind}(\(.*?\))`", PAGE, re.MULTILINE)
    real = inspect.signature(getattr(rewards, kind))
    bare = [p.replace(annotation=p.empty) for p in real.parameters.values()]
    text = str(inspect.Signature(bare)).replace("'", '"').replace("1e-06", "1e-6").replace("1e-09", "1e-9")
    assert shown == text


def test_the_page_names_every_argument_of_functions():
    assert [name for name in {*ONE, *BATCH} if f"`{name}`" not in PAGE and f"`{name}." not in PAGE] == []


@pytest.mark.parametrize(("text", "numbers"), [("(100,200)", [100200]), ("1.5 x 10^3", [1500]), ("−5", [-5])])  # noqa: RUF001
def test_numbers_shown_on_the_page(text, numbers):
    assert numbers_in(text) == numbers
