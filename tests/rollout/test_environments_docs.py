"""What the page on environments shows works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from prefrl.rewards import build
from prefrl.rollout.environments import ENVIRONMENTS, find_environment
from prefrl.types import Prompt, Rollout, StopReason

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text(encoding="utf-8")
BLOCKS = {
    language: re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE) for language in ("python", "yaml")
}


def test_every_environment_is_in_the_table():
    assert {name for name in ENVIRONMENTS if f"\n| `{name}` |" not in PAGE} == set()


def test_an_environment_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "my_game.py").write_text(next(block for block in BLOCKS["python"] if "class Countdown" in block))
    monkeypatch.chdir(tmp_path)
    game = find_environment("my_game.py:Countdown")()
    assert game.reset(Prompt(id="p", text="Count down.", columns={"start": 1})) == "Start at 1."
    assert game.step("1") == ("Go on.", False, "user")
    assert game.step(" 0\n").ended
    assert game.report() == {"success": 1.0, "right": 2}
    game.reset(Prompt(id="p", text="Count down.", columns={"start": 3}))
    assert game.step("2") == ("No, 3.", True, "user")
    assert game.report()["success"] == 0.0


def test_a_repair_with_settings_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "my_repair.py").write_text(next(block for block in BLOCKS["python"] if "Strict" in block))
    monkeypatch.chdir(tmp_path)
    game = find_environment("my_repair.py:Strict")()
    assert (game.version, game.limits.seconds) == ("1", 5.0)


def test_the_rewards_of_the_page():
    (shown,) = [yaml.safe_load(block)["rewards"] for block in BLOCKS["yaml"] if "malformed" in block]
    source = build(shown)
    info = {"success": 1.0, "malformed": 3}
    rollout = Rollout(
        **{"prompt": Prompt(id="p", text=""), "completion_ids": (1,), "mask": (True,), "logps": (0.0,), "text": ""},
        **{"stop": StopReason.ENVIRONMENT, "group": "g", "info": info},
    )
    (score,) = source.score([rollout])
    assert score.total == 1.0
    assert {"environment", "malformed"} <= set(score.parts)


@pytest.mark.parametrize("name", ["guessing", "calculator", "repair"])
def test_what_is_reported_is_on_the_page(name):
    prompts = {
        "guessing": {"target": 3},
        "calculator": {"answer": "3"},
        "repair": {"file": "def f():\n    return 1\n", "entry_point": "f"}
        | {column: [{"args": [], "expected": 1}] for column in ("visible", "cases")},
    }
    game = find_environment(name)()
    game.reset(Prompt(id="p", text="", columns=prompts[name]))
    game.step("nothing")
    section = PAGE.partition(f"## {name.title()}\n")[2].partition("\n## ")[0]
    assert {key for key in game.report() if f"`{key}`" not in section} == set()
