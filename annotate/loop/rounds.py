"""What a loop has done so far, read from its run folder while it runs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from annotate.jobs import read_json

PHASES = ("sample", "select", "label", "fit", "optimize", "answer", "evaluate")
State = Literal["done", "now", "todo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A pair that was to be labelled in a round: its id, what it is for, and how uncertain the reward model was."""

    id: str
    why: str
    uncertainty: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round.

    phases       state of every phase, by name
    figures      what its complete phases measured
    asked        the pairs that were to be labelled
    checkpoints  what it left under checkpoints/
    """

    number: int
    phases: Mapping[str, State]
    figures: Mapping[str, Any]
    asked: Sequence[Asked]
    checkpoints: Sequence[str]

    @property
    def phase(self) -> str:
        """The phase that is under way; empty where none is."""
        return next((name for name, state in self.phases.items() if state == "now"), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopState:
    """A loop as its folder tells it.

    state    running, waiting, finished or failed, as the loop itself said last
    why      what it waits for, in words
    waiting  ids of the items that it waits for, labelled or not
    """

    rounds: Sequence[Round]
    config: Mapping[str, Any]
    state: str
    why: str
    waiting: Sequence[str]

    @property
    def now(self) -> Round | None:
        """The round that is under way; None before the first and after the last."""
        return next((one for one in self.rounds if one.phase), None)


def read_loop(folder: Path) -> LoopState | None:
    """The loop in a run folder; None before it has begun."""
    journal, status = read_json(folder / "loop.json"), read_json(folder / "status.json")
    if not journal or not status:
        return None
    config: Mapping[str, Any] = journal["config"]
    done = {str(entry["name"]): entry["figures"] for entry in journal["phases"]}
    now = next((name for name in _order(config) if name not in done), "")
    numbers = range(1, int(config["rounds"]) + 1)
    return LoopState(
        rounds=[_round(folder, number, done, now) for number in numbers],
        config=config,
        state=str(status.get("state", "")),
        why=str(status.get("why", "")),
        waiting=[str(name) for name in status.get("items", ())],
    )


def _order(config: Mapping[str, Any]) -> Iterator[str]:
    """All phases in the order they are done; people compare a round's answers along with the next round's pairs."""
    people = config["labeller"]["kind"] == "people" and not config["judge"]
    last = int(config["rounds"])
    yield "0/answer"
    for number in range(1, last + 1):
        for name in PHASES[:-1]:
            yield f"{number}/{name}"
            if people and name == "label" and number > 1:
                yield f"{number - 1}/evaluate"
        if not people:
            yield f"{number}/evaluate"
    yield f"{last}/evaluate"


def _round(folder: Path, number: int, done: Mapping[str, Mapping[str, Any]], now: str) -> Round:
    def state(name: str) -> State:
        whole = f"{number}/{name}"
        return "done" if whole in done else "now" if whole == now else "todo"

    figures = {key: value for name in PHASES for key, value in done.get(f"{number}/{name}", {}).items()}
    further = itertools.takewhile(
        lambda name: f"{number}/{name}" in done, (f"more_{count}" for count in itertools.count(1))
    )
    files = ["items", *further] if f"{number}/select" in done else []
    kinds = (("reward", "fit"), ("policy", "optimize"))
    return Round(
        number=number,
        phases={name: state(name) for name in PHASES},
        figures=figures,
        asked=[asked for name in files for asked in _asked(folder / "rounds" / str(number) / f"{name}.jsonl")],
        checkpoints=[f"round_{number}/{kind}" for kind, phase in kinds if f"{number}/{phase}" in done],
    )


def _asked(path: Path) -> list[Asked]:
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines()) if path.is_file() else ()
    return [Asked(id=row["id"], why=row["why"], uncertainty=row["uncertainty"]) for row in rows]
