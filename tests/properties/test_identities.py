"""Algorithms that are the same where theory says so, and differ by the factor or the term that it says elsewhere."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from copying import Copied, fresh, prompts
from exact import OWN, WORLDS, World, cosine, expected, expected_ascent, gradient, same, scores
from fakes import alone, batch_of, parts, scored

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.model.engine import Engine
from prefrl.policy.advantages import centred
from prefrl.policy.algorithms import resolve
from prefrl.policy.credit import CreditState, credit
from prefrl.policy.objective import stream_objective
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.policy.rows import weighted_rows

REDUCTIONS = ("token_mean", "sequence_mean", "sequence_sum", "constant", "prompt_mean")
SURROGATES = ("reinforce", "rloo", "ppo", "grpo", "dr_grpo", "dapo", "cispo", "gspo", "ctpo", "full_ratio")


def some_scored(*, steps=False, seed=0):
    """Two groups of four ragged rollouts, some tokens of which are observations; rewards of any size."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for i in range(8):
        n = 1 + int(torch.randint(0, 6, (), generator=generator))
        mask = tuple(k % 3 != 1 for k in range(n))
        drawn = torch.randn(2 * n + 1, generator=generator).tolist()
        events = tuple((k, drawn[n + k]) for k in range(n)) if steps else ()
        values = drawn[n : 2 * n]
        found.append(scored(drawn[-1], tuple(range(n)), steps=events, mask=mask, group="ab"[i // 4], values=values))
    return found


def learnt(spec, items, *, drift=0.0):
    """Loss and gradient by the log-probs (N,), in float64; `drift` is how far the sampler's are from them."""
    algorithm = resolve(spec)
    rows = weighted_rows(items, algorithm, 8, alone)
    generator = torch.Generator().manual_seed(1)
    count = sum(sum(row.mask) for row in rows)
    logps = (torch.randn(count, generator=generator, dtype=torch.float64) - 2.0).requires_grad_()
    old = logps.detach() + drift * torch.randn(count, generator=generator, dtype=torch.float64)
    batch = batch_of(rows, logps)
    batch = replace(batch, streams=dict(batch.streams) | {"old_logps": old})
    loss, _ = stream_objective(batch, algorithm)
    return loss.detach(), gradient(loss, logps), (batch, logps, old)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("steps", [False, True], ids=["sequence", "steps"])
@pytest.mark.parametrize("baseline", ["group_mean", "critic"])
def test_at_ratio_one_all_surrogates_have_one_gradient(reduction, steps, baseline):
    items = some_scored(steps=steps)
    same_parts = {
        "credit": {"baseline": baseline, "scale": "group_std" if baseline == "group_mean" else "none"},
        "reduction": reduction,
        "kl": {"coef": 0.0},
    }
    _, wanted, _ = learnt({"name": "reinforce", **same_parts, "group_size": 4}, items)
    assert float(wanted.abs().min()) > 1e-4
    for name in SURROGATES[1:]:
        _, got, _ = learnt({"name": name, **same_parts, "group_size": 4}, items)
        torch.testing.assert_close(got, wanted, atol=1e-12, rtol=0, msg=name)


def test_off_policy_they_part():
    found = []
    for name in ("reinforce", "dapo", "cispo", "gspo", "ctpo", "full_ratio"):
        same_parts = {"credit": {"baseline": "group_mean", "scale": "none"}, "reduction": "token_mean", "group_size": 4}
        found.append(learnt({"name": name, **same_parts}, some_scored(), drift=0.3)[1])
    apart = [float((a - b).abs().max()) for i, a in enumerate(found) for b in found[:i]]
    assert min(apart) > 0.01


@pytest.mark.parametrize("sizes", [(2, 2), (4, 4), (2, 5, 3)])
def test_leave_one_out_is_the_centred_reward_by_n_over_n_minus_one(sizes):
    groups = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    rewards = torch.randn(sum(sizes), dtype=torch.float64)
    n = torch.tensor(sizes, dtype=torch.float64)[groups]
    mean, others = (centred(rewards, torch.arange(sum(sizes)), groups, b) for b in ("group_mean", "leave_one_out"))
    torch.testing.assert_close(others, n / (n - 1) * mean)


def test_leave_one_out_of_step_rewards_is_so_too_where_all_have_as_many():
    groups, owners = torch.zeros(12, dtype=torch.long), torch.arange(4).repeat_interleave(3)
    rewards = torch.randn(12, dtype=torch.float64)
    mean, others = (centred(rewards, owners, groups, b) for b in ("group_mean", "leave_one_out"))
    summed = [torch.zeros(4, dtype=torch.float64).index_add(0, owners, x) for x in (mean, others)]
    torch.testing.assert_close(summed[1], 4 / 3 * summed[0])


def curve(name, steps=12):
    """Rewards of a tiny transformer that learns to copy, and its weights at the end."""
    policy = fresh(1)
    sampling = SamplingConfig(max_new_tokens=4)
    engine = Engine(policy, ModelConfig(lr=2e-3, max_grad_norm=0.0), sampler=policy, sampling=sampling, reference=True)
    for group in engine._optimizer.param_groups:
        group["eps"] = 1e-30
    optimizer = PolicyOptimizer(engine, Copied(), resolve({"name": name, "kl": {"coef": 0.0}, "group_size": 8}))
    rng = random.Random(0)
    rewards = [optimizer.step(prompts(rng, 8), seed=i).metrics["reward/mean"] for i in range(steps)]
    return rewards, torch.cat([p.detach().flatten() for p in policy.module.parameters()])


def test_dr_grpo_and_rloo_learn_one_curve_under_adam():
    # On fresh samples their gradients differ by one number, n / (n - 1) times the token budget, and Adam divides by it.
    start = torch.cat([p.detach().flatten() for p in fresh(1).module.parameters()])
    (mine, end), (theirs, other) = curve("dr_grpo"), curve("rloo")
    assert mine == theirs
    assert len(set(mine)) > 6
    moved = (end - start).abs()
    assert float(moved.max()) > 5e-3
    assert float((end - other).abs().max()) < 1e-2 * float(moved.max())


KL_FORMS = {
    "k1 in the reward": {"estimator": "k1", "place": "reward"},
    "k2 in the loss": {"estimator": "k2"},
    "weighted k1 in the loss": {"estimator": "k1"},
    "weighted k3 in the loss": {"estimator": "k3"},
}


def kl_gradient(world, form):
    table, _, reference = world.tables()
    nothing = [replace(score, value=0.0) for score in scores(world)]
    return expected_ascent(world, table, OWN | {"kl": {"coef": 1.0, **form}}, nothing, reference=reference, size=1)


@pytest.mark.parametrize("form", KL_FORMS.values(), ids=KL_FORMS)
def test_all_forms_of_the_kl_of_one_action_have_its_gradient(form):
    world = World(3, 1)
    table, _, reference = world.tables()
    logps = table.log_softmax(-1)
    same(kl_gradient(world, form), gradient(-(logps.exp() * (logps - reference.log_softmax(-1))).sum(), table))


def test_in_the_reward_the_kl_also_weighs_where_an_action_leads():
    # In the loss each action is near the reference where the policy is; in the reward it also avoids histories at
    # which it would be far. The two differ by how the visits move, and here by this angle.
    world = WORLDS["ending"]
    table, _, reference = world.tables()
    in_reward, in_loss = (kl_gradient(world, KL_FORMS[form]) for form in ("k1 in the reward", "k2 in the loss"))
    gaps = world.likelihoods(table) - world.likelihoods(reference)
    same(in_reward, gradient(-expected(world, table, gaps), table))
    assert cosine(in_reward, in_loss) == pytest.approx(0.984, abs=1e-3)
    for form in ("weighted k1 in the loss", "weighted k3 in the loss"):
        same(kl_gradient(world, KL_FORMS[form]), in_loss)


@pytest.mark.parametrize(("low", "high"), [(3e-4, 4e-4), (0.1, 0.05), (0.9, 9.0)])
def test_gspo_is_its_ratio_differentiated_as_a_whole(low, high):
    spec = {"name": "gspo", "clip": {"low": low, "high": high}, "group_size": 4}
    items = some_scored(seed=3)
    loss, got, (batch, logps, old) = learnt(spec, items, drift=0.3)
    lengths = torch.bincount(batch.row).double()
    ratio = (torch.zeros(8, dtype=torch.float64).index_add(0, batch.row, logps - old) / lengths).exp()
    advantages = credit(items, parts("gspo"), CreditState(kl_coef=0.0), alone).advantages
    advantage = torch.tensor([float(a[item.rollout.last_sampled]) for a, item in zip(advantages, items, strict=True)])
    whole = -torch.minimum(ratio * advantage, ratio.clamp(1.0 - low, 1.0 + high) * advantage).mean()
    torch.testing.assert_close(loss, whole.detach(), atol=1e-7, rtol=0)
    wanted = gradient(whole, logps)
    torch.testing.assert_close(got, wanted, atol=1e-7, rtol=0)
    assert bool((wanted == 0).any()) == (low < 0.9)  # whether a bound took part


def test_the_whole_ratio_differentiated_as_a_whole_is_the_own_token_form_under_sequence_sums():
    spec = {"name": "full_ratio", "group_size": 4}
    items = some_scored(seed=3)
    _, got, (batch, logps, old) = learnt(spec, items, drift=0.3)
    ratio = torch.zeros(8, dtype=torch.float64).index_add(0, batch.row, logps - old).exp()
    advantages = credit(items, parts("full_ratio"), CreditState(kl_coef=0.0), alone).advantages
    advantage = torch.tensor([float(a[item.rollout.last_sampled]) for a, item in zip(advantages, items, strict=True)])
    torch.testing.assert_close(got, gradient(-(ratio * advantage).mean(), logps), atol=1e-7, rtol=0)


def advantages_of(spec, items):
    """(N,) advantages of all sampled tokens."""
    found = credit(items, resolve(spec), CreditState(kl_coef=0.0), alone).advantages
    return torch.cat([a[torch.tensor(item.rollout.mask)] for a, item in zip(found, items, strict=True)])


def test_rewards_to_go_of_a_last_reward_are_the_whole_return():
    items = some_scored()
    whole = [item.score.value for item in items for sampled in item.rollout.mask if sampled]
    assert advantages_of(OWN, items).tolist() == whole
    stepped = some_scored(steps=True)
    whole = [item.score.total for item in stepped for sampled in item.rollout.mask if sampled]
    assert (advantages_of(OWN, stepped) - torch.tensor(whole)).abs().max() > 0.5


@pytest.mark.parametrize("steps", [False, True], ids=["sequence", "steps"])
def test_at_lambda_one_a_critic_is_a_baseline_of_rewards_to_go(steps):
    items = some_scored(steps=steps)
    values = torch.cat([item.values[torch.tensor(item.rollout.mask)] for item in items])
    judged = {"name": "ppo", "kl": {"coef": 0.0}, "credit": {"scale": "none", "lam": 1.0}}
    torch.testing.assert_close(advantages_of(judged, items) + values, advantages_of(OWN, items), atol=1e-6, rtol=0)


@pytest.mark.parametrize("baseline", ["none", "critic", "leave_one_out"])
def test_turns_of_one_token_are_tokens(baseline):
    items = some_scored(steps=True)
    alone_ = [
        replace(item, rollout=replace(item.rollout, turns=tuple((k, k + 1) for k in range(len(item.rollout.mask)))))
        for item in items
    ]
    spec = {"name": "rloo", "kl": {"coef": 0.0}, "group_size": 4}
    token, turn = ({**spec, "credit": {"baseline": baseline, "level": level}} for level in ("token", "turn"))
    assert torch.equal(advantages_of(token, items), advantages_of(turn, alone_))
    whole = [replace(item, rollout=replace(item.rollout, turns=())) for item in items]
    assert not torch.equal(advantages_of(token, items), advantages_of(turn, whole))
