"""Rewards for text that learn beside a policy: what they pay, what they refuse, how they go on."""

from __future__ import annotations

import json
import math

import pytest
import torch
from exact_text import PROMPTS, Table, counting_body, engine_of, language, table_of, world
from tiny import byte_tokenizer, llama

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.errors import ConfigError, RewardError
from prefrl.model.engine import Engine
from prefrl.model.load import load
from prefrl.model.state import load_state, save_state
from prefrl.recipes.score import text_rollout
from prefrl.rewards.inverse.discriminator import Fit
from prefrl.rewards.inverse.text import TextInverse, TextNetSpec
from prefrl.rewards.inverse.text_nets import body_of
from prefrl.rewards.inverse.text_reward import TextReward
from prefrl.rewards.specs import build
from prefrl.types import Completion, Prompt, Rollout, StopReason

FIT = Fit(steps=3, lr=0.05, batch_size=0)
STOPS = [(prompt, Completion(text="")) for prompt in PROMPTS]  # an expert that always stops at once


def source_of(demonstrations=None, *, body=None, fit=FIT, method="airl", beta=0.5, pay="kl", form="logit", **net):
    given = demonstrations or [(p, Completion(text=t)) for p in PROMPTS for t in ("a", "ab", "a")]
    net = TextNetSpec(**net)
    return TextInverse(
        given, method=method, beta=beta, pay=pay, form=form, net=net, fit=fit, body=body or counting_body()
    )


@pytest.fixture
def engine():
    return engine_of(language())


def attached(engine, **how):
    source = source_of(**how)
    source.attach(engine)
    return source


def writing(engine, ids, prompt=PROMPTS[0], stop=StopReason.EOS, mask=None):
    """A rollout with these tokens, as likely as the policy has it."""
    prompt_ids = tuple(engine.actor.encode(prompt))
    return Rollout(
        prompt=prompt,
        prompt_ids=prompt_ids,
        completion_ids=ids,
        mask=mask or (True,) * len(ids),
        logps=(-1.0,) * len(ids),
        text="",
        stop=stop,
        group=prompt.id,
        version=engine.version,
    )


@pytest.mark.parametrize("method", ["airl", "gcl", "gail"])
def test_a_discriminator_starts_at_one_half(method, engine):
    source = attached(engine, method=method)
    rollouts = engine.sample(PROMPTS, 8, seed=0)
    assert [score.total for score in source.score(rollouts)] == [0.0] * 16
    found = source.update(rollouts)
    assert found["irl/accuracy_expert"] == found["irl/accuracy_policy"] == 0.5
    assert found["irl/entropy"] == pytest.approx(math.log(2.0), abs=1e-6)
    assert found["irl/gap"] == 0.0
    assert found["irl/steps"] == 3.0
    assert source.update(rollouts)["irl/gap"] > 0.1


def test_log_pi_is_paid_by_the_optimizer_or_by_the_reward(engine):
    rollouts = engine.sample(PROMPTS, 4, seed=0)
    by_kl, by_reward = (attached(engine, pay=pay) for pay in ("kl", "reward"))
    with torch.no_grad():
        for parameter in engine.actor.module.parameters():
            parameter += 0.05  # so that policy and reference differ
    rollouts = engine.sample(PROMPTS, 4, seed=0)
    for source in (by_kl, by_reward):
        source.update(rollouts)
    rows = by_kl._rows(rollouts)
    ratios = [torch.tensor(r.logps) - ref for r, ref in zip(rollouts, engine.logps(rows, "reference"), strict=True)]
    for bare, less, ratio in zip(by_kl.score(rollouts), by_reward.score(rollouts), ratios, strict=True):
        assert less.value == pytest.approx(bare.value - 0.5 * float(ratio.sum()), abs=1e-5)
        assert less.parts["learnt"] == pytest.approx(bare.value, abs=1e-5)
        assert abs(less.parts["log_pi"]) > 1e-3


