"""Policy losses equal those of TRL 1.16 on the same tensors, in value and gradient.

Where the two differ, both numbers stand.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from fakes import alone, batch_of
from tiny import rollout
from trl_calls import same, stand_in, value_and_gradient

from prefrl.policy.advantages import centred, scaled
from prefrl.policy.algorithms import resolve
from prefrl.policy.credit import Scored
from prefrl.policy.objective import stream_objective
from prefrl.policy.rows import weighted_rows
from prefrl.types import Score

LENGTHS = (4, 1, 3, 2, 5, 3)  # two groups of three rollouts
GROUPS = ("a", "a", "a", "b", "b", "b")
REWARDS = (1.0, 0.0, 0.25, -2.0, 0.5, 0.5)
WIDTH = max(LENGTHS)
REAL = torch.tensor([[i < n for i in range(WIDTH)] for n in LENGTHS])
ALL = tuple((True,) * n for n in LENGTHS)
TOOLS = tuple(tuple(i % 3 != 1 for i in range(n)) for n in LENGTHS)  # False where a tool speaks
PLAIN = {"credit": {"scale": "none"}, "kl": {"coef": 0.0}}


@pytest.fixture(scope="module")
def trl():
    """TRL's trainers; importing them takes seconds, so only when a test wants them."""
    from trl import GRPOTrainer, RLOOTrainer
    from trl.trainer.utils import nanstd

    return SimpleNamespace(GRPO=GRPOTrainer, RLOO=RLOOTrainer, nanstd=nanstd)


def padded(flat):
    return torch.zeros(REAL.shape, dtype=flat.dtype).masked_scatter(REAL, flat)


