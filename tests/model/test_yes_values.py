"""Critics that say probabilities, asked or started from what was trained to judge. The policy feels nothing of them."""

from __future__ import annotations

import logging
import math

import pytest
import torch
from tiny import byte_tokenizer, digit_tokenizer, language_model, llama, moved, random_rows

from prefrl.config import ModelConfig
from prefrl.errors import ConfigError, ModelError
from prefrl.model.critic import Reading, make_critic
from prefrl.model.language import LanguageModel
from prefrl.model.process_model import new_process_model
from prefrl.model.process_record import StepLayout
from prefrl.model.reward_model import new_reward_model
from prefrl.model.yes_probability import YesModel, query_row
from prefrl.model.yes_record import YesRecord
from prefrl.policy.parts import CriticSpec
from prefrl.policy.values import critic_objective
from prefrl.types import Row

RECORD = YesRecord(question="1=0", yes=("1",), no=("0",))
KINDS = ("yes", "process", "reward")
ODDS = math.log(0.3 / 0.7)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """What a critic may start from, trained on the tiny model; the base itself is `base`."""
    root = tmp_path_factory.mktemp("judges")
    language_model(layers=2, seed=3).save(root / "base")
    base = str(root / "base")
    YesModel(language_model(layers=2, seed=3), RECORD).save(root / "yes")
    moved(new_process_model(base, layout=StepLayout(chat=False)).carrier)
    process = new_process_model(base, layout=StepLayout(chat=False))
    moved(process.carrier)
    process.save(root / "process")
    moved(new_reward_model(base)).save(root / "reward")
    return root


def critic_of(kind, policy, folders, *, lr=1e-2, **reading):
    where = "yes" if kind == "yes" else "separate"
    return make_critic(where, policy, lr=lr, base=str(folders / kind), reading=Reading(**reading))


def rows_with_returns(masked=True):
    rows = random_rows({3: 3, 5: 2, 1: 2}, masked=masked)
    for row in rows:
        n = len(row.mask)
        row.streams = {"vf": torch.ones(n) / n, "returns": torch.linspace(0, 1, n), "old_values": torch.zeros(n)}
    return rows


def flat(parts):
    return torch.cat(list(parts))


def test_a_yes_critic_is_the_yes_probability_before_each_token(folders):
    critic = critic_of("yes", language_model(layers=2), folders, low=-1.0, high=1.0)
    row = Row(prompt_ids=(5, 6, 7), completion_ids=(3, 8, 4), mask=(True, False, True))
    asked = YesModel(language_model(layers=2, seed=3), RECORD)
    wanted = [2 * a.probability - 1 for a in asked.ask([query_row((5, 6, 7), (3, 8, 4), [0, 2])])[0]]
    (values,) = critic.values([row])
    assert values[[0, 2]].tolist() == pytest.approx(wanted, abs=1e-6)
    assert values[1] == 0.0


def test_histories_that_leave_no_position_for_the_question_are_refused(tmp_path):
    few = LanguageModel(llama(14, max_position_embeddings=24), digit_tokenizer(), name="few")
    YesModel(few, RECORD).save(tmp_path / "few")
    critic = make_critic("yes", few, lr=1e-2, base=str(tmp_path / "few"))
    room = critic.engine.actor.asked.most_tokens(99)
    assert 2 < room < 24

    def row(size):  # of the history before its last token
        return Row(prompt_ids=(5, 6), completion_ids=(3,) * (size - 1), mask=(True,) * (size - 1))

    assert len(critic.values([row(room)])[0]) == room - 1
    with pytest.raises(ConfigError, match=rf"few has room for histories of {room} tokens.*some of {room + 1}\. Lower"):
        critic.values([row(room), row(room + 1)])


def test_a_process_model_is_read_at_the_last_token_of_the_history(folders):
    """The first history is the prompt alone; probabilities by the plain model."""
    critic = critic_of("process", language_model(layers=2), folders, low=1.0, high=3.0)
    scorer = critic.engine.actor.process.carrier
    ids = torch.tensor([[5, 6, 7, 3, 8, 4]])
    with torch.no_grad():
        p = scorer.head(scorer.decoder(input_ids=ids, use_cache=False).last_hidden_state[0]).sigmoid().squeeze(-1)
    (values,) = critic.values([Row(prompt_ids=(5, 6, 7), completion_ids=(3, 8, 4), mask=(True, True, True))])
    assert values.tolist() == pytest.approx((1 + 2 * p[2:5]).tolist(), abs=1e-5)


@pytest.mark.parametrize("aggregate", ["min", "product"])
def test_earlier_steps_count_as_asked_for(aggregate, folders):
    row = Row(prompt_ids=(5, 6, 7), completion_ids=(3, 8, 4, 9, 2), mask=(True,) * 5)
    last, joined = (
        critic_of("process", language_model(layers=2), folders, aggregate=how).values([row])[0].tolist()
        for how in ("last", aggregate)
    )
    assert joined[0] == pytest.approx(last[0])  # of the prompt alone: no step yet
    for i in range(1, 5):
        wanted = min(last[1 : i + 1]) if aggregate == "min" else math.prod(last[1 : i + 1])
        assert joined[i] == pytest.approx(wanted, abs=1e-6)


