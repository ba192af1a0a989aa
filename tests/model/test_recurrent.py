"""Policies with a memory: whole sequences from their start, one call a batch, and padding that changes nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.errors import ModelError
from prefrl.model.control import control_policy
from prefrl.model.critic import make_critic
from prefrl.model.engine import Engine
from prefrl.policy.optimizer import learn_completions
from prefrl.rollout.pomdp import Aliased, aliased_prompts
from prefrl.types import Prompt, Row

CART, PENDULUM = "CartPole-v1", "Pendulum-v1"


def made(env=CART, **more):
    policy = control_policy(env, hidden=(8,), recurrent=8, normalise=False, seed=1, **more)
    for parameter in policy.net.parameters():  # away from the nearly uniform start
        nn.init.normal_(parameter, std=0.4, generator=torch.Generator().manual_seed(parameter.numel()))
    return policy


def rows_of(rollouts):
    return [
        Row(prompt_ids=(), completion_ids=r.completion_ids, mask=r.mask, observations=r.observations, actions=r.actions)
        for r in rollouts
    ]


def played(policy, steps=12, episodes=5, **more):
    prompts = (
        aliased_prompts() if policy.observation_size == 1 else [Prompt(id=str(i), text="") for i in range(episodes)]
    )
    return policy.sample(prompts, 2, SamplingConfig(max_new_tokens=steps, **more), seed=3)


@pytest.mark.parametrize(
    ("env", "more"), [(CART, {}), (PENDULUM, {}), (PENDULUM, {"distribution": "squashed"}), (Aliased, {})]
)
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_learner_finds_the_log_probs_of_the_sampler(env, more, temperature):
    policy = made(env, **more)
    rollouts = played(policy, temperature=temperature)
    found = policy.token_outputs(rows_of(rollouts), temperature).detach()
    torch.testing.assert_close(found, torch.tensor([p for r in rollouts for p in r.logps]), atol=2e-5, rtol=1e-5)


def test_all_sequences_of_a_batch_are_one_call():
    policy, calls = made(), []
    policy.net.gru.register_forward_hook(lambda module, inputs, _: calls.append(tuple(inputs[0].shape)))
    rows = rows_of(played(policy, steps=40))
    calls.clear()
    policy.token_outputs(rows)
    assert calls == [(len(rows), max(len(row.completion_ids) for row in rows), 8 + 2)]


def test_sequences_of_other_lengths_beside_it_change_nothing():
    policy = made()
    rollouts = played(policy, steps=40)
    rows = rows_of(rollouts)
    assert len({len(row.completion_ids) for row in rows}) > 3
    critic = make_critic("separate", policy, lr=1e-2)
    nn.init.normal_(critic.engine.actor.module.head[-1].weight)
    for compute in (policy.token_outputs, critic.engine.actor.token_outputs):
        together = compute(rows)
        torch.testing.assert_close(together, torch.cat([compute([row]) for row in rows]), atol=1e-5, rtol=1e-5)


def test_every_action_counts_alike_however_long_its_episode():
    # A masked mean is sum(x mask) / sum(mask): with 1 and 3 actions each action weighs 1/4.
    policy = made()
    long = rows_of(played(policy, steps=3, episodes=1))[0]
    short = Row(prompt_ids=(), completion_ids=(1,), mask=(True,), observations=torch.ones(2, 4))
    logps = policy.token_outputs([long, short]).detach()
    assert len(logps) == 4
    found = learn_completions(Engine(policy, ModelConfig(lr=1e-3)), [long, short])
    assert found["nll"] == pytest.approx(-float(logps.sum()) / 4, rel=1e-5)
    assert found["loss"] == pytest.approx(-float(logps.sum()) / 4, rel=1e-5)


def test_a_memory_holds_what_was_seen_and_done_and_nothing_that_comes():
    policy = made()
    row = rows_of(played(policy, steps=10, episodes=1))[0]
    n, before = len(row.completion_ids), policy.token_outputs([row]).detach()
    other = row.observations.clone()
    other[4] += 1.0
    changed = policy.token_outputs(
        [Row(prompt_ids=(), completion_ids=row.completion_ids, mask=row.mask, observations=other)]
    )
    assert torch.equal(changed[:4], before[:4])
    assert bool((changed[4:] != before[4:]).all())
    ids = (*row.completion_ids[:4], 1 - row.completion_ids[4], *row.completion_ids[5:])
    changed = policy.token_outputs(
        [Row(prompt_ids=(), completion_ids=ids, mask=row.mask, observations=row.observations)]
    )
    assert torch.equal(changed[:4], before[:4])
    assert bool((changed[5:] != before[5:]).all())
    assert n > 6


def test_masked_out_actions_are_remembered_but_not_scored():
    policy = made()
    row = rows_of(played(policy, steps=6, episodes=1))[0]
    whole = policy.token_outputs([row])
    row.mask = tuple(i % 2 == 0 for i in range(len(row.mask)))
    torch.testing.assert_close(policy.token_outputs([row]), whole[::2])


def test_values_of_histories_reach_past_the_last_action_and_train_the_memory():
    policy = made(PENDULUM)
    row = rows_of(played(policy, steps=5, episodes=1))[0]
    row.completion_ids, row.mask = (*row.completion_ids, 0), (*row.mask, True)
    for kind in ("separate", "head"):
        critic = make_critic(kind, policy, lr=1e-2)
        assert critic.values([row])[0].tolist() == [0.0] * 6
    critic = make_critic("separate", policy, lr=1e-2)
    row.streams["vf"] = torch.ones(6)
    for _ in range(2):
        critic.step([row], lambda batch: (((batch.outputs - 1.0) ** 2).sum(), {}))
    values = critic.values([row])[0]
    assert len(set(values.tolist())) == 6
    assert bool((values != 0.0).all())
    states = policy.row_states([row])
    assert states.shape == (6, policy.state_size)
    torch.testing.assert_close(policy.net.head[0](states), policy.outputs([row])[:, :1], atol=1e-5, rtol=1e-5)


def test_episodes_of_exact_environments_do_not_depend_on_others():
    policy, params = made(Aliased), SamplingConfig(max_new_tokens=9)
    together = policy.sample(aliased_prompts(), 20, params, seed=4)
    apart = [r for prompt in aliased_prompts() for r in policy.sample([prompt], 20, params, seed=4)]
    assert [(r.completion_ids, r.logps) for r in together] == [(r.completion_ids, r.logps) for r in apart]
    assert len({len(r.completion_ids) for r in together}) > 1


def test_single_observations_have_no_table():
    with pytest.raises(ModelError, match="categorical policy with a memory has no table"):
        made().distribution(torch.zeros(1, 4))
