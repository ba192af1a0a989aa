from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from fakes import TableCritic, TablePolicy, TableReward, parts
from tiny import rollout

from prefrl.errors import ConfigError, DataError, RewardError
from prefrl.policy.algorithms import ALGORITHMS
from prefrl.policy.optimizer import PolicyOptimizer, learn_completions, learn_pairs
from prefrl.policy.parts import PairSpec
from prefrl.types import Prompt, Row, Score, StopReason

PROMPTS = [Prompt(id="p", text="which?"), Prompt(id="q", text="which?")]


def preference(policy):
    """Logit of token 0 minus that of token 1."""
    first, second = policy.logits.tolist()
    return first - second


def first_is_right(drawn):
    """Token 0 is worth 1, token 1 nothing."""
    return Score(value=float(drawn.completion_ids[0] == 0))


def optimizer(name="dr_grpo", policy=None, critic=None, score=first_is_right, **options):
    """Over a policy with two tokens; `parts` among the options change the algorithm."""
    algorithm = parts(name, **options.pop("parts", {}))
    return PolicyOptimizer(policy or TablePolicy(), TableReward(score), algorithm, critic=critic, **options)


def with_critic(values, *, lr=0.0, **changes):
    """A PPO without KL, its critic's calls in the policy's list."""
    policy = TablePolicy()
    critic = TableCritic(values, lr=lr, calls=policy.calls)
    changes = {"kl": {"coef": 0.0}, "credit": {"scale": "none", "lam": 1.0}, **changes}
    return optimizer("ppo", policy, critic, parts=changes), policy, critic


# A step. ---------------------------------------------------------------------------------------------------------


def test_one_step_by_hand():
    # Two groups of two one-token answers, advantages .5 and -.5; sequence sums over four rollouts.
    one = optimizer("rloo", parts={"kl": {"coef": 0.0}})
    result = one.step(PROMPTS, seed=0)
    # Leave-one-out advantages 1 and -1; -sum A grad log pi / 4 with grad log pi = (.5, -.5) and (-.5, .5).
    torch.testing.assert_close(one.policy.logits.detach(), torch.tensor([0.5, -0.5], dtype=torch.float64))
    assert result.version == one.policy.version == 1
    assert [r.completion_ids for r in result.rollouts] == [(0,), (1,), (0,), (1,)]
    assert [s.value for s in result.scores] == [1.0, 0.0, 1.0, 0.0]
    assert result.metrics["reward/mean"] == 0.5
    assert result.metrics["groups/mixed"] == 1.0
    assert result.metrics["source/updates"] == 1.0


@pytest.mark.parametrize("name", [n for n, row in ALGORITHMS.items() if not row.needs & {"values", "teacher"}])
def test_every_algorithm_makes_the_better_answer_more_likely(name):
    one = optimizer(name, TablePolicy(lr=0.5))
    result = one.step(PROMPTS, seed=0)
    assert preference(one.policy) > 0
    assert math.isfinite(result.metrics["loss"])


@pytest.mark.parametrize(("name", "extra"), [("opd", None), ("opsd", lambda drawn: (9,))])
@pytest.mark.parametrize("form", ["full", "sampled"])
def test_a_teacher_draws_the_policy_to_itself(name, extra, form):
    policy = TablePolicy(teacher=(0.0, 3.0), lr=0.5)
    changes = {"distill": {"form": form}}
    one = optimizer(name, policy, score=lambda _: Score(value=0.0), teacher_prompt=extra, parts=changes)
    one.step(PROMPTS, seed=0)
    assert preference(policy) < 0


def test_the_policy_is_asked_for_what_the_algorithm_needs_only():
    asked = {
        "dr_grpo": ["sample", "policy"],
        "grpo": ["sample", "reference", "policy"],
        "opd": ["sample", "policy"],
    }
    for name, calls in asked.items():
        one = optimizer(name)
        one.step(PROMPTS, seed=0)
        assert one.policy.calls == calls
    one = optimizer("opd", parts={"distill": {"form": "sampled"}})
    one.step(PROMPTS, seed=0)
    assert one.policy.calls == ["sample", "teacher", "policy"]


