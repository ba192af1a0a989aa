"""Critics judge the history before a token, learn nothing but their own weights, and leave the policy as it was."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from tiny import digit_tokenizer, language_model, llama, random_rows
from torch import nn
from transformers import AutoModelForSequenceClassification

from prefrl.config import ModelConfig
from prefrl.errors import ModelError
from prefrl.model.control import ControlPolicy
from prefrl.model.critic import Critic, ValueModel, load_value_model, make_critic, new_value_model
from prefrl.model.load import add_lora, load
from prefrl.model.reward_model import new_reward_model
from prefrl.types import Row

LANGUAGE, CONTROL = ("separate", "head", "lora"), ("control separate", "control head")
SIZE = len(digit_tokenizer())


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder with a tiny causal language model."""
    folder = tmp_path_factory.mktemp("critic") / "base"
    language_model(layers=2, seed=3).save(folder)
    return str(folder)


def policy_for(kind, seed=0):
    """A policy that can have a critic of the kind, with weights away from where they start."""
    if "control" in kind:
        torch.manual_seed(seed)
        return ControlPolicy(3, 2, SimpleNamespace)
    if kind != "lora":
        return language_model(layers=2, seed=seed)
    policy = language_model(add_lora(llama(SIZE, layers=2, seed=seed), 4, seed))
    shaken(policy.module, 0.1)
    return policy


def critic_for(kind, policy, *, lr=1e-2, shake=True, **more):
    critic = make_critic(kind.split()[-1], policy, lr=lr, **more)
    if shake:
        shaken(critic.engine.actor.module, 0.2)
    return critic


def shaken(module, size):
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter += size * torch.randn(parameter.shape, generator=generator)


def rows_for(kind, masked=False):
    """Ragged rows, some with a prompt in common."""
    rows = random_rows({3: 3, 5: 2, 1: 2, 4: 1}, masked=masked)
    if "control" in kind:
        generator = torch.Generator().manual_seed(1)
        for row in rows:
            row.prompt_ids = ()
            row.completion_ids = tuple(token % 2 for token in row.completion_ids)
            row.observations = torch.randn(len(row.mask), 3, generator=generator)
    return rows


def with_token(row, place, token):
    ids = list(row.completion_ids)
    ids[place] = token
    return Row(prompt_ids=row.prompt_ids, completion_ids=tuple(ids), mask=row.mask, observations=row.observations)


def squared(batch):
    """The value loss: sum of vf * (V - returns)^2."""
    return (batch.streams["vf"] * (batch.outputs - batch.streams["returns"]) ** 2).sum(), {}


def frozen(module):
    """All there is to see of a module's parameters."""
    return {
        name: (p.detach().clone(), p.requires_grad, None if p.grad is None else p.grad.clone())
        for name, p in module.named_parameters()
    }


def assert_untouched(module, before):
    after = frozen(module)
    assert after.keys() == before.keys()
    for name, (value, flag, grad) in before.items():
        assert torch.equal(after[name][0], value), name
        assert after[name][1] == flag, name
        assert (grad is None) == (after[name][2] is None), name
        assert grad is None or torch.equal(after[name][2], grad), name


def flat(parts):
    return torch.cat(list(parts))


@pytest.mark.parametrize("kind", [*LANGUAGE, *CONTROL])
def test_values_start_at_0(kind):
    critic = critic_for(kind, policy_for(kind), shake=False)
    assert not flat(critic.values(rows_for(kind))).any()


@pytest.mark.parametrize("kind", [*LANGUAGE, *CONTROL])
def test_the_value_is_the_mean_return(kind):
    """Ten samples with three 1s: predicting .6 costs .30, the optimum .3 costs .21."""
    critic = critic_for(kind, policy_for(kind), lr=2e-2, shake=False)
    row = rows_for(kind)[0]
    rows = [
        Row(
            prompt_ids=row.prompt_ids,
            completion_ids=(i % 2,),  # what is done next cannot be known before
            mask=(True,),
            streams={"vf": torch.tensor([0.1]), "returns": torch.tensor([float(i < 3)])},
            observations=None if row.observations is None else row.observations[:1],
        )
        for i in range(10)
    ]
    at_06 = SimpleNamespace(
        outputs=torch.full((10,), 0.6), streams={n: flat(r.streams[n] for r in rows) for n in ("vf", "returns")}
    )
    assert float(squared(at_06)[0]) == pytest.approx(0.30)
    losses = [critic.step(rows, squared)["loss"] for _ in range(100)]
    assert losses[0] == pytest.approx(0.30)  # at 0, as far on the other side
    assert losses[-1] == pytest.approx(0.21, abs=1e-4)
    assert flat(critic.values(rows)).tolist() == pytest.approx([0.3] * 10, abs=1e-2)


