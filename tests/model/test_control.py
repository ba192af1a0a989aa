"""A control policy: exact statistics over the allowed actions, and episodes that do not know of each other."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.errors import ModelError
from prefrl.model.control import ControlPolicy
from prefrl.model.distributions import Categorical
from prefrl.model.engine import Engine
from prefrl.types import Prompt, Row, StopReason

PROMPTS = [Prompt(id=str(i), text="go", columns={"start": i}) for i in range(5)]
BELOW_1 = 1.0 - 2.0**-53  # the largest uniform number there is


class Walk:
    """A walk on the line that ends at 0 and at 9; one-hot observations of ten cells. 0 left, 1 right, 2 two right."""

    def reset(self, prompt):
        self.cell, self.path = 3 + prompt.columns["start"] % 4, 0
        return self._seen()

    def step(self, action):
        self.cell = min(9, self.cell + (-1, 1, 2)[action])
        self.path += 1
        return self._seen(), self.cell in (0, 9)

    def _seen(self):
        return nn.functional.one_hot(torch.tensor(self.cell), 10).float()


class Told(Walk):
    def report(self):
        return {"cell": self.cell, "path": self.path}


def no_jump(observations):
    """Two to the right is allowed on even cells only."""
    allowed = torch.ones(len(observations), 3, dtype=torch.bool)
    allowed[:, 2] = observations.argmax(-1) % 2 == 0
    return allowed


def walker(make=Walk, **more):
    torch.manual_seed(0)
    return ControlPolicy(10, 3, make, **more)


def fixed(*probabilities, mask=None):
    """A policy with these probabilities at the observation 1."""
    net = nn.Linear(1, len(probabilities), bias=False).double()
    with torch.no_grad():
        net.weight.copy_(torch.tensor(probabilities, dtype=torch.float64).log()[:, None])
    return ControlPolicy(1, len(probabilities), Walk, net=net, mask=mask)


def row(*actions, mask=None, observations=None):
    n = len(actions)
    seen = torch.ones(n, 1) if observations is None else observations
    return Row(prompt_ids=(), completion_ids=actions, mask=mask or (True,) * n, observations=seen)


def only(*actions):
    return lambda observations: torch.tensor(actions).expand(len(observations), -1)


def test_entropy_by_hand():
    policy = fixed(0.5, 0.25, 0.25)
    statistics = policy.token_statistics([row(0, 2)], extras=("entropy",))
    assert statistics["logps"].tolist() == pytest.approx([math.log(0.5), math.log(0.25)])
    assert statistics["entropy"].tolist() == pytest.approx([1.5 * math.log(2)] * 2)
    # At temperature 1/2 the probabilities are 4:1:1.
    entropy = policy.token_statistics([row(0)], 0.5, ("entropy",))["entropy"]
    assert entropy.item() == pytest.approx(math.log(6) - 2 / 3 * math.log(4))
    assert set(policy.token_statistics([row(0)])) == {"logps"}


@pytest.mark.parametrize("allowed", [(True, True, True), (True, False, True), (False, True, False)])
def test_the_gradient_of_entropy_is_that_of_the_formula(allowed):
    policy = fixed(0.5, 0.2, 0.3, mask=only(*allowed))
    action = allowed.index(True)
    statistics = policy.token_statistics([row(action)], extras=("entropy",))
    kept = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64) * torch.tensor(allowed)
    p = kept / kept.sum()
    logs = p.clamp(min=1e-300).log()
    entropy = -(p * logs).sum()
    assert statistics["entropy"].item() == pytest.approx(entropy.item())
    (gradient,) = torch.autograd.grad(statistics["entropy"].sum(), policy.net.weight, retain_graph=True)
    torch.testing.assert_close(gradient[:, 0], -p * (logs + entropy))
    (gradient,) = torch.autograd.grad(statistics["logps"].sum(), policy.net.weight)
    torch.testing.assert_close(gradient[:, 0], nn.functional.one_hot(torch.tensor(action), 3) - p)


def test_kl_to_a_teacher():
    student, teacher = fixed(0.5, 0.5), fixed(0.8, 0.2)

    def kl(of, to):
        return of.token_statistics([row(0)], extras=("teacher_kl",), teacher=to)["teacher_kl"]

    assert kl(student, teacher).item() == pytest.approx(0.5 * math.log(0.5 / 0.8) + 0.5 * math.log(0.5 / 0.2))
    assert kl(student, teacher).item() == pytest.approx(0.223, abs=5e-4)
    assert kl(student, student).item() == 0.0
    assert kl(fixed(0.5, 0.5, mask=only(True, False)), teacher).item() == pytest.approx(-math.log(0.8))
    assert kl(student, fixed(0.5, 0.5, mask=only(True, False))).item() == math.inf
    kl(student, teacher).backward()
    assert teacher.net.weight.grad is None
    with pytest.raises(ModelError, match="teacher of a control policy is NoneType; expected a ControlPolicy"):
        kl(student, None)


def test_uniform_over_the_allowed_actions_from_the_start():
    policy = walker(zero_init=True, mask=no_jump)
    cells = torch.eye(10)
    probabilities = policy.distribution(cells).exp()
    torch.testing.assert_close(probabilities[::2], torch.full((5, 3), 1 / 3))
    torch.testing.assert_close(probabilities[1::2], torch.tensor([[0.5, 0.5, 0.0]]).expand(5, 3))
    rollouts = policy.sample(PROMPTS, 200, SamplingConfig(max_new_tokens=3), seed=0)
    drawn = [
        (int(o.argmax()) % 2, a, p)
        for r in rollouts
        for o, a, p in zip(r.observations[:-1], r.completion_ids, r.logps, strict=True)
    ]
    odd = [a for parity, a, _ in drawn if parity]
    even = [a for parity, a, _ in drawn if not parity]
    assert set(odd) == {0, 1}
    assert odd.count(0) / len(odd) == pytest.approx(1 / 2, abs=0.05)
    assert [even.count(a) / len(even) for a in range(3)] == pytest.approx([1 / 3] * 3, abs=0.05)
    assert {round(p, 6) for parity, _, p in drawn if parity} == {round(-math.log(2), 6)}


def test_a_forbidden_action_is_never_drawn():
    def drawn(logps, uniform):
        uniforms = torch.tensor([[uniform]], dtype=torch.float64)
        return Categorical(4).draw(logps, uniforms).item()

    logps = torch.tensor([[0.0, 0.7, 0.3, 0.0]], dtype=torch.float64).log()
    for uniform, action in ((0.0, 1), (0.69, 1), (0.71, 2), (BELOW_1, 2)):
        assert drawn(logps, uniform) == action
    thirds = torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0.0]], dtype=torch.float64).log()
    assert drawn(thirds, BELOW_1) == 2


def test_masks_that_cannot_be_are_refused():
    with pytest.raises(ModelError, match=r"allows nothing at 2 observations; expected"):
        fixed(0.5, 0.5, mask=only(False, False)).token_outputs([row(0, 1)])
    with pytest.raises(ModelError, match=r"is \(1, 3\) for logits \(1, 2\)"):
        fixed(0.5, 0.5, mask=only(True, True, False)).token_outputs([row(0)])


@pytest.mark.parametrize("mask", [None, no_jump])
def test_episodes_do_not_depend_on_what_they_are_batched_with(mask):
    policy, params = walker(mask=mask), SamplingConfig(max_new_tokens=12, temperature=0.8)
    together = policy.sample(PROMPTS, 8, params, seed=4)
    apart = [r for prompt in PROMPTS for r in policy.sample([prompt], 8, params, seed=4)]
    backwards = [r for prompt in PROMPTS for r in policy.sample(PROMPTS[::-1], 8, params, seed=4) if r.prompt is prompt]
    fewer = policy.sample(PROMPTS, 3, params, seed=4)
    assert len({r.completion_ids for r in together}) > 20
    for others in (apart, backwards):
        for one, other in zip(together, others, strict=True):
            assert (one.completion_ids, one.logps, one.stop) == (other.completion_ids, other.logps, other.stop)
            assert torch.equal(one.observations, other.observations)
    assert [r.logps for i, r in enumerate(together) if i % 8 < 3] == [r.logps for r in fewer]


def test_all_episodes_are_computed_at_once():
    calls = []

    class Counted(nn.Linear):
        def forward(self, observations):
            calls.append(len(observations))
            return super().forward(observations)

    rollouts = walker(net=Counted(10, 3)).sample(PROMPTS, 20, SamplingConfig(max_new_tokens=9), seed=0)
    assert len(calls) == max(len(r.completion_ids) for r in rollouts)
    assert sum(calls) == sum(len(r.completion_ids) for r in rollouts)


def test_what_a_rollout_holds():
    rollouts = walker(Told).sample(PROMPTS, 8, SamplingConfig(max_new_tokens=6), seed=1, version=3)
    assert {r.stop for r in rollouts} == {StopReason.ENVIRONMENT, StopReason.LENGTH}
    for r in rollouts:
        n, cells = len(r.completion_ids), r.observations.argmax(-1).tolist()
        assert r.observations.shape == (n + 1, 10)
        assert [min(9, c + (-1, 1, 2)[a]) for c, a in zip(cells[:-1], r.completion_ids, strict=True)] == cells[1:]
        assert r.terminated == (cells[-1] in (0, 9))
        assert r.truncated == (n == 6 and cells[-1] not in (0, 9))
        assert r.info == {"cell": cells[-1], "path": n}
        assert (r.version, r.group) == (3, f"{r.prompt.id}#0")
    assert walker().sample(PROMPTS[:1], 1, SamplingConfig(max_new_tokens=6), seed=1)[0].info == {}


def test_a_repeated_prompt_makes_other_episodes():
    first, second = walker().sample([PROMPTS[0]] * 2, 1, SamplingConfig(max_new_tokens=9), seed=1)
    assert (first.group, second.group) == ("0#0", "0#1")
    assert first.completion_ids != second.completion_ids


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("mask", [None, no_jump])
def test_the_learner_finds_the_log_probs_of_the_sampler(mask, temperature):
    policy = walker(mask=mask)
    rollouts = policy.sample(PROMPTS, 4, SamplingConfig(max_new_tokens=9, temperature=temperature), seed=2)
    rows = [row(*r.completion_ids, observations=r.observations) for r in rollouts]
    wanted = torch.tensor([p for r in rollouts for p in r.logps])
    torch.testing.assert_close(policy.token_outputs(rows, temperature).detach(), wanted, atol=1e-6, rtol=0)
    without_last = [row(*r.completion_ids, observations=r.observations[:-1]) for r in rollouts]
    assert torch.equal(policy.token_outputs(without_last, temperature), policy.token_outputs(rows, temperature))


def test_temperature_0_takes_the_most_probable_action():
    policy = walker()
    rollouts = policy.sample(PROMPTS, 2, SamplingConfig(max_new_tokens=9, temperature=0.0), seed=2)
    for r in rollouts:
        logps = policy.distribution(r.observations[:-1])
        assert r.completion_ids == tuple(logps.argmax(-1).tolist())
        assert r.logps == pytest.approx(logps.max(-1).values.tolist(), abs=1e-6)


def test_masked_out_actions_are_not_computed():
    policy = walker()
    observations = torch.randn(4, 10)
    whole = policy.token_outputs([row(0, 1, 2, observations=observations)])
    part = policy.token_outputs([row(0, 1, 2, mask=(True, False, True), observations=observations)])
    torch.testing.assert_close(part, whole[[0, 2]])
    observations[1] = math.nan
    assert policy.token_outputs([row(0, 1, 2, mask=(True, False, True), observations=observations)]).isfinite().all()


@pytest.mark.parametrize("observations", [None, torch.ones(1, 10)])
def test_too_few_observations_are_refused(observations):
    one = Row(prompt_ids=(), completion_ids=(0, 1), mask=(True, True), observations=observations)
    with pytest.raises(ModelError, match=r"observations for 2 actions; expected one before every action"):
        walker().token_outputs([one])


class Lookup(nn.Module):
    """Whole numbers in: the cell's own vector, and a linear map of it."""

    def __init__(self):
        super().__init__()
        self.cells = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 3)

    def forward(self, observations):
        return self.out(self.cells(observations.squeeze(-1)))


