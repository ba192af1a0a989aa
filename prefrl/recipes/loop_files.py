"""What the phases of a loop hand to each other, and the folder they do it in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from prefrl.config import RunConfig
from prefrl.data.comparisons import Item, Judgement, Label, completion_from_dict, completion_to_dict
from prefrl.data.formats import content_hash
from prefrl.data.preferences import PreferenceStore
from prefrl.errors import DataError, RunError
from prefrl.evaluate.files import append_lines, writing
from prefrl.evaluate.run_folder import RunFolder
from prefrl.parsing import to_dict
from prefrl.recipes.common import quiet
from prefrl.recipes.labelling import as_completion
from prefrl.recipes.loop_journal import JOURNAL, Journal, unfinished
from prefrl.types import Completion, Prompt, Rollout

STORE = "preferences.db"
SIMULATED = "simulator"  # the name that simulated labels are stored under


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One completion, with the round and the checkpoint that it comes from."""

    prompt_id: str
    completion: Completion
    round: int
    checkpoint: str

    def to_dict(self) -> dict[str, Any]:
        """The sample as JSON has it."""
        return {**vars(self), "completion": completion_to_dict(self.completion)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Sample:
        """The sample of a `to_dict`."""
        return cls(**{**values, "completion": completion_from_dict(values["completion"])})


def as_sample(rollout: Rollout, number: int, name: str) -> Sample:
    """A completion as the policy of a checkpoint drew it in a round."""
    return Sample(prompt_id=rollout.prompt.id, completion=as_completion(rollout), round=number, checkpoint=name)


class Rounds:
    """The files of all rounds, which phases write once and read back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, number: int, name: str) -> Path:
        """Where a file of a round is."""
        return self.folder / "rounds" / str(number) / f"{name}.jsonl"

    def write(self, number: int, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write a file anew."""
        path = self.path(number, name)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
        append_lines(path, list(rows))

    def read(self, number: int, name: str) -> list[dict[str, Any]]:
        """The rows of a file."""
        text = self.path(number, name).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def samples(self, number: int, name: str) -> list[Sample]:
        """The samples in a file."""
        return [Sample.from_dict(row) for row in self.read(number, name)]

    def items(self, number: int, name: str = "items") -> list[Item]:
        """The items in a file."""
        return [Item.from_dict(row) for row in self.read(number, name)]

    def write_judgements(self, number: int, judgements: Sequence[Judgement]) -> None:
        """Write all labels so far, each beside its item."""
        rows = [{"item": item.to_dict(), "label": label.to_dict()} for item, label in judgements]
        self.write(number, "judgements", rows)

    def judgements(self, number: int) -> list[Judgement]:
        """All labels so far, as of a round."""
        rows = self.read(number, "judgements")
        return [Judgement(Item.from_dict(row["item"]), Label(**row["label"])) for row in rows]


def begin(config: RunConfig, output: Path, kind: str = "loop") -> tuple[RunFolder, Journal]:
    """A new run folder, or the one of an unfinished loop, and what was done in it.

    Args:
        config: of the run, whose folder is `output`.
        output: the folder.
        kind: the command that runs there.

    Raises:
        RunError: it holds something else, a loop of another configuration, or files that were changed.
    """
    quiet()
    if config.threads:
        torch.set_num_threads(config.threads)
    # Without `overwrite`, so that the command with OUTPUT/config.yaml goes on rather than starts anew.
    plain = to_dict(replace(config, output=str(output), overwrite=False))
    unborn = False
    if not config.overwrite and unfinished(output, kind):
        unborn = not (output / JOURNAL).exists() and not (output / "rounds").exists()
        if not unborn:
            journal = Journal.read(output, plain, kind)
            print(f"Run folder: {output}, going on after {len(journal.entries)} complete phases", flush=True)
            return RunFolder.reopen(output), journal
    if config.overwrite:
        _keep_labels(output)
    folder = RunFolder.create(output, kind, plain, overwrite=config.overwrite or unborn)
    journal = Journal(folder.path, plain, command=kind)
    journal.save()
    print(f"Run folder: {folder.path}", flush=True)
    return folder, journal


def by_id(prompts: Iterable[Prompt]) -> dict[str, Prompt]:
    """Prompts by the ids that files and labels know them by.

    Raises:
        DataError: an id names two different prompts.
    """
    found: dict[str, Prompt] = {}
    for prompt in prompts:
        if found.setdefault(prompt.id, prompt).content != prompt.content:
            raise DataError(
                f"The id {prompt.id!r} names two different prompts; expected one each, in data.train and data.eval "
                "together. Rename them, or remove the column id."
            )
    return found


def fingerprint(train: Sequence[Prompt], held_out: Sequence[Prompt]) -> str:
    """What tells these prompts, with what rewards may read of them, from others."""
    return content_hash([{"prompts": [[p.id, p.content, dict(p.columns)] for p in side]} for side in (train, held_out)])


_BEGINNINGS = {
    "prompts": "The prompts are",
    "judge": "The judge, with its code and weights, is",
    "utility": "The utility of the simulator, with its code and weights, is",
}


def refuse_changed(began: Mapping[str, str], now: Mapping[str, str], loop: str) -> None:
    """Refuse to go on with other prompts, or another judge or taste, than a loop began with.

    Args:
        began: fingerprints from the beginning; those that an older version did not keep may be missing.
        now: the same as they are.
        loop: which one.

    Raises:
        RunError: some have changed.
    """
    for name, said in _BEGINNINGS.items():
        if name in began and began[name] != now.get(name):
            raise RunError(
                f"{said} not what {loop} began with. Restore them as they were, or start anew with --overwrite."
            )


def _keep_labels(output: Path) -> None:
    """Put labels that people gave beside the folder before it is emptied.

    Raises:
        RunError: they cannot be put there.
    """
    path = output / STORE
    if not path.is_file():
        return
    with PreferenceStore(path) as store:
        count = sum(label.annotator != SIMULATED for label in store.labels())
        if not count:
            return
        names = (output.with_name(f"{output.name}-labels-{n}.jsonl") for n in range(1, 1000))
        free = next((name for name in names if not name.exists()), None)
        if free is None:
            raise RunError(f"There are 999 files like {output.name}-labels-1.jsonl already; move some away.")
        store.export(free)
    print(f"{count} labels of people in {path} were put into {free} before the folder is emptied.", flush=True)
