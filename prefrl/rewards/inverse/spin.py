"""SPIN: the policy against its former self (Chen et al. 2024, arXiv:2401.01335), and the reward in that.

A round's opponent is the policy as the round begins. It answers the demonstrated prompts; the policy then learns by a
pair loss that the demonstration is preferred to the opponent's answer, with the opponent as reference. What is learnt
is the implicit reward beta (log pi - log opponent): inverse RL whose reward net is the policy itself. Where the policy
is the demonstrator the pairs have two sides of one kind, and nothing moves it further.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.rewards.base import Reward
from prefrl.rewards.inverse.text_nets import body_of
from prefrl.rewards.inverse.text_reward import row_of, text_row
from prefrl.types import Completion, Pair, Prompt, Rollout, Row, Score


@dataclass(frozen=True, slots=True)
class Selfplay:
    """The pairs of a round, and how many answers of the opponent were the demonstration itself."""

    pairs: list[Pair]
    equal: int


def self_play(demonstrations: Sequence[tuple[Prompt, Completion]], answers: Sequence[Completion]) -> Selfplay:
    """Pairs of every demonstration with the opponent's answer to the same prompt.

    An answer with the demonstration's own words teaches nothing and is counted instead.

    Args:
        demonstrations: what is real.
        answers: one of the opponent's for each, in the same order; they keep the token ids they were sampled with.
    """
    pairs, equal = [], 0
    for (prompt, real), answer in zip(demonstrations, answers, strict=True):
        if answer.finished and answer.text.strip() == real.text.strip():
            equal += 1
        else:
            pairs.append(Pair(prompt=prompt, chosen=real, rejected=answer))
    return Selfplay(pairs, equal)


class SelfPlayReward(Reward):
    """`beta (log pi - log ref)` of whole completions under an engine's policy and its reference, as they are.

    Args:
        engine: of a language model, with its reference.
        beta: of the pair loss.
        name: shown in metrics.
    """

    def __init__(self, engine: Engine, beta: float, name: str = "self_play") -> None:
        self.engine, self.beta, self.name = engine, beta, name

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """One score per rollout; texts without token ids are encoded, those without any token are errors."""
        rows = [self._row(rollout) for rollout in rollouts]
        counted = [row for row in rows if row.mask]
        live, reference = self.engine.logps(counted, "policy"), self.engine.logps(counted, "reference")
        ratios = iter([float((a - b).sum()) for a, b in zip(live, reference, strict=True)])
        return [
            Score(value=self.beta * next(ratios)) if row.mask else Score.failed("no token to score") for row in rows
        ]

    def _row(self, rollout: Rollout) -> Row:
        if rollout.prompt_ids:
            return row_of(rollout.prompt_ids, rollout.completion_ids)
        assert isinstance(self.engine.actor, LanguageModel)
        completion = Completion(text=rollout.text, finished=rollout.terminated)
        return text_row(body_of(self.engine.actor), rollout.prompt, completion)
