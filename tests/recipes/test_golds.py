from __future__ import annotations

from prefrl.recipes.golds import gold_figures
from prefrl.rewards import WeightedSum, build, function
from prefrl.types import Prompt


def prompts(*answers):
    return [Prompt(id=f"p{n}", text="q", columns={"answer": answer}) for n, answer in enumerate(answers)]


def test_known_right_answers_are_tried_and_named_where_they_fail(capsys):
    source = build([{"kind": "numeric", "column": "answer"}, {"kind": "exact"}])
    assert gold_figures(source, prompts(1, "2", "#### 3")) == {"gold/passed": 1.0, "gold/tried": 6.0}
    assert capsys.readouterr().out == ""
    assert gold_figures(source, prompts(1, "two")) == {"gold/passed": 0.75, "gold/tried": 4.0}
    assert "1 of 2 known right answers do not pass numeric: p1" in capsys.readouterr().out


def test_rewards_that_know_no_right_answer():
    assert gold_figures(build({"kind": "length_band", "low": 1, "high": 2}), prompts(1)) == {}
    assert gold_figures(WeightedSum([(function(len, name="length"), 1.0)]), prompts(1)) == {}


def test_prompts_without_a_gold_answer_are_left_out():
    assert gold_figures(build("numeric"), [*prompts(5), Prompt(id="bare", text="q")])["gold/tried"] == 1.0
