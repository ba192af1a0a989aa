from __future__ import annotations

from types import SimpleNamespace

import pytest
from fakes import TableReward
from tiny import rollout

from prefrl.policy.gather import gather
from prefrl.policy.parts import OverlongSpec
from prefrl.types import Prompt, Score, StopReason

REWARDS = {"fail": (0.0, 0.0), "pass": (1.0, 1.0), "mixed": (1.0, 0.0), "fifths": (0.2, 0.4), "noise": (0.3, 0.1 + 0.2)}


class Drawing:
    """Draws two rollouts a prompt; the prompt's text says how they fare, the round names their group."""

    def __init__(self, *further):
        self.further = list(further)
        self.asked = []
        self.rounds = []

    def sample(self, prompts, round_):
        self.rounds.append(round_)
        return [rollout((k, k), group=f"{p.id}/{round_}", text=f"{p.text}/{k}") for p in prompts for k in range(2)]

    def more(self, count):
        self.asked.append(count)
        taken, self.further = self.further[:count], self.further[count:]
        return named(*taken)


def named(*texts):
    return [Prompt(id=f"{i}-{text}", text=text) for i, text in enumerate(texts)]


def score(drawn):
    kind, _, k = drawn.text.partition("/")
    if kind == "error" or (kind == "half" and k == "0"):
        return Score.failed("no")
    return Score(value=REWARDS.get(kind, (1.0, 1.0))[int(k)])


def gathered(prompts, *further, rounds=3, with_more=True):
    drawing = Drawing(*further)
    found = gather(
        drawing.sample,
        TableReward(score),
        named(*prompts),
        rounds=rounds,
        more=drawing.more if with_more else None,
    )
    return drawing, found


def kinds(found):
    return [r.text for r in found.rollouts]


def test_groups_without_a_signal_are_replaced_until_the_batch_is_full():
    drawing, found = gathered(["mixed", "fail", "pass"], "fail", "mixed", "fifths")
    assert kinds(found) == ["mixed/0", "mixed/1", "mixed/0", "mixed/1", "fifths/0", "fifths/1"]
    assert [s.value for s in found.scores] == [1.0, 0.0, 1.0, 0.0, 0.2, 0.4]
    # Two are missing, then one; drawn in rounds 0, 1 and 2.
    assert drawing.asked == [2, 1]
    assert drawing.rounds == [0, 1, 2]


def costs(found):
    return {name: value for name, value in found.metrics.items() if name.startswith("resample/")}


def test_what_replacing_costs():
    _, found = gathered(["mixed", "fail", "pass"], "fail", "mixed", "fifths")
    # Six groups of two rollouts of two tokens seen, three kept.
    assert costs(found) == {
        "resample/rounds": 2.0,
        "resample/discarded": 0.5,
        "resample/wasted_tokens": 12.0,
        "resample/filled": 1.0,
        # Kept: (1 + 0 + 1 + 0 + .2 + .4) / 6; seen: 4.6 / 12.
        "resample/difficulty_shift": pytest.approx(2.6 / 6 - 4.6 / 12),
    }


def test_it_stops_after_the_given_rounds_and_learns_from_what_there_is():
    drawing, found = gathered(["mixed", "fail"], *["fail"] * 9, rounds=3)
    assert kinds(found) == ["mixed/0", "mixed/1"]
    assert drawing.asked == [1, 1, 1]
    assert found.metrics["resample/rounds"] == 3.0
    assert found.metrics["resample/filled"] == 0.5
    assert found.metrics["resample/discarded"] == pytest.approx(4 / 5)


def test_without_any_signal_the_first_rollouts_are_reported():
    _, found = gathered(["fail", "pass"], *["fail"] * 9, rounds=1)
    assert kinds(found) == ["fail/0", "fail/1", "pass/0", "pass/1"]
    assert found.metrics["resample/discarded"] == 1.0
    assert found.metrics["resample/wasted_tokens"] == 16.0
    assert found.metrics["resample/filled"] == found.metrics["resample/difficulty_shift"] == 0.0


def test_a_full_batch_asks_for_nothing():
    drawing, found = gathered(["mixed", "fifths"], "mixed")
    assert drawing.asked == []
    assert costs(found) == {
        "resample/rounds": 0.0,
        "resample/discarded": 0.0,
        "resample/wasted_tokens": 0.0,
        "resample/filled": 1.0,
        "resample/difficulty_shift": 0.0,
    }


@pytest.mark.parametrize("options", [{"rounds": 0}, {"with_more": False}])
def test_without_rounds_or_prompts_nothing_is_replaced(options):
    drawing, found = gathered(["mixed", "fail"], "mixed", **options)
    assert kinds(found) == ["mixed/0", "mixed/1", "fail/0", "fail/1"]
    assert found.metrics == {}
    assert drawing.asked == []


def test_a_difference_of_float_noise_is_no_signal():
    _, found = gathered(["mixed", "noise"], "noise", rounds=1)
    assert kinds(found) == ["mixed/0", "mixed/1"]


def test_a_group_whose_scored_rewards_do_not_differ_has_no_signal():
    # One of two scored, and none of two.
    _, found = gathered(["mixed", "half", "error"], rounds=1)
    assert kinds(found) == ["mixed/0", "mixed/1"]


def test_an_unscored_member_stays_with_its_group():
    def partly(drawn):
        return Score.failed("no") if drawn.completion_ids[0] == 2 else Score(value=float(drawn.completion_ids[0]))

    three = [rollout((k,), group="g") for k in range(3)]
    found = gather(lambda *_: three, TableReward(partly), named("any"), rounds=1, more=lambda n: [])
    assert [s.ok for s in found.scores] == [True, True, False]


def test_figures_are_those_of_all_that_was_sampled():
    _, found = gathered(["mixed", "fail", "pass"], "fail", "mixed", "fifths")
    assert found.metrics["groups/mixed"] == 0.5
    assert found.metrics["groups/all_fail"] == pytest.approx(2 / 6)
    assert found.metrics["reward/mean"] == pytest.approx(4.6 / 12)


@pytest.mark.parametrize(("rule", "kept"), [("keep", ["a"]), ("mask", []), ("zero", ["a"]), ("soft", ["a"])])
def test_a_group_is_judged_by_what_counts_of_it(rule, kept):
    """Rewards 1 and 0, the second one truncated: masked out, the first has nothing to be compared with."""
    rollouts = [rollout((1,), group="a"), rollout((1,), group="a", stop=StopReason.LENGTH)]
    scores = [Score(value=1.0), Score(value=0.0)]
    scorer = SimpleNamespace(score=lambda some: scores[: len(some)])
    drawn = iter([rollouts])
    found = gather(
        lambda prompts, _: next(drawn, []),
        scorer,
        [Prompt(id="a", text="?")],
        rounds=1,
        more=lambda n: [],
        overlong=OverlongSpec(rule=rule),
    )
    assert found.metrics["resample/filled"] == len(kept)


def test_a_truncated_success_that_is_scored_0_is_a_signal():
    rollouts = [rollout((1,), group="a"), rollout((1,), group="a", stop=StopReason.LENGTH)]
    scorer = SimpleNamespace(score=lambda some: [Score(value=1.0)] * len(some))
    drawn = iter([rollouts])
    found = gather(
        lambda *_: next(drawn, []),
        scorer,
        [Prompt(id="a", text="?")],
        rounds=1,
        more=lambda n: [],
        overlong=OverlongSpec(rule="zero"),
    )
    assert found.metrics["resample/filled"] == 1.0
