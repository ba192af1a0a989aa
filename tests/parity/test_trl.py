"""The losses equal those of TRL 1.16 on the same tensors, in value and gradient; where they differ, both numbers stand.

TRL's trainers hold the maths in methods: they are called here on a stand-in for the trainer, whose model
gives back the tensors of the test.
"""

from __future__ import annotations

import math
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from tiny import rollout

from prefrl.policy.advantages import centred, scaled
from prefrl.policy.algorithms import resolve
from prefrl.policy.credit import Scored, weighted_rows
from prefrl.policy.objective import pair_objective, reward_objective, stream_objective
from prefrl.policy.parts import PairSpec
from prefrl.policy.preference import bradley_terry, dpo
from prefrl.types import Batch, Score

LENGTHS = (4, 1, 3, 2, 5, 3)  # two groups of three rollouts
GROUPS = ("a", "a", "a", "b", "b", "b")
REWARDS = (1.0, 0.0, 0.25, -2.0, 0.5, 0.5)
WIDTH = max(LENGTHS)
MASK = torch.tensor([[i < n for i in range(WIDTH)] for n in LENGTHS])
ROW = torch.arange(len(LENGTHS)).repeat_interleave(torch.tensor(LENGTHS))
BETA = 0.3


class Accelerator:
    """One process."""

    num_processes, process_index, sync_gradients, device = 1, 0, True, torch.device("cpu")

    def gather(self, tensor):
        return tensor

    gather_for_metrics = gather

    def reduce(self, tensor, reduction):
        return tensor


