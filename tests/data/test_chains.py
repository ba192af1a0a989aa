"""The test bed: chances in closed form, what automatic labels make of them, and how far those labels are off."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from prefrl.data.chains import Chain, NoisySolver, chains, labelled_chains
from prefrl.data.steps_counted import counted_label, find_first_error, hard_bias, hard_rule_finds
from prefrl.errors import ConfigError, DataError
from prefrl.types import Prompt

CHAIN = Chain(start=3, operations=(("+", 4), ("*", 2), ("-", 5)))
SOLVER = NoisySolver(error=0.2, recovery=0.1)


def test_a_chain_and_its_solution():
    assert CHAIN.prompt.text == "Compute 3, + 4, * 2, - 5.\n" and CHAIN.prompt.columns == {"answer": "9"}
    assert CHAIN.solution().text == "3 + 4 = 7\n7 * 2 = 14\n14 - 5 = 9"
    assert CHAIN.solution().labels == (1.0, 1.0, 1.0) and CHAIN.solution().outcome == 1.0
    assert Chain.of(CHAIN.prompt) == CHAIN
    with pytest.raises(DataError, match="asks for no chain"):
        Chain.of(Prompt(id="x", text="What is 3?"))


def test_modulus():
    chain = Chain(start=8, operations=(("+", 4), ("*", 7), ("-", 9)), modulus=10)
    assert chain.values == (8, 2, 4, 5) and chain.prompt.text == "Compute 8, + 4, * 7, - 9 modulo 10.\n"
    assert Chain.of(chain.prompt) == chain


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("modulus", [0, 10])
def test_injected_errors_are_the_first_and_stay(at, modulus):
    rng = random.Random(at)
    for chain in chains(50, length=3, modulus=modulus, seed=at):
        made = chain.with_error(at, rng)
        assert made.first_error == at and made.labels == (1.0,) * at + (0.0,) * (3 - at) and made.outcome == 0.0
        assert made.labels == tuple(map(float, chain.truths(made.steps)))


def test_the_same_seed_gives_the_same_chains():
    assert chains(20, seed=1) == chains(20, seed=1) != chains(20, seed=2)
    made = labelled_chains(400, length=4, wrong=0.25, seed=3)
    assert made == labelled_chains(400, length=4, wrong=0.25, seed=3)
    assert len({one.prompt.id for one in made}) == 400
    wrong = [one.first_error for one in made if one.first_error >= 0]
    assert 75 <= len(wrong) <= 125 and set(wrong) == {0, 1, 2, 3}
    with pytest.raises(ConfigError, match="different chains"):
        chains(10_000, length=1, modulus=4)


def test_success_by_hand():
    # right, one step left: 1 - .2; two: .8 * .8 + .2 * .1; wrong: .1; .1 * .8 + .9 * .1
    assert [SOLVER.success(True, n) for n in range(3)] == pytest.approx([1.0, 0.8, 0.66])
    assert [SOLVER.success(False, n) for n in range(3)] == pytest.approx([0.0, 0.1, 0.17])
    assert SOLVER.success(True, 1000) == pytest.approx(1 / 3)
    assert [NoisySolver(error=0.0).success(right, 9) for right in (True, False)] == [1.0, 0.0]
    assert NoisySolver(error=0.1).success(True, 3) == pytest.approx(0.729)


def test_success_is_the_sum_over_all_courses():
    solver, left = NoisySolver(error=0.3, recovery=0.25), 4
    for start in (True, False):
        total = 0.0
        for course in itertools.product((True, False), repeat=left):
            states = (start, *course)
            moves = [
                (0.7 if now else 0.3) if before else (0.25 if now else 0.75)
                for before, now in itertools.pairwise(states)
            ]
            total += math.prod(moves) * states[-1]
        assert solver.success(start, left) == pytest.approx(total, abs=1e-12)


def test_continuations_are_right_as_often_as_they_should():
    """E[k / N] = P(right | prefix), of a right and of a wrong prefix; three standard errors of 4000 tries are .024."""
    rng = random.Random(0)
    wrong = CHAIN.with_error(0, rng)
    for steps in ((), CHAIN.solution().steps[:1], wrong.steps[:1], wrong.steps[:2], wrong.steps):
        k, n = SOLVER.tries(CHAIN, steps, 4000, rng)
        assert k / n == pytest.approx(SOLVER.values(CHAIN, steps)[-1], abs=0.024)


def test_a_solver_that_recovers_goes_on_from_the_right_value():
    wrong = CHAIN.with_error(0, random.Random(1)).steps[:1]
    again = NoisySolver(error=0.0, recovery=1.0).proceed(CHAIN, wrong, random.Random(0))
    assert again == ("7 * 2 = 14\n", "14 - 5 = 9")
    copied = NoisySolver(error=0.0).proceed(CHAIN, ("3 + 4 = 8\n",), random.Random(0))
    assert copied == ("8 * 2 = 16\n", "16 - 5 = 11")


def test_solutions_have_exact_labels():
    rng = random.Random(5)
    made = [NoisySolver(error=0.3, recovery=0.5).solve(CHAIN, rng) for _ in range(300)]
    assert {labels for labels in (one.labels for one in made)} >= {(0.0, 1.0, 1.0), (1.0, 1.0, 0.0), (0.0, 0.0, 1.0)}
    assert all(one.outcome == one.labels[-1] for one in made)


@pytest.mark.parametrize(("p", "n", "bias"), [(0.0, 8, 0.0), (1.0, 8, 0.0), (0.5, 2, 0.25), (0.1, 8, 0.46953279)])
def test_bias_of_the_hard_label(p, n, bias):
    assert hard_bias(p, n) == pytest.approx(bias, abs=1e-8)


def test_labels_of_counts_have_their_means():
    """Of a wrong step that 10 % recover from: soft labels .1 on the mean, hard ones .57 with eight continuations."""
    rng = random.Random(0)
    wrong = ("3 + 4 = 8\n", "8 * 2 = 16\n")
    assert SOLVER.values(CHAIN, wrong)[-1] == pytest.approx(0.1)
    counts = [SOLVER.tries(CHAIN, wrong, 8, rng) for _ in range(3000)]
    soft = sum(counted_label(count, "soft") for count in counts) / 3000
    hard = sum(counted_label(count, "hard") for count in counts) / 3000
    assert soft == pytest.approx(0.1, abs=0.006)  # three standard errors of sqrt(.1 * .9 / 24000)
    assert hard == pytest.approx(0.1 + hard_bias(0.1, 8), abs=0.028) == pytest.approx(0.5695, abs=0.028)
    assert counted_label(None, "soft") is None


@pytest.mark.parametrize(
    ("first", "n", "chance"), [(1, 1, 0.66 * 0.9), (1, 4, 0.98663664 * 0.6561), (-1, 1, 0.66 * 0.8)]
)
def test_how_often_the_hard_rule_finds_the_error(first, n, chance):
    values = {1: (0.66, 0.1, 0.0), -1: (0.66, 0.8, 1.0)}[first]
    assert hard_rule_finds(values, first, n) == pytest.approx(chance, abs=1e-8)


def test_the_hard_rule_in_trials():
    """More continuations find a right step better and a wrong one worse, where the solver can recover."""
    steps = CHAIN.with_error(1, random.Random(2)).steps
    values, rng = SOLVER.values(CHAIN, steps)[1:], random.Random(1)
    for n in (1, 4, 16):
        hits = 0
        for _ in range(1500):
            labels = [counted_label(SOLVER.tries(CHAIN, steps[: at + 1], n, rng), "hard") for at in range(3)]
            hits += labels.index(0.0) == 1 if 0.0 in labels else 0
        assert hits / 1500 == pytest.approx(hard_rule_finds(values, 1, n), abs=0.04)
    assert hard_rule_finds(values, 1, 1) < hard_rule_finds(values, 1, 4) > hard_rule_finds(values, 1, 16)


@pytest.mark.parametrize("steps", [1, 2, 3, 8, 13])
def test_search_finds_every_first_error_in_few_tries(steps):
    for first in range(steps):
        found, tried = find_first_error(steps, lambda cut, first=first: (int(cut <= first), 1))
        assert found == first and len(tried) <= math.ceil(math.log2(steps))


def test_search_that_cannot_judge_says_so():
    with pytest.raises(DataError, match="first 2 steps"):
        find_first_error(4, lambda cut: None)
    with pytest.raises(DataError, match="0 steps"):
        find_first_error(0, lambda cut: (1, 1))