def test_stale_samples_are_weighed_by_the_learner_before_the_update():
    policy = TablePolicy((0.0, math.log(3.0)))  # p = .25, .75
    one = optimizer("dr_grpo", policy, parts={"truncate": 2.0})
    stale = [rollout((0,), logps=(math.log(0.1),)), rollout((1,), logps=(math.log(0.9),))]
    one.learn(stale, [Score(value=1.0), Score(value=0.0)])
    # Weights min(2.5, 2) and .75 / .9, advantages .5 and -.5 over two rollouts and a budget of 4.
    first, second = (row.streams["rl"].item() for row in policy.rows[0])
    assert first == pytest.approx(0.5 * 2.0 / 8)
    assert second == pytest.approx(-0.5 * (0.75 / 0.9) / 8)
    assert policy.rows[0][0].streams["old_logps"].item() == pytest.approx(math.log(0.25))


def test_several_updates_are_made_on_each_batch():
    one = optimizer("grpo", updates=3)
    result = one.step(PROMPTS, seed=0)
    assert one.policy.calls == ["sample", "reference", "policy", "policy", "policy"]
    assert result.version == 3
    # The rows are those of the start: ratios have moved by the last update.
    assert result.metrics["ratio/max"] > 1.0
    assert result.metrics["ratio/ess"] < 1.0


def test_staleness_and_effective_sample_size_are_reported():
    one = optimizer()
    one.policy.version = 7
    drawn = [dataclasses.replace(rollout((k,), logps=(math.log(0.5),)), version=v) for k, v in ((0, 5), (1, 7))]
    metrics = one.learn(drawn, [Score(value=1.0), Score(value=0.0)])
    assert metrics["staleness/mean"] == 1.0
    assert metrics["staleness/max"] == 2.0
    assert metrics["ratio/ess"] == pytest.approx(1.0)
    assert "ratio/mean_square" not in metrics


def test_the_state_goes_from_step_to_step():
    one = optimizer(parts={"credit": {"baseline": "ema"}, "kl": {"coef": 0.1, "target": 0.5}})
    kls = []
    for seed in range(3):
        metrics = one.step(PROMPTS, seed=seed).metrics
        kls.append((metrics["kl/coef"], metrics["kl/ref"]))
    assert one.state.steps == 3
    assert one.state.means[0] == pytest.approx(0.5)
    # On policy at first, so the KL is 0, the error -.2 and the coefficient .98 times as large.
    assert kls[0] == (0.1, pytest.approx(0.0, abs=1e-7))
    assert kls[1][0] == pytest.approx(0.098)


def test_kl_to_the_reference_is_reported():
    policy = TablePolicy()
    one = optimizer("grpo", policy)
    policy.start = torch.tensor([0.0, math.log(3.0)], dtype=torch.float64)
    metrics = one.step(PROMPTS, seed=0).metrics
    # Two answers each with log .5 - log .25 and log .5 - log .75.
    assert metrics["kl/ref"] == pytest.approx((math.log(2.0) + math.log(2 / 3)) / 2)


# What is refused. ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reinforce", "rloo"])
def test_several_updates_without_a_ratio_are_refused(name):
    with pytest.raises(
        ConfigError, match=r"updates is 2, but algorithm '.*' has no importance ratio.*Set updates to 1"
    ):
        optimizer(name, updates=2)


@pytest.mark.parametrize("name", ["dpo", "rejection"])
def test_several_updates_are_fine_where_no_ratio_is_needed(name):
    one = optimizer(name, updates=2)
    one.step(PROMPTS, seed=0)
    assert one.policy.version == 2


def test_values_without_a_critic_are_refused():
    with pytest.raises(ConfigError, match="'ppo' needs a critic and none was given"):
        optimizer("ppo")


def test_a_privileged_teacher_without_a_prompt_is_refused():
    with pytest.raises(ConfigError, match="'opsd' shows its teacher a solution, and nothing says where"):
        optimizer("opsd")
    optimizer("opsd", parts={"distill": {"privileged": False}})


def test_a_step_in_which_nothing_was_scored_is_refused():
    one = optimizer(score=lambda _: Score.failed("no judge"))
    with pytest.raises(RewardError, match="None of 4 rollouts can be learnt from: each was unscored, empty or masked"):
        one.step(PROMPTS, seed=0)
    assert one.policy.version == 0


