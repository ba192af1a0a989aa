"""Distillation through optimizer, engine and language model: the numbers and gradients of both forms."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from tiny import assert_same_gradients, digit_tokenizer, gradients, llama
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.model.teacher import Teacher
from prefrl.policy.algorithms import resolve
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.recipes.rl import Unrewarded
from prefrl.recipes.teaching import Teaching
from prefrl.types import Prompt, Rollout, Row, StopReason

PROMPT, SHOWN = (4, 5, 2), (6, 7, 13, 4, 5, 2)
COMPLETIONS = ((5, 3, 0), (6, 0), (7, 8, 9))  # 8 tokens, so that 1 / 8 is exact
FORMS = ("full", "sampled")


class Unpaid(Unrewarded):
    def update(self, rollouts, scores):
        return {}


def coin(heads):
    """A model that says token 0 with probability `heads` and token 1 otherwise, whatever it reads."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")), unk_token="a"
    )
    model = llama(2, eos=None)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.get_input_embeddings().weight.fill_(1.0)
        model.model.norm.weight.fill_(1.0)
        model.lm_head.weight[0] = math.log(heads / (1.0 - heads)) / model.config.hidden_size
    return LanguageModel(model, tokenizer, name="coin")


def random_model(seed):
    """In float64 (but for its norms, which transformers computes in float32), with distributions far from flat."""
    tokenizer = digit_tokenizer()
    model = llama(len(tokenizer), hidden=16, seed=seed).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(15.0 if parameter.ndim > 1 else 1.0)
    return LanguageModel(model, tokenizer, name=f"random {seed}")


def optimizer_of(policy, teacher, spec, *, shown=None, tokens=3, temperature=1.0):
    """Its updates move no weight: gradients can be read off again and again."""
    engine = Engine(
        policy,
        ModelConfig(lr=1e-30, max_grad_norm=0.0),
        sampler=policy,
        sampling=SamplingConfig(max_new_tokens=tokens, temperature=temperature),
        teacher=teacher,
    )
    return PolicyOptimizer(engine, Unpaid(), resolve(spec), teacher_prompt=shown)


def rollout_of(policy, ids, temperature=1.0):
    logps = next_logps(policy, PROMPT, ids, temperature).detach().gather(-1, torch.tensor(ids)[:, None])
    return Rollout(
        prompt=Prompt(id="p", text="12="),
        prompt_ids=PROMPT,
        completion_ids=ids,
        mask=(True,) * len(ids),
        logps=tuple(logps.squeeze(-1).tolist()),
        text="",
        stop=StopReason.EOS,
        group="p",
    )


def next_logps(policy, prompt, ids, temperature=1.0):
    """Log-probs (n, V) before every token of a completion: the plain model, full logits."""
    logits = policy.model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0]
    return (logits / temperature).log_softmax(-1)[len(prompt) - 1 : -1]


def kls(policy, teacher, ids, *, shown=PROMPT, temperature=1.0):
    """KL(policy || teacher) (n,) before every token of a completion, with gradient."""
    p = next_logps(policy, PROMPT, ids, temperature)
    with torch.no_grad():
        q = next_logps(teacher, shown, ids, temperature)
    return (p.exp() * (p - q)).sum(-1)


def learnt_gradients(policy, optimizer, rollouts):
    """The gradients that one update is made of, and its metrics."""
    found = {}
    hooks = [
        p.register_post_accumulate_grad_hook(lambda p, name=name: found.update({name: p.grad.clone()}))
        for name, p in policy.module.named_parameters()
    ]
    metrics = optimizer.learn(rollouts, Unpaid().score(rollouts))
    for hook in hooks:
        hook.remove()
    return found, metrics


def test_a_fair_coin_is_0_223_nats_from_one_of_0_8():
    policy, teacher = coin(0.5), coin(0.8)
    wanted = 0.5 * math.log(0.5 / 0.8) + 0.5 * math.log(0.5 / 0.2)
    assert wanted == pytest.approx(0.22314, abs=1e-5)
    taught = Teacher.other(teacher, policy)
    step = optimizer_of(policy, taught, "opd", tokens=1).step([Prompt(id="p", text="a")] * 4, seed=0)
    assert step.metrics["kl/teacher"] == pytest.approx(wanted, abs=1e-5)
    assert step.metrics["loss"] == pytest.approx(wanted, abs=1e-5)
    found = Teaching(taught).kl(policy, step.rollouts, temperature=1.0, token_budget=64)
    assert found == pytest.approx(wanted, abs=1e-5)


def test_the_sampled_form_pays_the_log_ratio_of_each_token():
    policy, teacher = coin(0.5), coin(0.8)
    optimizer = optimizer_of(policy, Teacher.other(teacher, policy), {"name": "opd", "distill": {"form": "sampled"}})
    (drawn,) = optimizer.policy.sample([Prompt(id="p", text="a")], 1, seed=0)
    both = [replace(drawn, completion_ids=(i,), mask=(True,), logps=(math.log(0.5),)) for i in (0, 1)]
    # Equally likely, so their mean is the expectation: rewards -log(.5 / .8) and -log(.5 / .2), -0.223 together.
    metrics = optimizer.learn(both, Unpaid().score(both))
    assert metrics["loss"] == pytest.approx(0.22314 * math.log(0.5), abs=1e-5)


