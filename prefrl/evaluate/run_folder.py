"""One folder per run: what was asked, what happened, and what came out.

    config.yaml       the resolved configuration
    environment.json  versions, machine, command line, git commit, seed
    metrics.jsonl     one JSON object per step and phase
    samples.jsonl     completions worth looking at
    status.json       running, waiting, finished or failed, with times and the error
    checkpoints/      figures/      report.html

Whole files are replaced atomically and lines are appended whole, so a full disk or a kill loses nothing
that was written before. A run that is refused before it has done anything leaves no folder.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from prefrl.errors import ConfigError, DataError, ModelError, RunError, did_you_mean
from prefrl.evaluate.environment import describe_environment
from prefrl.evaluate.files import append_lines, to_plain, write_atomic, writing
from prefrl.evaluate.run_claim import (
    ASIDE,
    CONFIG,
    ENVIRONMENT,
    METRICS,
    REPORT,
    RESUME,
    SAMPLES,
    STATUS,
    claim,
    give_back,
    is_idle,
    read_json,
)

__all__ = [
    "CONFIG", "ENVIRONMENT", "METRICS", "REPORT", "RESUME", "SAMPLES", "STATUS", "RunData", "RunFolder", "read",
]  # fmt: skip

_REFUSALS = (ConfigError, DataError, ModelError)
_RESERVED = ("step", "phase", "time", "nonfinite")


class RunFolder:
    """The folder of one run, open for writing. Make it with `create`; use it as a context manager.

    Leaving the `with` block marks the run finished, or failed when an exception passes through. A new run that is
    refused before it has left a measurement, a sample or a file withdraws: nothing stands in the way of the next try,
    and a run that was to be overwritten stands where it stood.

    Attributes:
        tags: written into every line of metrics and samples.
    """

    def __init__(self, path: Path, kind: str, started: datetime) -> None:
        self.path, self.kind = path, kind
        self.tags: dict[str, float] = {}
        self._started, self._clock = started, time.monotonic()
        self._open = True
        self._made: bool | None = None  # whether a new run made its folder; None where it goes on in one

    @classmethod
    def create(cls, path: str | Path, kind: str, config: Mapping[str, Any], *, overwrite: bool = False) -> RunFolder:
        """Start a run in a new or empty folder.

        Args:
            path: the folder; missing parents are made.
            kind: what runs there, such as rl.
            config: the resolved configuration.
            overwrite: delete the run that stands there, and only a run, once this one has measured something.

        Raises:
            RunError: the path is a file, holds a run or other files, or cannot be written.
        """
        folder = Path(path).expanduser()
        if not str(path).strip():
            raise RunError(f"No run folder was given; type --output runs/{kind}.")
        run = cls(folder, kind, datetime.now(UTC))
        run._made = not folder.exists()
        claim(folder, overwrite)
        run._mark_running()
        with writing(folder):
            for name in ("checkpoints", "figures"):
                (folder / name).mkdir(exist_ok=True)
            for name in (METRICS, SAMPLES):
                (folder / name).touch()
        plain = to_plain(config, finite=False)
        write_atomic(folder / CONFIG, yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110))
        write_atomic(folder / ENVIRONMENT, _pretty(describe_environment(plain)))
        return run

    @classmethod
    def reopen(cls, path: str | Path) -> RunFolder:
        """Go on with a run that has not finished; its clock goes on from its last line of metrics.

        Raises:
            RunError: there is no run at the path, or it cannot be written.
        """
        data = read(path)
        run = cls(data.path, data.kind, _moment(data.status.get("started")))
        run._clock -= max((float(line.get("time") or 0.0) for line in data.metrics), default=0.0)
        write_atomic(run.path / STATUS, _pretty(run._status("running")))
        return run

    @property
    def checkpoints(self) -> Path:
        """Folder for checkpoints."""
        return self.path / "checkpoints"

    @property
    def figures(self) -> Path:
        """Folder for figures."""
        return self.path / "figures"

    @property
    def report(self) -> Path:
        """Where the report goes."""
        return self.path / REPORT

    @property
    def _aside(self) -> Path:
        """Where the run that is overwritten waits until this one can no longer be refused."""
        return self.path / ASIDE

    def log(self, step: int, metrics: Mapping[str, float], phase: str = "train") -> None:
        """Append one line of metrics; a NaN or infinity becomes null and is named under `nonfinite`.

        `time` on the line is seconds since the run began.

        Raises:
            RunError: a metric is not a number or has a reserved name, or the line could not be written.
        """
        line: dict[str, Any] = {"step": int(step), "phase": phase, "time": round(self._elapsed(), 3)}
        nonfinite = []
        for name, value in {**metrics, **self.tags}.items():
            number = _number(name, value)
            if not math.isfinite(number):
                nonfinite.append(name)
            line[name] = number if math.isfinite(number) else None
        if nonfinite:
            line["nonfinite"] = nonfinite
        append_lines(self.path / METRICS, [line])
        shutil.rmtree(self._aside, ignore_errors=True)

    def samples(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append completions to look at later.

        The report knows `prompt`, `completion`, `policy` (such as before and after), `reward`, `error`,
        `tokens`, `kl`, `stop`, `won`, `badge` and `prompt_id`; rows with the same id (or prompt) stand side
        by side. Other keys are kept.
        """
        append_lines(self.path / SAMPLES, [{"step": int(step), **to_plain(row), **self.tags} for row in rows])

    def finish(self, summary: Mapping[str, Any] | None = None) -> None:
        """Mark the run finished, with the few figures that sum it up."""
        self._close("finished", summary=to_plain(summary or {}))

    def wait(self, why: str, items: Sequence[str] = ()) -> None:
        """Mark the run as waiting for people, why, and for labels of which items; `reopen` goes on with it."""
        self._close("waiting", why=why, items=list(items))

    def fail(self, error: BaseException | str) -> None:
        """Mark the run failed, and why."""
        why = error if isinstance(error, str) else f"{type(error).__name__}: {error}".rstrip(": ")
        self._close("failed", error=why)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._open:
            return
        if error is None:
            self.finish()
            return
        with suppress(RunError):  # the first error matters more than one that could not be noted
            refused = isinstance(error, _REFUSALS) or self._aside.is_dir()
            if refused and self._made is not None and is_idle(self.path):
                self._withdraw(self._made)
                return
            self.fail("interrupted" if isinstance(error, KeyboardInterrupt) else error)

    def _elapsed(self) -> float:
        return time.monotonic() - self._clock

    def _status(self, state: str) -> dict[str, Any]:
        return {"kind": self.kind, "state": state, "started": _stamp(self._started), "pid": os.getpid()}

    def _mark_running(self) -> None:
        status = self.path / STATUS
        with writing(status):
            try:
                with open(status, "x", encoding="utf-8") as file:
                    file.write(_pretty(self._status("running")))
            except FileExistsError:
                raise RunError(f"Another run has just started in {self.path}; choose another --output.") from None

    def _withdraw(self, whole: bool) -> None:
        """Take what stands in the folder away, and the folder itself where it is `whole` this run's."""
        with writing(self.path):
            give_back(self.path, whole)
        self._open = False

    def _close(self, state: str, **more: Any) -> None:
        status = self._status(state)
        status |= {"finished": _stamp(datetime.now(UTC)), "seconds": round(self._elapsed(), 3)}
        shutil.rmtree(self._aside, ignore_errors=True)
        write_atomic(self.path / STATUS, _pretty(status | more))
        self._open = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """A run folder as read back.

    status           kind, state (running, waiting, finished, failed), times, error, summary
    metrics          one dict per line of metrics.jsonl
    samples          one dict per line of samples.jsonl
    skipped_metrics  unreadable lines of metrics.jsonl: at most the last one, unless the file was edited
    skipped_samples  unreadable lines of samples.jsonl
    """

    path: Path
    status: Mapping[str, Any]
    config: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    metrics: Sequence[Mapping[str, Any]] = ()
    samples: Sequence[Mapping[str, Any]] = ()
    skipped_metrics: int = 0
    skipped_samples: int = 0

    @property
    def kind(self) -> str:
        """What ran, such as rl."""
        return str(self.status.get("kind", "unknown"))

    @property
    def state(self) -> str:
        """running, waiting, finished or failed."""
        return str(self.status.get("state", "unknown"))

    def names(self, phase: str = "train") -> list[str]:
        """Metrics of a phase, in order of first appearance."""
        found = {name: None for line in self.metrics if line.get("phase") == phase for name in line}
        return [name for name in found if name not in _RESERVED]

    def series(self, name: str, phase: str = "train") -> tuple[list[int], list[float]]:
        """Steps and values of one metric; NaN where it was not finite, absent where it was not logged."""
        lines = [line for line in self.metrics if line.get("phase") == phase and name in line]
        values = [math.nan if line[name] is None else float(line[name]) for line in lines]
        return [int(line["step"]) for line in lines], values

    def nonfinite(self) -> dict[str, int]:
        """How often each metric was NaN or infinite."""
        counts: dict[str, int] = {}
        for line in self.metrics:
            for name in line.get("nonfinite", ()):
                counts[name] = counts.get(name, 0) + 1
        return counts