def test_a_step_in_which_all_is_masked_as_overlong_says_so():
    one = optimizer(parts={"overlong": {"rule": "mask"}})
    cut = [rollout((k,), stop=StopReason.LENGTH) for k in (0, 1)]
    with pytest.raises(RewardError, match=r"Raise sampling.max_new_tokens, or set algorithm.overlong.rule to 'keep'"):
        one.learn(cut, [Score(value=1.0), Score(value=0.0)])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_score_that_is_no_number_is_refused(value):
    with pytest.raises(RewardError, match=r"The score of prompt 'g' is (nan|inf); expected a finite number"):
        optimizer().learn([rollout((0,)), rollout((1,))], [Score(value=value), Score(value=0.0)])


# A critic. -------------------------------------------------------------------------------------------------------


def test_the_critic_learns_before_the_policy_and_from_its_old_values():
    one, policy, critic = with_critic([0.5], lr=1.0)
    metrics = one.step(PROMPTS, seed=0).metrics
    assert policy.calls == ["sample", "values", "critic", "policy"]
    # Advantages were computed with the value of before: 1 - .5 and 0 - .5, token mean over four.
    assert [row.streams["rl"].item() for row in policy.rows[0]] == pytest.approx([0.125, -0.125] * 2)
    assert [row.streams["returns"].item() for row in critic.rows[0]] == [1.0, 0.0, 1.0, 0.0]
    assert metrics["critic/loss"] == pytest.approx(0.25)
    assert metrics["critic/return"] == 0.5
    assert metrics["critic/explained_variance"] == 0.0


def test_the_critic_learns_the_success_rate():
    # Three of ten succeed: .6 costs .30, the optimum .3 costs .21.
    one, _, critic = with_critic([0.6], lr=0.5, critic={"clip": 0.0})
    drawn = [rollout((int(k >= 3),), group=str(k)) for k in range(10)]
    costs = [one.learn(drawn, [first_is_right(r) for r in drawn])["critic/loss"] for _ in range(3)]
    assert costs == pytest.approx([0.30, 0.21, 0.21])
    assert critic.table.item() == pytest.approx(0.3)


def test_explained_variance_of_the_values_of_before():
    one, _, _ = with_critic([0.5, 1.0])
    drawn = [rollout((0, 0)), rollout((1, 1), group="h")]
    steps = [Score(steps=((0, 1.0), (1, 2.0))), Score(steps=((0, -2.0), (1, 1.0)))]
    # Returns 3, 2, -1, 1 (variance 2.1875); errors 2.5, 1, -1.5, 0 (variance 2.125).
    assert one.learn(drawn, steps)["critic/explained_variance"] == pytest.approx(1 - 2.125 / 2.1875)


def test_in_warmup_only_the_critic_learns():
    one, policy, _ = with_critic([0.5], critic={"warmup": 2})
    for seed in range(3):
        one.step(PROMPTS, seed=seed)
    assert policy.calls.count("critic") == 3
    assert policy.calls.count("policy") == policy.version == 1
    assert policy.calls[-2:] == ["critic", "policy"]


def test_critic_and_policy_make_the_same_number_of_updates():
    policy = TablePolicy()
    one = optimizer("ppo", policy, TableCritic([0.5], calls=policy.calls), updates=2, parts={"kl": {"coef": 0.0}})
    one.step(PROMPTS, seed=0)
    assert policy.calls == ["sample", "values", "critic", "critic", "policy", "policy"]


@pytest.mark.parametrize(
    ("stop", "score", "bootstrap"),
    [
        (StopReason.LENGTH, Score(steps=((0, 0.0),)), 0.8),
        (StopReason.LENGTH, Score(value=0.0), 0.0),
        (StopReason.EOS, Score(steps=((0, 0.0),)), 0.0),
        (StopReason.ENVIRONMENT, Score(steps=((0, 0.0),)), 0.0),
    ],
)
def test_only_what_was_cut_off_without_a_verdict_goes_on_with_the_critics_value(stop, score, bootstrap):
    one, policy, critic = with_critic([0.5, 0.25, 0.8], credit={"scale": "none", "lam": 0.0})
    one.learn([rollout((0, 1), stop=stop)], [score])
    (read,) = critic.asked[0]
    assert len(read.completion_ids) == (3 if bootstrap else 2)
    # Deltas .25 - .5 and bootstrap - .25, token mean over two.
    (row,) = policy.rows[0]
    assert row.streams["rl"].tolist() == pytest.approx([-0.125, (bootstrap - 0.25) / 2])
    assert critic.rows[0][0].streams["returns"].tolist() == pytest.approx([0.25, bootstrap])