class Numbered(Walk):
    def _seen(self):
        return torch.tensor([self.cell])


def test_any_module_is_a_policy():
    policy = walker(Numbered, net=Lookup(), mask=lambda o: no_jump(nn.functional.one_hot(o[:, 0], 10)), zero_init=True)
    assert not policy.net.out.weight.any()
    assert policy.state_size == 4
    rollouts = policy.sample(PROMPTS, 2, SamplingConfig(max_new_tokens=5), seed=0)
    rows = [row(*r.completion_ids, observations=r.observations) for r in rollouts]
    assert policy.token_outputs(rows).tolist() == pytest.approx([p for r in rollouts for p in r.logps], abs=1e-6)
    observations = rollouts[0].observations
    assert torch.equal(policy.states(observations), policy.net.cells(observations[:, 0]))


def test_states_are_what_enters_the_last_layer():
    policy, observations = walker(), torch.randn(6, 10)
    states = policy.states(observations)
    assert not states.requires_grad
    assert states.shape == (6, policy.state_size) == (6, 32)
    torch.testing.assert_close(policy.net[-1](states), policy.net(observations))
    with pytest.raises(ModelError, match="ReLU has no linear layer"):
        walker(net=nn.ReLU()).states(observations)


def test_weights_are_saved(tmp_path):
    policy = walker()
    policy.save(tmp_path / "policy")
    other = walker(zero_init=True)
    other.net.load_state_dict(load_file(tmp_path / "policy" / "model.safetensors"))
    assert torch.equal(other.distribution(torch.eye(10)), policy.distribution(torch.eye(10)))


def test_an_engine_trains_it():
    policy = walker(zero_init=True, mask=no_jump)
    engine = Engine(policy, ModelConfig(lr=0.1), sampler=policy, sampling=SamplingConfig(max_new_tokens=1))
    rows = [row(2, observations=torch.eye(10)[[4]]), row(1, observations=torch.eye(10)[[5]])]
    for one in rows:
        one.streams["ce"] = torch.ones(1)
    before = [float(p) for p in engine.logps(rows)]
    assert before == pytest.approx([-math.log(3), -math.log(2)])
    for _ in range(20):
        engine.step(rows, lambda batch: (-(batch.streams["ce"] * batch.logps).sum(), {}))
    assert [float(p) for p in engine.logps(rows)] == pytest.approx([0.0, 0.0], abs=0.1)