@pytest.mark.parametrize("kind", LANGUAGE)
def test_a_value_knows_what_came_before_the_token_and_no_more(kind):
    critic = critic_for(kind, policy_for(kind))
    row = Row(prompt_ids=(5, 6, 7), completion_ids=(3, 8, 4, 9, 2), mask=(True,) * 5)
    (values,) = critic.values([row])
    for place in range(5):
        (changed,) = critic.values([with_token(row, place, 11)])
        torch.testing.assert_close(changed[: place + 1], values[: place + 1], atol=1e-6, rtol=0)
        assert (changed[place + 1 :] - values[place + 1 :]).abs().gt(1e-4).all()


@pytest.mark.parametrize("kind", CONTROL)
def test_the_value_of_an_observation(kind):
    critic = critic_for(kind, policy_for(kind))
    row = rows_for(kind)[0]
    n = len(row.mask)
    (values,) = critic.values([row])
    for place in range(n):
        other = Row(
            prompt_ids=(), completion_ids=row.completion_ids, mask=row.mask, observations=row.observations.clone()
        )
        other.observations[place] += 1.0
        (changed,) = critic.values([other])
        assert torch.nonzero((changed - values).abs() > 1e-4).flatten().tolist() == [place]


def parts(kind, policy, critic):
    """The decoder and the head that values come from; with LoRA, of a policy that is given the critic's adapter."""
    actor = critic.engine.actor
    if kind == "separate":
        return actor.scorer.model.model, actor.scorer.model.score
    if kind == "head":
        return policy.decoder, actor.module
    other = copy.deepcopy(policy)
    trained = [p for p in other.decoder.parameters() if p.requires_grad]
    for parameter, weight in zip(trained, actor.module["adapter"], strict=True):
        parameter.data = weight.data
    return other.decoder, actor.module["head"]


@pytest.mark.parametrize("kind", LANGUAGE)
def test_values_by_hand(kind):
    row = Row(prompt_ids=(5, 6, 7), completion_ids=(3, 8, 4), mask=(True, False, True))
    policy = policy_for(kind)
    critic = critic_for(kind, policy)
    decoder, head = parts(kind, policy, critic)
    ids = torch.tensor([[5, 6, 7, 3, 8, 4]])
    with torch.no_grad():  # at the last token of the prompt, and at the second of the completion
        wanted = head(decoder(input_ids=ids, use_cache=False).last_hidden_state[0, [2, 4]]).squeeze(-1)
    (values,) = critic.values([row])
    torch.testing.assert_close(values[[0, 2]], wanted, atol=1e-5, rtol=0)
    assert values[1] == 0.0
    assert wanted.abs().gt(1e-3).all()


