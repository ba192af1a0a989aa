"""Which pairs are labelled: the shares, the cap, and what counts as unsure."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from prefrl.data.comparisons import Item
from prefrl.recipes.loop_select import (
    candidates,
    model_uncertainty,
    question,
    select,
    selection_figures,
    uncertainty,
    word_overlap,
)
from prefrl.types import Completion, Prompt


def item(prompt, first, second, value=None):
    sides = Completion(text=first), Completion(text=second)
    return Item(prompt=Prompt(id=prompt, text=prompt), first=sides[0], second=sides[1], uncertainty=value)


def pool(prompts=20, pairs=5):
    """Pairs whose uncertainty rises with their number."""
    return [item(f"p{p}", f"a{k}", f"b{k}", value=0.01 * (p * pairs + k)) for p in range(prompts) for k in range(pairs)]


def test_candidates_leave_out_what_teaches_nothing():
    asked = {question(item("p", "x", "y"))}
    given = [
        [item("p", "a", "b"), item("p", "b", "a"), item("p", "a", "a")],
        [item("p", "y", "x"), item("q", "x", "y")],
    ]
    found = candidates(given, asked)
    assert [(i.prompt.id, i.first.text) for i in found.items] == [("p", "a"), ("q", "x")]
    assert (found.identical, found.asked) == (1, 2)


def test_without_uncertainty_all_are_drawn_at_random():
    items = [replace(i, uncertainty=None) for i in pool()]
    chosen = select(items, 10, random_share=0.25, max_per_prompt=2, seed=0)
    assert len({i.id for i in chosen}) == 10 and {i.why for i in chosen} == {"random"}
    assert chosen == select(items, 10, random_share=0.25, max_per_prompt=2, seed=0)
    assert chosen != select(items, 10, random_share=0.25, max_per_prompt=2, seed=1)


def test_a_random_share_and_then_the_least_sure():
    chosen = select(pool(), 10, random_share=0.25, max_per_prompt=5, seed=0)
    assert [i.why for i in chosen] == ["random"] * 3 + ["uncertainty"] * 7  # ceil(2.5)
    drawn = {i.id for i in chosen[:3]}
    ranked = [i for i in reversed(pool()) if i.id not in drawn]
    assert [i.id for i in chosen[3:]] == [i.id for i in ranked[:7]]
    assert {i.why for i in select(pool(), 10, random_share=0.0, max_per_prompt=5, seed=0)} == {"uncertainty"}
    assert {i.why for i in select(pool(), 10, random_share=1.0, max_per_prompt=5, seed=0)} == {"random"}


def test_no_prompt_comes_more_often_than_the_cap():
    chosen = select(pool(), 12, random_share=0.25, max_per_prompt=2, seed=0)
    assert max(Counter(i.prompt.id for i in chosen).values()) == 2
    first = [i.prompt.id for i in chosen[:3]]
    wanted = [f"p{p}" for p in range(19, -1, -1) for _ in range(2 - first.count(f"p{p}"))]
    assert [i.prompt.id for i in chosen[3:]] == wanted[:9]
    few = select(pool(prompts=3), 12, random_share=0.5, max_per_prompt=2, seed=0)
    assert Counter(i.prompt.id for i in few) == {"p0": 2, "p1": 2, "p2": 2}  # fewer than asked for, never more a prompt


def test_words_in_common():
    one, other = item("say it", "a b", "c"), item("Say it", "A d", "e")  # say it a b c, and say it a d e
    assert word_overlap(one, other) == pytest.approx(3 / 7)
    assert word_overlap(one, one) == 1.0
    assert word_overlap(item("p", "a", "b"), item("q", "c", "d")) == 0.0


def test_diversity_takes_what_is_new():
    items = [
        item("p", "a b", "c", 0.6),
        item("q", "a b", "c", 0.5),
        item("r", "d e", "f", 0.4),
        item("s", "d", "a", 0.3),
    ]
    plain = select(items, 3, random_share=0.0, max_per_prompt=1, seed=0)
    assert [i.prompt.id for i in plain] == ["p", "q", "r"]
    spread = select(items, 3, random_share=0.0, max_per_prompt=1, seed=0, diversity=1.0)
    # q shares a, b, c of five words with p: 0.5 * 2/5 = 0.2. r shares nothing: 0.4. Then s: 0.3 * (1 - 1/6) with p
    # (a of p a b c s d), 0.3 * (1 - 1/6) with r (d of r d e f s a) = 0.25, above the 0.2 of q.
    assert [i.prompt.id for i in spread] == ["p", "r", "s"]
    assert {i.why for i in spread} == {"uncertainty"}
    weaker = select(items, 3, random_share=0.0, max_per_prompt=1, seed=0, diversity=0.5)
    assert [i.prompt.id for i in weaker] == ["p", "r", "q"]  # 0.5 * sqrt(2/5) = 0.316 > 0.3 * sqrt(5/6) = 0.274


def test_diversity_minds_the_random_share_and_the_cap():
    first = select(pool(), 2, random_share=1.0, max_per_prompt=2, seed=0)
    chosen = select(pool(), 8, random_share=0.25, max_per_prompt=2, seed=0, diversity=1.0)
    assert [i.id for i in chosen[:2]] == [i.id for i in first]
    assert max(Counter(i.prompt.id for i in chosen).values()) <= 2 and len({i.id for i in chosen}) == 8
    few = select(pool(prompts=2), 12, random_share=0.0, max_per_prompt=2, seed=0, diversity=1.0)
    assert Counter(i.prompt.id for i in few) == {"p0": 2, "p1": 2}


def test_uncertainty_of_a_single_model_is_the_entropy():
    assert uncertainty([0.0]) == pytest.approx(math.log(2))
    assert uncertainty([math.log(3.0)]) == pytest.approx(0.5623351446)  # p = 3/4
    assert uncertainty([1e9]) == 0.0
    assert uncertainty([-1e9]) == pytest.approx(0.0, abs=1e-300)


def test_uncertainty_of_several_is_their_disagreement():
    assert uncertainty([0.0, 0.0]) == 0.0  # both call it even: nothing to learn about the model
    assert uncertainty([800.0, -800.0]) == pytest.approx(math.log(2))  # both are sure, of opposite things
    # p = 3/4 and 1/4: H(1/2) - H(3/4)
    assert uncertainty([math.log(3.0), -math.log(3.0)]) == pytest.approx(math.log(2) - 0.5623351446)


def test_uncertainty_of_a_model_takes_every_member():
    scores = {"a": (0.0, 0.0), "b": (0.0, math.log(3.0)), "c": (800.0, -800.0)}

    class Model:
        def judge(self, prompts, completions):
            assert [p.id for p in prompts] == ["p"] * len(completions)
            return [SimpleNamespace(scores=scores[c.text]) for c in completions]

    found = model_uncertainty(Model(), [item("p", "a", "b"), item("p", "c", "a")])
    # p = 1/2 and 1/4 for the first pair: H(3/8) - (H(1/2) + H(1/4)) / 2
    assert found == pytest.approx([0.6615632382 - (math.log(2) + 0.5623351446) / 2, math.log(2)])


def test_figures_of_a_selection():
    found = candidates([pool()], ())
    chosen = [
        *select(found.items, 4, random_share=0.5, max_per_prompt=5, seed=0),
        replace(item("h", "a", "b"), why="held out"),
    ]
    figures = selection_figures(found, chosen)
    assert (figures["candidates"], figures["chosen/random"], figures["chosen/held_out"]) == (100, 2, 1)
    assert figures["uncertainty/uncertainty"] == pytest.approx((0.99 + 0.98) / 2)
    assert "uncertainty/held_out" not in figures