def streams(seed=0, drift=0.3):
    """Learner, behaviour and reference log-probs of all tokens; the first is a leaf."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(3, sum(LENGTHS), generator=generator, dtype=torch.float64)
    return (noise[0] - 3).requires_grad_(), noise[0] - 3 + drift * noise[1], noise[0] - 3 + 0.5 * noise[2]


def ours(spec, logps, old, ref, *, budget=8, masks=ALL, rewards=REWARDS, entropies=None):
    """Loss and gradient through credit, reduction and objective, as the optimizer takes them."""
    algorithm = resolve(spec)
    scored = [
        Scored(
            rollout(tuple(range(1, len(m) + 1)), group=g, mask=m, logps=tuple(p.tolist())), Score(value=r), ref_logps=q
        )
        for g, r, m, p, q in zip(GROUPS, rewards, masks, old.split(LENGTHS), ref.split(LENGTHS), strict=True)
    ]
    rows = weighted_rows(scored, algorithm, budget, alone)
    for row, p in zip(rows, old.split(LENGTHS), strict=True):
        row.streams["old_logps"] = p  # in float64
    sampled = torch.tensor([m for mask in masks for m in mask])
    extras = {} if entropies is None else {"entropy": entropies[sampled]}
    return value_and_gradient(stream_objective(batch_of(rows, logps[sampled], extras), algorithm)[0], logps)


def advantages_of(baseline, scale, rewards=REWARDS):
    paid = torch.tensor(rewards, dtype=torch.float64)
    groups = torch.tensor([GROUPS.index(g) for g in GROUPS])
    return scaled(centred(paid, torch.arange(len(paid)), groups, baseline), paid, groups, scale)


def grpo(trl, logps, old, ref, advantages, *, masks=ALL, entropies=None, **settings):
    """`GRPOTrainer._compute_loss`; `settings` are attributes of the trainer, or of its arguments."""
    arguments = {"use_bias_correction_kl": False, "delta": None, "steps_per_generation": 1}
    trainer = {
        "loss_type": "grpo",
        "beta": 0.0,
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "importance_sampling_level": "token",
        "max_completion_length": 8,
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "use_vllm": False,
        "use_adaptive_entropy": False,
        "entropy_coef": 0.0,
    }
    known = padded(torch.zeros(sum(LENGTHS)) if entropies is None else entropies)
    acting = stand_in(
        **trainer | {k: v for k, v in settings.items() if k in trainer},
        args=SimpleNamespace(**arguments | {k: v for k, v in settings.items() if k in arguments}),
        _entropy_bonus_enabled=entropies is not None,
        _get_per_token_logps_and_entropies=lambda *_, **__: (padded(logps), known, None),
    )
    spoken = padded(torch.tensor([m for mask in masks for m in mask]))
    inputs = {
        "prompt_ids": torch.zeros(len(LENGTHS), 1, dtype=torch.long),
        "prompt_mask": torch.ones(len(LENGTHS), 1, dtype=torch.long),
        "completion_ids": torch.zeros(REAL.shape, dtype=torch.long),
        "completion_mask": REAL.long(),
        "tool_mask": spoken.long(),
        "advantages": advantages,
        "old_per_token_logps": padded(old),
        "ref_per_token_logps": padded(ref),
        "num_items_in_batch": spoken.sum(),
    }
    assert settings.keys() <= trainer.keys() | arguments.keys()
    return value_and_gradient(trl.GRPO._compute_loss(acting, None, inputs), logps)


REDUCTIONS = [("grpo", "sequence_mean"), ("dr_grpo", "constant"), ("dapo", "token_mean"), ("bnpo", "token_mean")]


@pytest.mark.parametrize("high", [0.2, 0.28])
@pytest.mark.parametrize("scale", ["group_std", "none"])
@pytest.mark.parametrize("masks", [ALL, TOOLS], ids=["all", "tools"])
@pytest.mark.parametrize(("loss_type", "reduction"), REDUCTIONS)
def test_grpo(trl, loss_type, reduction, masks, scale, high):
    logps, old, ref = streams()
    ratio = (logps - old).exp()
    assert (ratio > 1.28).any()
    assert (ratio < 0.8).any()
    parts = {"reduction": reduction, "credit": {"scale": scale}, "clip": {"high": high}}
    wanted = grpo(
        trl,
        logps,
        old,
        ref,
        advantages_of("group_mean", scale),
        loss_type=loss_type,
        epsilon_high=high,
        masks=masks,
    )
    same(ours({"name": "grpo", "kl": {"coef": 0.0}, **parts}, logps, old, ref, masks=masks), wanted)


PRESETS = {
    "grpo": ("group_std", {"beta": 0.04, "use_bias_correction_kl": True}),
    "dr_grpo": ("none", {"loss_type": "dr_grpo"}),
    "dapo": ("group_std", {"loss_type": "dapo", "epsilon_high": 0.28}),
    "cispo": ("group_std", {"loss_type": "cispo", "epsilon_high": 5.0}),
    "gspo": (
        "group_std",
        {"importance_sampling_level": "sequence", "epsilon_low": 3e-4, "epsilon_high": 4e-4},
    ),
}


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("drift", [0.0, 2e-4, 0.3, 2.0])
def test_presets_as_they_stand_in_the_table(trl, name, drift):
    logps, old, ref = streams(1, drift)
    scale, settings = PRESETS[name]
    spec = {"name": name, "overlong": {"rule": "keep"}}
    same(ours(spec, logps, old, ref), grpo(trl, logps, old, ref, advantages_of("group_mean", scale), **settings))


@pytest.mark.parametrize(("loss_type", "reduction"), REDUCTIONS)
def test_kl_to_the_reference(trl, loss_type, reduction):
    logps, old, ref = streams(2)
    spec = {"name": "grpo", "reduction": reduction, "kl": {"coef": 0.1}}
    advantages = advantages_of("group_mean", "group_std")
    wanted = grpo(trl, logps, old, ref, advantages, loss_type=loss_type, beta=0.1, use_bias_correction_kl=True)
    same(ours(spec, logps, old, ref), wanted)


def test_the_gradient_of_trls_default_kl_is_not_that_of_the_kl(trl):
    # TRL's default leaves k3 unweighted. On policy the values agree, and its gradient is 1 - e^u for ours -u
    # (u = log ref - log pi) of each token: that of the true KL is ours (tests/policy/test_losses.py shows it exactly).
    logps, old, ref = streams(3, drift=0.0)
    zero = torch.zeros(len(LENGTHS), dtype=torch.float64)
    theirs = grpo(trl, logps, old, ref, zero, loss_type="dapo", beta=1.0)
    both, rewards_alone = (
        ours({"name": "grpo", "reduction": "token_mean", "kl": {"coef": coef}}, logps, old, ref) for coef in (1.0, 0.0)
    )
    mine = [a - b for a, b in zip(both, rewards_alone, strict=True)]
    u, tokens = (ref - logps).detach(), sum(LENGTHS)
    same(mine[0], theirs[0])
    same(mine[1] * tokens, -u)
    same(theirs[1] * tokens, 1 - u.exp())
    assert float((mine[1] - theirs[1]).abs().max()) * tokens > 0.05


@pytest.mark.parametrize(("loss_type", "reduction"), REDUCTIONS)
def test_dual_clip(trl, loss_type, reduction):
    # TRL's `delta` bounds the ratio of every token from above, which only where the advantage is negative is ever felt.
    logps, old, ref = streams(0, drift=1.0)
    assert ((logps - old).exp() > 2.0).any()
    parts = {"reduction": reduction, "clip": {"dual": 2.0}}
    wanted = grpo(trl, logps, old, ref, advantages_of("group_mean", "none"), loss_type=loss_type, delta=2.0)
    same(ours({"name": "grpo", **PLAIN, **parts}, logps, old, ref), wanted)
    unbounded = ours({"name": "grpo", **PLAIN, "reduction": reduction}, logps, old, ref)
    assert abs(float(wanted[0] - unbounded[0])) > 0.05


@pytest.mark.parametrize(("loss_type", "reduction"), REDUCTIONS)
def test_gspo(trl, loss_type, reduction):
    # Theirs differentiates a completion's ratio as a whole, ours at each token: the same, for any weight a completion.
    logps, old, ref = streams(4, drift=0.6)
    spec = {"name": "grpo", **PLAIN, "ratio": "sequence_mean", "reduction": reduction}
    advantages = advantages_of("group_mean", "none")
    wanted = grpo(trl, logps, old, ref, advantages, loss_type=loss_type, importance_sampling_level="sequence")
    same(ours(spec, logps, old, ref), wanted)
    assert (wanted[1] == 0).any()
    assert (wanted[1] != 0).any()


@pytest.mark.parametrize("cap", [1.28, 5.0])
@pytest.mark.parametrize("masks", [ALL, TOOLS], ids=["all", "tools"])
def test_cispo(trl, cap, masks):
    # TRL's `epsilon_high` is the largest ratio itself, and there is no lower bound.
    logps, old, ref = streams(5, drift=1.5)
    ratio = (logps - old).detach().exp()
    assert (ratio > cap).any()
    assert (ratio < 1.0).any()
    clip = {"kind": "weight", "low": 1.0, "high": cap - 1.0}
    spec = {"name": "grpo", **PLAIN, "clip": clip, "reduction": "token_mean"}
    advantages = advantages_of("group_mean", "none")
    wanted = grpo(trl, logps, old, ref, advantages, loss_type="cispo", epsilon_high=cap, masks=masks)
    mine = ours(spec, logps, old, ref, masks=masks)
    same(mine, wanted)
    uncapped = ours({**spec, "clip": {"kind": "weight", "low": 1.0, "high": 1e6}}, logps, old, ref, masks=masks)
    assert float((uncapped[1] - mine[1]).abs().max()) > 0.01


def test_entropy_bonus(trl):
    # TRL's bonus is a mean over tokens whatever the loss is; ours is weighed as the loss is, here by 1 / own length.
    _, old, ref = streams(6)
    spec = {"name": "grpo", **PLAIN, "entropy": 0.3}
    advantages = advantages_of("group_mean", "none")
    for loss_type, reduction in (("dapo", "token_mean"), ("grpo", "sequence_mean")):
        logps, _, _ = streams(6)
        entropies = logps.sin()  # of the policy, whatever it is
        wanted = grpo(trl, logps, old, ref, advantages, loss_type=loss_type, entropies=entropies, entropy_coef=0.3)
        mine = ours({**spec, "reduction": reduction}, logps, old, ref, entropies=logps.sin())
        if reduction == "token_mean":
            same(mine, wanted)
    of_rows = torch.stack([part.mean() for part in entropies.detach().split(LENGTHS)])
    same(mine[0] - wanted[0], 0.3 * (entropies.detach().mean() - of_rows.mean()))


def test_truncated_completions_that_are_masked(trl):
    # Ours are out of baseline, mean and loss. TRL's stay in the baseline, and the mean over completions counts them:
    # for the same advantages its loss is that of the kept times kept / all.
    logps, old, ref = streams(7)
    cut = 4
    kept = [i for i in range(len(LENGTHS)) if i != cut]
    masks = tuple((False,) * n if i == cut else (True,) * n for i, n in enumerate(LENGTHS))
    advantages = advantages_of("group_mean", "none")
    among_kept = torch.tensor(REWARDS, dtype=torch.float64)
    among_kept[[3, 5]] -= among_kept[[3, 5]].mean()
    among_kept[:3] -= among_kept[:3].mean()
    same(advantages[3:], torch.tensor([-5 / 3, 5 / 6, 5 / 6], dtype=torch.float64))
    same(among_kept[[3, 5]], torch.tensor([-1.25, 1.25], dtype=torch.float64))
    theirs = grpo(trl, logps, old, ref, among_kept, masks=masks)
    scored = [
        Scored(rollout((1,) * LENGTHS[i], group=GROUPS[i]), Score(value=REWARDS[i]), ref_logps=torch.zeros(LENGTHS[i]))
        for i in kept
    ]
    rows = weighted_rows(scored, resolve({"name": "grpo", **PLAIN}), 8, alone)
    olds = old.split(LENGTHS)
    for row, i in zip(rows, kept, strict=True):
        row.streams["old_logps"] = olds[i]
    outputs = torch.cat([logps.split(LENGTHS)[i] for i in kept])
    loss, gradient = value_and_gradient(stream_objective(batch_of(rows, outputs), resolve("grpo"))[0], logps)
    same((loss * 5 / 6, gradient * 5 / 6), theirs)


def rloo(trl, logps, old, advantages):
    """`RLOOTrainer._compute_loss`."""
    trainer = stand_in(
        epsilon_low=0.2,
        epsilon_high=0.2,
        _get_per_token_logps_and_entropies=lambda *_, **__: (padded(logps), torch.zeros(REAL.shape), None),
    )
    inputs = {
        "prompt_ids": torch.zeros(len(LENGTHS), 1, dtype=torch.long),
        "prompt_mask": torch.ones(len(LENGTHS), 1, dtype=torch.long),
        "completion_ids": torch.zeros(REAL.shape, dtype=torch.long),
        "completion_mask": REAL.long(),
        "advantages": advantages,
        "old_logps": padded(old).sum(1),
    }
    return value_and_gradient(trl.RLOO._compute_loss(trainer, None, inputs), logps)


def test_rloo_on_fresh_samples(trl):
    _, old, ref = streams(6)
    logps = old.clone().requires_grad_()
    _, wanted = rloo(trl, logps, old, advantages_of("leave_one_out", "none"))
    same(ours({"name": "rloo", "kl": {"coef": 0.0}}, logps, old, ref)[1], wanted)


def test_rloo_with_the_kl_in_the_reward(trl):
    # TRL subtracts beta (log pi - log ref), summed over the completion as it was sampled, before the baseline.
    _, old, ref = streams(6)
    ref = ref.float().double()
    logps = old.clone().requires_grad_()
    gaps = torch.stack([part.sum() for part in (old - ref).split(LENGTHS)])
    rewards = (torch.tensor(REWARDS, dtype=torch.float64) - 0.05 * gaps).tolist()
    _, wanted = rloo(trl, logps, old, advantages_of("leave_one_out", "none", rewards))
    same(ours("rloo", logps, old, ref)[1], wanted)


def test_rloo_on_samples_that_were_used_before(trl):
    # TRL clips the ratio of a whole completion and differentiates it as a whole; ours weighs each token's own gradient
    # by that ratio. Summed over tokens the gradients are equal, and the value of ours counts a completion once a token.
    logps, old, ref = streams(6, drift=0.15)
    clipped = {"name": "rloo", "kl": {"coef": 0.0}, "ratio": "sequence", "clip": {"kind": "min"}}
    wanted = rloo(trl, logps, old, advantages_of("leave_one_out", "none"))
    assert (wanted[1] == 0).any()
    same(ours(clipped, logps, old, ref)[1], wanted[1])
    same(ours({**clipped, "reduction": "sequence_mean"}, logps, old, ref)[0], wanted[0])
    assert abs(float(ours(clipped, logps, old, ref)[0] - wanted[0])) > 0.1


def test_advantages(trl):
    # GRPOTrainer divides by `nanstd(group) + 1e-4`, and nanstd is the unbiased estimate (n - 1). DeepSeekMath divides
    # by the std of the group's rewards, all of which are known: nothing is estimated, so n is right, and two rollouts
    # get +1 and -1 and not +0.707 and -0.707.
    rewards = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    theirs = (rewards - rewards.mean(1, keepdim=True)) / (trl.nanstd(rewards, dim=1)[:, None] + 1e-4)
    flat, groups = rewards.flatten(), torch.tensor([0, 0, 1, 1])
    mine = scaled(centred(flat, torch.arange(4), groups, "group_mean"), flat, groups, "group_std")
    assert mine.tolist() == [1.0, -1.0, 0.0, 0.0]
    same(theirs.flatten(), torch.tensor([0.5, -0.5, 0.0, 0.0], dtype=torch.float64) / (math.sqrt(0.5) + 1e-4))


def test_a_uniform_group_in_float32(trl):
    # The computed mean of eight 0.9 is not 0.9: TRL's advantages of such a group are small but not 0, ours exactly 0.
    rewards = torch.full((8,), 0.9)
    theirs = (rewards - rewards.mean()) / (trl.nanstd(rewards) + 1e-4)
    groups = torch.zeros(8, dtype=torch.long)
    mine = scaled(centred(rewards, torch.arange(8), groups, "group_mean"), rewards, groups, "group_std")
    assert (mine == 0).all()
    assert 0 < float(theirs.abs().max()) < 1e-3
