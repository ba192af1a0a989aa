"""The nouns that flow: Prompt -> Rollout -> Score -> Row -> StepResult.

    Prompt   what the policy is asked
    Rollout  what the policy did: token ids in, token ids out, never decoded and re-encoded
    Score    what a reward source says of one rollout
    Pair     two completions of one prompt, the first one preferred
    Ranking  several completions of one prompt in order
    Row      one training sequence with its per-token weight streams
    StepResult  what one optimizer step did

`n` is the number of tokens of a completion (or of actions of an episode) everywhere below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

Message = Mapping[str, Any]


class StopReason(StrEnum):
    """Why a rollout ended."""

    EOS = "eos"  # the policy ended its turn
    STOP = "stop"  # a stop string appeared
    LENGTH = "length"  # the token budget ran out: truncated, not terminated
    ENVIRONMENT = "environment"  # the environment ended the episode


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One question put to the policy: plain `text`, or chat `messages`, never both.

    `columns` holds every other dataset column; programmatic rewards receive them by name.
    """

    id: str
    text: str | None = None
    messages: tuple[Message, ...] | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.text is None) == (self.messages is None):
            raise ValueError(f"prompt {self.id!r}: give exactly one of text and messages")

    @property
    def content(self) -> str | list[Message]:
        """The prompt as the dataset had it: a string, or a list of messages (TRL's convention)."""
        return self.text if self.text is not None else list(self.messages or ())

    @property
    def question(self) -> str:
        """The last user message, or the whole text: for tables, samples and word overlap."""
        if self.text is not None:
            return self.text
        users = [m for m in self.messages or () if m.get("role") == "user"]
        return str(users[-1]["content"]) if users else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One sampled completion (or episode) with everything the learner needs, bit for bit.

    completion_ids  (n,) sampled tokens and, in multi-turn rollouts, observation tokens; or actions, and zeros where
                    `actions` holds them
    mask            (n,) True on the tokens the policy sampled
    logps           (n,) behaviour log-probs over the full vocabulary at the sampling temperature
    group           rollouts of the same prompt in the same step share it; position never matters
    version         version of the policy that sampled it
    observations    (n, d) for control policies, None for language models; or (n + 1, d), where the last one is what
                    was seen after the last action, which a critic needs to judge an episode that was cut off
    actions         (n, k) continuous actions of control policies, in the environment's units; None elsewhere
    turns           (start, end) token spans of the policy's turns; empty means one turn
    info            what the environment reports of the episode, by name
    """

    prompt: Prompt
    prompt_ids: tuple[int, ...] = ()
    completion_ids: tuple[int, ...]
    mask: tuple[bool, ...]
    logps: tuple[float, ...]
    text: str
    stop: StopReason
    group: str
    version: int = 0
    observations: Tensor | None = None
    actions: Tensor | None = None
    turns: tuple[tuple[int, int], ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.completion_ids)
        if not n == len(self.mask) == len(self.logps):
            raise ValueError(
                f"rollout of {self.prompt.id!r}: {n} tokens, {len(self.mask)} mask entries and "
                f"{len(self.logps)} log-probs; the three must be equal"
            )
        if self.actions is not None and len(self.actions) != n:
            raise ValueError(f"rollout of {self.prompt.id!r}: {n} completion_ids and {len(self.actions)} actions")
        if self.turns:
            inside = sum(sum(self.mask[start:end]) for start, end in self.turns)
            if inside != sum(self.mask):
                raise ValueError(
                    f"rollout of {self.prompt.id!r}: {sum(self.mask)} tokens were sampled and {inside} lie in turns; "
                    "every sampled token belongs to one turn"
                )

    @property
    def truncated(self) -> bool:
        """True when the budget, not the policy or the environment, ended it."""
        return self.stop is StopReason.LENGTH

    @property
    def terminated(self) -> bool:
        """True when the policy or the environment ended it."""
        return not self.truncated

    @property
    def completion(self) -> str | list[Message]:
        """The completion in the prompt's own format (TRL's convention)."""
        if self.prompt.messages is None:
            return self.text
        return [{"role": "assistant", "content": self.text}]

    @property
    def last_sampled(self) -> int:
        """Index of the last sampled token, where a sequence-level reward is paid; -1 if there is none."""
        return max((i for i, sampled in enumerate(self.mask) if sampled), default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a reward source says of one rollout.

    value   sequence-level reward, paid at the last sampled token; None when there is only `steps`
    steps   ((token index, reward), ...) step- or token-level rewards, added to `value`
    parts   named, unweighted components, for metrics and reports
    error   why the rollout could not be scored; an errored rollout never counts as 0: it leaves
            the baseline, the loss and the means, and is counted
    """

    value: float | None = None
    steps: tuple[tuple[int, float], ...] = ()
    parts: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None

    @classmethod
    def failed(cls, why: str) -> Score:
        """A score that says the source could not score this rollout."""
        return cls(error=why)

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def total(self) -> float:
        """Sum of the sequence-level and all step-level rewards; NaN when errored."""
        if self.error is not None:
            return math.nan
        return (self.value or 0.0) + sum(reward for _, reward in self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A text and, when a policy of ours sampled it, its exact token ids and their log-probs then.

    `finished` is False when the token budget cut it off: no end-of-turn token belongs after it.
    """

    text: str
    ids: tuple[int, ...] | None = None
    logps: tuple[float, ...] | None = None
    finished: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two completions of one prompt; `chosen` is preferred with probability `label` where one is preferred at all.

    tie        probability that neither is preferred: 1 for a tie, the share of tied votes where several people judged
    annotator  who judged, for models of how reliable people are; empty when nobody says
    """

    prompt: Prompt
    chosen: Completion
    rejected: Completion
    label: float = 1.0
    margin: float = 0.0
    weight: float = 1.0
    tie: float = 0.0
    annotator: str = ""

    def swap(self) -> Pair:
        """The same preference with the two sides exchanged; a margin is asked of whichever side is preferred."""
        return replace(
            self,
            chosen=self.rejected,
            rejected=self.chosen,
            label=1.0 - self.label,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Completions of one prompt with their ranks, 1 the best; equal ranks are ties."""

    prompt: Prompt
    completions: tuple[Completion, ...]
    ranks: tuple[int, ...]
    weight: float = 1.0
    annotator: str = ""

    def __post_init__(self) -> None:
        if len(self.completions) != len(self.ranks) or len(self.ranks) < 2:
            raise ValueError(
                f"ranking of {self.prompt.id!r}: {len(self.completions)} completions and {len(self.ranks)} ranks; "
                "expected one rank each, and at least two"
            )
        if min(self.ranks) < 1:
            raise ValueError(f"ranking of {self.prompt.id!r}: rank {min(self.ranks)}; ranks start at 1, the best")


# The streams of a row by which a token counts in a loss; all others are targets.
WEIGHTS = ("rl", "ce", "ref_kl", "entropy", "teacher_kl", "vf")


@dataclass(slots=True, kw_only=True)
class Row:
    """One training sequence: what was seen, what was done, and a weight per token and stream.

    mask     (n,) True on the tokens whose output is computed: those that the policy sampled and, where the
             environment's words are learnt too, the observation tokens
    streams  name -> float tensor (n,). Weights, with advantage and reduction folded in so that the loss is a plain
             sum: `rl`, `ce`, `ref_kl`, `entropy`, `teacher_kl`, `vf`. Targets: `old_logps`, `ref_logps`,
             `old_values`, `returns`. `sampled` is 1 on the policy's own tokens; absent, all tokens are.
    observations, actions  of control policies, as `Rollout` has them
    side     +1 chosen (or good), -1 rejected (or bad), 0 neither
    rank     place in a ranked list, 1 the best; 0 outside one
    atom     rows with the same atom are computed in the same micro-batch (the two sides of a pair, a ranked list)
    label, margin, weight, tie  of the pair, as `Pair` has them
    annotator  index of who judged, -1 for nobody
    teacher_prompt_ids  the prompt as a teacher sees it, when that is another one
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    mask: tuple[bool, ...]
    streams: dict[str, Tensor] = field(default_factory=dict)
    observations: Tensor | None = None
    actions: Tensor | None = None
    atom: int = 0
    side: int = 0
    weight: float = 1.0
    label: float = 1.0
    margin: float = 0.0
    tie: float = 0.0
    annotator: int = -1
    rank: int = 0
    teacher_prompt_ids: tuple[int, ...] | None = None

    @property
    def together(self) -> bool:
        """Whether rows of the same atom must be computed in the same micro-batch."""
        return bool(self.side or self.rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one optimizer step did."""

    metrics: Mapping[str, float]
    rollouts: Sequence[Rollout] = ()
    scores: Sequence[Score] = ()
    version: int = 0


@dataclass(slots=True, kw_only=True)
class Batch:
    """A micro-batch as the losses see it: scored tokens laid end to end, no padding.

    outputs  (N,) what the trained module says of each scored token, with gradient: its log-prob under a
             policy, its value under a reward model; (N, K) for a reward model of K heads
    row      (N,) index of each token's row, 0 <= row < R, non-decreasing
    streams  name -> (N,): the rows' weights and targets
    side, atom, label, margin, weight, tie, annotator, rank  (R,) of each row, for losses on pairs and ranked lists
    extras   name -> (N,) further outputs that were asked for, with gradient: `entropy` of the policy at each token,
             `teacher_kl` = KL(policy || teacher) over the whole vocabulary
    """

    outputs: Tensor
    row: Tensor
    streams: Mapping[str, Tensor]
    side: Tensor
    atom: Tensor
    label: Tensor
    margin: Tensor
    weight: Tensor
    tie: Tensor
    annotator: Tensor
    rank: Tensor
    extras: Mapping[str, Tensor] = field(default_factory=dict)

    def where(self, keep: Tensor) -> Batch:
        """The same rows with only the tokens for which `keep` (N,) is True."""
        return replace(
            self,
            outputs=self.outputs[keep],
            row=self.row[keep],
            streams={name: stream[keep] for name, stream in self.streams.items()},
            extras={name: extra[keep] for name, extra in self.extras.items()},
        )

    @property
    def logps(self) -> Tensor:
        """`outputs`, under the name that policy losses know them by."""
        return self.outputs

    @property
    def rows(self) -> int:
        """Number of rows R."""
        return int(self.side.shape[0])


# What a policy can be asked for beside the log-probs of its tokens; see Batch.extras.
Extra = Literal["entropy", "teacher_kl"]

# Metrics of a loss as sums and counts on the device, read once a step; "<name>/max" and "<name>/min" hold
# extremes instead.
Sums: TypeAlias = "dict[str, tuple[Tensor, Tensor]]"

# A loss: a scalar that is a plain sum over the batch's weighted tokens or pairs, and its metrics.
Objective: TypeAlias = "Callable[[Batch], tuple[Tensor, Sums]]"
