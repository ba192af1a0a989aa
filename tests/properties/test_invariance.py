"""What must not matter does not: budget, order, padding, duplication, position, masked-out tokens."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from tiny import assert_same_gradients, gradients, language_model, random_rows

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.model.engine import Engine
from prefrl.policy.algorithms import ALGORITHMS, resolve
from prefrl.policy.objective import objective_of
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.types import Prompt, Rollout, Score, StopReason

REDUCTIONS = ("token_mean", "sequence_mean", "sequence_sum", "constant", "prompt_mean")
RATIOS = ("token", "cumulative", "sequence", "sequence_mean")
KL = {"coef": 0.3}
VARIANTS = {
    **{name: {"name": name} for name in ALGORITHMS},
    **{reduction: {"name": "grpo", "reduction": reduction, "kl": KL} for reduction in REDUCTIONS},
    **{f"{ratio} ratio": {"name": "grpo", "ratio": ratio, "kl": KL} for ratio in RATIOS},
    "weight clip": {"name": "grpo", "clip": {"kind": "weight"}},
    "batch std": {"name": "grpo", "credit": {"baseline": "batch_mean", "scale": "batch_std"}},
    "leave one out": {"name": "dr_grpo", "credit": {"baseline": "leave_one_out"}},
    "overlong masked": {"name": "grpo", "overlong": "mask"},
    "ipo": {"name": "dpo", "pairs": {"loss": "ipo"}},
    "hinge": {"name": "dpo", "pairs": {"loss": "hinge", "label_smoothing": 0.1}},
}
every_variant = pytest.mark.parametrize("spec", VARIANTS.values(), ids=VARIANTS)


def batch(seed=0):
    """Ragged groups of unequal size, off-policy by noise, with masked-out tokens, truncated and unscored rollouts."""
    generator = torch.Generator().manual_seed(seed)
    rollouts, scores = [], []
    for i, row in enumerate(random_rows({3: 4, 7: 3, 5: 4, 1: 2}, masked=True, seed=seed)):
        n = len(row.mask)
        noise = torch.randn(n, generator=generator) * 0.4
        name = f"prompt of {len(row.prompt_ids)}"
        rollouts.append(
            Rollout(
                prompt=Prompt(id=name, text="x"),
                prompt_ids=row.prompt_ids,
                completion_ids=row.completion_ids,
                mask=row.mask,
                logps=tuple((noise - 2.6).tolist()),
                text="",
                stop=StopReason.LENGTH if i % 5 == 1 else StopReason.EOS,
                group=name,
            )
        )
        value = float(torch.rand((), generator=generator))
        steps = ((n // 2, value / 2),) if i % 2 else ()
        scores.append(Score.failed("no judge") if i == 2 else Score(value=value, steps=steps))
    return rollouts, scores


def learn(spec, rollouts, scores, *, token_budget=10_000):
    """Loss and gradient of one update by an engine whose reference is not where the policy is."""
    policy = language_model(layers=2)
    algorithm = resolve(spec)
    engine = Engine(
        policy,
        ModelConfig(lr=1e-12, max_grad_norm=0.0, token_budget=token_budget),
        sampling=SamplingConfig(max_new_tokens=9),
        reference=True,
    )
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in policy.module.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    seen = []
    engine._optimizer.register_step_pre_hook(
        lambda *_: seen.append({n: p.grad.clone() for n, p in policy.module.named_parameters() if p.grad is not None})
    )
    metrics = PolicyOptimizer(engine, None, algorithm).learn(rollouts, scores)
    return metrics, seen[0]


def assert_same(got, wanted, *, but=()):
    """Metrics (the loss among them) and gradients agree."""
    keys = set(wanted[0]) - set(but)
    assert {k: got[0][k] for k in keys} == pytest.approx({k: wanted[0][k] for k in keys}, rel=1e-4, abs=1e-5)
    assert_same_gradients(got[1], wanted[1], 1e-5)


@pytest.fixture(scope="module")
def plain():
    """What each variant learns from the batch as it is."""
    known = {}

    def of(spec):
        key = str(spec)
        if key not in known:
            known[key] = learn(spec, *batch())
        return known[key]

    return of


@every_variant
def test_the_batch_is_a_real_one(spec, plain):
    metrics, gradient = plain(spec)
    assert metrics["grad_norm"] > 1e-3
    assert metrics["errors"] == pytest.approx(1 / 13)
    assert gradient


@every_variant
@pytest.mark.parametrize("token_budget", [1, 40])
def test_token_budget(spec, token_budget, plain):
    assert_same(learn(spec, *batch(), token_budget=token_budget), plain(spec))


@every_variant
@pytest.mark.parametrize("seed", [1, 2])
def test_row_order_and_position_of_groups(spec, seed, plain):
    rollouts, scores = batch()
    order = random.Random(seed).sample(range(len(rollouts)), len(rollouts))
    shuffled = [rollouts[i] for i in order], [scores[i] for i in order]
    assert_same(learn(spec, *shuffled, token_budget=60), plain(spec))


@every_variant
def test_names_of_groups_and_prompts(spec, plain):
    rollouts, scores = batch()
    renamed = [replace(r, group=f"another {r.group}", prompt=Prompt(id="same", text="y"), text="z") for r in rollouts]
    assert_same(learn(spec, renamed, scores), plain(spec))


@every_variant
def test_duplicating_the_whole_batch(spec, plain):
    rollouts, scores = batch()
    copies = [replace(r, group=f"copy of {r.group}") for r in rollouts]
    assert_same(learn(spec, rollouts + copies, scores + scores, token_budget=100), plain(spec))


@every_variant
def test_masked_out_tokens(spec, plain):
    rollouts, scores = batch()
    changed = [
        replace(r, logps=tuple(p if m else p + 3.0 + i for i, (p, m) in enumerate(zip(r.logps, r.mask, strict=True))))
        for r in rollouts
    ]
    assert any(a.logps != b.logps for a, b in zip(rollouts, changed, strict=True))
    assert_same(learn(spec, changed, scores), plain(spec))


@every_variant
def test_a_reward_at_a_masked_out_token_is_one_at_the_sampled_token_before(spec):
    rollouts, _ = batch()
    long = [len(r.mask) > 4 for r in rollouts]  # their token 2 was sampled, their token 3 was not
    assert {r.mask[2:4] for r, fits in zip(rollouts, long, strict=True) if fits} == {(True, False)}

    def paid_at(token):
        steps = [((token, 1.0 / (i + 1)),) if fits else () for i, fits in enumerate(long)]
        return [Score(value=0.1 * i, steps=events) for i, events in enumerate(steps)]

    assert_same(learn(spec, rollouts, paid_at(3)), learn(spec, rollouts, paid_at(2)))


@every_variant
def test_what_an_unscored_rollout_said(spec, plain):
    rollouts, scores = batch()
    rollouts[2] = replace(rollouts[2], completion_ids=(9,) * 30, mask=(True,) * 30, logps=(-9.0,) * 30)
    of_rollouts = {"length/mean", "length/max", "entropy"}
    assert_same(learn(spec, rollouts, scores), plain(spec), but=of_rollouts)


@every_variant
def test_padding_to_a_longer_row(spec):
    """The same rows next to a much longer one without weight, in one micro-batch."""
    policy, algorithm = language_model(layers=2), resolve(spec)
    engine = Engine(policy, ModelConfig(), sampling=SamplingConfig(max_new_tokens=9), reference=True)
    optimizer = PolicyOptimizer(engine, None, algorithm)
    seen = []
    engine.step = lambda rows, objective: seen.extend(rows) or {}
    optimizer.learn(*batch())
    (long,) = random_rows({40: 1}, seed=9)
    long.completion_ids, long.mask = (5,) * 60, (True,) * 60
    long.streams = {name: torch.zeros(60) for name in seen[0].streams}
    rows = [[*seen], [*seen, long]]
    if algorithm.pairs is not None:  # a pair without weight
        other = replace(long, side=-1, atom=99, weight=0.0)
        rows[1] = [*seen, replace(long, side=1, atom=99, weight=0.0), other]
    results = []
    for some in rows:
        loss, _ = objective_of(algorithm)(engine._batch(some))
        loss.backward()
        results.append((float(loss.detach()), gradients(policy.module)))
    assert results[1][0] == pytest.approx(results[0][0], rel=1e-5, abs=1e-6)
    assert_same_gradients(results[1][1], results[0][1], 1e-5)


def test_membership_of_groups_does_matter(plain):
    rollouts, scores = batch()
    first, sixth = rollouts[0], rollouts[5]
    rollouts[0], rollouts[5] = replace(first, group=sixth.group), replace(sixth, group=first.group)
    metrics, _ = learn({"name": "grpo"}, rollouts, scores)
    assert abs(metrics["loss"] - plain({"name": "grpo"})[0]["loss"]) > 1e-3
