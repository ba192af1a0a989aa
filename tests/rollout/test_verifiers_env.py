"""The adapter for environments of the package verifiers, on one that keeps its protocol."""

from __future__ import annotations

import asyncio
import logging
import types

import pytest

from prefrl.errors import ConfigError, DataError
from prefrl.evaluate.files import to_plain
from prefrl.rollout.environments import version_of
from prefrl.rollout.verifiers_env import adapted, prompt_rows
from prefrl.types import Prompt


class Rubric:
    """1 for the right last guess; the package logs what a function raises, and goes on with 0."""

    def __init__(self):
        self.cleaned = 0

    async def score_rollout(self, state):
        try:
            right = float(state["completion"][-1]["content"] == state["answer"]) / state.get("divisor", 1)
        except ZeroDivisionError as error:
            logging.getLogger("verifiers.rubrics").error("Error calling reward function right: %s", error)
            right = 0.0
        state["reward"], state["metrics"] = 2.0 * right, {"right": right, "note": "a text"}

    async def cleanup(self, state):
        self.cleaned += 1


class Higher:
    """Says higher until the guess is right; the state is the episode's own."""

    env_id = "higher"
    version = "0.3"

    def __init__(self, last="final"):
        self.rubric, self.last, self.loops, self.cleaned = Rubric(), last, set(), []

    def get_dataset(self, n=-1):
        rows = [{"prompt": [{"role": "user", "content": "Guess."}], "answer": str(i), "example_id": i} for i in (7, 8)]
        return rows if n < 0 else rows[:n]

    async def init_state(self, row, client, model):
        assert (client, model) == (None, "prefrl")
        self.loops.add(asyncio.get_running_loop())
        fields = {"trajectory": [], "trajectory_id": "t", "reward": None, "metrics": None, "error": None}
        return {**row, **fields, "final_env_response": None}

    async def setup_state(self, state):
        if self.last == "prompt":
            state["prompt"] = [*state["prompt"], {"role": "user", "content": "more"}]
        if self.last == "over":
            state["stop_condition"] = "nothing to do"
        return None if self.last == "in place" else state

    async def is_completed(self, state):
        return self.last == "over" or state["final_env_response"] is not None or len(state["trajectory"]) == 3

    async def add_trajectory_step(self, state, step):
        assert step["completion"] == [{"role": "assistant", "content": step["completion"][0]["content"]}]
        state["trajectory"].append(step)

    async def env_response(self, messages, state):
        self.loops.add(asyncio.get_running_loop())
        said = messages[-1]["content"]
        if said == "boom":
            raise OSError("the game is gone")
        if said == "error":
            state["error"], state["final_env_response"] = OSError("lost"), "lost"
        if said == "picture":
            return [{"role": "user", "content": [{"type": "image_url"}]}]
        if said == state["answer"]:
            state["final_env_response"] = "correct"
            return "correct"
        message = types.SimpleNamespace(role="tool", content="higher") if said == "tool" else None
        return [
            message or {"role": "user", "content": f"higher than {said}"},
            *([{"role": "user", "content": "Go on."}] if said == "two" else []),
        ]

    async def cleanup(self, state):
        self.cleaned.append(len(state["trajectory"]))
        state["completion"] = state["trajectory"][-1]["completion"]


def begun(environment, **columns):
    game = adapted(environment)()
    row = {**prompt_rows(environment, 1)[0], **columns}
    assert game.reset(Prompt(id=row.pop("id"), messages=tuple(row.pop("prompt")), columns=row)) == ""
    return game


@pytest.mark.parametrize("last", ["final", "in place"])
def test_an_episode_that_ends_by_its_last_word(last):
    environment = Higher(last)
    game = begun(environment)
    assert game.step("3") == ("higher than 3", False, "user")
    assert game.step("7") == ("correct", True, "user")
    assert game.report() == {"reward": 2.0, "right": 1.0, "turns": 2}
    assert (environment.cleaned, environment.rubric.cleaned) == ([2], 1)
    assert len(environment.loops) == 1  # what was opened in one turn can be used in the next


def test_an_episode_that_ends_by_its_own_limit():
    game = begun(Higher())
    assert [game.step(guess).ended for guess in "123"] == [False, False, True]
    assert game.report() == {"reward": 0.0, "right": 0.0, "turns": 3}


def test_an_episode_that_prefrl_cuts_off_is_scored_as_it_stands():
    game = begun(Higher())
    game.step("1")
    assert game.report() == {"reward": 0.0, "right": 0.0, "turns": 1}


def test_what_is_said_between_turns():
    game = begun(Higher())
    assert game.step("tool") == ("higher", False, "tool")
    assert game.step("two").text == "higher than two\n\nGo on."


def test_what_the_environment_sees():
    game = begun(Higher())
    game.step("3")
    game.step("4")
    assert [step["prompt"] for step in game.state["trajectory"]] == [
        [{"role": "user", "content": "Guess."}],
        [
            {"role": "user", "content": "Guess."},
            {"role": "assistant", "content": "3"},
            {"role": "user", "content": "higher than 3"},
        ],
    ]
    assert (game.state["answer"], game.state["example_id"]) == ("7", 7)


@pytest.mark.parametrize(
    ("action", "error"), [("boom", "the game is gone"), ("error", "lost"), ("picture", "a message of list")]
)
def test_an_environment_that_fails_is_cleaned_up(action, error):
    environment = Higher()
    game = begun(environment)
    with pytest.raises((OSError, RuntimeError, TypeError), match=error):
        game.step(action)
    assert environment.cleaned == [1]


def test_a_reward_function_that_raises_is_no_0():
    game = begun(Higher(), divisor=0)
    game.step("7")
    with pytest.raises(RuntimeError, match="Error calling reward function right: float division by zero"):
        game.report()
    assert logging.getLogger("verifiers").handlers == []
    fine = begun(Higher())
    fine.step("7")
    assert fine.report()["reward"] == 2.0


@pytest.mark.parametrize(
    ("last", "says"), [("prompt", "setup_state changed the prompt"), ("over", "over before the first turn.*nothing to")]
)
def test_an_episode_that_cannot_begin(last, says):
    with pytest.raises(RuntimeError, match=says):
        begun(Higher(last))


def test_a_plain_text_is_refused():
    with pytest.raises(DataError, match="Prompt 'p' is a text"):
        adapted(Higher())().reset(Prompt(id="p", text="Guess."))


def test_what_is_no_such_environment_is_refused():
    with pytest.raises(ConfigError, match=r"object has no init_state, .* expected a MultiTurnEnv of verifiers 0.1.14"):
        adapted(object())


def test_prompt_rows():
    rows = prompt_rows(Higher())
    assert [row["id"] for row in rows] == ["higher-7", "higher-8"]
    assert to_plain(rows) == rows  # as a .jsonl file has them
    assert rows[0]["answer"] == "7"
    assert len(prompt_rows(Higher(), 1)) == 1


def test_versions():
    class Installed(Higher):
        version = None

    Installed.__module__ = "pytest.fixtures"
    assert version_of(adapted(Higher())()) == "0.3"
    assert version_of(adapted(Installed())()) == pytest.__version__
    Installed.__module__ = "no_such_distribution"
    assert version_of(adapted(Installed())()) == "0"
