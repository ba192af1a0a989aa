"""Progress a person can read: a live bar on a terminal, plain lines everywhere else."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from prefrl.evaluate.blocks import show_number, show_seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

_RECENT = 20  # steps whose mean duration gives the time left


class Progress:
    """Steps done, the figures that matter, and the time left.

        with Progress("GRPO", total=20) as progress:
            progress.step(reward=0.41, kl=0.03)

    Args:
        title: what runs.
        total: number of steps.
        console: where to print; standard output when not given.
        interval: least seconds between two plain lines; the first and the last step always get one.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        title: str,
        total: int,
        *,
        console: Console | None = None,
        interval: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from rich.console import Console

        self.title, self.total, self.done = title, total, 0
        self._console = console or Console()
        self._interval, self._clock = interval, clock
        self._times = deque([clock()], maxlen=_RECENT + 1)
        self._printed = -float("inf")
        self._live = _live_bar(self._console) if self._console.is_terminal else None
        self._task = self._live.add_task(title, total=total, figures="") if self._live else None

    def step(self, metrics: Mapping[str, float] | None = None, **figures: float) -> None:
        """Count one step and show its figures."""
        self.done += 1
        self._times.append(self._clock())
        text = "  ".join(f"{name} {show_number(float(v))}" for name, v in {**(metrics or {}), **figures}.items())
        if self._live is not None and self._task is not None:
            self._live.update(self._task, completed=self.done, figures=self._line(text))
        elif self.done in (1, self.total) or self._times[-1] - self._printed >= self._interval:
            self._printed = self._times[-1]
            self._print(f"{self.title} {self.done}/{self.total}  {self._line(text)}".rstrip())

    def note(self, text: str) -> None:
        """Print a line without breaking the bar."""
        self._print(text)

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the mean duration of recent steps; None before the first."""
        if self.done == 0:
            return None
        pace = (self._times[-1] - self._times[0]) / (len(self._times) - 1)
        return pace * max(0, self.total - self.done)

    def __enter__(self) -> Self:
        self._times[0] = self._clock()
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def _line(self, text: str) -> str:
        left = self.seconds_left
        if left is None or self.done >= self.total:
            return text
        return f"{show_seconds(left)} left  {text}"

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _live_bar(console: Console) -> RichProgress:
    """Title, bar, count and figures; on a narrow terminal the figures are cut first."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as RichProgress
    from rich.table import Column

    return RichProgress(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=max(4, min(28, console.width // 5))),
        MofNCompleteColumn(),
        TextColumn(
            "{task.fields[figures]}",
            markup=False,
            table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        ),
        console=console,
        expand=True,
        refresh_per_second=4,
    )
