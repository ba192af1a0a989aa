"""Progress: lines where there is no terminal, a bar where there is one, at every width."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from prefrl.evaluate.progress import Progress


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def plain(seconds: float, *, total: int = 4) -> list[str]:
    out, clock = io.StringIO(), Clock()
    with Progress("GRPO", total, console=Console(file=out, width=40), clock=clock) as progress:
        for i in range(total):
            clock.now += seconds
            progress.step({"reward/mean": 0.25 * i}, kl=0.5)
    return out.getvalue().splitlines()


def test_slow_steps_get_a_line_each_with_the_time_left() -> None:
    assert plain(100.0) == [
        "GRPO 1/4  5 min 0 s left  reward/mean 0  kl 0.5",
        "GRPO 2/4  3 min 20 s left  reward/mean 0.25  kl 0.5",
        "GRPO 3/4  1 min 40 s left  reward/mean 0.5  kl 0.5",
        "GRPO 4/4  reward/mean 0.75  kl 0.5",
    ]


def test_fast_steps_share_lines_but_the_last_is_shown() -> None:
    lines = plain(1.0, total=14)
    assert [line.split()[1] for line in lines] == ["1/14", "6/14", "11/14", "14/14"]


def test_time_left_follows_recent_steps() -> None:
    clock = Clock()
    progress = Progress("x", 100, console=Console(file=io.StringIO()), clock=clock)
    assert progress.seconds_left is None
    for seconds in [100.0] * 10 + [1.0] * 20:
        clock.now += seconds
        progress.step()
    assert progress.seconds_left == pytest.approx(70.0)


@pytest.mark.parametrize("width", [200, 80, 40, 20, 5, 1])
def test_a_terminal_of_any_width_gets_a_bar(width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, color_system=None)
    with Progress("GRPO [1]", 2, console=console) as progress:
        progress.step(reward=0.5)
        progress.note("saved [checkpoint]")
        progress.step(reward=math.nan)
        progress.step(reward=1.0)  # one more than announced
    assert progress.done == 3
    if width >= 40:
        assert "GRPO [1]" in out.getvalue() and "3/2" in out.getvalue() and "reward 1" in out.getvalue()
        assert "saved [checkpoint]" in out.getvalue()


def test_an_error_leaves_the_terminal_as_it_was() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    with pytest.raises(ValueError, match="boom"), Progress("x", 2, console=console):
        raise ValueError("boom")
    assert out.getvalue().endswith("\x1b[?25h")  # the cursor is back
