"""A process reward model as a reward source: a number for ranking, or rewards at the steps for policy optimization."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, get_args

from prefrl.errors import ConfigError, did_you_mean
from prefrl.model.process_model import HasSteps, load_process_model
from prefrl.rewards.base import Reward
from prefrl.rewards.process_credit import (
    Aggregate,
    Placement,
    aggregated,
    first_below,
    group_centred,
    group_starts,
    min_form,
    potential,
)
from prefrl.rewards.process_steps import Decode, Piece, decoder_of, pieces_of
from prefrl.types import Prompt, Rollout, Score

if TYPE_CHECKING:
    from prefrl.model.engine import Engine

log = logging.getLogger("prefrl.rewards")

ALONE = 0.5  # s_0 of a rollout without others of its group: nobody knows


class StepScorer(Protocol):
    """What knows steps and scores them; a `ProcessModel` does."""

    def split(self, text: str) -> Sequence[str]:
        """The steps of a text."""
        ...

    def step_probabilities(self, solutions: Sequence[HasSteps]) -> list[list[float]]:
        """P(step is fine) of every step; those that did not fit are missing from the end."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt and the pieces of a solution."""

    prompt: Prompt
    steps: tuple[str, ...]


class ProcessReward(Reward):
    """Scores of the steps of a solution, by a process reward model.

    Texts without tokens, and rollouts of a policy that it was not attached to, get one number: `aggregate` of the step
    scores. While a policy learns, rewards are placed on the last sampled token of every step, in the ids of the rollout
    itself, whatever tokenizer the model has; `placement: sequence` pays the one number instead. In rollouts of several
    turns every turn is a step, and what the environment says is read but not scored. An unfinished step is not scored;
    a policy's rollout that was cut off in its first step is rewarded by 0.

    Parts: `n_steps`, `first_below` (index of the first step below the threshold, -1 for none), and `min`, `product`,
    `mean` and `last` of the scores.

    Args:
        model: what scores steps.
        aggregate: min, product, mean, last, or first_below.
        placement: potential, additive, min_form, group or sequence; see `prefrl.rewards.process_credit`.
        threshold: a step below it counts as wrong.
        start: s_0 of potential: a number, or group for the mean last score of the group, under which no baseline of
            step rewards can pay for more steps.
        gamma: discount from one step to the next, of potential.
        temperature: of the weights of min_form; 0 pays at the lowest step alone.
        name: shown in metrics.

    Raises:
        ConfigError: an unknown name, or a number out of range.
    """

    def __init__(
        self,
        model: StepScorer,
        *,
        aggregate: Aggregate = "min",
        placement: Placement = "potential",
        threshold: float = 0.5,
        start: float | str = "group",
        gamma: float = 1.0,
        temperature: float = 0.1,
        name: str = "process",
    ) -> None:
        _check("aggregate", aggregate, get_args(Aggregate))
        _check("placement", placement, get_args(Placement))
        if isinstance(start, str):
            _check("start", start, ("group",))
        if not (0.0 < gamma <= 1.0 and temperature >= 0.0 and 0.0 <= threshold <= 1.0):
            raise ConfigError(
                f"gamma={gamma}, temperature={temperature}, threshold={threshold}; expected a gamma in (0, 1], a "
                "temperature of 0 or more and a threshold in [0, 1]"
            )
        if placement == "additive":
            log.warning(
                "placement additive pays for every further step: a policy learns to write more of them. The sum of "
                "placement potential does not depend on how many there are."
            )
        self.model = model
        self.aggregate, self.placement, self.threshold = aggregate, placement, threshold
        self.start, self.gamma, self.temperature = start, gamma, temperature
        self.name = name
        self._decode: Decode | None = None

    @classmethod
    def load(
        cls,
        path: str,
        *,
        aggregate: Aggregate = "min",
        placement: Placement = "potential",
        threshold: float = 0.0,
        start: float | str = "group",
        gamma: float = 1.0,
        temperature: float = 0.1,
        separator: str = "",
        max_tokens: int = 0,
        style: str = "",
        device: str = "auto",
    ) -> ProcessReward:
        """A process reward model from a run folder, a model folder, an adapter folder or a hub id.

        Args:
            threshold: 0 takes the one that was chosen in training.
            separator: what ends a step of a text; empty takes that of the training data.
            max_tokens: longer rows are errors; 0 takes what the model was trained with, else has positions for.
            style: the convention of a model that is not ours: trl, qwen, math_shepherd or rlhflow.

        Raises:
            ConfigError: more `max_tokens` than the model has positions for.
            ModelError: not a process reward model, or damaged.
        """
        model = load_process_model(path, style=style, device=device)
        changes: dict[str, Any] = {"separator": separator or model.record.separator}
        most = model.most_tokens
        if max_tokens < 0 or 0 < most < max_tokens:
            raise ConfigError(
                f"max_tokens is {max_tokens}; {model.name} has positions for {most or 'any number of'} tokens. "
                "Leave it out, or set it to 0, for what the model takes."
            )
        changes["max_tokens"] = max_tokens or model.record.max_tokens or most
        model.record = replace(model.record, **changes)
        return cls(
            model,
            aggregate=aggregate,
            placement=placement,
            threshold=threshold or model.record.threshold,
            start=start,
            gamma=gamma,
            temperature=temperature,
        )

    def attach(self, engine: Engine) -> None:
        """Take the policy's tokenizer, by which steps of its rollouts are found among its tokens.

        Raises:
            ConfigError: a policy without one.
        """
        tokenizer = getattr(engine.actor, "tokenizer", None)
        if tokenizer is None:
            raise ConfigError(f"The reward {self.name!r} reads texts; a {type(engine.actor).__name__} writes none.")
        self._decode = decoder_of(tokenizer)

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """One score per rollout; those whose steps do not all fit into the model are errors."""
        pieces, failed = self._pieces(rollouts)
        asked = {i: Asked(rollouts[i].prompt, tuple(p.text for p in own)) for i, own in pieces.items() if own}
        found = dict(zip(asked, self.model.step_probabilities(list(asked.values())), strict=True))
        for i, own in found.items():
            if len(own) < len(pieces[i]):
                failed[i] = f"{len(pieces[i]) - len(own)} of {len(pieces[i])} steps do not fit into the model"
        kept = [i for i in pieces if i not in failed]
        steps = [self._steps(pieces[i], found.get(i, [])) for i in kept]
        placed = self._placed([[score for score, _ in own] for own in steps], [rollouts[i].group for i in kept])
        scores = {
            i: self._score(rollouts[i], own, rewards) for i, own, rewards in zip(kept, steps, placed, strict=True)
        }
        return [Score.failed(failed[i]) if i in failed else scores[i] for i in range(len(rollouts))]

    def _pieces(self, rollouts: Sequence[Rollout]) -> tuple[dict[int, list[Piece]], dict[int, str]]:
        found, failed = {}, {}
        for i, rollout in enumerate(rollouts):
            try:
                found[i] = pieces_of(rollout, self.model.split, self._decode)
            except ValueError as error:
                failed[i] = str(error)
        return found, failed

    @staticmethod
    def _steps(pieces: Sequence[Piece], scores: Sequence[float]) -> list[tuple[float, int]]:
        """Score and token of every step."""
        return [(score, piece.token) for piece, score in zip(pieces, scores, strict=False) if piece.step]

    def _placed(self, scores: Sequence[Sequence[float]], groups: Sequence[str]) -> list[list[float]]:
        """Rewards of the steps of every rollout."""
        if self.placement == "group":
            return group_centred(scores, groups)
        if self.placement == "potential":
            alone = ALONE if isinstance(self.start, str) else self.start
            starts = group_starts(scores, groups, alone) if self.start == "group" else [alone] * len(scores)
            return [potential(own, start, self.gamma) for own, start in zip(scores, starts, strict=True)]
        if self.placement == "min_form":
            return [min_form(own, self.temperature) if own else [] for own in scores]
        return [list(own) for own in scores]

    def _score(self, rollout: Rollout, steps: Sequence[tuple[float, int]], rewards: Sequence[float]) -> Score:
        scores = [score for score, _ in steps]
        learns = self._decode is not None and bool(rollout.completion_ids)
        places = learns and self.placement != "sequence"
        if not steps:
            return _unfinished(rollout, places) if learns else Score.failed("no finished step to score")
        parts = self._parts(scores)
        if not places:
            return Score(value=aggregated(scores, self.aggregate, self.threshold), parts=parts)
        tokens = [token for _, token in steps]
        return Score(steps=tuple(zip(tokens, rewards, strict=True)), parts=parts)

    def _parts(self, scores: Sequence[float]) -> Mapping[str, float]:
        ways: tuple[Aggregate, ...] = ("min", "product", "mean", "last")
        counts = {"n_steps": float(len(scores)), "first_below": float(first_below(scores, self.threshold))}
        return counts | {way: aggregated(scores, way) for way in ways}


def _unfinished(rollout: Rollout, places: bool) -> Score:
    """Nothing for a policy's rollout without a finished step, paid where its steps would be."""
    if rollout.last_sampled < 0:
        return Score.failed("no sampled token to score")
    parts = {"n_steps": 0.0}
    return Score(steps=((rollout.last_sampled, 0.0),), parts=parts) if places else Score(value=0.0, parts=parts)


def _check(what: str, got: str, valid: Sequence[str]) -> None:
    if got not in valid:
        raise ConfigError(f"{what} is {got!r}; valid: {', '.join(valid)}.{did_you_mean(got, valid)}")
