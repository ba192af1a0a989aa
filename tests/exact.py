"""Episodes few enough to sum over: exact expectations of what the optimizer learns, and the objectives themselves.

A policy is a table of logits, one row a history, in float64. All rollouts that it can sample are put through
`PolicyOptimizer.learn`, group by group, and the gradients that it asks for are summed with their probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from prefrl.model.batching import row_columns
from prefrl.policy.algorithms import resolve
from prefrl.policy.credit import CreditState
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.types import Batch, Extra, Objective, Prompt, Rollout, Row, Score, StopReason

PROMPT = (0, 1)
WEIGHTS = ("rl", "ce", "ref_kl", "entropy", "teacher_kl", "vf")
Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Episode:
    """One way to act and to be answered; `chance` is that of its observations, given the actions."""

    tokens: Tokens
    mask: tuple[bool, ...]
    chance: float
    ended: bool
    turns: tuple[tuple[int, int], ...]


class World:
    """All episodes of at most `steps` actions.

    Args:
        actions: number of actions.
        ending: action 0 ends the episode; otherwise all are equally long.
        turn: after so many actions one of two observations follows, how likely depends on the last action; 0: none.
    """

    def __init__(self, actions: int = 3, steps: int = 2, *, ending: bool = False, turn: int = 0) -> None:
        self.actions, self.steps, self.ending, self.turn = actions, steps, ending, turn
        self.places: dict[Tokens, int] = {}  # history -> row of a table
        self.episodes = list(self._grow((), (), 1.0))
        self.index = {episode.tokens: i for i, episode in enumerate(self.episodes)}

    def _grow(self, tokens: Tokens, mask: tuple[bool, ...], chance: float) -> Iterator[Episode]:
        acted = sum(mask)
        ended = self.ending and acted > 0 and mask[-1] and tokens[-1] == 0
        if ended or acted == self.steps:
            size = self.turn + 1 if self.turn else len(tokens)
            turns = tuple((i, min(i + size, len(tokens))) for i in range(0, len(tokens), size))
            yield Episode(tokens, mask, chance, ended, turns)
            return
        self.places[tokens] = len(self.places)
        sees = bool(self.turn) and acted > 0 and mask[-1] and acted % self.turn == 0
        low = (0.2, 0.5, 0.9)[tokens[-1]] if sees else 0.0
        options = ((0, low), (1, 1.0 - low)) if sees else tuple((a, 1.0) for a in range(self.actions))
        for token, likely in options:
            yield from self._grow((*tokens, token), (*mask, not sees), chance * likely)

    def table(self, seed: int, size: float = 0.8) -> Tensor:
        """Random logits (histories, actions), a leaf."""
        generator = torch.Generator().manual_seed(seed)
        shape = (len(self.places), self.actions)
        return (size * torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_()

    def rows_of(self, tokens: Tokens) -> list[int]:
        """The table's row at every token."""
        return [self.places[tokens[:i]] for i in range(len(tokens))]

    def logps(self, table: Tensor, tokens: Tokens) -> Tensor:
        """Log-probs (n,) of all tokens, observations among them."""
        return table.log_softmax(-1)[self.rows_of(tokens), list(tokens)]

    def tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """The learner's table and, held, a behaviour's and a reference's."""
        return self.table(0), self.table(1).detach(), self.table(2).detach()

    def acted(self, table: Tensor, tokens: Tokens) -> Tensor:
        """The same, 0 at observations."""
        mask = torch.tensor(self.episodes[self.index[tokens]].mask)
        return torch.where(mask, self.logps(table, tokens), 0.0)

    def likelihoods(self, table: Tensor) -> Tensor:
        """log P (E,) of every episode, without the chance of its observations."""
        return torch.stack([self.acted(table, e.tokens).sum() for e in self.episodes])

    def chances(self, table: Tensor) -> Tensor:
        """P (E,) of every episode."""
        return torch.tensor([e.chance for e in self.episodes], dtype=torch.float64) * self.likelihoods(table).exp()

    def visits(self, table: Tensor) -> Tensor:
        """Probability (histories,) that the policy acts at each history, without gradient."""
        visits = torch.zeros(len(self.places), dtype=torch.float64)
        for chance, episode in zip(self.chances(table.detach()).tolist(), self.episodes, strict=True):
            for row, acts in zip(self.rows_of(episode.tokens), episode.mask, strict=True):
                visits[row] += chance * acts
        return visits


