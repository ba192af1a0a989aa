"""Environments of the package verifiers, 0.1.14 to 0.3, as environments of prefrl.

    # wordle.py, for: prefrl rl ... --environment wordle.py:Wordle
    import verifiers
    from prefrl.rollout.verifiers_env import adapted

    Wordle = adapted(verifiers.load_environment("wordle"))

prefrl samples the policy's turns and asks the environment for `setup_state`, `is_completed` and `env_response` between
them, and for its rubric at the end. What is not words cannot be adapted: tool calls outside the text, pictures, a
`get_prompt_messages` that rewrites the conversation. From 0.4 on the package has no such environments any more.

Two habits of the package are not taken over. A reward function that raises counts as 0 there, after a line in a log;
here it fails the episode. The turns are limited by prefrl's `max_turns` too, and that is no success.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
import sys
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from numbers import Real
from threading import Thread
from typing import Any, TypeVar

from prefrl.errors import ConfigError, DataError
from prefrl.rollout.environments import MakeEnvironment, Reply
from prefrl.types import Prompt

T = TypeVar("T")
VERBS = ("init_state", "setup_state", "is_completed", "env_response", "add_trajectory_step", "cleanup")


def adapted(environment: Any) -> MakeEnvironment:
    """What makes an environment of prefrl for every episode of an environment of verifiers.

    Raises:
        ConfigError: it is none of several turns, or of another version of the package.
    """
    missing = [verb for verb in VERBS if not callable(getattr(environment, verb, None))]
    if missing:
        raise ConfigError(
            f"{type(environment).__name__} has no {', '.join(missing)}; expected a MultiTurnEnv of verifiers 0.1.14 to "
            "0.3: pip install 'verifiers>=0.1.14,<0.4'"
        )
    return functools.partial(Adapted, environment)


def prompt_rows(environment: Any, size: int = -1) -> list[dict[str, Any]]:
    """The questions of an environment of verifiers as prompt rows, for a .jsonl file; all of them by default."""
    return [
        {**row, "id": f"{environment.env_id or 'verifiers'}-{row.get('example_id', number)}"}
        for number, row in enumerate(map(dict, environment.get_dataset(n=size)))
    ]


class Adapted:
    """One episode; a prompt's columns (`answer`, `info`, `task`, ...) are the environment's input.

    It reports `reward`, what the rubric makes of the episode, and each of the rubric's functions and metrics by name.
    """

    def __init__(self, environment: Any) -> None:
        self.environment = environment
        self.version = str(getattr(environment, "version", None) or _version(environment))

    def reset(self, prompt: Prompt) -> str:
        """Set up the state.

        Raises:
            DataError: the prompt is a plain text.
            RuntimeError: the environment is over at once, or changes the prompt.
        """
        if prompt.messages is None:
            raise DataError(f"Prompt {prompt.id!r} is a text; environments of verifiers need a list of messages.")
        row = {"example_id": 0, **prompt.columns, "prompt": [dict(message) for message in prompt.messages]}
        self.turns = 0
        _wait(self._begin(row))
        return ""

    def step(self, action: str) -> Reply:
        """Play one turn."""
        self.turns += 1
        try:
            return _wait(self._play(action))
        except Exception:
            _wait(self.environment.cleanup(self.state))  # nobody asks a broken episode for its report
            raise

    def report(self) -> Mapping[str, Any]:
        """`reward`, what the rubric's functions say, and `turns`.

        Raises:
            RuntimeError: the episode ended by an error, or one of the reward functions raised.
        """
        _wait(self._score())
        figures = {"reward": self.state["reward"], **(self.state["metrics"] or {})}
        return {name: float(value) for name, value in figures.items() if isinstance(value, Real)} | {
            "turns": self.turns
        }

    async def _begin(self, row: dict[str, Any]) -> None:
        state = await self.environment.init_state(row, _client(), "prefrl")
        self.state = await self.environment.setup_state(state) or state
        self.messages = list(self.state["prompt"])
        if list(map(_text, self.messages)) != list(map(_text, row["prompt"])):
            raise RuntimeError("setup_state changed the prompt, which the policy would not see")
        if await self.environment.is_completed(self.state):
            raise RuntimeError(f"it is over before the first turn: {self._why()}")

    async def _play(self, action: str) -> Reply:
        said = [_assistant(action)]
        step: dict[str, Any] = dict.fromkeys(("response", "tokens", "reward", "advantage"))
        step |= {"prompt": list(self.messages), "completion": said, "is_truncated": False, "extras": {}}
        step["trajectory_id"] = self.state["trajectory_id"]
        await self.environment.add_trajectory_step(self.state, step)
        self.messages += said
        if await self._ended():
            return Reply("", ended=True)
        answer = await self.environment.env_response(self.messages, self.state)
        answer = [{"role": "user", "content": answer}] if isinstance(answer, str) else list(answer)
        self.messages += answer
        text = "\n\n".join(map(_text, answer))
        if self.state.get("final_env_response") is not None:
            return Reply(text, ended=await self._ended())
        roles = {_field(message, "role") for message in answer}
        return Reply(text, role="tool" if roles == {"tool"} else "user")

    async def _ended(self) -> bool:
        ended = bool(await self.environment.is_completed(self.state))
        if self.state.get("error") is not None:
            raise RuntimeError(self._why())
        return ended

    async def _score(self) -> None:
        await self.environment.cleanup(self.state)
        rubric = self.environment.rubric
        with _loud():
            await rubric.score_rollout(self.state)
        await rubric.cleanup(self.state)

    def _why(self) -> str:
        return repr(self.state.get("error") or self.state.get("stop_condition"))


@contextmanager
def _loud() -> Iterator[None]:
    """Raise what the package would only log: that a reward function raised, for which it has put a 0."""
    heard: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.ERROR and "reward function" in record.getMessage():
                heard.append(record.getMessage())

    listener = Listener()
    logger = logging.getLogger("verifiers")
    logger.addHandler(listener)
    try:
        yield
    finally:
        logger.removeHandler(listener)
    if heard:
        raise RuntimeError("; ".join(heard))


def _version(environment: Any) -> str:
    """Of the distribution that the environment's class comes from."""
    try:
        return metadata.version(type(environment).__module__.partition(".")[0])
    except metadata.PackageNotFoundError:
        return "0"


def _type(name: str) -> Any:
    """A type of the package; None where it is not loaded, as for an environment that only keeps its protocol."""
    return getattr(importlib.import_module("verifiers.types"), name, None) if "verifiers" in sys.modules else None


def _client() -> Any:
    """A client as `init_state` insists on one; nobody calls it, for the policy is here."""
    config = _type("ClientConfig")
    return config() if config is not None else None


def _assistant(text: str) -> Any:
    """A message of the policy, in the package's own type where it has one."""
    return (_type("AssistantMessage") or dict)(role="assistant", content=text)


def _field(message: Any, name: str) -> Any:
    return message[name] if isinstance(message, Mapping) else getattr(message, name)


def _text(message: Any) -> str:
    content = _field(message, "content")
    if not isinstance(content, str):
        raise TypeError(f"a message of {type(content).__name__}; expected text")
    return content


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """One loop for all episodes of the process: what an environment opened in one turn is used in the next."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="verifiers", daemon=True).start()
    return loop


def _wait(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _loop()).result()
