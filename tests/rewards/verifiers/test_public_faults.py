"""Faults that users of other verifiers reported in public, each with the right value."""

from __future__ import annotations

import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest
from math_pairs import says

from prefrl import rewards
from prefrl.errors import RewardError
from prefrl.rewards import Status, Verdict, Verifier, checked_scores, graded
from prefrl.rewards.verifiers.pool import Pool

# Project, number of its thread, gold answer, answer, whether they are the same.
MATHEMATICS = [
    ("Math-Verify#14", r"$\frac{1}{2004!}$", r"$\frac{1}{2006!}$", False),
    ("Math-Verify#14", r"$1 - \frac{1}{\mathrm{e}}$", r"$1 + \frac{1}{\mathrm{e}}$", False),
    ("Math-Verify#14", r"$1, 2, \ldots, n$", r"$1, 3, 5, \ldots, 2n-1$", False),
    ("Math-Verify#60", "3*x-1*y+13=0", "3x + 4y + 14=0", False),
    ("Math-Verify#47", "1331 and 1728", "1728", False),
    ("Math-Verify#26", "$2x+4y-3=0$", "$y = -1/2*x + 3/4$", True),
    ("Math-Verify#10", "$(0, 12.5)$", "$0 < x < 12.5$", True),
    ("Math-Verify#37", r"$\text{13}$", "$13$", True),
    ("Math-Verify#56", r"\left( 3, \frac{\pi}{2} \right)", r"\left( 3, \frac{\pi}{2} \right)", True),
    ("Math-Verify#56", r"\left( 3, \frac{\pi}{2} \right)", "3", False),
    ("Math-Verify 0.9", "0.0000001", "0.0000002", False),
    ("Math-Verify 0.9", "$1,2,3$", "$3,2,1$", False),
    ("Math-Verify 0.9", "2", "The answer is 2. Alternatively it could be 3", False),
    ("Math-Verify 0.9", r"$\{1,2\}$", "1, 2", True),
    ("Math-Verify 0.9", "A", "The answer is A", True),
    ("Math-Verify 0.9", "no solution", "no solution", True),
    ("Math-Verify 0.9", r"$\emptyset$", "no solution", True),
    ("Math-Verify 0.9", r"$x \in [1,2]$", r"$1\le x\le 2$", True),
]


@pytest.mark.parametrize(("thread", "gold", "answer", "same"), MATHEMATICS)
def test_mathematics(thread, gold, answer, same):
    assert says(gold, answer) == float(same)


@pytest.mark.parametrize(("gold", "answer"), [("$(0, 12.5)$", "$0 < x < 12.5$"), ("$2x+4y-3=0$", "$y = -1/2*x + 3/4$")])
def test_math_verify_10_equality_has_no_direction(gold, answer):
    assert says(gold, answer) == says(answer, gold) == 1.0


def test_tolerance_questions_are_answered_by_the_data():
    assert [says(r"$\frac13$", "0.333"), says(r"$2\pi$", "6.28")] == [0.0, 0.0]
    assert [says(r"$\frac13$", "0.333", rel_tol=0.005), says(r"$2\pi$", "6.28", rel_tol=0.005)] == [1.0, 1.0]


def in_a_thread(call):
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize(
    ("gold", "text", "value"), [("5", r"\boxed{\sqrt{25}}", 1.0), ("5", r"\boxed{\sqrt{26}}", 0.0)]
)
def test_math_verify_50_55_and_trl_5281_any_thread_will_do(rollout, gold, text, value):
    """`signal only works in main thread`, or no time limit at all in a thread."""
    source = rewards.math()
    assert in_a_thread(lambda: source.score([rollout(text, answer=gold)]))[0].value == value


def test_trl_5281_the_limit_holds_in_a_thread(rollout):
    hard = rollout(r"\boxed{\int_0^1 \sin(\cos(\tan(x^{x^x}))) dx}", answer="5")
    (score,) = in_a_thread(lambda: rewards.math(timeout=0.3).score([hard]))
    assert score.error == "timeout: stopped after 0.3 s of work"


