"""One update is one sum over all rows, however it is split; log-probs come back in the order given."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tiny import assert_same_gradients, gradients, language_model, llama, naive_logps, random_rows

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.errors import PrefrlError, RunError
from prefrl.model import engine as engine_module
from prefrl.model.engine import Engine, schedule_factor
from prefrl.model.load import add_lora
from prefrl.model.teacher import Teacher
from prefrl.policy.objective import pair_objective
from prefrl.policy.parts import PairSpec
from prefrl.types import Prompt


def engine(policy=None, *, total_steps=1, reference=False, teacher=None, sampling=None, **optim):
    policy = policy or language_model(layers=2)
    return Engine(
        policy,
        ModelConfig(**{"lr": 1e-2, "max_grad_norm": 0.0} | optim),
        sampling=sampling,
        total_steps=total_steps,
        reference=reference,
        teacher=teacher,
    )


def weighted(rows, seed=0):
    """Rows with random weights of cross-entropy."""
    generator = torch.Generator().manual_seed(seed)
    for row in rows:
        row.streams["ce"] = torch.randn(len(row.mask), generator=generator)
    return rows


def linear(batch):
    """`-sum(ce * logps)`, the number of tokens and the largest log-prob."""
    count = batch.logps.new_tensor(float(len(batch.logps)))
    loss = -(batch.streams["ce"] * batch.logps).sum()
    return loss, {"nll": (-batch.logps.detach().sum(), count), "logp/max": (batch.logps.detach().max(), count)}


def seen_gradients(one):
    """The gradients that the next updates are made with."""
    seen, module = [], one.actor.module
    one._optimizer.register_step_pre_hook(
        lambda *_: seen.append({n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None})
    )
    return seen


def values(policy):
    return [p.detach().clone() for p in policy.module.parameters()]


def unchanged(policy, before):
    return all(torch.equal(a, b) for a, b in zip(before, policy.module.parameters(), strict=True))


@pytest.mark.parametrize("token_budget", [1, 40, 10_000])
@pytest.mark.parametrize("temperature", [0.7, 1.0, 0.0])
def test_logps_in_the_order_given(token_budget, temperature):
    one = engine(token_budget=token_budget, sampling=SamplingConfig(temperature=temperature))
    rows = random_rows({2: 3, 5: 3, 1: 1}, masked=True)
    rows = [rows[i] for i in (4, 0, 6, 2, 5, 1, 3)]
    plain = naive_logps(one.actor.model, rows, temperature=temperature or 1.0)
    for row, got, wanted in zip(rows, one.logps(rows), plain, strict=True):
        mask = torch.tensor(row.mask)
        torch.testing.assert_close(got[mask], wanted[mask].detach(), atol=1e-5, rtol=0)
        assert (got[~mask] == 0).all()
        assert not got.requires_grad


def test_logps_of_a_row_given_twice():
    one = engine()
    first, second = random_rows({3: 2})
    got = one.logps([first, second, first])
    assert torch.equal(got[0], got[2])
    torch.testing.assert_close(got[0], naive_logps(one.actor.model, [first])[0].detach(), atol=1e-5, rtol=0)


def test_one_and_many_micro_batches_have_the_same_gradient():
    found = []
    for budget in (10_000, 1):
        one = engine(token_budget=budget)
        seen = seen_gradients(one)
        found.append((one.step(weighted(random_rows({6: 4}, masked=True)), linear), seen[0]))
    (whole, wanted), (split, got) = found
    assert_same_gradients(got, wanted, 1e-6)
    assert split == pytest.approx(whole, rel=1e-5)


def test_a_step_is_adamw_on_the_summed_gradient():
    rows = weighted(random_rows({4: 3, 7: 2}, masked=True))
    one, by_hand = engine(token_budget=30, weight_decay=0.1), language_model(layers=2)
    metrics = one.step(rows, linear)
    optimizer = torch.optim.AdamW(by_hand.module.parameters(), lr=1e-2, weight_decay=0.1)
    logps = torch.cat(naive_logps(by_hand.model, rows))
    mask, weights = torch.tensor([m for r in rows for m in r.mask]), torch.cat([r.streams["ce"] for r in rows])
    loss = -(weights * logps)[mask].sum()
    loss.backward()
    loss, logps = loss.detach(), logps.detach()
    norm = torch.nn.utils.get_total_norm([p.grad for p in by_hand.module.parameters()])
    optimizer.step()
    assert metrics["loss"] == pytest.approx(float(loss), rel=1e-5)
    assert metrics["grad_norm"] == pytest.approx(float(norm), rel=1e-4)
    assert metrics["nll"] == pytest.approx(-float(logps[mask].mean()), rel=1e-5)
    assert metrics["logp/max"] == pytest.approx(float(logps[mask].max()), rel=1e-4)
    # Adam's first step is lr * sign(gradient): only entries whose gradient is noise may differ.
    close = [
        (a - b).abs() < 1e-4 for a, b in zip(one.actor.module.parameters(), by_hand.module.parameters(), strict=True)
    ]
    assert sum(int(c.sum()) for c in close) > 0.999 * sum(c.numel() for c in close)


def test_the_gradient_is_scaled_down_to_the_norm_asked_for():
    rows = weighted(random_rows({4: 3}))
    free, bounded = engine(), engine(max_grad_norm=0.5)
    seen_free, seen_bounded = seen_gradients(free), seen_gradients(bounded)
    norms = [one.step(rows, linear)["grad_norm"] for one in (free, bounded)]
    assert norms[0] == pytest.approx(norms[1])
    assert norms[0] > 0.5
    shrunk = {name: g * 0.5 / norms[0] for name, g in seen_free[0].items()}
    assert_same_gradients(seen_bounded[0], shrunk, 1e-5)


def test_rows_without_weight_are_not_computed(monkeypatch):
    one = engine()
    rows = weighted(random_rows({4: 3}))
    rows[1].streams["ce"] = torch.zeros(len(rows[1].mask))
    seen = []
    original = one.actor.token_outputs
    monkeypatch.setattr(one.actor, "token_outputs", lambda micro, t: seen.extend(micro) or original(micro, t))
    one.step(rows, linear)
    assert {id(r) for r in seen} == {id(rows[0]), id(rows[2])}


def test_a_step_on_nothing_changes_nothing():
    one = engine()
    before = values(one.actor)
    rows = random_rows({4: 2})
    for row in rows:
        row.streams["ce"] = torch.zeros(len(row.mask))
    assert one.step(rows, linear) == {"loss": 0.0, "grad_norm": 0.0, "lr": 1e-2}
    assert unchanged(one.actor, before)


@pytest.mark.parametrize("poison", ["loss", "gradient"])
def test_a_step_that_is_not_finite_leaves_the_weights(poison):
    one = engine()
    before, rows = values(one.actor), weighted(random_rows({4: 3}))

    def poisoned(batch):
        loss, metrics = linear(batch)
        if poison == "loss":
            return loss * math.inf, metrics
        return loss + (batch.logps - batch.logps.detach()).abs().sqrt().sum(), metrics  # infinite slope at 0

    with pytest.raises(RunError, match=r"Update 1: .*weights are unchanged.*learning rate"):
        one.step(rows, poisoned)
    assert unchanged(one.actor, before)
    assert not gradients(one.actor.module)
    assert one.version == 0
    assert one.step(rows, linear)["lr"] == 1e-2
    assert one.version == 1


def test_the_reference_is_the_start_and_the_live_weights_come_back():
    one = engine(reference=True)
    rows = weighted(random_rows({4: 3}))
    start = one.logps(rows)
    one.step(rows, linear)
    moved = values(one.actor)
    for got, wanted in zip(one.logps(rows, "reference"), start, strict=True):
        assert torch.equal(got, wanted)
    assert unchanged(one.actor, moved)
    assert not torch.equal(one.logps(rows)[0], start[0])


def test_the_live_weights_come_back_after_an_error(monkeypatch):
    one = engine(reference=True)
    one.step(weighted(random_rows({4: 3})), linear)
    moved = values(one.actor)
    monkeypatch.setattr(one.actor, "token_outputs", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        one.logps(random_rows({4: 1}), "reference")
    assert unchanged(one.actor, moved)


def test_snapshot_and_restore():
    one = engine()
    before, kept = values(one.actor), one.snapshot()
    one.step(weighted(random_rows({4: 3})), linear)
    assert not unchanged(one.actor, before)
    one.restore(kept)
    assert unchanged(one.actor, before)


def test_reset_puts_the_reference_back():
    one = engine(reference=True)
    before = values(one.actor)
    one.step(weighted(random_rows({4: 3})), linear)
    one.reset()
    assert unchanged(one.actor, before)
    with pytest.raises(PrefrlError, match="reference=True"):
        engine().reset()


def test_what_is_missing_is_said():
    rows = random_rows({4: 1})
    with pytest.raises(PrefrlError, match="reference=True"):
        engine().logps(rows, "reference")
    with pytest.raises(PrefrlError, match="sampler=policy"):
        engine().sample([Prompt(id="a", text="1=")], 1, seed=0)
    frozen = language_model()
    frozen.module.requires_grad_(False)
    with pytest.raises(PrefrlError, match="no trainable parameter"):
        engine(frozen)


def test_samples_carry_the_version_of_the_weights():
    policy = language_model()
    one = Engine(policy, ModelConfig(lr=1e-3), sampler=policy, sampling=SamplingConfig(max_new_tokens=2))
    prompts = [Prompt(id="a", text="1=")]
    assert one.sample(prompts, 1, seed=0)[0].version == 0
    one.step(weighted(random_rows({4: 1})), linear)
    assert one.sample(prompts, 1, seed=0)[0].version == 1
    assert one.budget == 2


@pytest.mark.parametrize(
    ("schedule", "warmup", "factors"),
    [
        ("constant", 0, [1, 1, 1, 1]),
        ("constant", 1, [0.5, 1, 1, 1]),
        ("linear", 0, [1, 0.75, 0.5, 0.25]),
        ("linear", 2, [1 / 3, 2 / 3, 1, 0.5]),
        ("cosine", 0, [1, 0.853553, 0.5, 0.146447]),
    ],
)
def test_schedules(schedule, warmup, factors):
    assert [schedule_factor(s, 4, warmup, schedule) for s in range(4)] == pytest.approx(factors, abs=1e-6)
    one = engine(total_steps=4, schedule=schedule, warmup=warmup, lr=0.1)
    rows = weighted(random_rows({4: 1}))
    assert [one.step(rows, linear)["lr"] for _ in range(4)] == pytest.approx([0.1 * f for f in factors], abs=1e-6)


def test_beyond_the_last_step_the_rate_stays_at_its_end():
    assert [schedule_factor(9, 4, 0, s) for s in ("constant", "linear", "cosine")] == pytest.approx([1, 0, 0])


def test_a_completion_in_several_pairs_is_computed_once_with_the_same_gradient(monkeypatch):
    best, middle, worst = random_rows({4: 3}, seed=5)
    rows = [
        replace(one, atom=atom, side=side, weight=1 / 3, streams={"ref_logps": torch.zeros(len(one.mask))})
        for atom, couple in enumerate([(best, middle), (best, worst), (middle, worst)])
        for one, side in zip(couple, (1, -1), strict=True)
    ]
    computed, found = [], []
    for repeat in (False, True):
        if repeat:
            monkeypatch.setattr(engine_module, "distinct_rows", lambda given: (list(given), list(range(len(given)))))
        policy = language_model(layers=2)
        outputs = policy.token_outputs
        policy.token_outputs = lambda given, t=1.0, outputs=outputs: computed.append(len(given)) or outputs(given, t)
        one = engine(policy)
        found.append(seen_gradients(one))
        one.step(rows, lambda batch: pair_objective(batch, PairSpec()))
    assert computed == [3, 6]
    assert_same_gradients(found[0][0], found[1][0], 1e-6)


def taught_rows(seed=0):
    """Ragged rows with weights of three terms, some read by a teacher under a prompt of its own, one of them twice."""
    generator = torch.Generator().manual_seed(seed)
    rows = random_rows({2: 3, 5: 3, 1: 1}, masked=True)
    rows = [replace(row, teacher_prompt_ids=(7, 8, 9, 2) if i % 2 else None) for i, row in enumerate(rows)]
    rows.append(replace(rows[1]))
    for row in rows:
        names = ("rl", "entropy", "teacher_kl")
        row.streams = {name: torch.rand(len(row.mask), generator=generator) for name in names}
    return rows


def three_terms(batch):
    terms = {"rl": batch.logps, **batch.extras}
    loss = sum((batch.streams[name] * term).sum() for name, term in terms.items())
    count = batch.logps.new_tensor(float(len(batch.logps)))
    return loss, {name: (term.detach().sum(), count) for name, term in terms.items()}


def naive_log_probs(model, row, prompt_ids, temperature):
    """Log-probs (n, V) at a row's tokens from full logits."""
    ids = torch.tensor([[*prompt_ids, *row.completion_ids]])
    logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt_ids) - 1 : -1]
    return (logits / temperature).log_softmax(-1)


