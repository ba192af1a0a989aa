"""What must not matter does not: budget, processes, order, padding, duplication, position, masked-out tokens."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tiny import assert_same_gradients, gradients, language_model, random_rows

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.model.critic import Critic, ValueHead
from prefrl.model.engine import Engine
from prefrl.model.teacher import Teacher
from prefrl.policy import optimizer as optimizer_module
from prefrl.policy.algorithms import ALGORITHMS, resolve
from prefrl.policy.objective import objective_of
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.policy.rows import mismatched_rows
from prefrl.types import Prompt, Rollout, Score, StopReason

REDUCTIONS = ("token_mean", "sequence_mean", "sequence_sum", "constant", "prompt_mean")
RATIOS = ("token", "cumulative", "sequence", "sequence_mean")
KL = {"coef": 0.3}
VARIANTS = {
    **{name: {"name": name} for name in ALGORITHMS},
    **{reduction: {"name": "grpo", "reduction": reduction, "kl": KL} for reduction in REDUCTIONS},
    **{f"{ratio} ratio": {"name": "grpo", "ratio": ratio, "kl": KL} for ratio in RATIOS},
    "sequence sums of whole ratios": {"name": "full_ratio", "clip": {"kind": "min", "dual": 3.0}, "kl": KL},
    "weight clip": {"name": "grpo", "clip": {"kind": "weight"}},
    "kl in the reward": {"name": "grpo", "kl": {"coef": 0.3, "estimator": "k1", "place": "reward"}},
    "steered kl": {"name": "grpo", "kl": {"coef": 0.3, "estimator": "k2", "target": 0.38}},
    "batch std": {"name": "grpo", "credit": {"baseline": "batch_mean", "scale": "batch_std"}},
    "running mean": {"name": "grpo", "credit": {"baseline": "ema", "scale": "whiten"}},
    "leave one out": {"name": "dr_grpo", "credit": {"baseline": "leave_one_out"}},
    "rewards to go": {"name": "grpo", "credit": {"baseline": "none", "scale": "none", "gamma": 0.9}},
    "turns": {"name": "grpo", "credit": {"level": "turn", "gamma": 0.9}},
    "critic of turns": {"name": "ppo", "credit": {"level": "turn", "gamma": 0.9, "lam": 0.5}},
    "overlong masked": {"name": "grpo", "overlong": {"rule": "mask"}},
    "overlong zero": {"name": "ppo", "overlong": {"rule": "zero"}},
    "overlong soft": {"name": "grpo", "overlong": {"rule": "soft", "buffer": 0.7}},
    "entropy": {"name": "grpo", "entropy": 0.1},
    "echo": {"name": "grpo", "echo": 0.3, "entropy": 0.1},
    "echo with a critic": {"name": "ppo", "echo": 0.3},
    "truncated weights": {"name": "grpo", "truncate": 2.0},
    "best of a group": {"name": "rejection", "select": {"keep": "best"}, "reduction": "sequence_mean"},
    "teacher's samples": {"name": "opd", "distill": {"form": "sampled"}},
    "teacher and echo": {"name": "opsd", "echo": 0.3, "credit": {"scale": "batch_std"}},
    "hinge": {"name": "dpo", "pairs": {"loss": "hinge", "label_smoothing": 0.1}},
    "forward kl": {"name": "dpo", "pairs": {"divergence": "forward_kl", "sft": 0.3}},
    "js": {"name": "dpo", "pairs": {"divergence": "js", "average": True, "label_smoothing": 0.1}},
    "alpha-divergence": {"name": "dpo", "pairs": {"divergence": "alpha", "alpha": 0.3}},
    "surplus tokens": {"name": "simpo", "pairs": {"ld_alpha": 0.2, "sft": 0.5}},
    "judged with an sft term": {"name": "kto", "pairs": {"sft": 0.5, "desirable": 2.0, "label_smoothing": 0.1}},
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
                turns=tuple((start, min(start + 3, n)) for start in range(0, n, 3)),
            )
        )
        value = float(torch.rand((), generator=generator))
        steps = ((n // 2, value / 2),) if i % 2 else ()
        paid_by_steps = i in (1, 11)  # of the rollouts that were cut off, so that more was to come
        scored = Score(value=None if paid_by_steps else value, steps=steps)
        scores.append(Score.failed("no judge") if i == 2 else scored)
    return rollouts, scores


def features(rows):
    """What a critic sees of the history before every masked-in token: (N, 4)."""
    histories = [(*r.prompt_ids, *r.completion_ids[:i]) for r in rows for i, seen in enumerate(r.mask) if seen]
    marks = torch.tensor([1.0 + sum((i + 1) * token for i, token in enumerate(h)) for h in histories])
    return torch.sin(marks[:, None] * torch.tensor([0.3, 0.7, 1.1, 1.7]))


def as_taught(rollout):
    """The prompt as a teacher sees it."""
    return (*rollout.prompt_ids, 7, 8)


def optimizer_of(spec, *, token_budget=10_000):
    """An optimizer whose reference and teacher are not where the policy is."""
    policy = language_model(layers=2)
    optim = ModelConfig(lr=1e-12, max_grad_norm=0.0, token_budget=token_budget)
    teacher = Teacher.other(language_model(layers=1, seed=3), policy)
    engine = Engine(policy, optim, sampling=SamplingConfig(max_new_tokens=9), reference=True, teacher=teacher)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in policy.module.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    torch.manual_seed(6)
    critic = Critic(ValueHead(torch.nn.Linear(4, 1), features), optim)
    return PolicyOptimizer(engine, None, resolve(spec), critic=critic, teacher_prompt=as_taught)


def taught(optimizer, rollouts, scores):
    """Metrics, the state of credit among them, and gradients of policy and critic of one update."""
    seen = {}
    for prefix, engine in (("", optimizer.policy), ("critic.", optimizer.critic.engine)):

        def keep(*_, prefix=prefix, engine=engine):
            named = engine.actor.module.named_parameters()
            seen.update({prefix + n: p.grad.clone() for n, p in named if p.grad is not None})

        engine._optimizer.register_step_pre_hook(keep)
    metrics = optimizer.learn(rollouts, scores)
    state = optimizer.state
    finals, steps = state.means
    return metrics | {"state/kl_coef": state.kl_coef, "state/final": finals, "state/step": steps}, seen


def learn(spec, rollouts, scores, *, token_budget=10_000):
    """Metrics and gradients of one update."""
    return taught(optimizer_of(spec, token_budget=token_budget), rollouts, scores)


class Two:
    """Two processes that add up: every `total` waits for the other one's and is refused when it never comes."""

    def __init__(self):
        self.slots = [None, None]
        self.barrier = threading.Barrier(2, timeout=5)

    def total_of(self, rank):
        def total(local):
            self.slots[rank] = local.detach().clone()
            self.barrier.wait()
            assert self.slots[0].shape == self.slots[1].shape
            result = self.slots[0] + self.slots[1]
            self.barrier.wait()
            return result

        return total