def test_no_reference_no_log_ratio():
    policy = language()
    bare = Engine(policy, ModelConfig(), sampler=policy, sampling=SamplingConfig(max_new_tokens=4))
    with pytest.raises(ConfigError, match=r"keeps none. Set algorithm.kl.coef to beta \(0.5\)"):
        source_of().attach(bare)
    source_of(method="gail").attach(bare)  # has no use for one


def test_other_choices_are_refused(engine):
    with pytest.raises(ConfigError, match="pay is 'entropy'"):
        source_of(pay="entropy")
    with pytest.raises(ConfigError, match="beta is 0"):
        source_of(beta=0)
    with pytest.raises(ConfigError, match="no demonstrations"):
        TextInverse([])
    with pytest.raises(ConfigError, match="offset is 'estimated'"):
        TextNetSpec(level="token", offset="estimated")
    with pytest.raises(ConfigError, match="dense is true"):
        TextNetSpec(dense=True)
    with pytest.raises(RewardError, match="none is attached"):
        source_of().score(engine.sample(PROMPTS, 1, seed=0))


def test_prompts_without_demonstrations_are_counted(engine):
    source = attached(engine, demonstrations=[(PROMPTS[0], Completion(text="a"))])
    empty = writing(engine, (), stop=StopReason.LENGTH)
    found = source.update([*engine.sample(PROMPTS, 4, seed=0), empty])
    assert (found["irl/unmatched"], found["irl/empty"]) == (4.0, 1.0)
    with pytest.raises(RewardError, match="None of the 4 rollouts has a prompt with a demonstration"):
        source.update(engine.sample(PROMPTS[1:], 4, seed=0))


def test_words_of_an_environment_are_refused(engine):
    told = writing(engine, (1, 2, 3), mask=(True, False, True))
    with pytest.raises(ConfigError, match="words of an environment"):
        attached(engine).score([told])


def test_a_form_with_a_sign_has_a_taste_in_length(engine):
    """The expert always stops at once. Before anything is learnt D is 1/2 everywhere: only the logit says nothing."""
    stop, ramble = writing(engine, (0,)), writing(engine, (1, 2, 1, 2), stop=StopReason.LENGTH)
    paid = {}
    for form in ("neg_log_one_minus_d", "log_d", "logit"):
        source = attached(engine, demonstrations=STOPS, method="gail", form=form, level="token")
        paid[form] = [score.total for score in source.score([stop, ramble])]
    assert paid["neg_log_one_minus_d"] == pytest.approx([math.log(2.0), 4 * math.log(2.0)])  # writes on and on
    assert paid["log_d"] == pytest.approx([-math.log(2.0), -4 * math.log(2.0)])  # stops, whatever the expert does
    assert paid["logit"] == [0.0, 0.0]
    whole = attached(engine, demonstrations=STOPS, method="gail", form="neg_log_one_minus_d")
    assert [s.total for s in whole.score([stop, ramble])] == pytest.approx([math.log(2.0)] * 2)


@pytest.mark.parametrize("level", ["sequence", "token"])
def test_an_expert_that_always_stops_is_understood(level, engine):
    fit = Fit(steps=40, lr=0.05, batch_size=0)
    source = attached(engine, demonstrations=STOPS, fit=fit, level=level)
    source.update(engine.sample(PROMPTS, 32, seed=0))
    stop, ramble = writing(engine, (0,)), writing(engine, (1, 2, 1, 2), stop=StopReason.LENGTH)
    short, long = source.export().score([stop, ramble])
    assert short.value > long.value + 0.2


def test_a_reward_a_token(engine):
    how = {"level": "token", "fit": Fit(steps=5, lr=0.05, batch_size=0)}
    rollouts = engine.sample(PROMPTS, 8, seed=0)
    whole, dense = attached(engine, **how), attached(engine, **how, dense=True)
    for source in (whole, dense):
        source.update(rollouts)
    for one, each, rollout in zip(whole.score(rollouts), dense.score(rollouts), rollouts, strict=True):
        assert [token for token, _ in each.steps] == list(range(len(rollout.completion_ids)))
        assert each.value is None and one.steps == ()
        assert one.value == pytest.approx(each.total, abs=1e-5)
    assert len({round(score.total, 6) for score in whole.score(rollouts)}) > 2


