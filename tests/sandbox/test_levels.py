"""Levels are tried, the strongest is taken, and below the floor nothing runs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from prefrl.errors import ConfigError, PrefrlError
from prefrl.sandbox import LEVELS, Limits, Sandbox, SandboxError, Setup, box, check, levels, probe, shared, slot


@pytest.fixture
def offers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretend that the machine offers only these levels."""

    def only(*allowed: str) -> None:
        monkeypatch.setattr(levels, "check", lambda setup: "" if setup.level in allowed else f"no {setup.level} here")
        monkeypatch.setattr(levels, "probe", levels.probe.__wrapped__)

    return only


def test_each_level_is_tried_or_says_why_not() -> None:
    for level in LEVELS:
        reason = check(Setup(level=level))
        assert reason == "" or len(reason) > 10


def test_the_strongest_level_is_taken() -> None:
    offer = probe(Setup(level=""))
    better = [level for level in LEVELS if level > offer.best]
    assert all(offer.why(level) for level in better) and offer.why(offer.best) == ""
    assert probe(Setup(level="")) is offer  # tried once


@pytest.mark.parametrize(
    ("allowed", "floor", "best"), [("BCD", "C", "D"), ("BC", "C", "C"), ("BC", "B", "C"), ("B", "B", "B")]
)
def test_what_is_chosen(offers: Any, allowed: str, floor: str, best: str) -> None:
    offers(*allowed)
    assert levels.choose(Setup(level=""), floor, None).level == best


@pytest.mark.parametrize(("allowed", "floor"), [("B", "C"), ("BC", "D"), ("", "B")])
def test_below_the_floor_nothing_runs_and_the_message_helps(offers: Any, allowed: str, floor: str) -> None:
    offers(*allowed)
    with pytest.raises(SandboxError, match=f"level {floor} is asked for .*no D here.*bubblewrap") as caught:
        levels.choose(Setup(level=""), floor, None)
    assert isinstance(caught.value, PrefrlError)


@pytest.mark.parametrize(
    ("platform", "advice"), [("darwin", "Linux container, or ask for floor: B"), ("win32", "WSL 2")]
)
def test_other_systems_offer_level_b_at_most(monkeypatch: pytest.MonkeyPatch, platform: str, advice: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert check(Setup(level="C")) and check(Setup(level="D"))
    with pytest.raises(SandboxError, match=advice):
        levels.choose(Setup(level=""), "C", "C")


def test_without_bubblewrap_level_d_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels.shutil, "which", lambda _: None)
    assert check(Setup(level="D")) == "bubblewrap (bwrap) is not installed"


def test_a_level_that_does_not_hold_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe believes its canary: B, called C, is found out."""
    server = levels.Slot(Setup(level="B"))
    server.setup = replace(server.setup, level="C")
    assert levels._attack(server) == "the trial run failed at 'files': not stopped"
    server.end()


def test_the_level_is_printed_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(box, "_SAID", set())
    first, second = Sandbox(floor="B"), Sandbox(floor="B")
    assert capsys.readouterr().err.count(f"sandbox: level {first.level} (") == 1
    assert second.level == first.level


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="floor='E'; expected one of B, C, D"):
        Sandbox(floor="E")
    with pytest.raises(ConfigError, match="below floor='C'"):
        Sandbox(level="B")
    with pytest.raises(ConfigError, match="slots=0"):
        Sandbox(slots=0)
    with pytest.raises(ConfigError, match=r"no setting 'flor'.*Did you mean 'floor'"):
        shared({"flor": "C"})


def test_equal_settings_share_one_sandbox() -> None:
    assert shared({"floor": "B", "packages": []}) is shared({"packages": [], "floor": "B"})


def test_another_interpreter_and_packages(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("packages")
    (folder / "shouting.py").write_text("def shout(text): return text.upper()")
    sandbox = Sandbox(floor="B", slots=1, packages=[str(folder)], preload=["shouting"], python=sys.executable)
    with sandbox.session(Limits(seconds=10.0)) as session:
        submission = session.submission("from shouting import shout\ndef f(x): return shout(x)")
        assert submission.call("f", ["a"]).value == "A"
    sandbox.close()


def test_the_server_loads_nothing_but_the_standard_library() -> None:
    """And of prefrl the package `inside` alone: what is above it is empty."""
    show = "print(*(n for n in sys.modules if n.split('.')[0] not in {*sys.stdlib_module_names, '__main__'}))"
    done = subprocess.run(
        [sys.executable, "-S", "-s", "-P", "-c", slot.BOOT.replace("main()", show), slot.FOLDER],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    loaded = {name for name in done.stdout.split() if not name.startswith("prefrl.sandbox.inside")}
    assert loaded == {"prefrl", "prefrl.sandbox"}
