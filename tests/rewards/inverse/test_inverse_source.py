"""A reward that learns between two updates of a policy: whose log-probs, what is exported, what is saved."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from walks import Told, constant, walk

from prefrl import rewards
from prefrl.errors import ConfigError, RewardError
from prefrl.rewards.inverse.airl import Airl
from prefrl.rewards.inverse.discriminator import Fit
from prefrl.rewards.inverse.exported import NetReward
from prefrl.rewards.inverse.forms import LogPi
from prefrl.rewards.inverse.gail import Gail
from prefrl.rewards.inverse.gcl import Gcl
from prefrl.rewards.inverse.nets import NetSpec
from prefrl.rewards.inverse.source import InverseReward
from prefrl.rewards.specs import build
from prefrl.types import Score, StopReason

SPEC = NetSpec(state_size=2, action_size=2, hidden=(8,), shaped=True, potential=(8,), gamma=0.9)
METHODS = {"gail": Gail(), "airl": Airl(), "gcl": Gcl(), "kl": Airl(log_pi=LogPi(pay="kl"))}


def walks(count, seed, *, logp=-0.7, version=0, towards=1.0, steps=6):
    generator = torch.Generator().manual_seed(seed)
    made = []
    for number in range(count):
        states = torch.randn(steps + 1, 2, generator=generator) + towards
        actions = (torch.rand(steps, generator=generator) < 0.5 + 0.3 * towards).long().tolist()
        stop = StopReason.ENVIRONMENT if number % 2 else StopReason.LENGTH
        made.append(
            walk(states.tolist(), actions, logps=[logp] * steps, stop=stop, name=f"{seed}-{number}", version=version)
        )
    return made


EXPERT, POLICY = walks(6, 0), walks(5, 1, towards=-1.0)


def source(method="airl", **more):
    made = InverseReward(METHODS[method], SPEC, EXPERT, fit=Fit(steps=3, batch_size=8, buffer=2, fusion=0.25), **more)
    made._engine = Told(constant(-0.4), constant(-0.6))
    return made


@pytest.mark.parametrize("method", METHODS)
def test_an_update_learns_and_the_score_does_not(method):
    made = source(method)
    before = made.net.state_dict()["reward.0.0.weight"].clone()
    first, again = made.score(POLICY), made.score(POLICY)
    assert first == again
    assert torch.equal(made.net.state_dict()["reward.0.0.weight"], before)
    metrics = {name.removeprefix("irl/"): value for name, value in made.update(POLICY, first).items()}
    assert not torch.equal(made.net.state_dict()["reward.0.0.weight"], before)
    assert made.score(POLICY) != first
    wanted = {"loss", "gap", "return_expert", "return_policy", "steps", "left_out"}
    wanted |= {"ess"} if method == "gcl" else {"accuracy_expert", "accuracy_policy", "entropy"}
    assert wanted <= set(metrics)
    assert metrics["gap"] == pytest.approx(metrics["return_expert"] - metrics["return_policy"])
    assert all(math.isfinite(value) for value in metrics.values())


def test_a_step_is_paid_at_every_action_and_nothing_beside():
    scores = source("gail").score(POLICY)
    assert [score.value for score in scores] == [None] * 5
    assert [[at for at, _ in score.steps] for score in scores] == [[*range(6)]] * 5
    assert all(reward >= 0 for score in scores for _, reward in score.steps)


def test_the_samples_keep_the_log_probs_they_were_sampled_with():
    made = source("airl")
    made.update(POLICY)
    assert made.buffer.rounds[-1].log_ratios.tolist() == pytest.approx([-0.7] * 30)
    assert made._engine.asked == ["policy", "policy"]  # demonstrations alone: for this update, and for the next


def test_demonstrations_are_read_under_the_policy_that_sampled():
    made = source("airl")
    made.update(POLICY)
    made._engine._said["policy"] = constant(-0.1)  # changed after the update, as no learner does
    made._engine.version = 7
    late = walks(2, 3, version=7)
    assert made._known(7).log_ratios.tolist() == pytest.approx([-0.1] * 36)
    made._engine.asked.clear()
    made.update(late)
    assert made._engine.asked == ["policy"]  # known already; once for the next update


def test_attached_at_the_start_it_knows_the_first_policy():
    made = source("airl")
    made.attach(Told(constant(-0.3)))
    made._engine._said["policy"] = constant(-0.9)  # the policy has learnt meanwhile, from what it sampled as it was
    made._engine.version = 3
    made.update(POLICY)
    assert made._engine.asked == ["policy", "policy"]  # when attached, and for the next update; not for this one
    assert made._expert.log_ratios.tolist() == pytest.approx([-0.9] * 36)


def test_log_ratios_to_the_reference_on_both_sides():
    made = source("kl")
    made.update(POLICY)
    assert made._expert.log_ratios.tolist() == pytest.approx([-0.4 + 0.6] * 36)
    assert made.buffer.rounds[-1].log_ratios.tolist() == pytest.approx([-0.7 + 0.6] * 30)


def test_log_pi_is_paid_once():
    """Paid f - log pi, or f, of the same network: they differ by log pi = -0.7 a step."""
    inside, outside = source("airl"), source("kl")
    totals = [[score.total for score in made.score(POLICY)] for made in (inside, outside)]
    assert [a - b for a, b in zip(*totals, strict=True)] == pytest.approx([6 * 0.7] * 5, abs=1e-5)


def test_without_an_engine_log_pi_cannot_enter():
    bare = InverseReward(Airl(), SPEC, EXPERT)
    with pytest.raises(RewardError, match="Call attach"):
        bare.update(POLICY)
    assert InverseReward(Gail(), SPEC, EXPERT).update(POLICY)["irl/steps"] == 4.0


def test_unscored_episodes_are_left_out_and_counted():
    made = source("gail")
    scores = [Score.failed("the environment broke"), *made.score(POLICY[1:])]
    metrics = made.update(POLICY, scores)
    assert metrics["irl/left_out"] == 1.0
    assert len(made.buffer.rounds[-1]) == 24
    assert made.update(POLICY[:1], scores[:1]) == {}


def test_the_test_reward_has_neither_potential_nor_log_pi():
    made = source("airl")
    made.update(POLICY)
    exported = made.export()
    assert (made.train_reward.role, exported.role) == ("train", "test")
    steps = made.buffer.rounds[-1]
    g = made.net.reward_of(0, made.net.normalised(steps)).detach()
    assert torch.equal(exported.values(steps), g)
    assert not torch.allclose(made.train_reward.values(steps), g)
    frozen = exported.score(POLICY)
    made.update(POLICY)
    assert exported.score(POLICY) == frozen


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("members", [1, 3])
def test_a_loaded_reward_pays_bit_for_bit_what_the_one_in_memory_pays(method, members, tmp_path):
    made = source(method, normalise=True)
    made.spec = NetSpec(**{**_fields(SPEC), "members": members})
    made._build()
    made.update(POLICY)
    made.save(tmp_path / "train")
    made.export().save(tmp_path / "test")
    train, test = (NetReward.load(tmp_path / name) for name in ("train", "test"))
    assert train.score(POLICY) == made.score(POLICY)
    assert test.score(POLICY) == made.export().score(POLICY)
    assert float(made._scale.variance) != 1.0
    assert all(("disagreement" in score.parts) == (members > 1) for score in train.score(POLICY))
    suffixes = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert suffixes == {".json", ".safetensors"}


def test_a_saved_reward_by_settings(tmp_path):
    made = source("gail")
    made.export().save(tmp_path / "net")
    loaded = build({"kind": "reward_net", "path": str(tmp_path / "net")})
    assert loaded.score(POLICY) == made.export().score(POLICY)


def test_normalised_rewards_have_size_one_and_keep_their_sign():
    made = source("gail", normalise=True)
    made.update(POLICY)
    values = made.train_reward.values(made.buffer.rounds[-1])
    assert float(values.square().mean()) == pytest.approx(1.0, abs=1e-3)
    assert float(values.min()) > 0.0


def test_members_of_an_ensemble_see_their_own_demonstrations():
    made = InverseReward(Gail(), NetSpec(**{**_fields(SPEC), "members": 3}), EXPERT, fit=Fit(batch_size=0, steps=1))
    expert, policy = made._known(0), made._known(0)
    made.buffer.add(policy)
    seen = [frozenset(made._batches(k, expert, policy)[0][0].tolist()) for k in range(3)]
    assert len(set(seen)) == 3
    assert all(20 <= len(places) <= 30 for places in seen)  # of 36: about 1 - 1/e
    again = [frozenset(made._batches(k, expert, policy)[0][0].tolist()) for k in range(3)]
    assert again == seen
    made.fit = Fit(batch_size=0, steps=1, bootstrap=False)
    assert all(len(set(made._batches(k, expert, policy)[0][0].tolist())) == 36 for k in range(3))


@pytest.mark.parametrize("method", METHODS)
def test_a_continuation_is_exact(method):
    whole, first, rest = (source(method, normalise=True) for _ in range(3))
    rounds = [walks(5, 10 + k, towards=-1.0) for k in range(4)]
    for some in rounds:
        whole.update(some)
    for some in rounds[:2]:
        first.update(some)
    rest.load_state_dict(first.state_dict())
    for some in rounds[2:]:
        rest.update(some)
    assert rest.score(POLICY) == whole.score(POLICY)


def test_a_state_of_another_reward_is_refused():
    with pytest.raises(RewardError, match="not one of reward"):
        source("gail").load_state_dict({"net": {}})


def test_updates_stop_where_all_is_told_apart():
    made = InverseReward(Gail(), SPEC, EXPERT, fit=Fit(steps=200, batch_size=0, lr=0.05, stop_accuracy=0.9))
    metrics = made.update(walks(5, 4, towards=-4.0))
    assert 1 < metrics["irl/steps"] < 200


@pytest.mark.parametrize("kind", ["airl", "gail", "gcl"])
def test_kinds_by_settings(kind):
    made = build({"kind": kind, "demonstrations": EXPERT, "hidden": [4], "steps": 2, "state_size": 2, "action_size": 2})
    assert made.name == kind
    assert made.spec.hidden == (4,)
    assert made.fit.steps == 2
    assert made.spec.shaped == (kind == "airl")
    with pytest.raises(ConfigError, match="Did you mean 'hidden'"):
        build({"kind": kind, "demonstrations": EXPERT, "hiden": [4]})


def test_sizes_come_with_the_policy():
    made = build({"kind": "gail", "demonstrations": EXPERT})
    with pytest.raises(RewardError, match="does not know the sizes"):
        made.score(POLICY)


def test_a_learnt_reward_adds_up_with_others():
    both = 2.0 * source("gail") + rewards.function(lambda completions, **_: [1.0] * len(completions))
    assert both.score(POLICY)[0].total == pytest.approx(2.0 * source("gail").score(POLICY)[0].total + 1.0)
    assert any(name.startswith("gail/") for name in both.update(POLICY))


def test_an_impossible_demonstration_is_said():
    made = source("airl")
    made._engine._said["policy"] = constant(-math.inf)
    with pytest.raises(RewardError, match="no probability at all to 36 demonstrated actions"):
        made.update(POLICY)


def test_a_gradient_that_is_not_finite_is_said_and_moves_nothing():
    made = source("gail")
    before = made.net.state_dict()["reward.0.0.weight"].clone()
    broken = walk([[math.nan, 0.0]] * 7, [0] * 6)
    with pytest.raises(RewardError, match="not finite"):
        made.update([broken])
    assert torch.equal(made.net.state_dict()["reward.0.0.weight"], before)


def _fields(spec):
    return {name: getattr(spec, name) for name in spec.__slots__}


@pytest.mark.parametrize("last", [1.0, 0.0])
def test_an_ensemble_stops_by_the_mean_of_its_members(last):
    """A member that knows all and one that knows nothing are half right together, whoever comes last."""

    class Sure(Gail):
        def loss(self, net, member, expert, policy, fit):
            loss, metrics = super().loss(net, member, expert, policy, fit)
            right = last if member else 1.0 - last
            return loss, {**metrics, "accuracy_expert": right, "accuracy_policy": right}

    for wanted, steps in ((0.4, 1.0), (0.6, 5.0)):
        spec, fit = replace(SPEC, members=2), Fit(steps=5, batch_size=0, stop_accuracy=wanted)
        made = InverseReward(Sure(), spec, EXPERT, fit=fit)
        assert made.update(POLICY)["irl/steps"] == steps


@pytest.mark.parametrize(("fragment", "units"), [(0, [6, 5, 10]), (4, [9, 7, 14]), (1, [36, 30, 60])])
def test_guided_cost_learning_draws_from_all_kept_rounds_and_from_fragments(fragment, units, monkeypatch):
    """Of six steps, a fragment of four and, where they ended, one of two."""
    fit = Fit(steps=1, batch_size=0, buffer=2, fragment=fragment)
    made = InverseReward(Gcl(), SPEC, EXPERT, fit=fit)
    made._engine = Told(constant(-0.4))
    seen = []
    monkeypatch.setattr(
        Gcl,
        "loss",
        lambda self, net, member, expert, policy, fit: (
            seen.append((expert.episodes, policy.episodes)) or (net(expert).sum(), {"loss": 0.0})
        ),
    )
    made.update(POLICY)
    made.update(walks(5, 2))
    assert seen == [(units[0], units[1]), (units[0], units[2])]