def stand_in(**more):
    return SimpleNamespace(
        accelerator=Accelerator(),
        model=SimpleNamespace(training=True),
        aux_loss_enabled=False,
        current_gradient_accumulation_steps=1,
        _metrics={"train": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
        **more,
    )


@pytest.fixture(scope="module")
def trl():
    """TRL's trainers; importing them takes seconds, so only when a test wants them."""
    from trl import DPOTrainer, GRPOTrainer, RewardTrainer, RLOOTrainer
    from trl.trainer.utils import nanstd

    return SimpleNamespace(DPO=DPOTrainer, GRPO=GRPOTrainer, RLOO=RLOOTrainer, Reward=RewardTrainer, nanstd=nanstd)


def padded(flat):
    return torch.zeros(MASK.shape, dtype=flat.dtype).masked_scatter(MASK, flat)


def streams(seed=0, drift=0.3):
    """Learner, behaviour and reference log-probs of all tokens; the first is a leaf."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(3, len(ROW), generator=generator, dtype=torch.float64)
    return (noise[0] - 3).requires_grad_(), noise[0] - 3 + drift * noise[1], noise[0] - 3 + 0.5 * noise[2]


def ours(spec, logps, old, ref, budget=8):
    """Loss and gradient through credit, reduction and objective, as the optimizer takes them."""
    algorithm = resolve(spec)
    split = [part.tolist() for part in old.split(LENGTHS)]
    scored = [
        Scored(rollout(tuple(range(1, n + 1)), group=g, logps=tuple(p)), Score(value=r), ref_logps=q)
        for n, g, r, p, q in zip(LENGTHS, GROUPS, REWARDS, split, ref.split(LENGTHS), strict=True)
    ]
    rows = weighted_rows(scored, algorithm, budget, lambda t: t)
    names = ("rl", "ref_kl") if algorithm.kl.coef and algorithm.kl.place == "loss" else ("rl",)
    columns = {name: torch.cat([row.streams[name] for row in rows]).double() for name in names}
    return value_and_gradient(
        stream_objective(batch(logps, ROW, {**columns, "old_logps": old, "ref_logps": ref}), algorithm)[0], logps
    )


def batch(outputs, row, columns, side=None, label=1.0, margin=None):
    count = int(row.max()) + 1
    side = torch.zeros(count, dtype=torch.long) if side is None else side
    pairs = max(1, int((side > 0).sum()))
    return Batch(
        outputs=outputs,
        row=row,
        streams=columns,
        side=side,
        atom=torch.arange(count) % pairs,
        label=torch.full((count,), label, dtype=outputs.dtype),
        margin=torch.zeros(count, dtype=outputs.dtype) if margin is None else margin.repeat(2),
        weight=torch.full((count,), 1.0 / pairs, dtype=outputs.dtype),
    )


def value_and_gradient(loss, leaf):
    return loss.detach(), torch.autograd.grad(loss, leaf)[0]


def same(got, wanted, tolerance=1e-6):
    torch.testing.assert_close(got, wanted, atol=tolerance, rtol=0)


def advantages_of(baseline, scale):
    rewards = torch.tensor(REWARDS, dtype=torch.float64)
    groups = torch.tensor([GROUPS.index(g) for g in GROUPS])
    return scaled(centred(rewards, torch.arange(len(rewards)), groups, baseline), rewards, groups, scale)


def grpo(trl, logps, old, ref, advantages, *, loss_type, beta=0.0, high=0.2, level="token", corrected=False, budget=8):
    """`GRPOTrainer._compute_loss`."""
    args = SimpleNamespace(use_bias_correction_kl=corrected, delta=None, steps_per_generation=1)
    trainer = stand_in(
        args=args,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level=level,
        beta=beta,
        loss_type=loss_type,
        epsilon_low=0.2,
        epsilon_high=high,
        use_vllm=False,
        max_completion_length=budget,
        _entropy_bonus_enabled=False,
        _get_per_token_logps_and_entropies=lambda *_, **__: (padded(logps), torch.zeros(MASK.shape), None),
    )
    inputs = {
        "prompt_ids": torch.zeros(len(LENGTHS), 1, dtype=torch.long),
        "prompt_mask": torch.ones(len(LENGTHS), 1, dtype=torch.long),
        "completion_ids": torch.zeros(MASK.shape, dtype=torch.long),
        "completion_mask": MASK.long(),
        "advantages": advantages,
        "old_per_token_logps": padded(old),
        "ref_per_token_logps": padded(ref),
        "num_items_in_batch": MASK.sum(),
    }
    return value_and_gradient(trl.GRPO._compute_loss(trainer, None, inputs), logps)


REDUCTIONS = [("grpo", "sequence_mean"), ("dr_grpo", "constant"), ("dapo", "token_mean"), ("bnpo", "token_mean")]


@pytest.mark.parametrize("high", [0.2, 0.28])
@pytest.mark.parametrize("scale", ["group_std", "none"])
@pytest.mark.parametrize(("loss_type", "reduction"), REDUCTIONS)
def test_grpo(trl, loss_type, reduction, scale, high):
    logps, old, ref = streams()
    ratio = (logps - old).exp()
    assert (ratio > 1.28).any()
    assert (ratio < 0.8).any()
    parts = {"reduction": reduction, "credit": {"scale": scale}, "clip": {"high": high}}
    spec = {"name": "grpo", "kl": {"coef": 0.0}, **parts}
    advantages = advantages_of("group_mean", scale)
    same(ours(spec, logps, old, ref), grpo(trl, logps, old, ref, advantages, loss_type=loss_type, high=high))


def test_dr_grpo_as_it_stands_in_the_table(trl):
    logps, old, ref = streams(1)
    wanted = grpo(trl, logps, old, ref, advantages_of("group_mean", "none"), loss_type="dr_grpo", budget=20)
    same(ours("dr_grpo", logps, old, ref, budget=20), wanted)


@pytest.mark.parametrize(("loss_type", "reduction"), REDUCTIONS)
def test_kl_to_the_reference(trl, loss_type, reduction):
    logps, old, ref = streams(2)
    spec = {"name": "grpo", "reduction": reduction, "kl": {"coef": 0.1}}
    advantages = advantages_of("group_mean", "group_std")
    wanted = grpo(trl, logps, old, ref, advantages, loss_type=loss_type, beta=0.1, corrected=True)
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
    u = (ref - logps).detach()
    same(mine[0], theirs[0])
    same(mine[1] * len(ROW), -u)
    same(theirs[1] * len(ROW), 1 - u.exp())
    assert float((mine[1] - theirs[1]).abs().max()) * len(ROW) > 0.05


def test_gspo(trl):
    logps, old, ref = streams(4)
    spec = {"name": "grpo", "ratio": "sequence_mean", "credit": {"scale": "none"}, "kl": {"coef": 0.0}}
    wanted = grpo(trl, logps, old, ref, advantages_of("group_mean", "none"), loss_type="grpo", level="sequence")
    same(ours(spec, logps, old, ref), wanted)


def test_cispo(trl):
    # TRL's `epsilon_high` is the largest ratio itself, and there is no lower bound.
    logps, old, ref = streams(5)
    clip = {"kind": "weight", "low": 1.0, "high": 0.28}
    spec = {"name": "grpo", "clip": clip, "reduction": "token_mean", "credit": {"scale": "none"}, "kl": {"coef": 0.0}}
    wanted = grpo(trl, logps, old, ref, advantages_of("group_mean", "none"), loss_type="cispo", high=1.28)
    same(ours(spec, logps, old, ref), wanted)


def test_rloo(trl):
    logps, old, ref = streams(6, drift=0.15)
    trainer = stand_in(
        epsilon_low=0.2,
        epsilon_high=0.2,
        _get_per_token_logps_and_entropies=lambda *_, **__: (padded(logps), torch.zeros(MASK.shape), None),
    )
    inputs = {
        "prompt_ids": torch.zeros(len(LENGTHS), 1, dtype=torch.long),
        "prompt_mask": torch.ones(len(LENGTHS), 1, dtype=torch.long),
        "completion_ids": torch.zeros(MASK.shape, dtype=torch.long),
        "completion_mask": MASK.long(),
        "advantages": advantages_of("leave_one_out", "none"),
        "old_logps": padded(old).sum(1),
    }
    wanted = value_and_gradient(trl.RLOO._compute_loss(trainer, None, inputs), logps)
    # TRL clips the whole completion's ratio; our preset is the paper's REINFORCE on fresh samples, the same at ratio 1.
    clipped = {"ratio": "sequence", "clip": {"kind": "ppo"}, "reduction": "sequence_mean", "kl": {"coef": 0.0}}
    same(ours({"name": "rloo", **clipped}, logps, old, ref), wanted)
    fresh = old.clone().requires_grad_()
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (padded(fresh), torch.zeros(MASK.shape), None)
    _, at_one = value_and_gradient(trl.RLOO._compute_loss(trainer, None, inputs), fresh)
    _, preset = ours({"name": "rloo", "kl": {"coef": 0.0}}, fresh, old, ref)
    torch.testing.assert_close(preset, at_one, atol=1e-6, rtol=0)


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


PAIRS = 3
PAIR_LENGTHS = (4, 2, 5, 1, 3, 3)  # three chosen, then three rejected
PAIR_MASK = torch.tensor([[i < n for i in range(5)] for n in PAIR_LENGTHS])
PAIR_ROW = torch.arange(2 * PAIRS).repeat_interleave(torch.tensor(PAIR_LENGTHS))
SIDE = torch.tensor([1] * PAIRS + [-1] * PAIRS)


def pair_streams(seed=0):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(2, len(PAIR_ROW), generator=generator, dtype=torch.float64)
    return (2 * noise[0] - 5).requires_grad_(), 2 * noise[1] - 5


def our_dpo(logps, ref, kind, *, smoothing=0.0, pairs=slice(None)):
    one = batch(logps, PAIR_ROW, {"ref_logps": ref}, SIDE, label=1.0 - smoothing)
    if pairs != slice(None):
        one.weight = torch.zeros(2 * PAIRS, dtype=logps.dtype)
        one.weight[pairs] = one.weight[PAIRS:][pairs] = 1.0
    return value_and_gradient(pair_objective(one, PairSpec(loss=kind, beta=BETA))[0], logps)


def their_dpo(trl, logps, ref, kind, *, smoothing=0.0, pairs=slice(None), swapped=False):
    """`DPOTrainer._compute_loss` on the given pairs; `swapped` exchanges chosen and rejected."""

    def laid_out(flat):
        rows = torch.zeros(PAIR_MASK.shape, dtype=flat.dtype).masked_scatter(PAIR_MASK, flat)
        sides = rows[:PAIRS][pairs], rows[PAIRS:][pairs]
        return torch.cat(sides[::-1] if swapped else sides)

    mask = laid_out(torch.ones(len(PAIR_ROW))).bool()
    log_probs, reference = laid_out(logps), laid_out(ref).sum(1).chunk(2)
    nothing = torch.zeros(log_probs.shape)
    model = lambda **_: SimpleNamespace(  # noqa: E731
        log_probs=log_probs, entropy=nothing, mean_logits=nothing, is_top1=nothing.bool()
    )
    trainer = stand_in(
        ld_alpha=None,
        precompute_ref_logps=True,
        f_divergence_type="reverse_kl",
        loss_types=[kind],
        loss_weights=[1.0],
        beta=BETA,
        label_smoothing=smoothing,
        use_weighting=False,
    )
    # One prompt token comes first; per-token log-probs start at the second position.
    with_prompt = torch.cat([torch.zeros(len(mask), 1, dtype=torch.bool), mask], dim=1).long()
    inputs = {
        "input_ids": torch.zeros(with_prompt.shape, dtype=torch.long),
        "attention_mask": torch.ones(with_prompt.shape, dtype=torch.long),
        "completion_mask": with_prompt,
        "ref_chosen_logps": reference[0],
        "ref_rejected_logps": reference[1],
    }
    return value_and_gradient(trl.DPO._compute_loss(trainer, model, inputs, False), logps)


@pytest.mark.parametrize("kind", ["sigmoid", "hinge"])
def test_dpo(trl, kind):
    logps, ref = pair_streams()
    same(our_dpo(logps, ref, kind), their_dpo(trl, logps, ref, kind))


@pytest.mark.parametrize("kind", ["sigmoid", "hinge"])
@pytest.mark.parametrize("smoothing", [0.1, 0.3])
def test_label_smoothing_is_the_expected_loss_over_flipped_labels(trl, kind, smoothing):
    logps, ref = pair_streams(1)
    right, wrong = (their_dpo(trl, logps, ref, kind, swapped=swapped) for swapped in (False, True))
    wanted = tuple((1 - smoothing) * a + smoothing * b for a, b in zip(right, wrong, strict=True))
    same(our_dpo(logps, ref, kind, smoothing=smoothing), wanted)


@pytest.mark.parametrize("pair", range(PAIRS))
def test_label_smoothing_of_trl(trl, pair):
    # TRL smooths labels in "aot", which is conservative DPO on a batch of one pair, and in "robust", which is not:
    # that one subtracts the flipped loss, an unbiased estimate of the clean loss that is not bounded below.
    logps, ref = pair_streams(2)
    mine = our_dpo(logps, ref, "sigmoid", smoothing=0.2, pairs=slice(pair, pair + 1))
    same(mine, their_dpo(trl, logps, ref, "aot", smoothing=0.2, pairs=slice(pair, pair + 1)))
    robust = their_dpo(trl, logps, ref, "robust", smoothing=0.2, pairs=slice(pair, pair + 1))
    right, wrong = (
        their_dpo(trl, logps, ref, "sigmoid", pairs=slice(pair, pair + 1), swapped=swap)[0] for swap in (False, True)
    )
    same(mine[0], 0.8 * right + 0.2 * wrong)
    same(robust[0], (0.8 * right - 0.2 * wrong) / 0.6)


def test_ipo(trl):
    # Equation 17 of the IPO paper holds log-probs of whole completions, so ours are summed over tokens. TRL averages
    # them over tokens, which makes the target margin 1 / (2 beta) one per token. On single tokens the two agree.
    logps, ref = pair_streams(3)
    gain = torch.zeros(2 * PAIRS, dtype=torch.float64).index_add(0, PAIR_ROW, (logps - ref).detach())
    lengths = torch.tensor(PAIR_LENGTHS, dtype=torch.float64)
    summed, averaged = gain[:PAIRS] - gain[PAIRS:], gain[:PAIRS] / lengths[:PAIRS] - gain[PAIRS:] / lengths[PAIRS:]
    mine, theirs = our_dpo(logps, ref, "ipo"), their_dpo(trl, logps, ref, "ipo")
    same(mine[0], ((summed - 1 / (2 * BETA)) ** 2).mean())
    same(theirs[0], ((averaged - 1 / (2 * BETA)) ** 2).mean())
    assert abs(float(mine[0] - theirs[0])) > 1
    same(dpo(averaged, torch.ones(PAIRS, dtype=torch.float64), BETA, "ipo").mean(), theirs[0])


@pytest.mark.parametrize("center", [0.0, 0.01])
@pytest.mark.parametrize("with_margin", [False, True])
def test_bradley_terry(trl, with_margin, center):
    generator = torch.Generator().manual_seed(0)
    scores = (3 * torch.randn(2 * PAIRS, generator=generator, dtype=torch.float64)).requires_grad_()
    margin = torch.tensor([0.5, 0.0, 2.0], dtype=torch.float64)
    trainer = stand_in(args=SimpleNamespace(center_rewards_coefficient=center or None))
    inputs = {"attention_mask": torch.ones(2 * PAIRS, 4, dtype=torch.long)}
    if with_margin:
        inputs["margin"] = margin
    model = lambda **_: SimpleNamespace(logits=scores[:, None])  # noqa: E731
    wanted = value_and_gradient(trl.Reward.compute_loss(trainer, model, inputs), scores)
    one = batch(scores, torch.arange(2 * PAIRS), {}, SIDE, margin=margin if with_margin else None)
    same(value_and_gradient(reward_objective(one, center)[0], scores), wanted)


def test_soft_labels_of_bradley_terry_are_the_expected_loss(trl):
    scores = torch.tensor([1.5, -0.5], dtype=torch.float64)
    trainer = stand_in(args=SimpleNamespace(center_rewards_coefficient=None))
    inputs = {"attention_mask": torch.ones(2, 1, dtype=torch.long)}
    right, wrong = (
        trl.Reward.compute_loss(trainer, lambda s=s, **_: SimpleNamespace(logits=s[:, None]), dict(inputs))
        for s in (scores, scores.flip(0))
    )
    label, no_margin = (torch.tensor([x], dtype=torch.float64) for x in (0.7, 0.0))
    mine = bradley_terry(scores[:1], scores[1:], label, no_margin)
    same(mine.squeeze(), 0.7 * right + 0.3 * wrong)
