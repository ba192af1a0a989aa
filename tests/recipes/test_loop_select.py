"""Which pairs are labelled: the shares, the cap, and what counts as unsure."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from prefrl.data.comparisons import Item
from prefrl.recipes.loop_select import candidates, model_uncertainty, question, select, selection_figures, uncertainty
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