def read(path: str | Path) -> RunData:
    """Read a run folder, also of a run that was killed or still runs.

    Raises:
        RunError: there is no run at the path.
    """
    folder = Path(path).expanduser()
    status = read_json(folder / STATUS)
    if status is None:
        runs = [entry.parent.name for entry in folder.parent.glob(f"*/{STATUS}")]
        raise RunError(
            f"There is no run in {folder}; expected a folder with a readable {STATUS}.{did_you_mean(folder.name, runs)}"
        )
    metrics, skipped_metrics = _read_lines(folder / METRICS, "step")
    samples, skipped_samples = _read_lines(folder / SAMPLES, "step")
    return RunData(
        path=folder,
        status=status,
        config=_read_config(folder / CONFIG),
        environment=read_json(folder / ENVIRONMENT) or {},
        metrics=metrics,
        samples=samples,
        skipped_metrics=skipped_metrics,
        skipped_samples=skipped_samples,
    )


def _number(name: str, value: Any) -> float:
    if name in _RESERVED:
        raise RunError(f"A metric cannot be called {name!r}; {', '.join(_RESERVED)} are taken. Rename it.")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise RunError(f"Metric {name!r} is {value!r}; expected a number.") from None


def _read_config(path: Path) -> dict[str, Any]:
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return value if isinstance(value, dict) else {}


def _read_lines(path: Path, required: str) -> tuple[list[dict[str, Any]], int]:
    """The readable JSON objects of a file, and how many lines were not."""
    if not path.is_file():
        return [], 0
    kept, skipped = [], 0
    for line in path.read_bytes().splitlines():
        try:
            item = json.loads(line)
        except ValueError:
            item = None
        if isinstance(item, dict) and required in item:
            kept.append(item)
        else:
            skipped += 1
    return kept, skipped


def _moment(stamp: Any) -> datetime:
    """When a run began; now where its status does not say."""
    with suppress(TypeError, ValueError):
        return datetime.fromisoformat(stamp)
    return datetime.now(UTC)


def _stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def _pretty(value: Mapping[str, Any]) -> str:
    return json.dumps(to_plain(value), indent=2, ensure_ascii=False) + "\n"