def learn_on_two_processes(spec, halves):
    """What each of two processes makes of its half of the batch."""
    both, optimizers = Two(), [optimizer_of(spec) for _ in range(2)]

    def half(rank):
        try:
            for engine in (optimizers[rank].policy, optimizers[rank].critic.engine):
                engine.total, engine.accelerator = both.total_of(rank), SimpleNamespace(num_processes=2)
            return taught(optimizers[rank], *halves[rank])
        except BaseException:
            both.barrier.abort()
            raise

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(half, range(2)))


def in_halves(rollouts, scores):
    """The batch split between whole groups, the first and the last against the others."""
    first = [r.group in ("prompt of 3", "prompt of 1") for r in rollouts]
    return [
        tuple([x for x, f in zip(xs, first, strict=True) if f is wanted] for xs in (rollouts, scores))
        for wanted in (True, False)
    ]


def assert_same(got, wanted, *, but=()):
    """Metrics (the loss among them) and gradients agree."""
    keys = set(wanted[0]) - set(but)
    close = {"rel": 1e-4, "abs": 1e-5, "nan_ok": True}
    assert {k: got[0][k] for k in keys} == pytest.approx({k: wanted[0][k] for k in keys}, **close)
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
def test_row_order_and_position_of_groups(spec, plain):
    rollouts, scores = batch()
    order = random.Random(1).sample(range(len(rollouts)), len(rollouts))
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
    twice = learn(spec, rollouts + copies, scores + scores, token_budget=100)
    assert_same(twice, plain(spec), but={"select/kept"})


def off(values, rollouts):
    """Values (n,) of rollouts with others at the tokens that the policy did not sample."""
    return tuple(
        torch.where(torch.tensor((*r.mask, True)[: len(x)]), x, x + 7.0 + 50.0 * torch.arange(len(x)))
        for x, r in zip(values, rollouts, strict=True)
    )


