from __future__ import annotations

import pytest

from prefrl.errors import ConfigError
from prefrl.rollout.environments import ENVIRONMENTS, Reply, find_environment
from prefrl.rollout.guessing import GuessingInWords


@pytest.mark.parametrize("name", ["guessing", "prefrl.rollout.guessing:GuessingInWords"])
def test_by_name_and_by_path(name):
    assert find_environment(name) is GuessingInWords


@pytest.mark.parametrize("name", ["my_game:Game", "my_game.py:Game", "games/my_game.py:Game"])
def test_a_game_of_the_current_folder(tmp_path, monkeypatch, name):
    (tmp_path / "games").mkdir()
    for folder in (tmp_path, tmp_path / "games"):
        (folder / "my_game.py").write_text("class Game:\n    sides = 6\n")
    monkeypatch.chdir(tmp_path)
    assert find_environment(name)().sides == 6


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_name_makes_an_environment(name):
    made = find_environment(name)()
    assert all(callable(getattr(made, verb)) for verb in ("reset", "step", "report"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("guesing", r"There is no environment 'guesing'; valid: guessing, .* Did you mean 'guessing'\?"),
        ("no_such_module:Thing", r"environment 'no_such_module:Thing': cannot import .*: ModuleNotFoundError"),
        ("prefrl.rollout.guessing:Thing", r"environment 'prefrl.rollout.guessing:Thing': .* has no 'Thing'; it has"),
        ("my_game.py", r"or your own as package\.module:name or path/to/file\.py:name"),
        ("prefrl.rollout.guessing:NUMBERS", r"is 16; expected a class or function"),
    ],
)
def test_what_is_none_says_what_to_type(name, says):
    with pytest.raises(ConfigError, match=says):
        find_environment(name)


def test_a_reply_goes_on_by_default_and_is_the_users():
    assert Reply("higher") == ("higher", False, "user")
