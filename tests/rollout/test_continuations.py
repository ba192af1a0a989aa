"""Continuations from the ends of steps: token-exact beginnings, computed once, the same as computed anew."""

from __future__ import annotations

import pytest
import torch
from tiny import byte_tokenizer, causal_lm, language_model, llama

from prefrl.config import SamplingConfig
from prefrl.model.language import LanguageModel
from prefrl.rollout.continuations import Continuations, cut_ids
from prefrl.rollout.local import Request, draw
from prefrl.types import Prompt

PROMPT = Prompt(id="p", text="12=")
STEPS = ((3, 4, 13), (5, 6, 7, 13), (8,), (9, 10))
PARAMS = SamplingConfig(max_new_tokens=6)


class Counted:
    """How many token positions a decoder computes."""

    def __init__(self, model):
        self.positions = []
        model.decoder.register_forward_hook(self.count, with_kwargs=True)

    def count(self, module, args, kwargs, output):
        self.positions.append(kwargs["input_ids"].shape)


def made(model, **more):
    return Continuations(model, PROMPT, STEPS, PARAMS, seed=3, **more)


def said(group):
    return [rollout.completion_ids for rollout in group]


def test_beginnings_are_those_of_the_solution():
    model = language_model(layers=2)
    ids = [i for step in STEPS for i in step]
    groups = made(model).draw([0, 1, 3, 4], 2)
    for cut, group in zip([0, 1, 3, 4], groups, strict=True):
        given = sum(map(len, STEPS[:cut]))
        for rollout in group:
            assert list(rollout.completion_ids[:given]) == ids[:given] and rollout.prompt_ids == model.encode(PROMPT)
            assert rollout.mask == (False,) * given + (True,) * (len(rollout.completion_ids) - given)
            assert rollout.logps[:given] == (0.0,) * given and all(p < 0 for p in rollout.logps[given:])
            assert rollout.text == model.decode(list(rollout.completion_ids)) and rollout.last_sampled >= given


def test_sharing_changes_nothing():
    model = language_model(layers=2)
    prompt = model.encode(PROMPT)
    continuations = made(model)
    groups = continuations.draw([0, 1, 2, 3, 4], 3)
    for cut, group in enumerate(groups):
        given = tuple(i for step in STEPS[:cut] for i in step)
        requests = [Request(prompt + given, continuations._uniforms(cut, place)) for place in range(3)]
        anew = draw(model.decoder, model.head, requests, PARAMS, eos=model.eos, decode=model.decode)
        for shared, alone in zip(group, anew, strict=True):
            assert shared.completion_ids == given + alone.ids and shared.stop == alone.stop
            torch.testing.assert_close(
                torch.tensor(shared.logps[len(given) :]), torch.tensor(alone.logps), atol=1e-5, rtol=0
            )


def test_log_probs_are_those_of_the_whole_text():
    model = language_model(layers=2)
    for group in made(model).draw([2, 0], 1):
        ids = torch.tensor([group[0].prompt_ids + group[0].completion_ids])
        logps = model.model(ids).logits.log_softmax(-1)[0, :-1].gather(-1, ids[0, 1:, None])[:, 0]
        drawn = sum(group[0].mask)
        torch.testing.assert_close(logps[-drawn:], torch.tensor(group[0].logps[-drawn:]), atol=1e-5, rtol=0)


def test_the_solution_is_computed_once():
    model = language_model(layers=2)
    counted, continuations = Counted(model), made(model)
    continuations.draw([1, 2, 3], 2)
    continuations.draw([4], 2)
    wide = [shape for shape in counted.positions if shape[1] > 1]
    whole = len(model.encode(PROMPT)) + sum(map(len, STEPS))
    assert wide == [(1, whole)]  # everything else is one token a row


def test_windows_are_computed_anew():
    """A cache that forgets cannot be cut: such models take the plain way, with the same result as ever."""
    model = LanguageModel(causal_lm("mistral", 14, sliding_window=4), language_model().tokenizer, name="tiny")
    assert not model.shares_prompts
    groups = made(model).draw([1, 3], 2)
    assert [len(group) for group in groups] == [2, 2]
    assert groups[1][0].completion_ids[:8] == (3, 4, 13, 5, 6, 7, 13, 8)


def test_every_continuation_has_random_numbers_of_its_own():
    model = language_model(layers=2)
    first = made(model).draw([1, 2], 4)
    assert said(made(model).draw([2], 4)[0]) == said(first[1])  # whatever else is asked for
    assert said(made(model).draw([1], 2)[0]) == said(first[0][:2])
    assert said(made(model, number=1).draw([1], 4)[0]) != said(first[0])
    assert len(set(said(first[0]))) > 1
    numbers = {tuple(made(model)._uniforms(cut, place).tolist()) for cut in range(4) for place in range(3)}
    assert len(numbers) == 12


def bpe(*merged):
    """A decoder of ids whose entries are whole pieces of text."""
    return lambda ids: "".join(merged[i] for i in ids)


def test_cuts_fall_between_tokens():
    decode = bpe("One", ".\n\n", "Two", "\n\n  ", "x", "three")
    text = "One.\n\nTwo\n\n  xthree"
    # The indent is fused with the line break, and stays with the step that it ends.
    ids, texts = cut_ids([0, 1, 2, 3, 4, 5], [6, 11, len(text)], decode)
    assert ids == [(0, 1), (2, 3), (4, 5)]
    assert texts == ["One.\n\n", "Two\n\n  ", "xthree"] and "".join(texts) == text


def test_steps_inside_one_token_become_one():
    decode = bpe("a\nb\nc", "d")
    assert cut_ids([0, 1], [2, 4, 6], decode) == ([(0,), (1,)], ["a\nb\nc", "d"])


@pytest.mark.parametrize("text", ["3 + 4 = 7\n7 * 2 = 14", "é\n\nü\n\n漢字", "one"])
def test_ids_and_texts_are_kept_whole(text):
    tokenizer = byte_tokenizer()
    model = LanguageModel(llama(len(tokenizer)), tokenizer, name="tiny")
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    ends = [at + 1 for at, character in enumerate(text) if character == "\n"] + [len(text)]
    pieces, texts = cut_ids(ids, ends, model.decode)
    assert [i for piece in pieces for i in piece] == ids and "".join(texts) == text
    assert [model.decode(list(piece)) for piece in pieces] == texts