def scores(world: World, seed: int = 0, *, final: bool = True, steps: bool = False, low: float = -1.0) -> list[Score]:
    """Random rewards in [low, 1): one of each whole episode, or one at every token that depends on what was before."""
    generator = torch.Generator().manual_seed(seed)
    paid: dict[Tokens, float] = {}

    def draw() -> float:
        return low + (1.0 - low) * float(torch.rand((), generator=generator, dtype=torch.float64))

    found = []
    for episode in world.episodes:
        prefixes = [episode.tokens[: i + 1] for i in range(len(episode.tokens))]
        events = [paid.setdefault(prefix, draw()) for prefix in prefixes] if steps else []
        found.append(Score(value=draw() if final else None, steps=tuple(enumerate(events))))
    return found


def totals(some: Sequence[Score]) -> Tensor:
    """Whole reward (E,) of every episode."""
    return torch.tensor([score.total for score in some], dtype=torch.float64)


def expected(world: World, table: Tensor, values: Tensor) -> Tensor:
    """E of values (E,) under the policy, with gradient."""
    return (world.chances(table) * values).sum()


def gradient(objective: Tensor, table: Tensor) -> Tensor:
    """d objective / d table."""
    (found,) = torch.autograd.grad(objective, table)
    return found


def kl_of_sequences(world: World, table: Tensor, other: Tensor) -> Tensor:
    """KL(pi || other) of whole episodes."""
    return expected(world, table, world.likelihoods(table) - world.likelihoods(other))


def kl_of_actions(table: Tensor, other: Tensor) -> Tensor:
    """KL(pi || other) (histories,) of the next action."""
    logps, others = table.log_softmax(-1), other.log_softmax(-1)
    return (logps.exp() * (logps - others)).sum(-1)


def at_visits(world: World, table: Tensor, values: Tensor) -> Tensor:
    """Sum of values (histories,) by how often each is acted at under a table; how often is held."""
    return (world.visits(table) * values).sum()


class TabularPolicy:
    """Answers the optimizer's calls from tables and keeps what it is asked to learn.

    Args:
        teachers: the teacher's table by the prompt that it is shown.
    """

    version = 0

    def __init__(
        self,
        world: World,
        table: Tensor,
        reference: Tensor | None = None,
        teachers: Mapping[Tokens, Tensor] | None = None,
    ) -> None:
        self.world, self.table, self.reference = world, table, reference
        self.teachers = teachers or {}
        self.budget = world.steps
        self.asked: list[Row] = []
        self.objective: Objective | None = None
        self.extras: Collection[Extra] = ()

    def sample(self, prompts: Sequence[Prompt], n: int, *, seed: int) -> list[Rollout]:
        raise NotImplementedError

    def logps(self, rows: Sequence[Row], who: str) -> list[Tensor]:
        table = self.table if who == "policy" else self.reference
        assert table is not None
        return [self.world.acted(table, row.completion_ids).detach() for row in rows]

    def teacher_logps(self, rows: Sequence[Row]) -> list[Tensor]:
        return [self.world.acted(self._teacher(row), row.completion_ids).detach() for row in rows]

    def step(self, rows: Sequence[Row], objective: Objective, extras: Collection[Extra] = ()) -> dict[str, float]:
        self.asked, self.objective, self.extras = list(rows), objective, extras
        return {}

    def total(self, local: Tensor) -> Tensor:
        return local

    def _teacher(self, row: Row) -> Tensor:
        return self.teachers[row.teacher_prompt_ids or row.prompt_ids].detach()

    def batch(self, rows: Sequence[Row]) -> Batch:
        """The rows as a loss sees them, in float64."""
        masks = [torch.tensor(row.mask) for row in rows]
        at = [torch.tensor(self.world.rows_of(row.completion_ids))[m] for row, m in zip(rows, masks, strict=True)]
        tokens = [torch.tensor(row.completion_ids)[m] for row, m in zip(rows, masks, strict=True)]
        table = self.table.log_softmax(-1)
        extras, here = {}, table[torch.cat(at)]
        if "entropy" in self.extras:
            extras["entropy"] = -(here.exp() * here).sum(-1)
        if "teacher_kl" in self.extras:
            taught = [self._teacher(row).log_softmax(-1)[places] for row, places in zip(rows, at, strict=True)]
            extras["teacher_kl"] = (here.exp() * (here - torch.cat(taught))).sum(-1)
        return Batch(
            outputs=here.gather(-1, torch.cat(tokens)[:, None]).squeeze(-1),
            row=torch.arange(len(rows)).repeat_interleave(torch.tensor([int(m.sum()) for m in masks])),
            streams={
                name: torch.cat([row.streams[name].double()[m] for row, m in zip(rows, masks, strict=True)])
                for name in rows[0].streams
            },
            extras=extras,
            **row_columns(rows, dtype=torch.float64),
        )


