"""Implicit process rewards: log-ratios that sum to the log-odds of the outcome, learnt from outcomes alone."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tiny import byte_tokenizer, digit_tokenizer, language_model, llama, moved, rollout

from prefrl.config import ModelConfig
from prefrl.errors import ConfigError, ModelError
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.model.process_implicit import ImplicitModel, implicit_objective
from prefrl.rewards.base import attach
from prefrl.rewards.functions import function
from prefrl.rewards.implicit import ImplicitProcess
from prefrl.rewards.specs import build
from prefrl.types import Batch, Prompt, Rollout, Row, StopReason

BETA = 0.5


def trained(seed=0):
    """phi away from its reference."""
    model = ImplicitModel(language_model(seed=seed), beta=BETA, separator=",", lr=0.02)
    moved(SimpleNamespace(module=model.model.module, activate=lambda: None), 0.3)
    return model


def digits(text, *, prompt=(5, 6), stop=StopReason.LENGTH, group="g"):
    tokenizer = digit_tokenizer()
    ids = tuple(tokenizer(text)["input_ids"])
    return rollout(ids, text=text, prompt_ids=prompt, stop=stop, group=group)


def test_token_rewards_are_scaled_log_ratios_at_sampled_tokens():
    model = trained()
    one = rollout((7, 8, 9), mask=(True, False, True))
    row = Row(prompt_ids=one.prompt_ids, completion_ids=one.completion_ids, mask=one.mask)
    live, start = (model.engine.logps([row], who)[0] for who in ("policy", "reference"))
    (score,) = ImplicitProcess(model).score([one])
    assert [at for at, _ in score.steps] == [0, 2]
    assert [r for _, r in score.steps] == pytest.approx((BETA * (live - start))[[0, 2]].tolist(), abs=1e-6)
    assert abs(score.steps[0][1]) > 1e-3
    assert score.parts["probability"] == pytest.approx(1 / (1 + math.exp(-score.total)), abs=1e-6)


def test_a_fresh_model_pays_nothing():
    (score,) = ImplicitProcess(ImplicitModel(language_model())).score([rollout((7, 8))])
    assert score.total == pytest.approx(0.0, abs=1e-6) and score.parts["probability"] == pytest.approx(0.5)


def test_steps_hold_the_sums_of_their_tokens():
    model = trained()
    one = digits("12,34,5")
    tokens = dict(ImplicitProcess(model).score([one])[0].steps)
    (score,) = ImplicitProcess(model, granularity="step").score([one])
    assert [at for at, _ in score.steps] == [2, 5, 6]  # the unfinished step is paid too: its tokens were sampled
    wanted = [sum(tokens[at] for at in span) for span in (range(3), range(3, 6), range(6, 7))]
    assert [r for _, r in score.steps] == pytest.approx(wanted, abs=1e-6)
    whole = ImplicitProcess(model, granularity="sequence").score([one])[0]
    assert whole.value == pytest.approx(sum(wanted), abs=1e-6) and not whole.steps


def test_a_rollout_whose_steps_are_not_found_is_an_error_of_its_own():
    good = digits("12,34,5")
    scores = ImplicitProcess(trained(), granularity="step").score([good, replace(good, text="98,76,5")])
    assert scores[0].ok and "does not give the text" in scores[1].error


def test_a_text_gets_the_sum():
    model = trained()
    text = Rollout(
        prompt=Prompt(id="g", text="12"),
        completion_ids=(),
        mask=(),
        logps=(),
        text="34",
        stop=StopReason.EOS,
        group="g",
    )
    tokenizer = digit_tokenizer()
    same = rollout(tuple(tokenizer("34<eos>")["input_ids"]), prompt_ids=tuple(tokenizer("12")["input_ids"]))
    source = ImplicitProcess(model)
    assert source.score([text])[0].value == pytest.approx(source.score([same])[0].total, abs=1e-6)


def test_the_loss_is_the_cross_entropy_of_the_sigmoid_of_the_sum():
    logps = torch.tensor([-1.0, -2.0, -0.5], dtype=torch.float64, requires_grad=True)
    zeros = dict.fromkeys(("side", "atom", "margin", "tie", "annotator", "rank"), torch.zeros(2))
    batch = Batch(
        outputs=logps,
        row=torch.tensor([0, 0, 1]),
        streams={"ref_logps": torch.tensor([-1.5, -1.0, -2.5], dtype=torch.float64)},
        label=torch.tensor([1.0, 0.25], dtype=torch.float64),
        weight=torch.tensor([0.5, 0.5], dtype=torch.float64),
        **zeros,
    )
    loss, sums = implicit_objective(batch, BETA)
    p = [1 / (1 + math.exp(0.25)), 1 / (1 + math.exp(-1.0))]  # sums of -.5 and 2, times beta
    wanted = 0.5 * (-math.log(p[0])) + 0.5 * (-0.25 * math.log(p[1]) - 0.75 * math.log(1 - p[1]))
    assert float(loss.detach()) == pytest.approx(wanted)
    loss.backward()
    assert logps.grad.tolist() == pytest.approx(
        [0.5 * BETA * (p[0] - 1), 0.5 * BETA * (p[0] - 1), 0.5 * BETA * (p[1] - 0.25)]
    )
    assert float(sums["accuracy"][0]) == 0.0


def test_micro_batches_change_nothing():
    rollouts = [digits(text, group=str(i)) for i, text in enumerate(["12,3", "4", "5,6,7", "89", "1"])]
    whole, parts = (
        ImplicitProcess(ImplicitModel(language_model(), beta=BETA, token_budget=budget)).fit(
            rollouts, [1.0, 0.0, 1.0, 0.0, 1.0]
        )
        for budget in (4096, 8)
    )
    assert whole["grad_norm"] > 0
    assert whole["loss"] == pytest.approx(math.log(2), abs=1e-5)  # a mean over rollouts, each at even odds
    assert parts == pytest.approx(whole, rel=1e-5)


def test_it_learns_outcomes_and_then_says_which_tokens_made_them():
    """Right answers contain a 7 (token 10); only outcomes are told, and the 7 gets the reward."""
    model = ImplicitModel(language_model(layers=1), beta=BETA, lr=0.01)
    outcome = function(lambda completion, **_: float("7" in completion), name="seven")
    source = ImplicitProcess(model, outcome=outcome)
    texts = ["1273", "7454", "1244", "3312", "4721", "2115", "5571", "1513"]
    rollouts = [digits(text, group=text) for text in texts]
    first = source.update(rollouts, [])
    for _ in range(30):
        last = source.update(rollouts, [])
    assert first["implicit_process/nll"] == pytest.approx(math.log(2), abs=1e-5)
    assert last["implicit_process/nll"] < 0.3 and last["implicit_process/accuracy"] == 1.0
    rewards = [r for _, r in source.score([digits("3472")])[0].steps]
    assert rewards.index(max(rewards)) == 2


def test_an_outcome_that_fails_leaves_its_rollout_out():
    def outcome(completion, **_):
        return None if completion == "1" else 1.0

    source = ImplicitProcess(ImplicitModel(language_model()), outcome=function(outcome, name="flaky"))
    metrics = source.update([digits("1"), digits("2")], [])
    assert metrics["implicit_process/unjudged"] == 1.0 and "implicit_process/nll" in metrics
    assert "implicit_process/nll" not in ImplicitProcess(ImplicitModel(language_model())).update([digits("1")], [])


def test_the_state_holds_what_was_learnt():
    source = ImplicitProcess(trained())
    state = source.state_dict()
    other = ImplicitProcess(ImplicitModel(language_model(), beta=BETA))
    other.load_state_dict(state)
    one = rollout((7, 8, 9))
    assert other.score([one])[0].total == pytest.approx(source.score([one])[0].total, abs=1e-6)
    assert abs(source.score([one])[0].total) > 1e-3


def test_a_trained_phi_is_compared_with_what_it_was_trained_from():
    phi = trained()
    again = ImplicitModel(phi.model, reference=language_model(), beta=BETA)
    one = rollout((7, 8, 9))
    both = [ImplicitProcess(model).score([one])[0].total for model in (phi, again)]
    assert both[0] == pytest.approx(both[1], abs=1e-6)


def test_another_vocabulary_is_refused():
    tokenizer = byte_tokenizer()
    other = LanguageModel(llama(len(tokenizer)), tokenizer, name="bytes")
    with pytest.raises(ModelError, match="tiny and its reference bytes have different vocabularies"):
        ImplicitModel(language_model(), reference=other)
    source = ImplicitProcess(ImplicitModel(language_model()))
    with pytest.raises(ConfigError, match="tiny has another vocabulary"):
        attach(source, Engine(other, ModelConfig()))
    attach(source, Engine(language_model(), ModelConfig()))


def test_empty_rollouts_and_wrong_settings():
    source = ImplicitProcess(ImplicitModel(language_model()))
    empty = replace(rollout((1,)), completion_ids=(), mask=(), logps=())
    assert source.score([empty])[0].error == "no sampled token to score"
    with pytest.raises(ConfigError, match=r"granularity is 'tokens'.*Did you mean 'token'"):
        ImplicitProcess(source.model, granularity="tokens")
    with pytest.raises(ConfigError, match=r"beta=0\.0"):
        build([{"kind": "implicit_process", "path": "x", "beta": 0.0}])