@pytest.mark.parametrize("kind", LANGUAGE)
@pytest.mark.parametrize("masked", [False, True])
def test_shared_prompts_and_padded_rows_give_the_same_values_and_gradients(kind, masked, monkeypatch):
    critic, rows = critic_for(kind, policy_for(kind)), rows_for(kind, masked)
    actor = critic.engine.actor

    def both():
        values = actor.token_outputs(rows)
        parameters = [p for p in actor.module.parameters() if p.requires_grad]
        return values.detach(), torch.autograd.grad((values**2).sum(), parameters)

    assert actor.shares_prompts
    together = both()
    monkeypatch.setattr("prefrl.model.kernel.cache_is_shareable", lambda decoder: False)
    apart = both()
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-4)
    one_by_one = flat(actor.token_outputs([row]).detach() for row in rows)
    torch.testing.assert_close(one_by_one, apart[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", [*LANGUAGE, *CONTROL])
def test_observation_tokens_have_no_value(kind):
    critic, rows = critic_for(kind, policy_for(kind)), rows_for(kind, masked=True)
    taken = []
    head = [m for m in critic.engine.actor.module.modules() if isinstance(m, nn.Linear)][-1]
    head.register_forward_pre_hook(lambda _, inputs: taken.append(len(inputs[0])))
    for row, values in zip(rows, critic.values(rows), strict=True):
        mask = torch.tensor(row.mask)
        assert values.shape == mask.shape
        assert not values[~mask].any()
        assert values[mask].all()
    scored = sum(sum(row.mask) for row in rows)
    assert sum(taken) == scored < sum(len(row.mask) for row in rows)

    def after(masked_out):
        one = critic_for(kind, policy_for(kind))
        for row in rows:
            mask = torch.tensor(row.mask)
            row.streams = {"vf": torch.ones(len(mask)), "returns": torch.where(mask, 1.0, masked_out)}
        loss = one.step(rows, squared)["loss"]
        return loss, flat(one.values(rows))

    (loss, values), (other_loss, other_values) = after(0.0), after(1e6)
    assert loss == other_loss
    assert torch.equal(values, other_values)


@pytest.mark.parametrize("kind", [*LANGUAGE, *CONTROL])
def test_the_value_after_the_last_token_comes_from_one_more(kind):
    critic, rows = critic_for(kind, policy_for(kind)), rows_for(kind)
    last = torch.ones(1, 3)

    def longer(row, *tokens):
        return Row(
            prompt_ids=row.prompt_ids,
            completion_ids=(*row.completion_ids, *tokens),
            mask=(*row.mask, *(True,) * len(tokens)),
            observations=None if row.observations is None else torch.cat([row.observations, *[last] * len(tokens)]),
        )

    values = critic.values(rows)
    with_dummy = critic.values([longer(row, 0) for row in rows])
    goes_on = critic.values([longer(row, 1, 0) for row in rows])
    for short, dummy, long in zip(values, with_dummy, goes_on, strict=True):
        torch.testing.assert_close(dummy[:-1], short, atol=1e-5, rtol=0)
        torch.testing.assert_close(dummy, long[:-1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", [*LANGUAGE, *CONTROL])
def test_learning_values_touches_nothing_of_the_policy(kind):
    policy, rows = policy_for(kind), rows_for(kind, masked=True)
    for row in rows:
        row.streams = {"vf": torch.ones(len(row.mask)), "returns": torch.linspace(0, 1, len(row.mask))}
    policy.token_outputs(rows).sum().backward()  # gradients that wait for the policy's own update
    before, logps = frozen(policy.module), policy.token_outputs(rows).detach()
    critic = critic_for(kind, policy)
    assert_untouched(policy.module, before)
    first = flat(critic.values(rows))
    losses = [critic.step(rows, squared)["loss"] for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]
    assert not torch.equal(flat(critic.values(rows)), first)
    assert_untouched(policy.module, before)
    assert torch.equal(policy.token_outputs(rows), logps)

    policy.module.zero_grad()
    (critic.engine.actor.token_outputs(rows) ** 2).sum().backward()
    assert all(p.grad is None for p in policy.module.parameters())


def test_the_adapter_of_the_policy_stays_in_place():
    policy, rows = policy_for("lora"), rows_for("lora")
    logps, trained = (
        policy.token_outputs(rows).detach(),
        [n for n, p in policy.module.named_parameters() if p.requires_grad],
    )
    critic = critic_for("lora", policy)
    actor = critic.engine.actor
    values = actor.token_outputs(rows)
    assert torch.equal(policy.token_outputs(rows), logps)  # before the gradient of the values is taken
    values.sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in actor.module.parameters())
    assert all(p.grad is None for p in policy.module.parameters())

    def stop(*_):
        raise KeyboardInterrupt

    hook = policy.decoder.layers[1].register_forward_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        actor.token_outputs(rows)
    hook.remove()
    assert torch.equal(policy.token_outputs(rows), logps)
    assert [n for n, p in policy.module.named_parameters() if p.requires_grad] == trained
    assert policy.model.active_adapter == "default"
    assert list(policy.model.peft_config) == ["default"]


def test_the_value_adapter_learns_apart_from_the_policys():
    policy, rows = policy_for("lora"), rows_for("lora")
    critic = critic_for("lora", policy)
    values = flat(critic.values(rows))
    shaken(policy.module, 0.3)
    assert torch.equal(flat(critic.values(rows)), values)


def test_a_head_follows_the_policy():
    policy, rows = policy_for("head"), rows_for("head")
    critic = critic_for("head", policy)
    values = flat(critic.values(rows))
    shaken(policy.module, 0.1)
    assert not torch.allclose(flat(critic.values(rows)), values, atol=1e-3)


def test_a_separate_network_starts_from_the_policys_body():
    """With a LoRA adapter merged in: its states are those of the policy."""
    for kind in ("separate", "lora"):
        policy = policy_for(kind)
        critic = critic_for("separate", policy, shake=False)
        ids = torch.tensor([[5, 6, 7, 3]])
        with torch.no_grad():
            wanted = policy.decoder(input_ids=ids, use_cache=False).last_hidden_state
            got = critic.engine.actor.scorer.decoder(input_ids=ids, use_cache=False).last_hidden_state
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)
        assert all(p.requires_grad for p in critic.engine.actor.module.parameters())


def test_what_of_a_separate_network_is_trained(base):
    def trained(**settings):
        critic = make_critic("separate", load(base), lr=1e-3, optim=ModelConfig(**settings))
        assert critic.engine.optim.lr == 1e-3
        return [n for n, p in critic.engine.actor.module.named_parameters() if p.requires_grad]

    assert {n.split(".")[2] for n in trained(top_layers=1) if "layers" in n} == {"1"}
    assert "score.weight" in trained(top_layers=1)
    assert all("lora_" in n or "score" in n for n in trained(lora=2))


def test_the_policy_saves_its_own_adapter_alone(base, tmp_path):
    policy = load(base, lora=2)
    policy.save(tmp_path / "before")
    critic_for("lora", policy)
    policy.save(tmp_path / "after")

    def files(folder):
        return {p.name: p.read_bytes() for p in (tmp_path / folder).rglob("*") if p.is_file()}

    assert files("before") == files("after")


@pytest.mark.parametrize("kind", ["head", "lora", *CONTROL])
def test_round_trip(kind, tmp_path):
    policy, rows = policy_for(kind), rows_for(kind)
    critic = critic_for(kind, policy)
    critic.save(tmp_path / "critic")
    again = critic_for(kind, policy, shake=False)
    assert not flat(again.values(rows)).any()
    again.engine.actor.load(tmp_path / "critic")
    assert torch.equal(flat(again.values(rows)), flat(critic.values(rows)))


@pytest.mark.parametrize("settings", [{}, {"lora": 2}], ids=str)
def test_round_trip_of_a_separate_network(base, settings, tmp_path):
    rows = rows_for("separate")
    critic = critic_for("separate", load(base), base=base, optim=ModelConfig(**settings))
    critic.save(tmp_path / "critic")
    again = Critic(load_value_model(str(tmp_path / "critic")), ModelConfig())
    torch.testing.assert_close(flat(again.values(rows)), flat(critic.values(rows)), atol=1e-6, rtol=0)
    assert flat(critic.values(rows)).any()


def test_a_copy_loads_in_transformers(tmp_path):
    policy, rows = policy_for("separate"), rows_for("separate")
    policy.tokenizer.pad_token = "<eos>"
    critic = critic_for("separate", policy)
    critic.save(tmp_path / "critic")
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "critic").eval()
    for row in rows:
        dummy = Row(prompt_ids=row.prompt_ids, completion_ids=(*row.completion_ids, 0), mask=(*row.mask, True))
        (values,) = critic.values([dummy])
        with torch.no_grad():
            score = theirs(input_ids=torch.tensor([[*row.prompt_ids, *row.completion_ids]])).logits.item()
        assert values[-1].item() == pytest.approx(score, abs=1e-5)
    assert policy.tokenizer.pad_token == "<eos>"  # the critic's own is another


def test_a_saved_value_adapter_is_an_adapter_of_peft(base, tmp_path):
    policy, rows = load(base, lora=2), rows_for("lora")
    critic = critic_for("lora", policy)
    critic.save(tmp_path / "critic")
    theirs = load(str(tmp_path / "critic"))  # as peft loads it on the base it names
    head = critic.engine.actor.module["head"]
    for row, values in zip(rows, critic.values(rows), strict=True):
        ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
        with torch.no_grad():
            hidden = theirs.decoder(input_ids=ids, use_cache=False).last_hidden_state[0]
            wanted = head(hidden[len(row.prompt_ids) - 1 : -1]).squeeze(-1)
        torch.testing.assert_close(values, wanted, atol=1e-5, rtol=0)


def test_a_trained_reward_model_is_a_critic(base, tmp_path):
    scorer = new_reward_model(base)
    shaken(scorer.module, 0.1)
    scorer.save(tmp_path / "rm")
    critic = Critic(load_value_model(str(tmp_path / "rm")), ModelConfig())
    for row in rows_for("separate"):
        dummy = Row(prompt_ids=row.prompt_ids, completion_ids=(*row.completion_ids, 0), mask=(*row.mask, True))
        ends = Row(prompt_ids=row.prompt_ids, completion_ids=row.completion_ids, mask=(*row.mask[:-1], True))
        with torch.no_grad():
            scores = scorer.token_outputs([ends])
        torch.testing.assert_close(critic.values([dummy])[0][1:], scores, atol=1e-5, rtol=0)


def test_the_seed_is_that_of_the_initialisation(base):
    def weights(kind, seed):
        policy = policy_for(kind) if "control" in kind else load(base)
        critic = critic_for(kind, policy, shake=False, seed=seed, optim=ModelConfig(lora=0 if "control" in kind else 2))
        return flat(p.detach().flatten() for p in critic.engine.actor.module.parameters())

    for kind in ("control separate", "separate"):
        assert torch.equal(weights(kind, 1), weights(kind, 1))
        assert not torch.equal(weights(kind, 1), weights(kind, 2))


def test_making_a_critic_draws_no_random_number_of_others():
    for kind in (*LANGUAGE, *CONTROL):
        policy = policy_for(kind)
        torch.manual_seed(5)
        critic_for(kind, policy, shake=False)
        drawn = torch.rand(3)
        torch.manual_seed(5)
        assert torch.equal(torch.rand(3), drawn), kind


def test_what_cannot_be_is_refused(base, tmp_path):
    with pytest.raises(ModelError, match=r"tiny has no LoRA adapter.*Set policy.lora to a rank such as 16, or choose"):
        make_critic("lora", policy_for("head"), lr=1e-3)
    with pytest.raises(
        ModelError, match=r"'hed'; valid for a LanguageModel: separate, head, lora, yes. Did you mean 'head'"
    ):
        make_critic("hed", policy_for("head"), lr=1e-3)
    with pytest.raises(ModelError, match=r"'lora'; valid for a ControlPolicy: separate, head\."):
        make_critic("lora", policy_for("control"), lr=1e-3)
    with pytest.raises(ModelError, match="No critic is known for a str; expected a LanguageModel or a ControlPolicy"):
        make_critic("head", "policy", lr=1e-3)
    head = critic_for("head", policy_for("head"))
    with pytest.raises(ModelError, match="No critic can be read from"):
        head.engine.actor.load(tmp_path)
    head.save(tmp_path / "head")
    with pytest.raises(ModelError, match="holds other weights than those of this critic, 4 tensors"):
        critic_for("control separate", policy_for("control")).engine.actor.load(tmp_path / "head")
    with pytest.raises(ModelError, match="does not exist"):
        new_value_model(str(tmp_path / "nothing"))


def test_an_encoder_is_no_critic():
    with pytest.raises(ModelError, match="bert is an encoder, which sees what comes after a token"):
        ValueModel(SimpleNamespace(is_decoder=False, name="bert"))


def test_checkpointed_activations_are_refused_where_they_would_use_other_weights():
    policy, rows = policy_for("lora"), rows_for("lora")
    critic = critic_for("lora", policy)
    policy.model.activation_checkpointing_enable()
    assert flat(critic.values(rows)).any()  # not in evaluation mode
    policy.module.train()
    with pytest.raises(ModelError, match="cannot be trained with activation checkpointing"):
        critic.engine.actor.token_outputs(rows)