class TabularCritic:
    """Values by history, 0 where none is given; what it is asked to learn is kept."""

    def __init__(self, values: Mapping[Tokens, float]) -> None:
        self.known = values
        self.asked: list[Row] = []

    def values(self, rows: Sequence[Row]) -> list[Tensor]:
        return [
            torch.tensor([self.known.get(row.completion_ids[:i], 0.0) if m else 0.0 for i, m in enumerate(row.mask)])
            for row in rows
        ]

    def step(self, rows: Sequence[Row], objective: Objective) -> dict[str, float]:
        self.asked = list(rows)
        return {}


def exact_values(world: World, table: Tensor, some: Sequence[Score]) -> dict[Tokens, float]:
    """V = E of the rewards still to come, at every history."""
    weight, worth = dict.fromkeys(world.places, 0.0), dict.fromkeys(world.places, 0.0)
    for chance, episode, score in zip(world.chances(table).tolist(), world.episodes, some, strict=True):
        for i in range(len(episode.tokens)):
            later = (score.value or 0.0) + sum(reward for token, reward in score.steps if token >= i)
            weight[episode.tokens[:i]] += chance
            worth[episode.tokens[:i]] += chance * later
    return {history: worth[history] / weight[history] for history in weight}


def rollout_of(world: World, number: int, behaviour: Tensor, group: str) -> Rollout:
    """Episode `number` as sampled from a table."""
    episode = world.episodes[number]
    return Rollout(
        prompt=Prompt(id=group, text="x"),
        prompt_ids=PROMPT,
        completion_ids=episode.tokens,
        mask=episode.mask,
        logps=tuple(world.acted(behaviour.detach(), episode.tokens).tolist()),
        text="",
        stop=StopReason.EOS if episode.ended else StopReason.LENGTH,
        group=group,
        turns=episode.turns,
    )


Sampled = tuple[float, list[Row]]  # how likely a group is, and the rows that it becomes


def groups_of(world: World, behaviour: Tensor, size: int) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Every group of episodes with its probability."""
    chances = world.chances(behaviour.detach()).tolist()
    for numbers in product(range(len(chances)), repeat=size):
        yield math.prod(chances[i] for i in numbers), numbers


def expected_ascent(
    world: World,
    table: Tensor,
    spec: object,
    some: Sequence[Score],
    *,
    behaviour: Tensor | None = None,
    size: int = 2,
    means: tuple[float, float] = (math.nan, math.nan),
    critic: TabularCritic | None = None,
    teacher_prompt: Callable[[Rollout], Tokens] | None = None,
    **tables: object,
) -> Tensor:
    """Minus the expected gradient of the loss of one update on a batch of `size` rollouts of one prompt.

    Args:
        behaviour: the table that samples; the learner's own by default.
        means: running means of rewards that credit remembers.
        tables: `reference` and `teachers` of the policy.
    """
    policy = TabularPolicy(world, table, **tables)
    optimizer = PolicyOptimizer(policy, None, resolve(spec), critic=critic, teacher_prompt=teacher_prompt)
    sampler = table if behaviour is None else behaviour
    known = [rollout_of(world, i, sampler, "g") for i in range(len(world.episodes))]
    rows: list[Row] = []
    for number, (chance, members) in enumerate(groups_of(world, sampler, size)):
        optimizer.state = CreditState(kl_coef=optimizer.algorithm.kl.coef, means=means)
        policy.asked = []
        optimizer.learn([known[i] for i in members], [some[i] for i in members])
        rows += [_weighed(row, chance, number) for row in policy.asked]
    assert policy.objective is not None
    loss, _ = policy.objective(policy.batch(rows))
    return gradient(-loss, table)


def same(got: Tensor, wanted: Tensor) -> None:
    """Gradients are equal up to the float32 of the weights, and not for being 0."""
    assert float(wanted.abs().max()) > 1e-3
    torch.testing.assert_close(got, wanted, atol=1e-7, rtol=0)


def cosine(one: Tensor, other: Tensor) -> float:
    """Of the angle between two gradients."""
    return float((one * other).sum() / (one.norm() * other.norm()))


WORLDS = {
    "fixed": World(3, 2),
    "ending": World(3, 3, ending=True),
    "answering": World(2, 3, ending=True, turn=1),  # with observations between the actions
}
REWARDS = {"sequence": {}, "steps": {"final": False, "steps": True}, "both": {"steps": True}}
OWN = {"name": "dr_grpo", "reduction": "sequence_sum", "group_size": 1, "credit": {"baseline": "none"}}
JUDGED = {"name": "ppo", "reduction": "sequence_sum", "kl": {"coef": 0.0}}


def _weighed(row: Row, chance: float, number: int) -> Row:
    """A row that counts as much as its group is likely. All losses are linear in these weights."""
    row.streams = {name: s.double() * (chance if name in WEIGHTS else 1.0) for name, s in row.streams.items()}
    row.weight, row.atom = row.weight * chance, number
    return row
