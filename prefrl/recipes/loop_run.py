"""How a row of phases is carried out in its folder, until it has ended or waits for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from prefrl.config import RunConfig
from prefrl.evaluate.run_claim import alone
from prefrl.evaluate.run_folder import RunFolder
from prefrl.recipes.loop_files import begin
from prefrl.recipes.loop_journal import END, Journal
from prefrl.recipes.loop_labels import Waiting

C = TypeVar("C", bound=RunConfig)


class _About(Protocol):
    @property
    def about(self) -> str:
        """Who labels."""
        ...


class Work(Protocol):
    """The phases."""

    @property
    def labels(self) -> _About:
        """Where labels come from."""
        ...

    def run(self) -> None:
        """Do all phases that are not done; raises Waiting where people have to label first."""
        ...

    def summary(self) -> Mapping[str, Any]:
        """The figures that sum it up."""
        ...


def carry_out(
    config: C,
    output: Path,
    kind: str,
    work: Callable[[RunFolder, Journal, C], Work],
    write: Callable[[RunFolder, Journal, str], Path],
) -> RunFolder:
    """Begin in a folder, or go on there.

    Args:
        config: of the command.
        output: the folder.
        kind: the command.
        work: makes the phases.
        write: writes the report of a run, finished or waiting.

    Raises:
        RunError: the folder holds something else, an unfinished run of another configuration, or a damaged one.
    """
    with alone(output):
        folder, journal = begin(config, output, kind)
        with folder:
            _through(folder, journal, work(folder, journal, config), write)
    return folder


def _through(folder: RunFolder, journal: Journal, work: Work, write: Callable[[RunFolder, Journal, str], Path]) -> None:
    try:
        work.run()
    except Waiting as waiting:
        folder.wait(str(waiting), waiting.items)
        write(folder, journal, work.labels.about)
        print(waiting, flush=True)
        return
    folder.finish(dict(work.summary()))
    print(f"Report: {write(folder, journal, work.labels.about)}")
    journal.phase(END, lambda _: {})
