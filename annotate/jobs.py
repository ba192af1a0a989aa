"""Long jobs: `python -m prefrl ...` beside the server, recorded in the store, followed by what they leave in a folder.

PROJECT/runs/NAME/config.yaml    what the command was given
PROJECT/runs/NAME/log.txt        what it printed
PROJECT/runs/NAME/process.json   which process it is, so that a restarted server knows it again
PROJECT/runs/NAME/run/           its run folder
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotate.processes import birth, end, spawn
from prefrl.data.preferences import PreferenceStore
from prefrl.data.store import Job
from prefrl.errors import DataError
from prefrl.evaluate.files import write_atomic

PROGRAM = (sys.executable, "-m", "prefrl")
GRACE = 8.0  # seconds that a job has to end by itself
TAIL = 64 * 1024  # bytes at the end of a log that are read
_NAME = re.compile(r"[\w][\w .-]{0,63}")
_KIND = re.compile(r"^(prefrl|\w+Error): ")  # who says what went wrong, which is not for those who read it
_STARTED = "--- started "
_STEP = re.compile(r"^(?P<title>.*?) (?P<done>\d+)/(?P<total>\d+)(  |$)")


@dataclass(frozen=True, slots=True)
class Step:
    """The last line of progress that a job printed."""

    title: str
    done: int
    total: int
    line: str


class Jobs:
    """The jobs of a project, of which one runs at a time: the machine also has to answer those who label.

    Args:
        store: of the project, which records them.
        folder: their folders are in it.
        grace: seconds that a cancelled job has to end by itself.
        environment: variables that jobs have beside those of the server; they are written nowhere.
        program: what is started, followed by the command and its configuration.
    """

    def __init__(
        self,
        store: PreferenceStore,
        folder: Path,
        *,
        grace: float = GRACE,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self._store, self.folder, self._grace, self._program = store, folder, grace, program
        self._environment = environment or {}
        self._lock = threading.RLock()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._ending: dict[str, threading.Thread] = {}

    def start(self, kind: str, name: str, config: Mapping[str, Any], *, by: str, prompts: Path | None = None) -> Job:
        """Start `prefrl KIND` with a configuration, as a job of that name.

        Args:
            kind: the command.
            name: of the run and its folder.
            config: of the command; its `output` is the run's.
            by: who starts it.
            prompts: a file that is copied beside the configuration and becomes its `data.train`.

        Raises:
            DataError: no name for a folder, one that is taken, or another job runs.
        """
        name = name.strip()
        if not _NAME.fullmatch(name) or name.endswith((".", " ")):
            raise DataError(f"The name is {name!r}; expected letters, digits, spaces, dots and dashes, 64 at most.")
        with self._lock:
            self._refuse_second()
            place = self.folder / name
            if place.exists():
                raise DataError(f"There is a run called {name!r} already; choose another name.")
            place.mkdir(parents=True)
            given = {**config, "output": str((place / "run").absolute())}
            if prompts is not None:
                copy = shutil.copy(prompts, place / f"prompts{prompts.suffix.lower()}")
                given["data"] = {**given.get("data", {}), "train": str(Path(copy).absolute())}
            write_config(place / "config.yaml", given)
            return self._launch(kind, name, by)

    def again(self, name: str, *, by: str) -> Job:
        """Start the command of a run that has stopped once more: a loop goes on where it was.

        Raises:
            DataError: there is no such run, it runs, it is finished, or another one runs.
        """
        with self._lock:
            self._refuse_second()
            last = self.last(name)
            if last is None:
                raise DataError(f"There is no run called {name!r}; choose one of the list.")
            if last.state == "done":
                raise DataError(f"{name} is finished; there is nothing to go on with.")
            if last.kind != "loop":
                raise DataError(f"{name} is no loop and cannot go on where it stopped; start a new one.")
            if last.state == "waiting":
                self._store.jobs.update(last.id, state="done")
            return self._launch(last.kind, name, by)

    def cancel(self, name: str, *, by: str) -> None:
        """End a run; the call returns at once, and the run is cancelled when its process is gone.

        Raises:
            DataError: it neither runs nor waits.
        """
        with self._lock:
            job = self.last(name)
            if job is None or job.state not in ("running", "waiting"):
                raise DataError(f"{name} does not run; there is nothing to cancel.")
            self._store.log(by, "job cancelled", {"job": job.id, "name": name})
            if job.state == "waiting":
                self._store.jobs.update(job.id, state="cancelled", ended=time.time())
                return
            pid, born = self._process(job)
            thread = threading.Thread(target=end, args=(pid, born, self._grace), name=f"cancel {name}", daemon=True)
            self._ending[job.id] = thread
            thread.start()

    def refresh(self) -> list[Job]:
        """All jobs, the newest first, with the states of those that ended in the meantime written down."""
        with self._lock:
            for job in self._store.jobs.list("running"):
                self._settle(job)
            return self._store.jobs.list()[::-1]

    def last(self, name: str) -> Job | None:
        """The newest job of a run; None where there is none of that name."""
        return next((job for job in self.refresh() if job.folder == name), None)

    def log(self, name: str, lines: int = 60) -> str:
        """The last lines that a run printed; none of what is no name of a run."""
        return "\n".join(tail(self.folder / name / "log.txt")[-lines:]) if _NAME.fullmatch(name) else ""

    def step(self, name: str) -> Step | None:
        """How far a run says it is; None before it says so."""
        for line in reversed(tail(self.folder / name / "log.txt")):
            if line.startswith(_STARTED):  # what stands above is of an earlier process
                return None
            if found := _STEP.match(line):
                return Step(found["title"], int(found["done"]), int(found["total"]), line)
        return None

    def _refuse_second(self) -> None:
        busy = next((job for job in self.refresh() if job.state == "running"), None)
        if busy is not None:
            raise DataError(f"{busy.folder} is running; wait for it, or cancel it first.")

    def _launch(self, kind: str, name: str, by: str) -> Job:
        place = self.folder / name
        command = (*self._program, kind, str(place / "config.yaml"))
        job = self._store.jobs.add(kind, name, command, state="running")
        moment = time.strftime("%Y-%m-%d %H:%M:%S")
        try:
            with (place / "log.txt").open("a", encoding="utf-8") as out:
                out.write(f"{_STARTED}{moment} by {by}\n")
            child = spawn(command, place / "log.txt", self._environment)
        except OSError as error:
            self._store.jobs.update(job.id, state="failed", ended=time.time(), error=f"could not be started: {error}")
            raise DataError(f"{name} could not be started: {error}") from error
        self._children[job.id] = child
        write_atomic(place / "process.json", json.dumps({"job": job.id, "pid": child.pid, "born": birth(child.pid)}))
        self._store.log(by, "job started", {"job": job.id, "name": name, "kind": kind})
        return self._store.jobs.update(job.id, pid=child.pid, started=time.time())

    def _process(self, job: Job) -> tuple[int, str]:
        """Number and birth of a job's process; 0 where it was never started."""
        saved = read_json(self.folder / job.folder / "process.json")
        return (int(saved["pid"]), str(saved["born"])) if saved.get("job") == job.id else (0, "")

    def _settle(self, job: Job) -> None:
        """Write down how a job ended, if it did."""
        child, code = self._children.get(job.id), None
        if child is not None:
            code = child.poll()
            if code is None:
                return
        else:
            pid, born = self._process(job)
            if born and birth(pid) == born:
                return
        state, error = self._ended(job, code)
        self._store.jobs.update(job.id, state=state, ended=time.time(), error=error)
        self._children.pop(job.id, None)
        self._ending.pop(job.id, None)

    def _ended(self, job: Job, code: int | None) -> tuple[str, str]:
        """State and error of a job whose process is gone, with its exit status where that is known."""
        if job.id in self._ending:
            return "cancelled", ""
        status = read_json(self.folder / job.folder / "run" / "status.json")
        said = str(status.get("state", ""))
        if not code and said in ("finished", "waiting"):
            return ("done" if said == "finished" else "waiting"), ""
        why = str(status.get("error") or "") if said == "failed" else ""
        lines = [line for line in tail(self.folder / job.folder / "log.txt") if line.strip()]
        last = lines[-1] if lines and not lines[-1].startswith(_STARTED) else ""
        return "failed", _KIND.sub("", why or last) or f"it ended with status {code}, without a word"


def write_config(path: Path, config: Mapping[str, Any]) -> None:
    """Write a configuration as YAML."""
    import yaml

    write_atomic(path, yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty where there is none, or where it is being written."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def tail(path: Path) -> list[str]:
    """The last lines of a file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    lines = [line.rpartition("\r")[2] for line in text.split("\n")]
    return lines[1:] if size > TAIL else lines
