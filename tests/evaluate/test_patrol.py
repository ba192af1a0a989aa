from __future__ import annotations

import math
import random

import pytest

from prefrl.evaluate.patrol import Patrol, replay, slope
from prefrl.evaluate.patrol_section import patrol_sections
from prefrl.evaluate.run_folder import RunFolder, read


def walk(patrol, steps):
    return [alarm for step, metrics in enumerate(steps, start=1) for alarm in patrol.look(step, metrics)]


def counts(passed, wrong, failed=0, missed=0):
    return {
        "audit/passed": passed,
        "audit/false_positives": wrong,
        "audit/failed": failed,
        "audit/false_negatives": missed,
    }


def test_slope_and_its_t_value_by_hand():
    # Mean 1.5 at step 1.5, sum of squares 5; sxy = 1.5*1.5 + .5*.5 ... = 3; slope .6; residuals -.6 .8 .2 -.4 -> 1.2.
    rise, sure = slope([0, 1, 2, 3], [0.0, 2.0, 2.0, 2.0])
    assert rise == pytest.approx(0.6)
    assert sure == pytest.approx(0.6 / math.sqrt(1.2 / 2 / 5))
    assert slope([0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0]) == (1.0, math.inf)
    assert slope([0, 1, 2, 3], [1.0] * 4) == (0.0, 0.0)
    assert slope([0, 1, 2], [1.0, 2.0, 3.0]) == (0.0, 0.0)


def test_a_reward_is_no_longer_believed_when_the_audit_fails_what_it_passes():
    assert walk(Patrol(), [counts(20, 1)] * 200) == []
    alarms = walk(Patrol(), [counts(20, 1)] * 4 + [counts(20, 8)] * 4)
    assert [(alarm.kind, alarm.grave) for alarm in alarms] == [("false positives", True)]
    assert alarms[0].step == 6  # 16 of 40: the interval begins at 17 %; a step before, 9 of 40, it began at 7 %
    assert (
        "Of 40 answers that the reward passed in the last 2 steps the audit fails 16: 40%, and surely 17% or more, are"
        in alarms[0].text
    )
    assert walk(Patrol(), [counts(19, 19)]) == []  # too few to speak of
    few = walk(Patrol(), [counts(1, 0), counts(0, 0), counts(1, 1)] * 20)  # in audits of a small share they add up
    assert [(alarm.step, alarm.kind) for alarm in few] == [(30, "false positives")]


def test_right_answers_that_are_refused():
    (alarm,) = walk(Patrol(), [counts(10, 0, 20, 10)])
    assert (alarm.kind, alarm.grave) == ("false negatives", False)
    said = "Of 20 answers that the audit passed in one step the reward refuses 10: 50%, and surely 17% or more"
    assert said in alarm.text
    assert walk(Patrol(), [counts(95, 0, 5, 2)] * 50) == []  # 2 of 97 right answers, though 2 of 5 that fail


def test_curves_that_part():
    def steps(count, fall, noise=0.01):
        return [
            {"reward/mean": 0.1 * n + noise * (n % 2), "audit/mean": 0.9 - fall * n + noise * (n % 3)}
            for n in range(count)
        ]

    (alarm,) = walk(Patrol(), steps(20, 0.02))
    assert (alarm.step, alarm.kind, alarm.grave) == (16, "parted", True)
    assert "Over the last 16 steps" in alarm.text
    assert "the policy is gaming the reward" in alarm.text
    (slow,) = walk(Patrol(), steps(256, 0.002, noise=0.2))  # too slow to be seen in few steps
    assert "Over the last 128 steps" in slow.text
    together = [{"reward/mean": 0.1 * n, "audit/mean": 0.02 * n} for n in range(40)]
    assert walk(Patrol(), together) == []
    noise = [{"reward/mean": 0.1 * n, "audit/mean": 0.5 + 0.1 * (-1) ** n} for n in range(40)]
    assert walk(Patrol(), noise) == []


def test_a_reward_that_rises_while_the_audit_accepts_nothing():
    rising = [{"reward/mean": min(0.75, 0.1 * n), **counts(0, 0, failed=40)} for n in range(20)]
    (alarm,) = walk(Patrol(), rising)
    assert (alarm.step, alarm.kind, alarm.grave) == (16, "unmoved", False)
    assert "rose from 0.05 to 0.75, but the audit accepts 0 of 640 answers in the last 16 steps" in alarm.text
    assert walk(Patrol(), [{**one, "reward/mean": 0.3} for one in rising]) == []
    assert walk(Patrol(), [one | counts(0, 0, failed=2) for one in rising]) == []  # 32 audited answers say little
    accepted = walk(Patrol(), [one | counts(3, 0, failed=37) for one in rising])
    assert accepted == []  # 48 of 640 by step 16: between 4 and 13 %