def test_a_cut_row_with_an_observation_last_goes_on_after_it():
    one, _, critic = with_critic([0.5, 9.0, 0.8], credit={"scale": "none", "lam": 0.0})
    cut = rollout((0, 1), mask=(True, False), stop=StopReason.LENGTH)
    one.learn([cut], [Score(steps=((0, 0.0),))])
    assert critic.asked[0][0].mask == (True, False, True)
    assert critic.rows[0][0].streams["returns"][0].item() == pytest.approx(0.8)


# Selection, pairs, teachers. -------------------------------------------------------------------------------------


def test_a_selection_that_keeps_nothing_makes_no_update():
    one = optimizer("rejection", score=lambda _: Score(value=0.0))
    metrics = one.step(PROMPTS, seed=0).metrics
    assert metrics["select/kept"] == 0.0
    assert one.policy.version == 0
    assert one.state.steps == 1


def test_a_selection_counts_what_it_keeps():
    one = optimizer("rejection")
    assert one.step(PROMPTS, seed=0).metrics["select/kept"] == 2.0
    assert [row.completion_ids for row in one.policy.rows[0]] == [(0,), (0,)]


def test_online_pairs():
    one = optimizer("dpo")
    metrics = one.step(PROMPTS, seed=0).metrics
    assert [(row.side, row.completion_ids) for row in one.policy.rows[0]] == [(1, (0,)), (-1, (1,))] * 2
    assert metrics["loss"] == pytest.approx(math.log(2))


@pytest.mark.parametrize("form", ["full", "sampled"])
def test_a_privileged_teacher_sees_its_own_prompt(form):
    one = optimizer("opsd", teacher_prompt=lambda drawn: (*drawn.prompt_ids, 42), parts={"distill": {"form": form}})
    one.step(PROMPTS, seed=0)
    asked = one.policy.rows[0] if form == "full" else one.policy.asked[0]
    assert {row.teacher_prompt_ids for row in asked} == {(5, 6, 42)}
    assert {row.prompt_ids for row in asked} == {(5, 6)}


def test_a_teacher_without_privilege_sees_the_policys_prompt():
    one = optimizer("opd", teacher_prompt=lambda drawn: (42,))
    one.step(PROMPTS, seed=0)
    assert {row.teacher_prompt_ids for row in one.policy.rows[0]} == {None}


# Further prompts. ------------------------------------------------------------------------------------------------


def test_further_prompts_replace_groups_without_a_signal():
    policy = TablePolicy(answer=lambda prompt, k: (k,) if prompt.id == "varied" else (0,))
    one = optimizer(policy=policy, parts={"resample": 2})
    asked = []

    def more(count):
        asked.append(count)
        return [Prompt(id="varied", text="?")] * count

    result = one.step([Prompt(id="flat", text="?"), Prompt(id="varied", text="?")], seed=0, more=more)
    assert asked == [1]
    # The same prompt drawn again is another group.
    assert [r.group for r in result.rollouts] == ["varied", "varied", "varied/1", "varied/1"]
    assert result.metrics["resample/filled"] == 1.0
    assert len(policy.rows[0]) == 4


def test_rounds_draw_with_other_seeds():
    policy = TablePolicy(answer=lambda prompt, k: (0,))
    one = optimizer(policy=policy, parts={"resample": 2})
    one.step(PROMPTS, seed=4, more=lambda n: PROMPTS[:n])
    assert policy.seeds[0] == 4
    assert len(set(policy.seeds)) == 3


def test_without_resampling_no_further_prompt_is_asked_for():
    one = optimizer(score=lambda _: Score(value=1.0))
    one.step(PROMPTS, seed=0, more=lambda n: pytest.fail("asked for more"))


# Given pairs and completions. ------------------------------------------------------------------------------------


def given(ids, **fields):
    return Row(prompt_ids=(), completion_ids=ids, mask=(True,) * len(ids), **fields)


def test_given_pairs():
    policy = TablePolicy()
    ref = {"ref_logps": torch.tensor([math.log(0.5)])}
    metrics = learn_pairs(policy, [given((0,), side=1, streams=ref), given((1,), side=-1, streams=ref)], PairSpec())
    assert metrics["loss"] == pytest.approx(math.log(2))
    assert preference(policy) > 0
    with pytest.raises(DataError, match="No pairs to learn from"):
        learn_pairs(policy, [], PairSpec())