def test_a_discriminator_that_is_too_good_rests(engine):
    fit = Fit(steps=200, lr=0.05, batch_size=0, stop_accuracy=0.9)
    source = attached(engine, demonstrations=[(p, Completion(text="abcabc"[:3])) for p in PROMPTS], fit=fit)
    rollouts = engine.sample(PROMPTS, 16, seed=1)
    found = source.update(rollouts)
    assert found["irl/steps"] < 200
    assert found["irl/accuracy_after"] >= 0.9
    again = source.update(rollouts)
    assert again["irl/steps"] == 0.0
    assert "irl/loss" not in again


def test_demonstrations_are_looked_at_with_the_policy_that_sampled():
    engine = Table(table_of(engine_of(language())))
    truth = world(engine.reference)
    source = source_of(truth.demonstrations(200))
    source.attach(engine)
    rollouts = engine.sample(200)
    source.score(rollouts)  # before the policy learns
    engine.move(truth.expert)  # the policy learns
    source.update(rollouts)
    ids = tuple(engine.actor.encode(PROMPTS[0]))
    looked = source._here().demos.of(ids)
    assert all(float(example.log_ratio.abs().max()) == 0.0 for example in looked)  # as the old policy had them
    source.update(engine.sample(200))
    looked = source._here().demos.of(ids)
    found = [float(e.log_ratio.sum()) for e in looked]
    places = [engine.places[e.row.completion_ids] for e in looked]
    assert found == pytest.approx((truth.expert - truth.reference)[0, places].tolist(), abs=1e-5)


def test_micro_batches_change_nothing(monkeypatch):
    """The gradient, that is: Adam makes much of what rounding leaves of a gradient that is 0."""
    found, outputs = [], []
    for budget in (8, 4096):
        policy = language()
        optim, sampling = ModelConfig(token_budget=budget), SamplingConfig(max_new_tokens=4)
        engine = Engine(policy, optim, sampler=policy, sampling=sampling, reference=True)
        fit = Fit(steps=1, lr=0.01, batch_size=0, gradient_penalty=0.1)
        source = attached(engine, body=body_of(language(seed=3)), fit=fit, hidden=(4,))
        with torch.no_grad():
            for parameter in source.model.net.parameters():
                parameter += 0.1
        rollouts = engine.sample(PROMPTS, 8, seed=0)
        outputs.append([score.total for score in source.score(rollouts)])
        monkeypatch.setattr(source.learner._optimizer, "step", lambda: None)
        source.update(rollouts)
        found.append([p.grad.clone() for p in source.model.parameters if p.grad is not None])
    assert outputs[0] == pytest.approx(outputs[1], abs=1e-5)
    assert len(set(outputs[0])) > 4
    assert len(found[0]) == len(found[1]) > 10
    scale = max(float(g.abs().max()) for g in found[1])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5 * scale, rtol=0)


