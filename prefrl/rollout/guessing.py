"""Number guessing: a hidden whole number from 1 to 16, four guesses, answered by higher, lower or correct.

The rules. Every guess costs one of the four, whatever it is:

    consistent     no answer so far rules it out; the answer narrows what is left
    ruled out      an earlier answer does; a repeated guess is one of these. The answer is true and tells nothing new
    out of range   a whole number below 1 or above 16; the answer is `invalid`
    invalid        not exactly one whole number in the text; the answer is `invalid`

As long as guesses are answered truly, the candidates left are an interval, so a state is three numbers and all that
can be asked of a policy (success, KL to the policy that guesses uniformly among the candidates, best play with and
without a KL penalty) is computed exactly, by dynamic programming.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from prefrl.errors import DataError
from prefrl.rollout.environments import Reply
from prefrl.types import Prompt

NUMBERS = 16
GUESSES = 4
OBSERVATION = NUMBERS + GUESSES  # size of the observation of the control form


class State(NamedTuple):
    """What is known: the number lies in [low, high], and `left` guesses remain."""

    low: int = 1
    high: int = NUMBERS
    left: int = GUESSES

    @property
    def candidates(self) -> range:
        return range(self.low, self.high + 1)

    def answered(self, guess: int, target: int) -> State:
        """What is known after a guess at `target` was answered."""
        low = max(self.low, guess + 1) if guess < target else self.low
        high = min(self.high, guess - 1) if guess > target else self.high
        return State(low, high, self.left - 1)


START = State()


class Game:
    """One game, whoever plays it."""

    def __init__(self, prompt: Prompt) -> None:
        """Hide the number in the prompt's column `target`.

        Raises:
            DataError: there is no such column, or no number of the game in it.
        """
        target = prompt.columns.get("target")
        if isinstance(target, bool) or not isinstance(target, int) or not 1 <= target <= NUMBERS:
            raise DataError(
                f"Prompt {prompt.id!r} hides the number {target!r}; expected a column 'target' with a whole number "
                f"from 1 to {NUMBERS}."
            )
        self.target = target
        self.state = START
        self.found = False
        self.narrowing: list[float] = []
        self.counts = {"turns": 0, "ruled_out": 0, "out_of_range": 0, "invalid": 0}

    @property
    def ended(self) -> bool:
        return self.found or self.state.left == 0

    def guess(self, number: int | None) -> str:
        """Play a number, or None for what is no number; the answer."""
        self.counts["turns"] += 1
        if number is None or not 1 <= number <= NUMBERS:
            self.counts["invalid" if number is None else "out_of_range"] += 1
            self.narrowing.append(0.0)
            self.state = self.state._replace(left=self.state.left - 1)
            return "invalid"
        self.narrowing.append(narrowing(self.state, number))
        self.counts["ruled_out"] += number not in self.state.candidates
        self.state = self.state.answered(number, self.target)
        self.found = number == self.target
        return "correct" if self.found else "higher" if self.target > number else "lower"

    def report(self) -> dict[str, Any]:
        """`success`, 1 if the number was found; `narrowing` of every guess; `turns`, and how many were of no use."""
        return {"success": float(self.found), "narrowing": list(self.narrowing), **self.counts}


class GuessingInWords:
    """The game as a text environment. A plain text is answered on a line of its own, a conversation by a message."""

    version = "1"

    def reset(self, prompt: Prompt) -> str:
        """Hide the prompt's target; the prompt itself explains the game."""
        self.game = Game(prompt)
        self.answer = "{}" if prompt.messages is not None else "\n{}\n"
        return ""

    def step(self, action: str) -> Reply:
        """Answer a guess, the only whole number in a text."""
        numbers = re.findall(r"[-+]?\d+", action)
        word = self.game.guess(int(numbers[0]) if len(numbers) == 1 else None)
        return Reply(self.answer.format(word), self.game.ended)

    def report(self) -> Mapping[str, Any]:
        """See `Game.report`."""
        return self.game.report()


class GuessingByNumber:
    """The game for control policies: action a guesses a + 1, and the observation shows the state.

    An observation (20,) is 1 at each of the 16 candidates and at the number of guesses left, and 0 elsewhere.
    """

    def reset(self, prompt: Prompt) -> Tensor:
        """Hide the prompt's target; the first observation."""
        self.game = Game(prompt)
        return observe(self.game.state)

    def step(self, action: int) -> tuple[Tensor, bool]:
        """Answer a guess: the next observation, and whether the game is over."""
        self.game.guess(action + 1)
        return observe(self.game.state), self.game.ended

    def report(self) -> Mapping[str, Any]:
        """See `Game.report`."""
        return self.game.report()


