"""A rollout of several turns is what the model saw, token for token, whoever else is played with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny import CHAT, byte_tokenizer, language_model, llama, naive_logps

from prefrl import rewards
from prefrl.config import ModelConfig, SamplingConfig
from prefrl.errors import ConfigError, DataError
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.policy.algorithms import resolve
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.recipes.common import Checked, sample_rows
from prefrl.rollout.environments import Reply
from prefrl.rollout.local import Drawn
from prefrl.rollout.turns import MultiTurn
from prefrl.types import Prompt, Row, StopReason

THINKING = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{{ m['content'] if loop.last else m['content'].split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
TEXTS = [Prompt(id=str(i), text=t) for i, t in enumerate(("1=", "12345678=", "7"))]
CHATS = [Prompt(id=p.id, messages=({"role": "user", "content": p.text},)) for p in TEXTS]
TURN = SamplingConfig(max_new_tokens=5, temperature=0.7)


class Counting:
    """Says how long each turn was and ends with the turn that begins with a digit above `patience`."""

    patience = 6

    def reset(self, prompt):
        self.lengths = []
        return "1," if prompt.question == "7" else ""

    def step(self, action):
        self.lengths.append(len(action))
        return Reply(f",{len(action)}=", action[:1].isdigit() and int(action[0]) > self.patience)

    def report(self):
        return {"success": float(sum(self.lengths) % 2), "turns": len(self.lengths)}


def speaker(kind):
    """A policy over digits or, with a chat template, over bytes; several tokens end its turns."""
    if kind == "text":
        policy = language_model(layers=2)
        policy.eos = (0, 3, 5)
        return policy
    tokenizer = byte_tokenizer(CHAT if kind == "chat" else THINKING)
    policy = LanguageModel(llama(len(tokenizer), layers=2), tokenizer, name="tiny")
    policy.eos = (*policy.eos, *range(60, 120))
    return policy


def prompts_for(kind):
    return TEXTS if kind == "text" else CHATS


class Scripted(LanguageModel):
    """Says given ids in given turns, and remembers what it was shown each time."""

    def __init__(self, turns, *, chat=None):
        tokenizer = byte_tokenizer(chat)
        super().__init__(llama(len(tokenizer)), tokenizer, name="scripted")
        self.turns, self.shown = list(turns), []

    def draw(self, requests, params):
        self.shown.append([r.prompt_ids for r in requests])
        ids, stop = self.turns.pop(0)
        return [Drawn(tuple(ids), (-1.0,) * len(ids), stop) for _ in requests]


def said(text, stop=StopReason.EOS):
    tokenizer = byte_tokenizer()
    return tokenizer(text, add_special_tokens=False)["input_ids"], stop


def reply_to_all(*replies):
    """An environment that gives these replies whatever is said."""

    class Fixed:
        def reset(self, prompt):
            self.heard = []
            return ""

        def step(self, action):
            self.heard.append(action)
            return replies[len(self.heard) - 1]

        def report(self):
            return {"heard": self.heard}

    return Fixed


@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize("kind", ["text", "chat", "thinking chat"])
def test_recorded_log_probs_are_the_learners(kind, temperature):
    policy = speaker(kind)
    params = SamplingConfig(max_new_tokens=5, temperature=temperature)
    rollouts = MultiTurn(policy, Counting, max_turns=4).sample(prompts_for(kind), 4, params, seed=1)
    assert any(len(r.turns) > 1 for r in rollouts)
    rows = [Row(prompt_ids=r.prompt_ids, completion_ids=r.completion_ids, mask=r.mask) for r in rollouts]
    masks = [torch.tensor(r.mask) for r in rollouts]
    recorded = torch.cat([torch.tensor(r.logps)[m] for r, m in zip(rollouts, masks, strict=True)])
    learner = policy.token_outputs(rows, temperature).detach()
    torch.testing.assert_close(recorded, learner, atol=1e-4, rtol=0)
    naive = naive_logps(policy.model, rows, temperature=temperature)
    naive = torch.cat([one[m] for one, m in zip(naive, masks, strict=True)]).detach()
    torch.testing.assert_close(recorded, naive, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["text", "chat"])
def test_spans_mask_and_log_probs_agree(kind):
    policy = speaker(kind)
    for r in MultiTurn(policy, Counting, max_turns=3).sample(prompts_for(kind), 6, TURN, seed=2):
        inside = [any(start <= i < end for start, end in r.turns) for i in range(len(r.mask))]
        assert list(r.mask) == inside
        assert all((p == 0.0) != m for p, m in zip(r.logps, r.mask, strict=True))
        assert all(0 < end - start <= TURN.max_new_tokens for start, end in r.turns)
        assert r.last_sampled == len(r.completion_ids) - 1  # nothing follows that the policy never read
        assert r.info["turns"] == len(r.turns)
        assert r.text == policy.decode(list(r.completion_ids))


def test_the_rollout_is_what_the_model_was_shown():
    policy = Scripted([said("a"), said("bc"), said("d")], chat=CHAT)
    environment = reply_to_all(Reply("up"), Reply("down"), Reply("well done", ended=True))
    (r,) = MultiTurn(policy, environment).sample(CHATS[:1], 1, TURN, seed=0)
    for (start, _), (shown,) in zip(r.turns, policy.shown, strict=True):
        assert (*r.prompt_ids, *r.completion_ids[:start]) == shown
    assert policy.shown[0] == [policy.encode(CHATS[0])]
    assert r.stop is StopReason.ENVIRONMENT
    assert r.info["heard"] == ["a", "bc", "d"]


def test_sampled_ids_are_never_encoded_again():
    # "<|im_end|>" spelled byte by byte, which encoding would turn into one token, in a turn that did not end.
    spelled = byte_tokenizer()("<|im_end|>", add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert len(spelled) == 10
    policy = Scripted([(spelled, StopReason.LENGTH), said("x")], chat=CHAT)
    (r,) = MultiTurn(policy, reply_to_all(Reply("up"), Reply("", True))).sample(CHATS[:1], 1, TURN, seed=0)
    assert r.completion_ids[:10] == tuple(spelled)
    assert r.completion_ids[10] == policy.tokenizer.convert_tokens_to_ids("<|im_end|>")  # the template closes the turn
    assert not r.mask[10]
    assert r.info["turns_cut"] == 1


def test_a_template_that_drops_thoughts_drops_none():
    policy = Scripted([said("hm</think>7<|im_end|>"), said("8<|im_end|>")], chat=THINKING)
    (r,) = MultiTurn(policy, reply_to_all(Reply("up"), Reply("", True))).sample(CHATS[:1], 1, TURN, seed=0)
    whole = policy.tokenizer.decode([*r.prompt_ids, *r.completion_ids])
    assert whole == (
        "<|im_start|>user\n1=<|im_end|>\n<|im_start|>assistant\n<think>\nhm</think>7<|im_end|>\n"
        "<|im_start|>user\nup<|im_end|>\n<|im_start|>assistant\n<think>\n8<|im_end|>"
    )


@pytest.mark.parametrize("kind", ["text", "chat"])
def test_an_episode_does_not_depend_on_what_it_is_played_with(kind):
    policy, prompts = speaker(kind), prompts_for(kind)
    sampler = MultiTurn(policy, Counting, max_turns=4)
    together = [r.completion_ids for r in sampler.sample(prompts, 3, TURN, seed=4)]
    alone = [r.completion_ids for p in prompts for r in sampler.sample([p], 3, TURN, seed=4)]
    assert together == alone
    assert len(set(together)) > 3
    assert together != [r.completion_ids for r in sampler.sample(prompts, 3, TURN, seed=5)]


def test_the_first_turn_is_the_one_that_a_single_turn_sampler_draws():
    policy = speaker("text")
    several = MultiTurn(policy, Counting, max_turns=3).sample(TEXTS[:2], 4, TURN, seed=3)
    single = policy.sample(TEXTS[:2], 4, TURN, seed=3)
    assert [r.completion_ids[: r.turns[0][1]] for r in several] == [r.completion_ids for r in single]
    assert [r.group for r in several] == [r.group for r in single]


def test_turns_draw_different_numbers():
    policy = language_model()
    policy.model.lm_head.weight.data.zero_()  # uniform over the vocabulary, whatever was said
    r = MultiTurn(policy, reply_to_all(*[Reply(",")] * 4), max_turns=4).sample(TEXTS[:1], 1, TURN, seed=0)[0]
    assert len({r.completion_ids[start:end] for start, end in r.turns}) == 4


def test_max_turns_ends_as_length():
    policy = Scripted([said("a"), said("b")])
    (r,) = MultiTurn(policy, reply_to_all(*[Reply("up")] * 9), max_turns=2).sample(TEXTS[:1], 1, TURN, seed=0)
    assert (r.stop, len(r.turns), r.text) == (StopReason.LENGTH, 2, "aupb")
    assert r.truncated


@pytest.mark.parametrize(("budget", "turns"), [(5, 1), (11, 1), (12, 2), (0, 3)])
def test_the_budget_counts_replies_and_never_cuts_a_turn(budget, turns):
    # Turns of 5 tokens and replies of 2: the second one would end at token 12, the third at 19.
    policy = Scripted([said("abcde")] * 3)
    environment = reply_to_all(*[Reply("up")] * 3)
    (r,) = MultiTurn(policy, environment, max_turns=3, budget=budget).sample(TEXTS[:1], 1, TURN, seed=0)
    assert [end - start for start, end in r.turns] == [5] * turns
    assert r.stop is StopReason.LENGTH
    assert budget == 0 or len(r.completion_ids) <= budget


def test_a_budget_without_room_for_a_turn_is_refused():
    with pytest.raises(ConfigError, match="budget of a rollout is 4 tokens, but a turn may have 5"):
        MultiTurn(Scripted([]), Counting, budget=4).sample(TEXTS, 1, TURN, seed=0)
    with pytest.raises(ConfigError, match="max_turns is 0"):
        MultiTurn(Scripted([]), Counting, max_turns=0)


def test_a_turn_that_is_cut_is_played_as_it_stands():
    policy = Scripted([said("abcde", StopReason.LENGTH), said("f", StopReason.LENGTH), said("g")])
    environment = reply_to_all(Reply("up"), Reply("up"), Reply("", ended=True))
    (r,) = MultiTurn(policy, environment).sample(TEXTS[:1], 1, TURN, seed=0)
    assert r.info == {
        **{"heard": ["abcde", "f", "g"], "turns_cut": 2},
        "environment": {"name": "Fixed", "version": "0", "max_turns": 8, "turn_tokens": 5, "budget": 0},
    }
    assert r.stop is StopReason.ENVIRONMENT


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        (Prompt(id="p", text="a"), "afirst"),
        (
            Prompt(id="p", messages=({"role": "user", "content": "a"},)),
            "<|im_start|>user\na\n\nfirst<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            Prompt(id="p", messages=({"role": "system", "content": "a"},)),
            "<|im_start|>system\na<|im_end|>\n<|im_start|>user\nfirst<|im_end|>\n<|im_start|>assistant\n",
        ),
    ],
)
def test_the_first_observation_is_part_of_the_prompt(prompt, shown):
    environment = reply_to_all(Reply("", ended=True))
    environment.reset = lambda self, prompt: setattr(self, "heard", []) or "first"
    policy = Scripted([said("b")], chat=CHAT)
    (r,) = MultiTurn(policy, environment).sample([prompt], 1, TURN, seed=0)
    assert policy.tokenizer.decode(r.prompt_ids) == shown
    assert r.prompt_ids == policy.encode(r.prompt)
    assert r.prompt.id == prompt.id


class Failing(Counting):
    """Raises in one of its verbs, on the prompt `7` only."""

    verb = "step"

    def reset(self, prompt):
        self.fails = prompt.question == "7"
        return self.fail("reset") or super().reset(prompt)

    def step(self, action):
        return self.fail("step") or super().step(action)

    def report(self):
        return self.fail("report") or super().report()

    def fail(self, verb):
        if self.fails and verb == self.verb:
            raise self.error


@pytest.mark.parametrize(("verb", "turns"), [("reset", 0), ("step", 1), ("report", None)])
def test_an_environment_that_raises_fails_its_own_rollout(verb, turns):
    make = type("Broken", (Failing,), {"verb": verb, "error": OSError("disk full")})
    rollouts = MultiTurn(speaker("text"), make, max_turns=3).sample(TEXTS, 2, TURN, seed=0)
    broken = [r for r in rollouts if r.prompt.id == "2"]
    assert [r.info["error"] for r in broken] == ["environment: OSError: disk full"] * 2
    assert all("success" not in r.info for r in broken)
    assert turns is None or {len(r.turns) for r in broken} == {turns}
    well = [r for r in rollouts if r.prompt.id != "2"]
    assert all("error" not in r.info and r.turns for r in well)
    whole = MultiTurn(speaker("text"), Counting, max_turns=3).sample(TEXTS[:2], 2, TURN, seed=0)
    assert [r.completion_ids for r in well] == [r.completion_ids for r in whole]
    scores = rewards.environment().score(rollouts)
    assert [s.ok for s in scores] == [True, True, True, True, False, False]


@pytest.mark.parametrize("version", ["2.1", 3, None])
def test_every_rollout_says_what_was_played(version):
    environment = reply_to_all(Reply("", ended=True))
    if version is not None:
        environment.version = version
    policy = Scripted([said("a")])
    (r,) = MultiTurn(policy, environment, max_turns=3, budget=40).sample(TEXTS[:1], 1, TURN, seed=0)
    told = {"name": "Fixed", "version": str(version or 0), "max_turns": 3, "turn_tokens": 5, "budget": 40}
    assert r.info["environment"] == told
    (row,) = sample_rows([r], rewards.environment("turns_cut").score([r]), policy="training")
    assert row["environment"] == told


def test_rollouts_that_failed_say_it_too():
    make = type("Broken", (Failing,), {"verb": "reset", "error": OSError("disk full"), "version": "7"})
    rollouts = MultiTurn(speaker("text"), make).sample(TEXTS, 1, TURN, seed=0)
    assert [r.info["environment"]["version"] for r in rollouts] == ["7", "7", "7"]
    played = MultiTurn(Scripted([said("5")]), "guessing", max_turns=1)
    (r,) = played.sample([replace(TEXTS[0], columns={"target": 5})], 1, TURN, seed=0)
    assert (r.info["environment"]["name"], r.info["environment"]["version"]) == ("guessing", "1")


def test_errors_of_prefrl_pass():
    make = type("Broken", (Failing,), {"error": DataError("no column 'target'")})
    with pytest.raises(DataError, match="no column 'target'"):
        MultiTurn(speaker("text"), make).sample(TEXTS, 1, TURN, seed=0)


def test_an_environment_that_does_not_reply_is_an_error():
    (r,) = MultiTurn(speaker("text"), reply_to_all(None)).sample(TEXTS[:1], 1, TURN, seed=0)
    assert r.info["error"].startswith("environment: TypeError")


@pytest.mark.parametrize("text", ["no", "higher", ""])
def test_a_bare_text_is_no_reply(text):
    (r,) = MultiTurn(speaker("text"), reply_to_all(text)).sample(TEXTS[:1], 1, TURN, seed=0)
    assert r.info["error"] == "environment: TypeError: step returned a text; expected Reply(text, ended)"
    assert len(r.turns) == 1


@pytest.mark.parametrize("key", ["success", "rewards"])
def test_it_is_the_sampler_of_an_engine(key):
    class Rewarding(Counting):
        def report(self):
            return {**super().report(), "rewards": [n % 2 for n in self.lengths]}

    policy = speaker("text")
    engine = Engine(
        policy, ModelConfig(lr=1e-2), sampler=MultiTurn(policy, Rewarding, max_turns=3), sampling=TURN, reference=True
    )
    algorithm = resolve({"name": "rloo", "group_size": 4, "kl": {"coef": 0.05}})
    before = engine.snapshot()
    result = PolicyOptimizer(engine, Checked(rewards.environment(key)), algorithm).step(TEXTS, seed=0)
    assert result.metrics["errors"] == 0.0
    assert abs(result.metrics["kl/ref"]) < 1e-5  # nothing was learnt yet, and replies do not count
    assert {len(r.turns) for r in result.rollouts} > {1}
    assert any((a != b).any() for a, b in zip(before, engine.snapshot(), strict=True))
