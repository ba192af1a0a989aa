"""The runs of a project as the Loop page sees them: started, gone on with when the labels are in, cancelled."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotate.jobs import Jobs, read_json
from annotate.loop.rounds import LoopState, read_loop
from annotate.studio import Studio
from prefrl.data.store import Job
from prefrl.data.waiting import unanswered
from prefrl.errors import DataError

INTERVAL = 2.0  # seconds between two looks at what runs
ITSELF = "the server"  # who goes on with a loop when its labels are in
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run, its newest job, and what its folder tells; `loop` is None for other kinds and before it has begun."""

    name: str
    job: Job
    folder: Path
    status: Mapping[str, Any]
    loop: LoopState | None = None
    missing: int = 0  # items that it waits for and that still need a label

    def config(self) -> dict[str, Any]:
        """The configuration that it was started with."""
        import yaml

        try:
            found = yaml.safe_load((self.folder / "config.yaml").read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def report(self) -> bool:
        """Whether there is a report to look at."""
        return (self.folder / "report.html").is_file()


class Runs:
    """The runs of a project."""

    def __init__(self, studio: Studio, jobs: Jobs | None = None) -> None:
        self.studio = studio
        self.jobs = jobs or Jobs(studio.store, studio.folder / "runs", environment=studio.store.environment)
        self._tried: dict[str, tuple[str, ...]] = {}  # what a loop waited for when the server went on with it

    def newest(self) -> list[Job]:
        """The newest job of every run, the newest first."""
        newest: dict[str, Job] = {}
        for job in self.jobs.refresh():
            newest.setdefault(job.folder, job)
        return list(newest.values())

    def run(self, name: str) -> Run | None:
        """A run by its name."""
        job = self.jobs.last(name)
        if job is None:
            return None
        folder = self.jobs.folder / name / "run"
        loop = read_loop(folder) if job.kind == "loop" else None
        waits = loop.waiting if loop is not None and job.state == "waiting" else ()
        missing = len(unanswered(self.studio.store, waits)) if waits else 0
        status = read_json(folder / "status.json")
        return Run(name=name, job=job, folder=folder, status=status, loop=loop, missing=missing)

    def automatic(self, name: str) -> bool:
        """Whether the server goes on with a loop when its labels are in; it does unless it was told not to."""
        return not (self.jobs.folder / name / "by_hand").exists()

    def set_automatic(self, name: str, wanted: bool) -> None:
        """Say whether it shall.

        Raises:
            DataError: there is no run of that name.
        """
        if self.jobs.last(name) is None:
            raise DataError(f"There is no run called {name!r}; choose one of the list.")
        mark = self.jobs.folder / name / "by_hand"
        if wanted:
            mark.unlink(missing_ok=True)
        else:
            mark.touch()

    def go_on_where_labelled(self) -> list[str]:
        """Go on with loops that have all the labels they wait for; which those are."""
        gone_on = []
        for job in self.newest():
            run = self.run(job.folder) if job.state == "waiting" and self.automatic(job.folder) else None
            if run is None or run.loop is None or run.missing or not run.loop.waiting:
                continue
            waited = tuple(run.loop.waiting)
            if self._tried.get(run.name) == waited:  # it did go on, and waits for the same again: people must look
                continue
            with suppress(DataError):  # another run is under way: later
                self.jobs.again(run.name, by=ITSELF)
                self._tried[run.name] = waited
                gone_on.append(run.name)
        return gone_on

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look every other second, in a thread of its own, what has ended and what can go on."""
        stop = threading.Event()
        thread = threading.Thread(target=self._watch, args=(stop,), name="runs", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _watch(self, stop: threading.Event) -> None:
        while not stop.wait(INTERVAL):
            try:
                self.go_on_where_labelled()
            except Exception:
                log.exception("looking at the runs failed; trying again")


_runs: list[Runs] = []
_lock = threading.Lock()


def runs_of(studio: Studio) -> Runs:
    """The runs of a project, the same ones for all who ask."""
    with _lock:
        found = next((runs for runs in _runs if runs.studio is studio), None)
        if found is None:
            found = Runs(studio)
            _runs.append(found)
        return found


@contextmanager
def watched(studio: Studio) -> Iterator[None]:
    """Watch the runs of a project for as long as its server runs; what runs then goes on running."""
    runs = runs_of(studio)
    try:
        with runs.watched():
            yield
    finally:
        with _lock:
            _runs.remove(runs)