@cache
def observe(state: State) -> Tensor:
    """The observation (20,) of a state; the same tensor every time, to be read only."""
    observation = torch.zeros(OBSERVATION)
    observation[state.low - 1 : state.high] = 1.0
    if state.left:
        observation[NUMBERS + state.left - 1] = 1.0
    return observation


def consistent(observations: Tensor) -> Tensor:
    """Which of the 16 guesses (..., 16) are candidates in observations (..., 20)."""
    return observations[..., :NUMBERS] > 0


def narrowing(state: State, guess: int) -> float:
    """Share of the candidates that a guess is expected to exclude: `1 - sum over wrong answers of share^2`.

    It does not depend on the target. As a reward of every guess it teaches to halve the candidates, and the same for
    all targets, where success on some targets also teaches never to guess the others.
    """
    return 1.0 - sum(share * share for share, _ in _answers(state, guess))


# What a policy guesses in a state: number -> probability.
Play: TypeAlias = Callable[[State], Mapping[int, float]]


class Figures(NamedTuple):
    """Exact figures of a policy over all 16 targets.

    success  probability of finding the number
    kl       KL to uniform guessing among the candidates, summed over the game, in nats; infinite for a policy that
             ever guesses what is ruled out
    """

    success: float
    kl: float


def uniform_consistent(state: State) -> dict[int, float]:
    """Guess uniformly among the candidates: the reference."""
    return dict.fromkeys(state.candidates, 1.0 / len(state.candidates))


def uniform_blind(state: State) -> dict[int, float]:
    """Guess uniformly among all 16 numbers, whatever was answered."""
    return dict.fromkeys(range(1, NUMBERS + 1), 1.0 / NUMBERS)


def evaluate_play(play: Play, start: State = START) -> Figures:
    """Exact success and KL of a policy, by enumeration of the states it reaches.

    Raises:
        ValueError: probabilities of a state are negative or do not sum to 1, or belong to no number of the game.
    """

    @cache
    def figures(state: State) -> Figures:
        if not state.left:
            return Figures(0.0, 0.0)
        probabilities = play(state)
        _check(probabilities, state)
        success = kl = 0.0
        for guess, p in probabilities.items():
            if not p:
                continue
            won, drift = (guess in state.candidates) / len(state.candidates), _log_ratio(p, guess, state)
            for share, after in _answers(state, guess):
                then = figures(after)
                won, drift = won + share * then.success, drift + share * then.kl
            success, kl = success + p * won, kl + p * drift
        return Figures(success, kl)

    return figures(start)


@cache
def guess_value(state: State, guess: int, beta: float = 0.0) -> float:
    """Value of a guess followed by optimal play: `1/n + sum over answers of share * state_value`."""
    hit = (guess in state.candidates) / len(state.candidates)
    return hit + sum(share * state_value(after, beta) for share, after in _answers(state, guess))


@cache
def state_value(state: State, beta: float = 0.0) -> float:
    """Most of `success - beta * KL(play || uniform_consistent)` that can be had from a state on.

    `max_g Q(g)` for beta = 0, otherwise `beta * log mean_g exp(Q(g) / beta)`, over the candidates g.
    """
    if not state.left:
        return 0.0
    values = [guess_value(state, guess, beta) for guess in state.candidates]
    top = max(values)
    if not beta:
        return top
    return top + beta * math.log(sum(math.exp((v - top) / beta) for v in values) / len(values))


def optimal_play(beta: float = 0.0) -> Play:
    """The policy that reaches `state_value`: uniform over the best guesses, or `softmax(Q / beta)`."""

    def play(state: State) -> dict[int, float]:
        values = {guess: guess_value(state, guess, beta) for guess in state.candidates}
        top = max(values.values())
        if not beta:
            weights = {guess: float(v > top - 1e-12) for guess, v in values.items()}
        else:
            weights = {guess: math.exp((v - top) / beta) for guess, v in values.items()}
        total = sum(weights.values())
        return {guess: weight / total for guess, weight in weights.items()}

    return play


def _answers(state: State, guess: int) -> Iterator[tuple[float, State]]:
    """The states a wrong guess can lead to, and how likely each answer is."""
    n = len(state.candidates)
    below, above = range(state.low, min(guess, state.high + 1)), range(max(guess + 1, state.low), state.high + 1)
    for side in (below, above):
        if side:
            yield len(side) / n, State(side[0], side[-1], state.left - 1)


def _log_ratio(p: float, guess: int, state: State) -> float:
    return math.log(p * len(state.candidates)) if guess in state.candidates else math.inf


def _check(probabilities: Mapping[int, float], state: State) -> None:
    proper = all(p >= 0 and 1 <= guess <= NUMBERS for guess, p in probabilities.items())
    if not proper or abs(sum(probabilities.values()) - 1.0) > 1e-5:
        raise ValueError(f"play({state}) is {dict(probabilities)}; expected probabilities of 1..{NUMBERS}, sum 1")
