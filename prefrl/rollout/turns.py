"""Rollouts of several turns: the policy speaks, the environment answers, and all live episodes go on together.

A rollout is what the model saw, token for token. Sampled ids are kept as they were drawn and never encoded again;
what the environment said is encoded once and stands between them with mask False and log-prob 0. Earlier turns are
never rendered again either, so a chat template that drops old thoughts cannot change them behind the learner's back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from torch import Tensor

from prefrl.config import SamplingConfig
from prefrl.errors import ConfigError, PrefrlError
from prefrl.rollout.environments import MakeEnvironment, Reply, Terms, TextEnvironment, find_environment, version_of
from prefrl.rollout.local import Drawn, Request
from prefrl.rollout.sampler import occurrences, row_uniforms
from prefrl.types import Prompt, Rollout, StopReason

log = logging.getLogger("prefrl.rollout")
T = TypeVar("T")


class Speaker(Protocol):
    """What the sampler asks of a policy that speaks; a language model does it."""

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """Token ids of a prompt, ready for the policy's turn to follow."""
        ...

    def encode_reply(self, prompt: Prompt, text: str, *, closed: bool, role: str) -> tuple[int, ...]:
        """Token ids between two turns of the policy, of which the first was `closed` by the policy itself or not."""
        ...

    def draw(self, requests: Sequence[Request], params: SamplingConfig) -> list[Drawn]:
        """Draw one turn per request, in the order of the requests."""
        ...

    def decode(self, ids: list[int]) -> str:
        """Text of token ids without special tokens."""
        ...


class MultiTurn:
    """A sampler of episodes: `Engine(policy, ..., sampler=MultiTurn(policy, "guessing"))`.

    Every turn has at most `params.max_new_tokens` tokens. A turn that is cut there is played as it stands: the
    environment gets its text, a chat template closes it, and the policy goes on after the reply;
    `info["turns_cut"]` counts them. A rollout ends

    - ENVIRONMENT  when the environment says so,
    - LENGTH       after `max_turns` turns, or when the reply and one more whole turn would not fit into `budget`: no
                   turn is ever cut by the budget.

    The last reply is not part of the sequence, as the policy never read it. An environment that raises ends its own
    rollout: `info["error"]` says why, and the other rollouts go on. Errors of prefrl itself pass.

    `info["environment"]` holds the `Terms` of the episode: what was played, in which version, and how long it might be.

    Args:
        policy: who speaks.
        environment: what makes one environment per rollout when called, or its name; see `find_environment`.
        max_turns: most turns of the policy in a rollout.
        budget: most tokens of a completion, replies included; 0 sets no limit beside `max_turns`.
    """

    def __init__(
        self, policy: Speaker, environment: MakeEnvironment | str, *, max_turns: int = 8, budget: int = 0
    ) -> None:
        if max_turns < 1 or budget < 0:
            raise ConfigError(
                f"max_turns is {max_turns} and budget {budget}; expected at least 1 turn, and 0 or more tokens."
            )
        self.policy = policy
        self.make = find_environment(environment) if isinstance(environment, str) else environment
        self.name = environment if isinstance(environment, str) else getattr(environment, "__name__", repr(environment))
        self.max_turns = max_turns
        self.budget = budget

    def sample(
        self, prompts: Sequence[Prompt], n: int, params: SamplingConfig, *, seed: int, version: int = 0
    ) -> list[Rollout]:
        """Play `n` episodes of every prompt; the rollouts of a prompt come together and share a group.

        Raises:
            ConfigError: not even one turn fits into the budget.
        """
        if 0 < self.budget < params.max_new_tokens:
            raise ConfigError(
                f"The budget of a rollout is {self.budget} tokens, but a turn may have {params.max_new_tokens}. Raise "
                "the budget, or lower sampling.max_new_tokens."
            )
        shape = (self.max_turns, params.max_new_tokens)
        count = self.max_turns * params.max_new_tokens
        episodes = [
            self._begin(prompt, f"{prompt.id}#{occurrence}", row_uniforms(seed, prompt, occurrence, k, count))
            for prompt, occurrence in zip(prompts, occurrences(prompts), strict=True)
            for k in range(n)
        ]
        for turn in range(self.max_turns):
            live = [e for e in episodes if e.stop is None]
            if not live:
                break
            requests = [Request((*e.prompt_ids, *e.ids), e.uniforms.view(shape)[turn]) for e in live]
            for episode, drawn in zip(live, self.policy.draw(requests, params), strict=True):
                self._play(episode, drawn, params.max_new_tokens)
        return [self._rollout(episode, version, params.max_new_tokens) for episode in episodes]

    def _begin(self, prompt: Prompt, group: str, uniforms: Tensor) -> _Episode:
        episode = _Episode(prompt, group, uniforms)
        episode.guarded(lambda: episode.start(self.make()))
        episode.prompt_ids = self.policy.encode(episode.prompt)
        return episode

    def _play(self, episode: _Episode, drawn: Drawn, longest: int) -> None:
        """Take one turn of the policy and the environment's reply to it."""
        episode.speak(drawn)
        text = self.policy.decode(list(drawn.ids))
        reply = episode.guarded(lambda: _reply(episode.environment.step(text)))
        if reply is None:
            return
        if reply.ended or len(episode.turns) == self.max_turns:
            episode.stop = StopReason.ENVIRONMENT if reply.ended else StopReason.LENGTH
            return
        closed = drawn.stop is StopReason.EOS
        ids = self.policy.encode_reply(episode.prompt, reply.text, closed=closed, role=reply.role)
        if self.budget and len(episode.ids) + len(ids) + longest > self.budget:
            episode.stop = StopReason.LENGTH
            return
        episode.hear(ids)

    def _rollout(self, episode: _Episode, version: int, turn_tokens: int) -> Rollout:
        terms = Terms(
            name=self.name,
            version=version_of(getattr(episode, "environment", None)),
            max_turns=self.max_turns,
            turn_tokens=turn_tokens,
            budget=self.budget,
        )
        info = {**episode.info(), "environment": terms}
        assert episode.stop is not None
        return Rollout(
            prompt=episode.prompt,
            prompt_ids=episode.prompt_ids,
            completion_ids=tuple(episode.ids),
            mask=tuple(episode.mask),
            logps=tuple(episode.logps),
            text=self.policy.decode(episode.ids),
            stop=episode.stop,
            group=episode.group,
            version=version,
            turns=tuple(episode.turns),
            info=info,
        )