def garbled(ask):
    """A verb of a policy or critic that says other things at masked-out tokens."""
    return lambda rows, *who: list(off(ask(rows, *who), rows))


@every_variant
def test_masked_out_tokens(spec, plain):
    """Log-probs of the sampler, the reference, the learner and the teacher at observations, and values there."""
    rollouts, scores = batch()
    logps = off([torch.tensor(r.logps) for r in rollouts], rollouts)
    changed = [replace(r, logps=tuple(x.tolist())) for r, x in zip(rollouts, logps, strict=True)]
    assert any(a.logps != b.logps for a, b in zip(rollouts, changed, strict=True))
    optimizer = optimizer_of(spec)
    for judge, verb in ((optimizer.policy, "logps"), (optimizer.policy, "teacher_logps"), (optimizer.critic, "values")):
        setattr(judge, verb, garbled(getattr(judge, verb)))
    assert_same(taught(optimizer, changed, scores), plain(spec))


def steered():
    """A batch whose KL to the reference is about 0.4 nats an answer, more of it on one process than on the other."""
    rollouts, scores = batch()
    return [replace(r, logps=tuple(x + 0.1 for x in r.logps)) for r in rollouts], scores


def test_two_processes_steer_one_coefficient():
    spec = {"name": "grpo", "kl": {"coef": 0.3, "target": 0.38}}
    metrics, _ = learn(spec, *steered())
    assert 0.299 < metrics["state/kl_coef"] < 0.2999
    for own, _ in learn_on_two_processes(spec, in_halves(*steered())):
        assert own["state/kl_coef"] == pytest.approx(metrics["state/kl_coef"], rel=1e-5)


def mismatched_in_halves(rows):
    """A process has its own prompts alone to mismatch completions with."""
    first = [len(row.prompt_ids) in (1, 3) for row in rows]
    halves = ([row for row, f in zip(rows, first, strict=True) if f is wanted] for wanted in (True, False))
    return [row for half in halves for row in mismatched_rows(half)]


@every_variant
def test_two_processes(spec, plain, monkeypatch):
    metrics, gradient = plain(spec)
    found = learn_on_two_processes(spec, in_halves(*batch()))
    if "kl/mismatched" in metrics:
        monkeypatch.setattr(optimizer_module, "mismatched_rows", mismatched_in_halves)
        whole = metrics["kl/mismatched"]
        metrics, gradient = learn(spec, *batch())
        assert 0 < metrics["kl/mismatched"] != whole > 0
    for own_metrics, own_gradient in found:
        assert_same_gradients(own_gradient, gradient, 1e-5)
        shared = [name for name in metrics if name.startswith("state/") or name.endswith("grad_norm")]
        close = {"rel": 1e-4, "abs": 1e-5, "nan_ok": True}
        assert {k: own_metrics[k] for k in shared} == pytest.approx({k: metrics[k] for k in shared}, **close)
    for name in ("loss", "critic/loss"):
        if name in metrics:
            assert sum(own[name] for own, _ in found) == pytest.approx(metrics[name], rel=1e-4, abs=1e-5)


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
    rollouts[2] = replace(rollouts[2], completion_ids=(9,) * 30, mask=(True,) * 30, logps=(-9.0,) * 30, turns=())
    of_rollouts = {"length/mean", "length/max", "turns/mean", "entropy"}
    assert_same(learn(spec, rollouts, scores), plain(spec), but=of_rollouts)


@every_variant
def test_padding_to_a_longer_row(spec):
    """The same rows next to a much longer one without weight, in one micro-batch."""
    optimizer = optimizer_of(spec)
    engine, algorithm = optimizer.policy, optimizer.algorithm
    seen = []
    engine.step = lambda rows, objective, extras: seen.extend(rows) or {}
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
        loss, _ = objective_of(algorithm)(engine._batch(some, algorithm.extras))
        loss.backward()
        results.append((float(loss.detach()), gradients(engine.actor.module)))
    assert results[1][0] == pytest.approx(results[0][0], rel=1e-5, abs=1e-6)
    assert_same_gradients(results[1][1], results[0][1], 1e-5)


def test_membership_of_groups_does_matter(plain):
    rollouts, scores = batch()
    first, sixth = rollouts[0], rollouts[5]
    rollouts[0], rollouts[5] = replace(first, group=sixth.group), replace(sixth, group=first.group)
    metrics, _ = learn({"name": "grpo"}, rollouts, scores)
    assert abs(metrics["loss"] - plain({"name": "grpo"})[0]["loss"]) > 1e-3
