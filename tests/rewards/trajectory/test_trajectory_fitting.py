from __future__ import annotations

import pytest
import torch
from episodes import driven, episode

from prefrl.errors import RewardError
from prefrl.rewards.inverse.nets import NetSpec, RewardNet
from prefrl.rewards.trajectory.fitting import Fitting, _gaps, bootstrap_weights, fit
from prefrl.rewards.trajectory.fragments import couples, fragments
from prefrl.rewards.trajectory.preferences import Preference, preference_loss, synthetic_labels
from prefrl.rewards.trajectory.reward import TrajectoryReward


def swings(count, steps=6, seed=0):
    """Episodes of numbers between -2 and 2 whose reward is minus the square."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(count, steps + 1, generator=generator) * 4 - 2
    return [driven(row.tolist(), f"d{i}") for i, row in enumerate(values)]


def labelled(count, seed=0, **options):
    return synthetic_labels(couples(swings(2 * count, seed=seed), seed), seed=seed, **options)


def net(members=1, seed=0, **options):
    options = {"hidden": (16,), "inputs": ("state",), **options}
    return RewardNet(NetSpec(state_size=1, action_size=2, members=members, **options), seed=seed)


def test_batched_gaps_are_those_of_a_loop_over_pairs():
    preferences, made = labelled(5), net(members=3)
    reward = TrajectoryReward(made)
    batched = reward.gaps([(p.first, p.second) for p in preferences], 0.9)
    looped = torch.zeros(3, 5)
    for i, p in enumerate(preferences):
        for sign, side in ((1, p.first), (-1, p.second)):
            rewards = made.each(reward.transitions([side]))
            for t in range(rewards.shape[1]):
                looped[:, i] += sign * 0.9**t * rewards[:, t].detach()
    assert torch.allclose(batched, looped, atol=1e-5)
    everything = made.normalised(reward.transitions([p.first for p in preferences] + [p.second for p in preferences]))
    places = torch.tensor([4, 1])
    assert torch.allclose(_gaps(made, everything, places, (5, 6), 0.9), looped[:, places], atol=1e-5)


def test_the_gradient_of_a_batch_is_that_of_its_pairs():
    preferences, made = labelled(4), net()
    sides = [p.first for p in preferences] + [p.second for p in preferences]
    seen = made.normalised(TrajectoryReward(made).transitions(sides))
    label = torch.tensor([p.label for p in preferences])

    def gradient(*batches):
        made.zero_grad()
        for places in batches:
            gap = _gaps(made, seen, torch.tensor(places), (4, 6), 1.0)
            preference_loss(gap, label[torch.tensor(places)]).sum().backward()
        return torch.cat([p.grad.flatten() for p in made.parameters()])

    assert torch.allclose(gradient([0, 1, 2, 3]), gradient([0], [1], [2], [3]), atol=1e-6)


def test_it_learns_a_reward_that_ranks_new_fragments():
    made = net(members=2)
    figures = fit(made, labelled(120, temperature=0.0), Fitting(epochs=60, lr=1e-2), seed=0)
    assert figures["accuracy"] > 0.9
    fresh = labelled(200, seed=9, temperature=0.0)
    gap = TrajectoryReward(made).gaps([(p.first, p.second) for p in fresh]).mean(0)
    right = ((gap > 0) == torch.tensor([p.label > 0.5 for p in fresh])).float().mean()
    assert right > 0.9
    at = torch.linspace(-2, 2, 21)
    paid = torch.tensor([r for _, r in TrajectoryReward(made).score([driven([*at.tolist(), 0.0])])[0].steps])
    assert torch.corrcoef(torch.stack([paid, -(at**2)]))[0, 1] > 0.9


def test_what_is_right_without_the_labels_is_chance():
    fresh = labelled(200, seed=9, temperature=0.0)
    gap = TrajectoryReward(net(seed=4)).gaps([(p.first, p.second) for p in fresh]).mean(0)
    assert ((gap > 0) == torch.tensor([p.label > 0.5 for p in fresh])).float().mean() < 0.8


def test_the_seed_says_all():
    def weights(seed):
        made = net(members=2)
        fit(made, labelled(10), Fitting(epochs=2, batch_size=4), seed)
        return torch.cat([p.flatten() for p in made.parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_bootstrap_draws_differ_by_member_and_sum_to_the_count():
    weights = bootstrap_weights(50, 3, seed=7)
    assert weights.sum(1).tolist() == [50.0] * 3
    assert not torch.equal(weights[0], weights[1])
    assert torch.equal(weights[:2], bootstrap_weights(50, 2, seed=7))
    assert torch.equal(weights[1:], bootstrap_weights(50, 2, seed=8)), "of a member of its own"


def test_members_are_trained_on_data_of_their_own():
    """From the same start weights members stay alike without a bootstrap, and part with one."""

    def spread(bootstrap):
        made = net(members=2)
        made.reward[1].load_state_dict(made.reward[0].state_dict())
        return fit(made, labelled(20), Fitting(epochs=5, batch_size=0, bootstrap=bootstrap), seed=0)["disagreement"]

    assert spread(bootstrap=False) == pytest.approx(0.0, abs=1e-6)
    assert spread(bootstrap=True) > 1e-4


def test_ties_pull_returns_together():
    same = [Preference(p.first, p.second, 0.5) for p in labelled(20)]
    figures = fit(made := net(), same, Fitting(epochs=200, batch_size=0, lr=1e-2), seed=0)
    assert figures["ties"] == 20.0
    assert figures["accuracy"] != figures["accuracy"], "nothing is decided, so there is no accuracy"
    gaps = TrajectoryReward(made).gaps([(p.first, p.second) for p in same])
    assert gaps.abs().mean() < 0.1


def test_noise_makes_a_wrong_label_cheap():
    pairs = labelled(60, temperature=0.0)
    wrong = [Preference(p.first, p.second, 1.0 - p.label) if i % 10 == 0 else p for i, p in enumerate(pairs)]
    losses = {n: fit(net(), wrong, Fitting(epochs=60, lr=1e-2, noise=n), seed=0)["loss"] for n in (0.0, 0.2)}
    assert losses[0.2] != pytest.approx(losses[0.0], abs=1e-3)


def test_fragments_of_two_lengths_are_refused():
    short = fragments([episode([0.0] * 4)], 2, 1, 0).fragments[0]
    long = fragments([episode([0.0] * 4)], 3, 1, 0).fragments[0]
    with pytest.raises(RewardError, match=r"fragments of \[2, 3\] steps; expected one or more, all of one length"):
        fit(net(), [Preference(short, long, 1.0)], Fitting(), 0)
    with pytest.raises(RewardError, match="Got 0 comparisons of fragments of no steps"):
        fit(net(), [], Fitting(), 0)
    with pytest.raises(RewardError, match=r"label 1.5; expected the probability"):
        fit(net(), [Preference(short, short, 1.5)], Fitting(), 0)