def test_a_reward_model_keeps_its_head(folders):
    critic = critic_of("reward", language_model(layers=2), folders)
    scorer = critic.engine.actor.scorer
    assert scorer.head.weight.any()
    rows = rows_with_returns(masked=False)
    with torch.no_grad():
        ends = [Row(prompt_ids=r.prompt_ids, completion_ids=r.completion_ids, mask=r.mask) for r in rows]
        scores = scorer.token_outputs(ends).split([len(r.mask) for r in rows])
    for values, own in zip(critic.values(rows), scores, strict=True):
        torch.testing.assert_close(values[1:], own[:-1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_policy_feels_nothing_of_the_values_loss(kind, folders):
    policy, rows = language_model(layers=2), rows_with_returns()
    before = {name: p.detach().clone() for name, p in policy.module.named_parameters()}
    critic = critic_of(kind, policy, folders)
    own = {id(p) for p in critic.engine.actor.module.parameters()}
    assert not own & {id(p) for p in policy.module.parameters()}
    (critic.engine.actor.token_outputs(rows) ** 2).sum().backward()
    assert all(p.grad is None for p in policy.module.parameters())  # exactly 0: it is not in the graph
    losses = [critic.step(rows, lambda b: critic_objective(b, CriticSpec(clip=0.0)))["loss"] for _ in range(20)]
    assert losses[-1] < losses[0]
    assert all(torch.equal(before[name], p) for name, p in policy.module.named_parameters())


def test_a_yes_critic_without_a_base_is_a_copy_of_the_policy():
    """Of what it trains, too; neither moves with the other."""
    tokenizer = digit_tokenizer()
    tokenizer.add_tokens(["yes", "no"])
    policy = LanguageModel(llama(len(tokenizer), layers=2), tokenizer, name="tiny")
    policy.module.requires_grad_(False)
    policy.module.get_decoder().layers[1].requires_grad_(True)
    critic = make_critic("yes", policy, lr=1e-2, reading=Reading(question="1="))
    trained = {n for n, p in critic.engine.actor.module.named_parameters() if p.requires_grad}
    assert trained == {n for n, p in policy.module.named_parameters() if p.requires_grad}
    rows = rows_with_returns()
    first, logps = flat(critic.values(rows)), policy.token_outputs(rows).detach()
    critic.step(rows, lambda b: critic_objective(b, CriticSpec(clip=0.0)))
    assert not torch.equal(flat(critic.values(rows)), first)
    assert torch.equal(policy.token_outputs(rows), logps)


@pytest.mark.parametrize("loss", ["mse", "bce"])
@pytest.mark.parametrize("kind", ["yes", "process"])
def test_ten_samples_with_three_1s(kind, loss, folders):
    """Squared error costs .30 at .6 and .21 at .3; the cross-entropy is lowest at .3 too, at .611 nats."""
    critic = critic_of(kind, language_model(layers=2), folders, lr=2e-2)
    spec = CriticSpec(kind="yes", loss=loss, clip=0.0)
    rows = [
        Row(
            prompt_ids=(5, 6, 7),
            completion_ids=(i % 2,),
            mask=(True,),
            streams={
                "vf": torch.tensor([0.1]),
                "returns": torch.tensor([float(i < 3)]),
                "old_values": torch.tensor([0.0]),
            },
        )
        for i in range(10)
    ]
    losses = [critic.step(rows, lambda batch: critic_objective(batch, spec))["loss"] for _ in range(120)]
    assert flat(critic.values(rows)).tolist() == pytest.approx([0.3] * 10, abs=1e-2)
    assert losses[-1] == pytest.approx(0.21 if loss == "mse" else 0.610864, abs=1e-3)


def test_what_a_critic_may_not_start_from(folders, tmp_path):
    policy = language_model(layers=2)
    marked = new_process_model(str(folders / "base"), layout=StepLayout(chat=False, marker="="))
    marked.save(tmp_path / "marked")
    with pytest.raises(ModelError, match="which a policy does not write"):
        make_critic("separate", policy, lr=1e-3, base=str(tmp_path / "marked"))
    tokenizer = byte_tokenizer()
    other = LanguageModel(llama(len(tokenizer)), tokenizer, name="bytes")
    kinds = (("process", "separate"), ("reward", "separate"), ("base", "separate"), ("yes", "yes"))
    for kind, critic in kinds:
        with pytest.raises(ModelError, match="has another vocabulary than the policy"):
            make_critic(critic, other, lr=1e-3, base=str(folders / kind))
    with pytest.raises(ConfigError, match="was trained to answer '1=0'"):
        make_critic("yes", policy, lr=1e-3, base=str(folders / "yes"), reading=Reading(question="2=0"))


def test_only_the_top_layers_of_a_process_model_are_trained(folders):
    optim = ModelConfig(top_layers=1)
    critic = make_critic("separate", language_model(layers=2), lr=1e-3, base=str(folders / "process"), optim=optim)
    names = [n for n, p in critic.engine.actor.module.named_parameters() if p.requires_grad]
    assert {n.split(".")[2] for n in names if "layers" in n} == {"1"}
    assert "score.weight" in names


@pytest.mark.parametrize("kind", KINDS)
def test_a_critic_that_was_saved_can_be_started_from(kind, folders, tmp_path):
    policy, rows = language_model(layers=2), rows_with_returns()
    critic = critic_of(kind, policy, folders)
    critic.step(rows, lambda b: critic_objective(b, CriticSpec(clip=0.0)))
    critic.save(tmp_path / kind)
    again = make_critic("yes" if kind == "yes" else "separate", policy, lr=1e-3, base=str(tmp_path / kind))
    torch.testing.assert_close(flat(again.values(rows)), flat(critic.values(rows)), atol=1e-6, rtol=0)


def test_a_low_mass_is_said_once_and_reported(folders, caplog):
    critic, rows = critic_of("yes", language_model(layers=2), folders), rows_with_returns()
    with caplog.at_level(logging.WARNING, logger="prefrl.model"):
        critic.values(rows)
        metrics = critic.step(rows, lambda b: critic_objective(b, CriticSpec(clip=0.0)))
    assert 0.0 < metrics["yesno_mass"] < 0.5  # two of sixteen tokens, hardly trained
    assert len(caplog.records) == 1 and "below 0.50" in caplog.text