def test_an_update_without_a_reference_asks_for_none():
    one = optimizer("cpo")
    metrics = one.step(PROMPTS, seed=0).metrics
    assert one.policy.calls == ["sample", "policy"]
    assert "kl/ref" not in metrics
    assert set(one.policy.rows[0][0].streams) == {"old_logps", "ce"}


def test_judged_completions_are_compared_with_those_of_other_prompts():
    policy = TablePolicy((0.0, math.log(3.0)))  # p = .25, .75; its start is the reference
    with torch.no_grad():
        policy.logits[0] = math.log(3.0)  # now .5, .5
    rows = [
        Row(
            prompt_ids=(p,),
            completion_ids=(p, 1 - p),
            mask=(True, p == 0),
            side=side,
            weight=0.5,
            atom=p,
            streams={"ref_logps": torch.tensor([math.log(0.25), math.log(0.75)])[[p, 1 - p]]},
        )
        for p, side in ((0, 1), (1, -1))
    ]
    metrics = learn_pairs(policy, rows, PairSpec(loss="prospect"))
    # Gaps of the tokens that count: log 2 and log 2/3 after prompt 1, log 2/3 after prompt 0; z0 is below 0.
    assert policy.calls == ["policy", "reference", "policy"]
    assert metrics["kl/mismatched"] == 0.0
    with torch.no_grad():
        policy.logits[:] = torch.tensor([math.log(3.0), 0.0])  # .75, .25: gaps log 3 - log 3 and -log 3
    rows[1].mask = (False, True)  # of the second its token 0 counts instead
    metrics = learn_pairs(policy, rows, PairSpec(loss="prospect"))
    assert metrics["kl/mismatched"] == pytest.approx(math.log(3.0) / 2, rel=1e-6)


def test_the_baseline_is_measured_once_an_update():
    policy = TablePolicy(answer=lambda prompt, k: (k,))
    PolicyOptimizer(
        policy, TableReward(lambda r: Score(value=float(r.completion_ids[0]))), parts("kto"), updates=2
    ).step(PROMPTS, seed=0)
    assert policy.calls == ["sample", "reference", *["policy", "reference", "policy"] * 2]
    sides = [(row.side, row.completion_ids) for row in policy.rows[0]]
    assert sides == [(-1, (0,)), (1, (1,))] * 2


def test_given_completions_are_learnt_by_the_mean_over_all_tokens():
    policy = TablePolicy()
    rows = [given((0, 0, 0)), given((1,))]
    metrics = learn_completions(policy, rows)
    assert [row.streams["ce"].tolist() for row in rows] == [[0.25] * 3, [0.25]]
    assert metrics["loss"] == metrics["nll"] == pytest.approx(math.log(2))
    with pytest.raises(DataError, match="No completion tokens"):
        learn_completions(policy, [given(())])


def test_errors_of_groups_that_were_replaced_are_counted():
    policy = TablePolicy()
    failing = TableReward(
        lambda r: Score.failed("x") if r.group.startswith("q") else Score(value=float(r.completion_ids[0]))
    )
    prompts = [Prompt(id="p", text="?"), Prompt(id="q", text="?")]
    one = PolicyOptimizer(policy, failing, parts("dr_grpo", resample=1))
    assert one.step(prompts, seed=0, more=lambda n: []).metrics["errors"] == 0.5


def test_without_a_pair_that_differs_there_is_no_update():
    policy = TablePolicy()
    alike = TableReward(lambda r: Score(value=0.0))
    PolicyOptimizer(policy, alike, parts("dpo")).step([Prompt(id="p", text="?")], seed=0)
    assert policy.version == 0


def test_a_rule_for_overlong_rollouts_hides_no_nan():
    one = PolicyOptimizer(
        TablePolicy(), TableReward(lambda r: Score(value=0.0)), parts("dr_grpo", overlong={"rule": "zero"})
    )
    cut = rollout((0,), stop=StopReason.LENGTH)
    with pytest.raises(RewardError, match="is nan; expected a finite number"):
        one.learn([cut, rollout((1,))], [Score(value=math.nan), Score(value=1.0)])
