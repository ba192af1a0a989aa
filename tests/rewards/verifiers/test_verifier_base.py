from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from prefrl.errors import RewardError
from prefrl.rewards import Status, Verdict, Verifier, graded
from prefrl.rewards.verifiers import common
from prefrl.rewards.verifiers.common import gold_of


def right(_):
    return graded(parsed=True, correct=True)


def test_verdicts_come_in_order_with_version_and_cost(rollout):
    verifier = Verifier("n", lambda r: Verdict(status=Status.OK, score=float(r.text)), version="7")
    verdicts = verifier.verdicts([rollout(str(i)) for i in range(5)])
    assert [v.score for v in verdicts] == [0, 1, 2, 3, 4]
    assert {v.version for v in verdicts} == {"7"}
    assert all(0 < v.cost < 1 for v in verdicts)


def test_an_exception_costs_one_rollout(rollout):
    verifier = Verifier("n", lambda r: Verdict(status=Status.OK, score=1 / float(r.text)))
    verdicts = verifier.verdicts([rollout("1"), rollout("0"), rollout("2")])
    assert [v.status for v in verdicts] == ["ok", "error", "ok"]
    assert verdicts[1].evidence == "ZeroDivisionError: float division by zero"
    assert [s.value for s in verifier.score([rollout("1"), rollout("0")])] == [1.0, None]


def test_a_missing_column_is_an_error_of_the_data(rollout):
    verifier = Verifier("n", lambda r: graded(parsed=True, correct=bool(gold_of(r, "gold", "n"))))
    with pytest.raises(RewardError, match=r"needs the dataset column 'gold'.*columns: golds.*Did you mean 'golds'"):
        verifier.verdicts([rollout("1", golds=1)])


def test_exactly_one_of_check_and_batch():
    for given in ({}, {"check": right, "batch": list}):
        with pytest.raises(ValueError, match="exactly one of check and batch"):
            Verifier("n", **given)


def test_a_batch_returns_one_verdict_each(rollout):
    with pytest.raises(RewardError, match="returned 1 verdicts for 2 rollouts"):
        Verifier("n", batch=lambda rollouts: [right(None)]).verdicts([rollout("a"), rollout("b")])
    assert Verifier("n", batch=lambda rollouts: 1 / 0).verdicts([]) == []


def counting():
    """A verifier by text that notes what it was asked."""
    asked = []

    def batch(rollouts):
        asked.extend(r.text for r in rollouts)
        statuses = {"slow": Status.TIMEOUT, "bad": Status.ERROR}
        return [Verdict(status=statuses[r.text]) if r.text in statuses else right(r) for r in rollouts]

    return Verifier("n", batch=batch, key=lambda r: r.text), asked


def test_equal_rollouts_are_judged_once(rollout):
    verifier, asked = counting()
    assert len(verifier.verdicts([rollout(t) for t in "abab"])) == 4
    verifier.verdicts([rollout(t) for t in "ac"])
    assert asked == ["a", "b", "c"]


def test_only_judgements_are_remembered(rollout):
    verifier, asked = counting()
    for _ in range(2):
        assert [v.status for v in verifier.verdicts([rollout("slow"), rollout("bad")])] == ["timeout", "error"]
    assert asked == ["slow", "bad"] * 2


def test_the_memory_is_bounded(rollout, monkeypatch):
    monkeypatch.setattr(common, "REMEMBERED", 2)
    verifier, asked = counting()
    for text in "abca":
        verifier.verdicts([rollout(text)])
    assert asked == ["a", "b", "c", "a"]


def test_threads_share_a_verifier(rollout):
    verifier, _ = counting()
    batches = [[rollout(f"{i % 7}-{j}") for j in range(20)] for i in range(40)]
    with ThreadPoolExecutor(8) as threads:
        scores = list(threads.map(verifier.score, batches))
    assert [[s.value for s in batch] for batch in scores] == [[1.0] * 20] * 40
