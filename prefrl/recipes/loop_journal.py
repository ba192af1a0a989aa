"""What a loop has done, so that the same command goes on where it was interrupted.

`loop.json` lists the phases that are complete, each with its figures and with the size and the SHA-256 of every file it
left. It is replaced in one move when a phase ends; a phase that is not in it is done again from its beginning, with the
same seeds. Lines that an interrupted phase wrote to metrics.jsonl and samples.jsonl are taken off first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from prefrl.errors import RunError
from prefrl.evaluate.blocks import flatten
from prefrl.evaluate.files import to_plain, write_atomic, writing
from prefrl.evaluate.run_folder import METRICS, SAMPLES, STATUS, read
from prefrl.recipes.labelling import seed_of

JOURNAL = "loop.json"
END = "end"  # the phase after the report
_FREE = ("output", "overwrite")  # what may differ when a loop goes on
_ANEW = "start anew with --overwrite"


class Journal:
    """The phases of a loop. `phase` does one, or returns what it had left when it is done already.

    Args:
        folder: of the run.
        config: what the loop began with.
        entries: phases that are complete.
        command: what goes on with it.
    """

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any],
        entries: Sequence[Mapping[str, Any]] = (),
        command: str = "loop",
    ) -> None:
        self.folder, self.command = folder, command
        self.config = dict(config)
        self.entries = {str(entry["name"]): dict(entry) for entry in entries}

    @classmethod
    def read(cls, folder: Path, config: Mapping[str, Any], command: str = "loop") -> Journal:
        """The journal in a run folder.

        Raises:
            RunError: it cannot be read, the loop began with another configuration, or a file is not as it was left.
        """
        path = folder / JOURNAL
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            journal = cls(folder, saved["config"], saved["phases"], command)
            [(e["files"].items(), e["figures"], *map(int, e["lines"])) for e in journal.entries.values()]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(
                f"{path} cannot be read ({type(error).__name__}: {error}), so the loop cannot go on. Restore it, or "
                f"{_ANEW}."
            ) from error
        journal._refuse_other(config)
        journal._verify()
        return journal

    def save(self) -> None:
        """Write the journal."""
        value = {"config": self.config, "phases": list(self.entries.values())}
        write_atomic(self.folder / JOURNAL, json.dumps(value, indent=1, allow_nan=False) + "\n")

    def done(self, name: str) -> bool:
        """Whether a phase is complete."""
        return name in self.entries

    def figures(self, name: str) -> dict[str, Any]:
        """What a complete phase returned."""
        figures: dict[str, Any] = self.entries[name]["figures"]
        return figures

    def phase(self, name: str, work: Callable[[int], Mapping[str, Any]], files: Sequence[Path] = ()) -> dict[str, Any]:
        """Do a phase, unless it is complete; what it returned.

        Args:
            name: of the phase.
            work: does it; takes the seed of the phase and returns figures, which JSON can hold.
            files: files and folders that it leaves.
        """
        if not self.done(name):
            self._rewind()
            seed = seed_of(int(self.config["seed"]), name)
            random.seed(seed)
            torch.manual_seed(seed)  # whatever draws without a seed of its own does the same after a resumption
            figures = to_plain(work(seed))
            paths = [file for path in files for file in _files(path)]
            left = {path.relative_to(self.folder).as_posix(): _digest(path) for path in paths}
            sizes = [(self.folder / log).stat().st_size for log in (METRICS, SAMPLES)]
            self.entries[name] = {"name": name, "figures": figures, "lines": sizes, "files": left}
            self.save()
        return self.figures(name)

    def _rewind(self) -> None:
        """Take off the lines that no complete phase wrote."""
        last = list(self.entries.values())[-1]["lines"] if self.entries else (0, 0)
        for name, size in zip((METRICS, SAMPLES), last, strict=True):
            path = self.folder / name
            with writing(path):
                os.truncate(path, size)

    def _refuse_other(self, config: Mapping[str, Any]) -> None:
        before, now = (dict(flatten(to_plain(c))) for c in (self.config, config))
        names = [name for name in {**before, **now} if name.partition(".")[0] not in _FREE]
        changed = [f"{n} was {before.get(n)!r} and is {now.get(n)!r}" for n in names if before.get(n) != now.get(n)]
        if changed:
            more = f" (and {len(changed) - 3} more)" if len(changed) > 3 else ""
            raise RunError(
                f"{self.folder} holds an unfinished loop of another configuration: {'; '.join(changed[:3])}{more}. "
                f"Go on with its own (prefrl {self.command} {self.folder}/config.yaml), choose another --output, or "
                f"{_ANEW}."
            )

    def _verify(self) -> None:
        for entry in self.entries.values():
            for name, digest in entry["files"].items():
                self._check(entry["name"], name, digest)
        for at, name in enumerate((METRICS, SAMPLES)):
            wanted = max((entry["lines"][at] for entry in self.entries.values()), default=0)
            path = self.folder / name
            if not path.is_file() or path.stat().st_size < wanted:
                raise RunError(f"{path} is shorter than the loop left it. Restore it, or {_ANEW}.")

    def _check(self, phase: str, name: str, digest: Sequence[Any]) -> None:
        path = self.folder / name
        found = _digest(path) if path.is_file() else None
        if found != list(digest):
            state = "has changed since" if found else "is missing, though"
            raise RunError(f"{path} {state} the phase {phase!r} left it. Restore it, or {_ANEW}.")


def unfinished(folder: Path, kind: str = "loop") -> bool:
    """Whether a folder holds a run of a kind that can go on, if only to its report."""
    if not (folder / STATUS).is_file():
        return False
    data = read(folder)
    if data.kind != kind or data.state != "finished":
        return data.kind == kind
    with contextlib.suppress(
        OSError, ValueError, KeyError, TypeError
    ):  # finished, with a journal that is gone: at its end
        saved = json.loads((folder / JOURNAL).read_text(encoding="utf-8"))
        return END not in [entry["name"] for entry in saved["phases"]]
    return False


def _files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def _digest(path: Path) -> list[Any]:
    """Size and SHA-256 of a file."""
    with path.open("rb") as file:
        return [path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()]