@pytest.mark.parametrize("privileged", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_gradient_of_the_full_form_is_that_of_the_kl(privileged, temperature):
    policy, teacher = random_model(0), random_model(1)
    spec = {"name": "opsd" if privileged else "opd", "distill": {"coef": 0.5}}
    shown = SHOWN if privileged else PROMPT
    optimizer = optimizer_of(
        policy, Teacher.other(teacher, policy), spec, shown=lambda rollout: SHOWN, temperature=temperature
    )
    rollouts = [rollout_of(policy, ids, temperature) for ids in COMPLETIONS]
    found, metrics = learnt_gradients(policy, optimizer, rollouts)

    each = [kls(policy, teacher, ids, shown=shown, temperature=temperature) for ids in COMPLETIONS]
    mean = torch.cat(each).mean()
    (0.5 * mean).backward()
    assert metrics["kl/teacher"] == pytest.approx(mean.item(), rel=1e-6) and mean.item() > 0.05
    assert_same_gradients(found, gradients(policy.module), 1e-6)


def test_the_gradient_of_the_sampled_form_is_that_of_the_kl_in_expectation():
    policy, teacher = random_model(0), random_model(1)
    spec = {"name": "opd", "reduction": "sequence_sum", "distill": {"form": "sampled"}}
    optimizer = optimizer_of(policy, Teacher.other(teacher, policy), spec, tokens=2)
    vocabulary = range(len(policy.tokenizer))
    everything = [(0,), *((a, b) for a, b in itertools.product(vocabulary, repeat=2) if a != 0)]
    expected, wanted, total = {}, {}, 0.0
    for ids in everything:
        rollout = rollout_of(policy, ids)
        likely = math.exp(sum(rollout.logps))
        total += likely
        sampled, _ = learnt_gradients(policy, optimizer, [rollout])
        kls(policy, teacher, ids).sum().backward()  # the history is as it came: only what is said in it is held
        for sums, found in ((expected, sampled), (wanted, gradients(policy.module))):
            sums |= {name: sums.get(name, 0.0) + likely * gradient for name, gradient in found.items()}
    assert total == pytest.approx(1.0, abs=1e-12)
    assert_same_gradients(expected, wanted, 1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_a_teacher_that_is_the_student_changes_nothing(form):
    policy = random_model(0)
    teacher = Teacher.frozen_copy(policy)
    optimizer = optimizer_of(policy, teacher, {"name": "opd", "distill": {"form": form}})
    rollouts = optimizer.policy.sample([Prompt(id=str(i), text=f"{i}=") for i in range(4)], 2, seed=0)
    # What was sampled is compared as the learner computes it; the sampler differs from that by rounding.
    rows = [Row(prompt_ids=r.prompt_ids, completion_ids=r.completion_ids, mask=r.mask) for r in rollouts]
    logps = optimizer.policy.logps(rows, "policy")
    same = [replace(r, logps=tuple(x.tolist())) for r, x in zip(rollouts, logps, strict=True)]
    metrics = optimizer.learn(same, Unpaid().score(same))
    assert metrics["loss"] == 0.0 and metrics["grad_norm"] == 0.0
    assert Teaching(teacher).kl(policy, rollouts, temperature=1.0, token_budget=64) == 0.0
    sampled = optimizer.learn(rollouts, Unpaid().score(rollouts))
    assert abs(sampled["loss"]) < 1e-5 and sampled["grad_norm"] < 1e-4


def test_a_privileged_copy_is_no_copy():
    policy = random_model(0)
    optimizer = optimizer_of(policy, Teacher.frozen_copy(policy), "opsd", shown=lambda rollout: SHOWN)
    rollouts = [rollout_of(policy, ids) for ids in COMPLETIONS]
    wanted = torch.cat([kls(policy, policy, ids, shown=SHOWN) for ids in COMPLETIONS]).mean()
    metrics = optimizer.learn(rollouts, Unpaid().score(rollouts))
    assert metrics["kl/teacher"] == pytest.approx(wanted.item(), rel=1e-6) and wanted.item() > 0.01


def test_the_sampled_form_asks_a_privileged_teacher_about_the_prompt_it_sees():
    policy = random_model(0)
    spec = {"name": "opsd", "distill": {"form": "sampled"}}
    optimizer = optimizer_of(policy, Teacher.frozen_copy(policy), spec, shown=lambda rollout: SHOWN)
    rollouts = [rollout_of(policy, ids) for ids in COMPLETIONS]
    products = []
    for rollout in rollouts:
        ids, own = torch.tensor(rollout.completion_ids), torch.tensor(rollout.logps)
        shown = next_logps(policy, SHOWN, rollout.completion_ids).detach().gather(-1, ids[:, None]).squeeze(-1)
        products.append((own - shown) * own)
    metrics = optimizer.learn(rollouts, Unpaid().score(rollouts))
    assert metrics["loss"] == pytest.approx(torch.cat(products).mean().item(), rel=1e-5)
    assert abs(metrics["loss"]) > 0.01
