"""Chains of arithmetic whose every step is known to be right or wrong: what step labels and rewards are tried on.

A problem is a number and what is done to it, such as `Compute 3, + 4, * 2, - 5.`; a solution says one equation a step:

    3 + 4 = 7
    7 * 2 = 14
    14 - 5 = 9

`NoisySolver` writes solutions, and goes on from any prefix of one, as a Markov chain of two states: its running value
is right or wrong. Where it was right it slips with probability `error`, and where it was wrong it finds back to the
right value with probability `recovery`; otherwise it reckons on with what it has. No operation makes a right value of a
wrong one by itself, so with `l = 1 - error - recovery` and `n` steps left

    P(final answer right | right now) = s + (1 - s) l^n,  P(... | wrong now) = s (1 - l^n),
    s = recovery / (error + recovery).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prefrl.data.steps import Stepped
from prefrl.errors import ConfigError, DataError
from prefrl.types import Prompt

Operation = tuple[str, int]

_OPERATORS: dict[str, Callable[[int, int], int]] = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
_TASK = re.compile(r"Compute (-?\d+)((?:, [-+*] \d+)+)(?: modulo (\d+))?\.")
_RESULT = re.compile(r"= (-?\d+)\s*$")
_PATIENCE = 1000
_SLIPS = (-3, -2, -1, 1, 2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A number, and what is done to it step by step; all values are taken modulo `modulus` where that is not 0."""

    start: int
    operations: tuple[Operation, ...]
    modulus: int = 0

    @classmethod
    def of(cls, prompt: Prompt) -> Chain:
        """The chain that a prompt asks for.

        Raises:
            DataError: it asks for none.
        """
        found = _TASK.fullmatch(prompt.question.strip())
        if found is None:
            raise DataError(f"prompt {prompt.id!r} asks for no chain; expected a text such as 'Compute 3, + 4, * 2.'")
        operations = tuple((sign, int(value)) for sign, value in re.findall(r", ([-+*]) (\d+)", found[2]))
        return cls(start=int(found[1]), operations=operations, modulus=int(found[3] or 0))

    @property
    def prompt(self) -> Prompt:
        """The question, with the right answer in the column `answer`."""
        asked = "".join(f", {sign} {value}" for sign, value in self.operations)
        text = f"Compute {self.start}{asked}{f' modulo {self.modulus}' if self.modulus else ''}.\n"
        return Prompt(id=text.strip(), text=text, columns={"answer": str(self.values[-1])})

    @property
    def values(self) -> tuple[int, ...]:
        """The start, and the right value after every step."""
        found = [self.start]
        for at in range(len(self.operations)):
            found.append(self.apply(at, found[-1]))
        return tuple(found)

    def apply(self, at: int, value: int) -> int:
        """What step `at` makes of a value, right or wrong."""
        sign, operand = self.operations[at]
        return self.reduce(_OPERATORS[sign](value, operand))

    def reduce(self, value: int) -> int:
        """A value as it is written."""
        return value % self.modulus if self.modulus else value

    def equation(self, at: int, left: int, right: int) -> str:
        """The text of step `at`; every step but the last one ends its line."""
        sign, operand = self.operations[at]
        return f"{left} {sign} {operand} = {right}" + ("\n" if at + 1 < len(self.operations) else "")

    def truths(self, steps: Sequence[str]) -> tuple[bool, ...]:
        """Whether the value after each of these steps is right.

        Raises:
            DataError: a step does not end with a result, or there are more steps than operations.
        """
        found = [_RESULT.search(step) for step in steps]
        if None in found or len(steps) > len(self.operations):
            raise DataError(f"{list(steps)!r} are no steps of {self.prompt.id!r}; expected lines such as '3 + 4 = 7'")
        return tuple(int(m[1]) == value for m, value in zip(found, self.values[1:], strict=False) if m is not None)

    def solution(self) -> Stepped:
        """The right solution."""
        return self._stepped([(left, right) for left, right in zip(self.values, self.values[1:], strict=False)])

    def with_error(self, at: int, rng: random.Random) -> Stepped:
        """A solution whose first error is step `at`; the steps after it reckon on with the wrong value."""
        if not 0 <= at < len(self.operations):
            raise DataError(f"step {at} of a chain of {len(self.operations)} steps; expected an index from 0")
        lines = list(zip(self.values[: at + 1], self.values[1 : at + 2], strict=True))
        lines[at] = lines[at][0], self.slip(lines[at][1], rng)
        for later in range(at + 1, len(self.operations)):
            lines.append((lines[-1][1], self.apply(later, lines[-1][1])))
        return self._stepped(lines)

    def slip(self, value: int, rng: random.Random) -> int:
        """A wrong value near the right one."""
        near = [self.reduce(value + by) for by in _SLIPS]
        return rng.choice([one for one in near if one != value])

    def _stepped(self, lines: Sequence[tuple[int, int]]) -> Stepped:
        steps = tuple(self.equation(at, left, right) for at, (left, right) in enumerate(lines))
        truths = self.truths(steps)
        outcome = float(truths[-1]) if len(steps) == len(self.operations) else None
        return Stepped(prompt=self.prompt, steps=steps, labels=tuple(map(float, truths)), outcome=outcome)