def test_verl_5635_an_error_of_the_verifier_is_no_zero(rollout):
    """A ValueError that was swallowed made every reward of whole runs 0."""

    def check(_):
        raise ValueError("signal only works in main thread of the main interpreter")

    scores = Verifier("v", check).score([rollout("a"), rollout("b")])
    assert [s.value for s in scores] == [None, None]
    with pytest.raises(RewardError, match=r"failed on 2 of 2 rollouts .* ValueError: signal only works in main thread"):
        checked_scores(Verifier("v", check), [rollout("a"), rollout("b")])


def test_verl_5839_and_verifiers_1096_657_there_is_always_a_limit(rollout):
    """Timeouts of None hung the training at its second step."""
    start = monotonic()
    hard = [rollout(rf"\boxed{{\int_0^1 \sin(\cos(\tan(x^{{x^x}}+{i}))) dx}}", answer="5") for i in range(4)]
    scores = rewards.math(timeout=0.2).score(hard)
    assert [s.error for s in scores] == ["timeout: stopped after 0.2 s of work"] * 4
    assert monotonic() - start < 30


def test_areal_1426_and_unirl_462_a_hung_job_does_not_keep_its_worker():
    pool = Pool("pool_tasks:task", timeout=0.1, workers=2)
    assert [d.status for d in pool.map([["spin", None]] * 4)] == ["timeout"] * 4
    assert [d.value for d in pool.map([["echo", i] for i in range(8)])] == list(range(8))
    pool.close()


def test_verifiers_277_the_answer_is_taken_out_of_its_wrapper_by_default(rollout):
    """A rubric without its parser compared the whole completion, and paid 0 for right answers."""
    texts = [r"Let me see. \boxed{42}", "<think>hm</think><answer>42</answer>", "...\n#### 42", "The answer is 42."]
    assert [s.value for s in rewards.math().score([rollout(t, answer="42") for t in texts])] == [1.0] * 4


def test_verifiers_831_waiting_for_a_worker_is_not_work():
    """Lag of the queue counted as the answer's time, and paid 0 for right answers."""
    pool = Pool("pool_tasks:task", timeout=0.3, workers=1)
    with ThreadPoolExecutor(8) as threads:
        done = list(threads.map(lambda _: pool.run(["work", 0.1]), range(16)))
    assert [d.value for d in done] == ["worked"] * 16
    assert max(d.cost for d in done) < 16 * 0.1
    pool.close()


@pytest.mark.parametrize("text", ["", "[]", "{}", "no findings"])
def test_daydream_296_nothing_found_is_not_perfect(rollout, text):
    gold = json.dumps({"bug": "off by one"})
    sources = [rewards.json_object(column="answer"), rewards.math(), rewards.exact(), rewards.regex("off by", "answer")]
    assert [s.score([rollout(text, answer=gold)])[0].value for s in sources] == [0.0] * 4


def test_reasoning_gym_417_a_key_error_costs_one_sample(rollout):
    table = {"a": 1.0}
    verifier = Verifier("v", lambda r: Verdict(status=Status.OK, score=table[r.text]))
    scores = checked_scores(verifier, [rollout(t) for t in ["a"] * 9 + ["b"]])
    assert [s.value for s in scores] == [1.0] * 9 + [None]
    assert scores[-1].error == "KeyError: 'b'"


def test_stella_3264_the_graders_time_is_not_the_models_failure(rollout):
    late = Verdict(status=Status.TIMEOUT, evidence="the grader gave no answer in 30 s")
    verifier = Verifier("v", lambda r: late if r.text == "late" else graded(parsed=True, correct=True))
    scores = verifier.score([rollout("in time"), rollout("late")])
    assert scores[0].value == 1.0
    assert math.isnan(scores[1].total)


def test_verl_1921_every_sample_counts(rollout):
    """Partial credit was that of the first ten only."""
    batch = [rollout("right" if i >= 10 else "wrong", answer="right") for i in range(40)]
    assert sum(s.value for s in rewards.exact().score(batch)) == 30.0


def test_reward_bench_137_the_size_of_a_batch_changes_nothing(rollout):
    texts = [r"\boxed{\frac{2}{4}}", "1/3", r"\boxed{\sqrt{0.25}}", "", "0.5", "1, 2"]
    batch = [rollout(text, answer="1/2") for text in texts]
    alone = [rewards.math().score([one])[0].value for one in batch]
    assert alone == [s.value for s in rewards.math().score(batch)] == [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]
