from __future__ import annotations

import math

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
    assert walk(Patrol(), [counts(20, 1)] * 8) == []
    alarms = walk(Patrol(), [counts(20, 1)] * 4 + [counts(20, 8)] * 4)
    assert [(alarm.kind, alarm.grave) for alarm in alarms] == [("false positives", True)]
    assert alarms[0].step == 6  # 20 of 120: the interval begins at 11 %
    assert (
        "Of 120 answers that the reward passed in the last 6 steps the audit fails 20: 17% [11%, 24%]" in alarms[0].text
    )
    assert walk(Patrol(), [counts(9, 9)]) == []  # too few to speak of


def test_right_answers_that_are_refused():
    (alarm,) = walk(Patrol(), [counts(0, 0, 20, 10)])
    assert (alarm.kind, alarm.grave) == ("false negatives", False)


def test_curves_that_part():
    up = [{"reward/mean": 0.1 * n + 0.01 * (n % 2), "audit/mean": 0.9 - 0.02 * n + 0.01 * (n % 3)} for n in range(8)]
    (alarm,) = walk(Patrol(), up)
    assert (alarm.step, alarm.kind, alarm.grave) == (8, "parted", True)
    assert "the policy is gaming the reward" in alarm.text
    together = [{"reward/mean": 0.1 * n, "audit/mean": 0.02 * n} for n in range(20)]
    assert walk(Patrol(), together) == []
    noise = [{"reward/mean": 0.1 * n, "audit/mean": 0.5 + 0.1 * (-1) ** n} for n in range(20)]
    assert walk(Patrol(), noise) == []


def test_ways_of_failing_that_were_not_there_at_the_start():
    steps = [{"watch/echo": 0.1}] + [{"watch/echo": 0.6}] * 3
    (alarm,) = walk(Patrol(), steps)
    assert alarm.text == "Answers that copy the question: 60%, from 10% at the start."
    assert walk(Patrol(), [{"watch/echo": 0.6}] * 9) == []  # it was so from the start


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
    assert [alarm.step for alarm in replay(data)] == [1, 8]
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