def test_a_run_goes_on_as_if_nothing_had_happened(engine, tmp_path):
    fit = Fit(steps=2, lr=0.02, batch_size=4, buffer=3, fusion=0.5)
    rounds = [engine.sample(PROMPTS, 6, seed=seed) for seed in range(4)]
    whole, first = (attached(engine, fit=fit, body=body_of(language(seed=3))) for _ in range(2))
    expected = [whole.update(rollouts) for rollouts in rounds]
    for rollouts in rounds[:2]:
        first.update(rollouts)
    save_state(tmp_path / "state", first.state_dict())
    second = attached(engine, fit=fit, body=body_of(language(seed=3)))
    second.load_state_dict(load_state(tmp_path / "state"))
    assert [second.update(rollouts) for rollouts in rounds[2:]] == expected[2:]
    assert second.score(rounds[0]) == whole.score(rounds[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny byte-level model as people have it."""
    path = tmp_path_factory.mktemp("tiny") / "model"
    tokenizer = byte_tokenizer()
    llama(len(tokenizer), layers=2, eos=tokenizer.eos_token_id).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


@pytest.mark.parametrize("net", [{}, {"lora": 2, "layers": 1, "hidden": (4,)}, {"level": "token"}])
def test_what_is_exported_says_the_same_when_loaded(net, folder, tmp_path):
    policy = load(folder, lora=2)
    engine = Engine(policy, ModelConfig(), sampler=policy, sampling=SamplingConfig(max_new_tokens=6), reference=True)
    prompts = [Prompt(id=str(i), text=f"Say {i}:") for i in range(3)]
    source = TextInverse(
        [(p, Completion(text=f" {p.id}!")) for p in prompts], beta=0.2, net=TextNetSpec(**net), fit=FIT
    )
    source.attach(engine)
    rollouts = engine.sample(prompts, 4, seed=0)
    source.update(rollouts)
    export = source.export()
    live = [score.total for score in export.score(rollouts)]
    export.save(tmp_path / "reward")
    loaded = TextReward.load(str(tmp_path / "reward"))
    loaded.attach(engine)
    assert [score.total for score in loaded.score(rollouts)] == live  # bit for bit
    assert len(set(live)) > 3
    if net.get("level") != "token":
        assert live == [score.total for score in source.score(rollouts)]
    named = build([{"kind": "text_reward", "path": str(tmp_path / "reward")}])
    texts = [text_rollout(r.prompt, Completion(text=r.text, finished=r.terminated)) for r in rollouts]
    assert all(math.isfinite(score.total) for score in named.score(texts))
    record = json.loads((tmp_path / "reward" / "text_reward.json").read_text())
    assert (record["beta"], record["method"], record["base"]) == (0.2, "airl", folder)


def test_texts_and_ids_score_alike(folder):
    policy = load(folder, lora=2)
    engine = Engine(policy, ModelConfig(), reference=True)
    prompt = Prompt(id="p", text="Say 1:")
    source = TextInverse([(prompt, Completion(text=" yes"))], net=TextNetSpec(hidden=(4,)), fit=FIT)
    source.attach(engine)
    export = source.export()
    with torch.no_grad():
        for parameter in export.model.net.parameters():
            parameter += 0.1
    text = text_rollout(prompt, Completion(text=" ok"))
    ids = tuple([*policy.tokenizer(" ok", add_special_tokens=False)["input_ids"], policy.tokenizer.eos_token_id])
    token = Rollout(
        prompt=prompt,
        prompt_ids=policy.encode(prompt),
        completion_ids=ids,
        mask=(True,) * len(ids),
        logps=(0.0,) * len(ids),
        text=" ok",
        stop=StopReason.EOS,
        group="p",
    )
    by_text, by_ids = export.score([text, token])
    assert by_text.value == pytest.approx(by_ids.value, abs=1e-6)
    assert by_text.value != 0.0


def test_gail_leaves_nothing_behind(engine):
    source = attached(engine, method="gail")
    with pytest.raises(RewardError, match=r"no reward to keep\. Use method airl or gcl"):
        source.export()


def test_kinds_read_files_and_refuse_unknown_settings(tmp_path, engine):
    path = tmp_path / "demos.jsonl"
    path.write_text("".join(json.dumps({"prompt": p.text, "completion": "ab"}) + "\n" for p in PROMPTS))
    made = build([{"kind": "text_airl", "demonstrations": str(path), "beta": 0.3, "steps": 2, "hidden": [4]}])
    assert (made.log_pi.beta, made.fit.steps, made.net.hidden, made.name) == (0.3, 2, (4,), "text_airl")
    assert [completion.text for _, completion in made.demonstrations] == ["ab", "ab"]
    assert build([{"kind": "text_gail", "demonstrations": str(path), "form": "log_d"}]).form == "log_d"
    assert build([{"kind": "text_gcl", "demonstrations": str(path)}]).method == "gcl"
    with pytest.raises(ConfigError, match=r"no setting 'stepz'.*Did you mean 'steps'"):
        build([{"kind": "text_airl", "demonstrations": str(path), "stepz": 2}])
