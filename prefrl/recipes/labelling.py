"""Who compares two completions: a simulator whose taste is declared, or any reward source as a judge.

u = utility(first) - utility(second)
|u| <= tie_width               a tie
else first is taken with       sigmoid(u / noise), or where u > 0 without noise
and every choice is turned     with probability `flip`
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from prefrl.config import LabellerConfig
from prefrl.data.comparisons import WINS, Item, Outcome
from prefrl.errors import RewardError
from prefrl.recipes.annotator import SimulatedAnnotator
from prefrl.recipes.common import Checked
from prefrl.rewards.base import Reward
from prefrl.rewards.specs import build
from prefrl.types import Completion, Prompt, Rollout, Score, StopReason


class Everyday(Reward):
    """The utility of the quickstart's annotator, in [0, 1]; prompts bring a list of `keywords`.

    As a reward: `{kind: "prefrl.recipes.labelling:Everyday"}`.
    """

    name = "everyday"

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        annotator = SimulatedAnnotator()
        return [Score(value=annotator.utility(r.prompt, r.text, finished=r.terminated)) for r in rollouts]


@dataclass(frozen=True)
class Judge:
    """Compares two completions by any reward source, which sees the two as one group.

    tie_width  totals at most so far apart are a tie
    """

    reward: Checked
    tie_width: float = 0.0

    @property
    def name(self) -> str:
        """What decides."""
        return self.reward.source.name

    def gains(self, items: Sequence[Item]) -> list[float]:
        """How much better the first completion of every item is than the second; NaN where one has no score."""
        rollouts = [as_rollout(i.prompt, side, group=i.id) for i in items for side in (i.first, i.second)]
        totals = [score.total for score in self.reward.score(rollouts)]
        return [first - second for first, second in zip(totals[::2], totals[1::2], strict=True)]

    def outcomes(self, items: Sequence[Item]) -> list[Outcome]:
        """What it says of every item, without noise; a skip where a completion has no score."""
        return [_outcome(gain, self.tie_width) for gain in self.gains(items)]


@dataclass(frozen=True)
class Simulator:
    """An annotator with a declared utility. What it says of an item depends on the seed and on the item alone."""

    config: LabellerConfig
    judge: Judge
    seed: int

    def label(self, items: Sequence[Item]) -> list[Outcome]:
        """What it says of every item."""
        return [self._say(item, gain) for item, gain in zip(items, self.judge.gains(items), strict=True)]

    def _say(self, item: Item, gain: float) -> Outcome:
        outcome = _outcome(gain, self.config.tie_width)
        if outcome not in ("first", "second"):
            return outcome
        rng = random.Random(seed_of(self.seed, f"label {item.id}"))
        first = rng.random() < probability(gain, self.config.noise)
        turned = rng.random() < self.config.flip
        return "first" if first != turned else "second"

    @property
    def description(self) -> str:
        """Its taste in a sentence, for reports."""
        config = self.config
        noise = f"with probability sigmoid(difference / {config.noise:g})" if config.noise else "without an error"
        return (
            f"Simulated annotator, not a person. Its utility is {self.judge.name}; it takes the better of two "
            f"completions {noise}, calls utilities within {config.tie_width:g} a tie, and {config.flip:.0%} of its "
            "choices are turned around."
        )


def simulator(config: LabellerConfig, seed: int, max_error_fraction: float = 0.1) -> Simulator:
    """The simulator that a configuration declares.

    Raises:
        ConfigError: a utility that cannot be built.
    """
    return Simulator(config, Judge(Checked(build(config.utility), max_error_fraction), config.tie_width), seed)


def probability(gain: float, noise: float) -> float:
    """sigmoid(gain / noise): how often the first completion is taken; without noise 1 or 0."""
    if not noise:
        return float(gain > 0)
    z = gain / noise
    return 1.0 / (1.0 + math.exp(-z)) if z >= 0 else math.exp(z) / (1.0 + math.exp(z))


def won(outcomes: Sequence[Outcome]) -> list[float]:
    """1, 0 or 0.5 for the first completion of every item that somebody could judge; two bad ones are a tie.

    Raises:
        RewardError: none could be judged.
    """
    found = [WINS[outcome] for outcome in outcomes if outcome in WINS]
    if outcomes and not found:
        raise RewardError(f"None of {len(outcomes)} comparisons could be judged; expected some. Look at the samples.")
    return found


def seed_of(seed: int, what: str) -> int:
    """A seed of its own for everything that draws, of 31 bits."""
    return int.from_bytes(hashlib.sha256(f"{seed}|{what}".encode()).digest()[:4], "big") >> 1


def _outcome(gain: float, tie_width: float) -> Outcome:
    if math.isnan(gain):
        return "skip"
    if abs(gain) <= tie_width:
        return "tie"
    return "first" if gain > 0 else "second"


def as_rollout(prompt: Prompt, completion: Completion, *, group: str, prompt_ids: tuple[int, ...] = ()) -> Rollout:
    """A completion as reward sources take it."""
    ids = completion.ids or ()
    return Rollout(
        prompt=prompt,
        prompt_ids=prompt_ids,
        completion_ids=ids,
        mask=(True,) * len(ids),
        logps=completion.logps if completion.logps is not None else (0.0,) * len(ids),
        text=completion.text,
        stop=StopReason.EOS if completion.finished else StopReason.LENGTH,
        group=group,
    )


def as_completion(rollout: Rollout) -> Completion:
    """What a policy sampled, with its exact token ids and log-probs."""
    return Completion(text=rollout.text, ids=rollout.completion_ids, logps=rollout.logps, finished=rollout.terminated)