@dataclass
class _Episode:
    """One rollout while it is played."""

    prompt: Prompt
    group: str
    uniforms: Tensor  # (turns * tokens a turn,)
    environment: TextEnvironment = field(init=False)
    prompt_ids: tuple[int, ...] = ()
    ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    turns: list[tuple[int, int]] = field(default_factory=list)
    turns_cut: int = 0
    stop: StopReason | None = None
    error: str | None = None

    def start(self, environment: TextEnvironment) -> None:
        self.environment = environment
        self.prompt = _shown(self.prompt, environment.reset(self.prompt))

    def speak(self, drawn: Drawn) -> None:
        start = len(self.ids)
        self.ids += drawn.ids
        self.mask += (True,) * len(drawn.ids)
        self.logps += drawn.logps
        self.turns.append((start, len(self.ids)))
        self.turns_cut += drawn.stop is StopReason.LENGTH

    def hear(self, ids: Sequence[int]) -> None:
        self.ids += ids
        self.mask += (False,) * len(ids)
        self.logps += (0.0,) * len(ids)

    def guarded(self, call: Callable[[], T]) -> T | None:
        """Call the environment; what it raises ends this episode, and None comes back."""
        try:
            return call()
        except PrefrlError:
            raise
        except Exception as error:
            log.debug("the environment of prompt %r raised", self.prompt.id, exc_info=True)
            self.error = f"environment: {type(error).__name__}: {error}"
            self.stop = self.stop or StopReason.ENVIRONMENT
            return None

    def info(self) -> dict[str, Any]:
        report = None if self.error else self.guarded(lambda: dict(self.environment.report()))
        mine = {"turns_cut": self.turns_cut} | ({"error": self.error} if self.error else {})
        return {**(report or {}), **mine}


def _reply(answer: Any) -> Reply:
    """A reply from what `step` returned, which may be a plain tuple."""
    if isinstance(answer, str):  # unpacking would make a text and an end of its letters
        raise TypeError("step returned a text; expected Reply(text, ended)")
    return Reply(*answer)


def _shown(prompt: Prompt, observation: str) -> Prompt:
    """The prompt with the first observation: after its text, or after a blank line in the user's last message."""
    if not observation:
        return prompt
    if prompt.messages is None:
        return replace(prompt, text=f"{prompt.text}{observation}")
    *before, last = prompt.messages
    if last.get("role") != "user":
        return replace(prompt, messages=(*prompt.messages, {"role": "user", "content": observation}))
    return replace(prompt, messages=(*before, {**last, "content": f"{last['content']}\n\n{observation}"}))