@pytest.mark.parametrize("token_budget", [1, 60, 10_000])
def test_a_step_on_entropy_and_the_kl_to_a_teacher_is_autograd_on_full_logits(token_budget):
    rows, teacher = taught_rows(), language_model(seed=1)
    one = engine(
        teacher=Teacher.other(teacher, language_model()),
        token_budget=token_budget,
        sampling=SamplingConfig(temperature=0.7),
    )
    seen = seen_gradients(one)
    metrics = one.step(rows, three_terms, ("entropy", "teacher_kl"))
    by_hand, terms = language_model(layers=2), {"rl": [], "entropy": [], "teacher_kl": []}
    for row in rows:
        mask = torch.tensor(row.mask)
        log_p = naive_log_probs(by_hand.model, row, row.prompt_ids, 0.7)[mask]
        log_q = naive_log_probs(teacher.model, row, row.teacher_prompt_ids or row.prompt_ids, 0.7)[mask].detach()
        terms["rl"].append(log_p.gather(-1, torch.tensor(row.completion_ids)[mask, None]).squeeze(-1))
        terms["entropy"].append(-(log_p.exp() * log_p).sum(-1))
        terms["teacher_kl"].append((log_p.exp() * (log_p - log_q)).sum(-1))
    weights = {name: torch.cat([r.streams[name][torch.tensor(r.mask)] for r in rows]) for name in terms}
    loss = sum((weights[name] * torch.cat(term)).sum() for name, term in terms.items())
    loss.backward()
    assert metrics["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    for name, term in terms.items():
        assert metrics[name] == pytest.approx(float(torch.cat(term).mean().detach()), rel=1e-4)
    assert_same_gradients(seen[0], gradients(by_hand.module), 1e-5)


@pytest.mark.parametrize("kind", ["copy", "base"])
@pytest.mark.parametrize("token_budget", [1, 10_000])
def test_a_policy_that_is_its_teacher_has_no_loss_and_no_gradient(kind, token_budget):
    policy = language_model(add_lora(llama(14, layers=2), 2, seed=0) if kind == "base" else None, layers=2)
    teacher = Teacher.base(policy) if kind == "base" else Teacher.frozen_copy(policy)
    one = engine(policy, teacher=teacher, token_budget=token_budget)
    rows = [replace(row, teacher_prompt_ids=None, streams={"teacher_kl": row.streams["rl"]}) for row in taught_rows()]
    seen = seen_gradients(one)
    metrics = one.step(
        rows, lambda batch: ((batch.streams["teacher_kl"] * batch.extras["teacher_kl"]).sum(), {}), {"teacher_kl"}
    )
    assert (metrics["loss"], metrics["grad_norm"]) == (0.0, 0.0)
    assert all((gradient == 0).all() for gradient in seen[0].values()) and seen[0]


def test_the_teacher_keeps_states_of_one_micro_batch_at_a_time(monkeypatch):
    teacher = Teacher.other(language_model(seed=1), language_model())
    one, calls = engine(teacher=teacher, token_budget=1), []
    hidden, statistics = teacher.hidden, one.actor.token_statistics
    monkeypatch.setattr(teacher, "hidden", lambda rows: calls.append(("teacher", len(rows))) or hidden(rows))
    monkeypatch.setattr(
        one.actor,
        "token_statistics",
        lambda rows, *more: calls.append(("policy", len(rows))) or statistics(rows, *more),
    )
    one.step(taught_rows(), three_terms, ("entropy", "teacher_kl"))
    assert calls == [("policy", 1), ("teacher", 1)] * 8


def test_without_extras_only_log_probs_are_computed(monkeypatch):
    one, seen = engine(teacher=Teacher.frozen_copy(language_model(layers=2))), []
    monkeypatch.setattr(one.actor, "token_statistics", lambda *_: 1 / 0)
    monkeypatch.setattr(one.teacher, "hidden", lambda *_: 1 / 0)
    one.step(weighted(random_rows({4: 2})), lambda batch: seen.append(dict(batch.extras)) or linear(batch))
    assert seen == [{}]


def test_log_probs_of_the_teacher():
    teacher = language_model(seed=1)
    one = engine(teacher=Teacher.other(teacher, language_model()), sampling=SamplingConfig(temperature=0.7))
    rows = random_rows({3: 2, 4: 1})
    for got, wanted in zip(one.teacher_logps(rows), naive_logps(teacher.model, rows, temperature=0.7), strict=True):
        torch.testing.assert_close(got, wanted.detach(), atol=1e-5, rtol=0)


class Values:
    """A critic: its output at a token is that token's id times a weight."""

    shares_prompts = False

    def __init__(self):
        self.module = torch.nn.Linear(1, 1, bias=False)

    def token_outputs(self, rows, temperature=1.0):
        ids = [float(t) for row in rows for t, m in zip(row.completion_ids, row.mask, strict=True) if m]
        return self.module(torch.tensor(ids)[:, None]).squeeze(-1)


def test_outputs_of_a_critic_are_its_values():
    one = engine(Values())
    with torch.no_grad():
        one.actor.module.weight.fill_(2.0)
    rows = random_rows({3: 2, 4: 1}, masked=True)
    found = one.outputs(rows)
    assert not found[0].requires_grad
    wanted = [[2.0 * t * m for t, m in zip(row.completion_ids, row.mask, strict=True)] for row in rows]
    assert [values.tolist() for values in found] == wanted


def test_extras_that_nobody_can_give():
    rows = taught_rows()
    with pytest.raises(PrefrlError, match=r"no teacher; make it with teacher=Teacher\.other"):
        engine().step(rows, three_terms, ("teacher_kl",))
    with pytest.raises(PrefrlError, match=r"no teacher"):
        engine().teacher_logps(rows)
    with pytest.raises(PrefrlError, match="Values has no entropy; expected a policy"):
        engine(Values()).step(rows, three_terms, ("entropy",))


@pytest.mark.parametrize("name", ["rl", "ce", "ref_kl", "entropy", "teacher_kl", "vf"])
def test_a_row_counts_by_any_weight(name):
    one, row = engine(), random_rows({4: 1})[0]
    row.streams = {name: torch.zeros(len(row.mask)), "old_logps": torch.ones(len(row.mask))}
    objective = lambda batch: (batch.logps.sum(), {})  # noqa: E731
    assert one.step([row], objective)["grad_norm"] == 0.0
    row.streams[name][0] = 1e-8
    assert one.step([row], objective)["grad_norm"] > 0.0


@pytest.mark.parametrize("token_budget", [1, 10_000])
def test_smallest_and_largest_over_all_micro_batches(token_budget):
    one, rows = engine(token_budget=token_budget), weighted(random_rows({6: 4}))
    logps = torch.cat(one.logps(rows))

    def objective(batch):
        count = batch.logps.new_tensor(float(len(batch.logps)))
        found = batch.logps.detach()
        return batch.logps.sum(), {"p/min": (found.min(), count), "p/max": (found.max(), count)}

    metrics = one.step(rows, objective)
    assert metrics["p/min"] == pytest.approx(float(logps.min()), rel=1e-5)
    assert metrics["p/max"] == pytest.approx(float(logps.max()), rel=1e-4)


def test_a_step_in_which_nothing_counts_moves_nothing_even_with_momentum():
    policy = language_model()
    engine = Engine(policy, ModelConfig(lr=1e-2))
    rows = random_rows({3: 2})
    for row in rows:
        row.streams["ce"] = torch.ones(len(row.mask))
    objective = lambda batch: (-(batch.streams["ce"] * batch.logps).sum(), {})  # noqa: E731
    engine.step(rows, objective)
    before = engine.snapshot()
    for row in rows:
        row.streams["ce"] = torch.zeros(len(row.mask))
    for processes in (1, 2):
        engine.accelerator = SimpleNamespace(num_processes=processes, device="cpu", reduce=lambda t, _: t)
        engine.step(rows, objective)
        assert all(torch.equal(a, b) for a, b in zip(before, engine.snapshot(), strict=True))


def test_another_trainer_that_resets_accelerate_breaks_no_later_engine():
    from accelerate.state import AcceleratorState

    Engine(language_model(), ModelConfig())
    AcceleratorState._reset_state(reset_partial_state=True)  # as the arguments of transformers' trainers do
    assert Engine(language_model(), ModelConfig()).accelerator.num_processes == 1