def chains(count: int, *, length: int = 5, modulus: int = 0, seed: int = 0) -> list[Chain]:
    """Different chains of `length` operations, the same ones for the same seed.

    Multipliers have no factor in common with the modulus: a wrong value then stays wrong whatever is done to it.

    Raises:
        ConfigError: a length below 1, a modulus below 4 that is not 0, or more chains than there are.
    """
    if length < 1 or (modulus and modulus < 4):
        raise ConfigError(
            f"chains of length {length} modulo {modulus}; expected 1 or more steps, modulus 0 or 4 or more"
        )
    rng = random.Random(f"chains|{seed}|{length}|{modulus}")
    found: dict[Chain, None] = {}
    seen_before = 0  # draws in a row that gave nothing new
    while len(found) < count and seen_before < _PATIENCE:
        size = len(found)
        found[_chain(length, modulus, rng)] = None
        seen_before = 0 if len(found) > size else seen_before + 1
    if len(found) < count:
        raise ConfigError(
            f"found {len(found)} different chains of length {length}, not {count}; raise length or modulus"
        )
    return list(found)


def _chain(length: int, modulus: int, rng: random.Random) -> Chain:
    factors = [f for f in range(2, modulus or 4) if not modulus or _coprime(f, modulus)]
    signs = ("+", "-", "*") if factors else ("+", "-")
    largest = min(9, modulus - 1) if modulus else 9
    operations = []
    for sign in rng.choices(signs, k=length):
        operations.append((sign, rng.choice(factors) if sign == "*" else rng.randint(1, largest)))
    return Chain(start=rng.randint(1, largest), operations=tuple(operations), modulus=modulus)


def _coprime(one: int, other: int) -> bool:
    while other:
        one, other = other, one % other
    return one == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisySolver:
    """Solves chains with known noise; see the head of this module.

    error     P(a slip) at a step before which the value was right
    recovery  P(the right value again) at a step before which it was wrong
    """

    error: float = 0.1
    recovery: float = 0.0

    def __post_init__(self) -> None:
        if not (0.0 <= self.error <= 1.0 and 0.0 <= self.recovery <= 1.0):
            raise ConfigError(f"error {self.error}, recovery {self.recovery}; expected two probabilities")

    def success(self, right: bool, left: int) -> float:
        """P(the final answer is right) with `left` steps to go, from a right or a wrong value."""
        both = self.error + self.recovery
        if both == 0.0:
            return float(right)
        settled, kept = self.recovery / both, (1.0 - both) ** left
        return settled + (1.0 - settled) * kept if right else settled * (1.0 - kept)

    def values(self, chain: Chain, steps: Sequence[str]) -> tuple[float, ...]:
        """P(the final answer is right) before the first and after every step, exactly."""
        states = (True, *chain.truths(steps))
        return tuple(self.success(right, len(chain.operations) - at) for at, right in enumerate(states))

    def proceed(self, chain: Chain, steps: Sequence[str], rng: random.Random) -> tuple[str, ...]:
        """The steps that are still missing."""
        states = chain.truths(steps)
        truth = chain.values
        value, right = truth[len(steps)], not states or states[-1]
        if not right:
            value = int(_RESULT.search(steps[-1])[1])  # type: ignore[index]  # `truths` has read it
        found = []
        for at in range(len(steps), len(chain.operations)):
            if right:
                right = rng.random() >= self.error
                left, value = truth[at], truth[at + 1] if right else chain.slip(truth[at + 1], rng)
            else:
                right = rng.random() < self.recovery
                left = truth[at] if right else value
                value = chain.apply(at, left)
            found.append(chain.equation(at, left, value))
        return tuple(found)

    def solve(self, chain: Chain, rng: random.Random) -> Stepped:
        """A solution with its exact labels: whether the value after each step is right."""
        steps = self.proceed(chain, (), rng)
        truths = chain.truths(steps)
        labels = tuple(map(float, truths))
        return Stepped(prompt=chain.prompt, steps=steps, labels=labels, outcome=labels[-1])

    def tries(self, chain: Chain, steps: Sequence[str], n: int, rng: random.Random) -> tuple[int, int]:
        """How many of n continuations of these steps are right, and n."""
        finals = ([*steps, *self.proceed(chain, steps, rng)] for _ in range(n))
        return sum(chain.truths(whole)[-1] for whole in finals), n


def labelled_chains(
    count: int, *, length: int = 5, modulus: int = 0, wrong: float = 0.5, seed: int = 0
) -> list[Stepped]:
    """Solutions of different chains with exact labels; a share `wrong` has its first error at a place drawn evenly."""
    rng = random.Random(f"labelled|{seed}")
    tasks = chains(count, length=length, modulus=modulus, seed=seed)
    return [
        chain.with_error(rng.randrange(length), rng) if rng.random() < wrong else chain.solution() for chain in tasks
    ]
