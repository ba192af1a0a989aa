"""Best-of-n as a sampler: the winner, ties, and what could not be scored."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from statistics import fmean

import pytest
from copying import Copied, fresh
from tiny import rollout

from prefrl.config import SamplingConfig
from prefrl.data.formats import to_completions
from prefrl.data.tables import load_table
from prefrl.errors import ConfigError, RewardError
from prefrl.evaluate.overoptimisation import best_of_n
from prefrl.recipes.common import Checked, evaluate_policy
from prefrl.rewards.base import checked_scores
from prefrl.rewards.functions import function
from prefrl.rollout.best_of import BestOf
from prefrl.types import Prompt, Score


class Numbered:
    """Rollout k of a prompt says k."""

    def sample(self, prompts, n, params, *, seed, version=0):
        drawn = [rollout((k + 1,), group=prompt.id, text=str(k)) for prompt in prompts for k in range(n)]
        return [replace(r, version=version) for r in drawn]


class Listed:
    """The given scores, in order."""

    name = "listed"

    def __init__(self, *values):
        self.values = values

    def score(self, rollouts):
        return [Score(error="no answer") if v is None else Score(value=v) for v in self.values]


PROMPTS = [Prompt(id=name, text="question") for name in ("a", "b")]


def best(n, count, *values):
    return BestOf(Numbered(), Listed(*values), n).sample(PROMPTS, count, SamplingConfig(), seed=0, version=7)


def test_the_best_of_every_block_of_draws_with_its_score_and_place():
    found = best(3, 2, 0.0, 2.0, 1.0, 5.0, 4.0, 3.0, -1.0, -2.0, -3.0, 0.0, 0.0, 1.0)
    assert [(r.prompt.id, r.text) for r in found] == [("a", "1"), ("a", "3"), ("b", "0"), ("b", "5")]
    assert found[0].info["best_of"] == {"score": 2.0, "place": 1, "unscored": 0}
    assert [r.info["best_of"]["place"] for r in found] == [1, 0, 0, 2]
    assert {r.group for r in found[:2]} == {"a"} and found[0].version == 7


def test_of_equal_ones_the_first():
    assert [r.text for r in best(2, 1, 1.0, 1.0, 1.0, 2.0)] == ["0", "1"]


def test_an_error_never_wins_and_nothing_but_errors_is_an_error():
    first, second = best(2, 1, None, -100.0, None, math.nan)
    assert first.text == "1" and first.info["best_of"] == {"score": -100.0, "place": 1, "unscored": 1}
    assert second.info["best_of"] == {"unscored": 2}
    assert "none of 2 draws could be scored; the first: no answer" in second.info["error"]
    ok, failed = checked_scores(function(lambda text: 1.0), [first, second], max_error_fraction=0.9)
    assert ok.total == 1.0 and not failed.ok and "none of 2 draws" in failed.error


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="best of 0"):
        BestOf(Numbered(), Listed(), 0)
    with pytest.raises(RewardError, match="3 scores for 4 rollouts"):
        best(2, 1, 1.0, 2.0, 3.0)


def test_a_policy_evaluated_as_best_of_n_earns_what_the_estimator_says():
    policy, reward, sampling = fresh(0), Checked(Copied()), SamplingConfig(max_new_tokens=3)
    prompts = [Prompt(id=str(i), text=f"{i}31=") for i in range(4)]
    plain = evaluate_policy(policy, prompts, reward, sampling, samples=64, seed=1)
    totals = [[s.total for s in plain.scores[at : at + 64]] for at in range(0, 256, 64)]
    expected = best_of_n(totals, totals, [8]).points[0].proxy
    picked = evaluate_policy(BestOf(policy, reward, 8), prompts, reward, sampling, samples=8, seed=1)
    # The same draws in blocks of 8: one of the ways to cut 64 into subsets that the estimator averages over.
    blocks = [fmean(max(t[at : at + 8]) for at in range(0, 64, 8)) for t in totals]
    assert picked.metrics["reward/mean"] == pytest.approx(fmean(blocks))
    assert plain.metrics["reward/mean"] + 0.1 < expected.mean
    assert picked.metrics["reward/mean"] == pytest.approx(expected.mean, abs=0.05)


def test_the_winners_make_a_file_for_supervised_fine_tuning(tmp_path):
    winners = best(2, 1, 1.0, 0.0, 0.0, 1.0)
    rows = [{"prompt": r.prompt.content, "completion": r.completion} for r in winners]
    (tmp_path / "best.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = to_completions(load_table(str(tmp_path / "best.jsonl")))
    assert [completion.text for _, completion in read.items] == ["0", "1"]