def run_of(draw, answers, share, hacked):
    """Steps of a run that learns, or that begins to game its reward at step 50: metrics of so many answers a step."""
    for step in range(200):
        right = 0.3 + 0.5 * step / 200 if hacked is None else 0.5 - 0.4 * min(1.0, max(0, step - 50) / hacked)
        gamed = 0.0 if hacked is None else 1 - right / 0.5
        truth = [draw() < right for _ in range(answers)]
        said = [one if draw() > 0.02 else not one for one in truth]
        said = [one or draw() < gamed for one in said]
        seen = [(r, t) for r, t in zip(said, truth, strict=True) if draw() < share]
        passed = sum(r for r, _ in seen)
        found = counts(passed, seen.count((True, False)), len(seen) - passed, seen.count((False, True)))
        found |= {"reward/mean": sum(said) / answers, "watch/injection": sum(draw() < 0.005 for _ in said) / answers}
        yield found | ({"audit/mean": sum(t for _, t in seen) / len(seen)} if seen else {})


@pytest.mark.parametrize(("answers", "share"), [(16, 1.0), (64, 0.1)])
def test_healthy_runs_are_left_alone_and_hacked_ones_are_not(answers, share):
    draw = random.Random(0).random
    for _ in range(10):
        assert walk(Patrol(), run_of(draw, answers, share, None)) == []
    for _ in range(10):
        grave = [alarm for alarm in walk(Patrol(), run_of(draw, answers, share, 60)) if alarm.grave]
        assert 50 < grave[0].step < 90


def test_ways_of_failing_that_were_not_there_at_the_start():
    steps = [{"watch/echo": 0.1}] * 8 + [{"watch/echo": 0.6}] * 4
    (alarm,) = walk(Patrol(), steps)
    assert (alarm.step, alarm.text) == (12, "Answers that copy the question: 60%, from 10% at the start.")
    assert walk(Patrol(), [{"watch/echo": 0.6}] * 20) == []  # it was so from the start
    assert (
        walk(Patrol(), [{"watch/injection": 0.0}] * 8 + [{"watch/injection": 0.06}, {"watch/injection": 0.0}] * 8) == []
    )


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"gold/passed": 0.2, "watch/fail_similarity": 0.9}, "only 20% of the known right answers pass"),
        ({"gold/passed": 1.0, "watch/fail_similarity": 0.9}, "their attempts are 90% alike"),
        ({"watch/fail_similarity": 0.1}, "the task is likely too hard"),
    ],
)
def test_why_groups_fail_as_a_whole(more, why):
    (alarm,) = walk(Patrol(), [{"groups/all_fail": 0.95, **more}] * 9)
    assert why in alarm.text
    assert walk(Patrol(), [{"groups/all_fail": 0.5, **more}] * 9) == []


def test_the_report_says_what_the_patrol_said(tmp_path):
    with RunFolder.create(tmp_path / "run", "rl", {}) as folder:
        for step in range(1, 9):
            metrics = {"reward/mean": 0.1 * step, "watch/repetition": 0.1 * step, "audit/mean": 0.5}
            folder.log(step, {**metrics, **counts(20, 10)})
    data = read(folder.path)
    assert [alarm.step for alarm in replay(data)] == [1]
    (section,) = patrol_sections(data)
    text, optimized, failures, rates = section.blocks
    assert text.text.startswith("Step 1: Of 20 answers that the reward passed")
    assert (optimized.title, failures.title) == ("What is optimized and what is wanted", "How answers fail")
    assert rates.rows == [("false positives", "80 of 160 that the reward passed", "50.0% [42.3%, 57.7%]")]


def test_silence_is_not_taken_for_safety(tmp_path):
    with RunFolder.create(tmp_path / "run", "rl", {}) as folder:
        for step in range(1, 5):
            folder.log(step, {"reward/mean": 0.1 * step, "watch/echo": 0.0})
    (section,) = patrol_sections(read(folder.path))
    assert "nothing independent was measured either" in section.blocks[0].text


def test_a_replay_says_what_was_said_live_whatever_else_is_logged(tmp_path):
    draw, patrol, live = random.Random(3).random, Patrol(), []
    with RunFolder.create(tmp_path / "run", "loop", {}) as folder:
        for step, metrics in enumerate(run_of(draw, 64, 0.25, 40), start=1):
            odd = {"reward/mean": math.nan} if step % 7 == 0 else {"audit/mean": math.inf} if step % 11 == 0 else {}
            live += patrol.look(step, metrics | odd)
            folder.log(step, {**metrics, **odd, "seconds": 1.0}, phase="policy_2")
            folder.log(step, {"reward/mean": 0.0, **counts(20, 20)}, phase="policy_1")
    assert {alarm.kind for alarm in live} == {"false positives", "parted"}
    assert replay(read(folder.path), "policy_2") == live
    assert [alarm.step for alarm in replay(read(folder.path), "policy_1")] == [1]
    assert replay(read(folder.path)) == []


def test_a_phase_of_a_loop_has_its_own_section(tmp_path):
    with RunFolder.create(tmp_path / "run", "loop", {}) as folder:
        for step in range(1, 5):
            folder.log(step, {"reward/mean": 0.1 * step, "watch/echo": 0.0, **counts(20, 20)}, phase="policy_1")
    data = read(folder.path)
    assert patrol_sections(data) == []
    (section,) = patrol_sections(data, phase="policy_1", eval_phase="")
    assert section.blocks[0].text.startswith("Step 1: Of 20 answers that the reward passed")
