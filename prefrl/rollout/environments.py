"""Text environments: what a policy talks to over several turns, and how one is found by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, TypedDict

from prefrl.errors import ConfigError, did_you_mean
from prefrl.plugins import import_path
from prefrl.types import Prompt


class Reply(NamedTuple):
    """What an environment answers to one turn of the policy.

    text   what the policy reads next; nobody reads it once the episode has ended
    ended  whether the episode is over
    role   who says it in a conversation: `user`, or `tool` where the chat template knows tools
    """

    text: str
    ended: bool = False
    role: str = "user"


class TextEnvironment(Protocol):
    """One episode in words. It pays no reward: it reports what happened, and reward sources judge that.

    An exception fails the episode it was raised in and no other. What is random in an environment should follow from
    the prompt's id alone, so that a run can be repeated and all episodes of a group face the same odds.

    An attribute `version`, a text, is recorded with every rollout; raise it whenever the same turns may be answered
    otherwise than before. Without one it is "0".
    """

    def reset(self, prompt: Prompt) -> str:
        """Start the episode; what the policy reads after the prompt, or nothing."""
        ...

    def step(self, action: str) -> Reply:
        """Answer one turn of the policy."""
        ...

    def report(self) -> Mapping[str, Any]:
        """What happened, by name, when the episode has ended or was cut off; it becomes `Rollout.info`.

        A number is a figure of the episode, such as `success`; a list of numbers has one for every turn.
        """
        ...


MakeEnvironment: TypeAlias = Callable[[], TextEnvironment]

# name -> module:factory; imported when used.
ENVIRONMENTS: dict[str, str] = {
    "guessing": "prefrl.rollout.guessing:GuessingInWords",
    "calculator": "prefrl.rollout.calculator:Calculator",
    "repair": "prefrl.rollout.repair:Repair",
}


class Terms(TypedDict):
    """What episodes are played in, and how long they may be: recorded with every rollout and every run.

    name, version  of the environment
    max_turns      most turns of the policy
    turn_tokens    most tokens of a turn
    budget         most tokens of all turns and replies; 0 sets no limit
    """

    name: str
    version: str
    max_turns: int
    turn_tokens: int
    budget: int


def version_of(environment: Any) -> str:
    """The `version` that an environment gives itself; "0" where it gives none."""
    return str(getattr(environment, "version", "0"))


def find_environment(name: str) -> MakeEnvironment:
    """What makes the environment of that name, or of a path of your own; see `prefrl.plugins.import_path`.

    Raises:
        ConfigError: there is no such environment, or it cannot be imported or called.
    """
    path = ENVIRONMENTS.get(name, name)
    if ":" not in path:
        raise ConfigError(
            f"There is no environment {name!r}; valid: {', '.join(ENVIRONMENTS)}, or your own as package.module:name "
            f"or path/to/file.py:name.{did_you_mean(name, ENVIRONMENTS)}"
        )
    made = import_path(path, "environment")
    if not callable(made):
        raise ConfigError(
            f"The environment {name!r} is {made!r}; expected a class or function that makes one when called without "
            "arguments."
        )
    return made
