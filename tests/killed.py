"""A process that is killed between any two statements of what it does to a store; run by tests/data/store."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine, event
from stores import opened, pairs, settle

from prefrl.data.preferences import PreferenceStore

Act = Callable[[Path], object]


def migrate(folder: Path) -> None:
    PreferenceStore(folder / "a.db").close()


def create(folder: Path) -> None:
    PreferenceStore(folder / "new.db").close()


def add(folder: Path) -> None:
    with PreferenceStore(folder / "a.db") as store:
        store.add_items(pairs(450))


def import_(folder: Path) -> None:
    with PreferenceStore(folder / "b.db") as store:
        store.import_(folder / "a.jsonl")


def work(folder: Path) -> None:
    """Labels, each of which is written down beside the store once it is acknowledged."""
    with PreferenceStore(folder / "a.db") as store, (folder / "acked").open("a") as acked:
        for number in range(3):
            (given,) = store.work.next("bob", count=1)
            label = store.work.submit(given.id, "bob", "tie", label_id=f"k{number}")
            acked.write(f"{label.id}\n")
            acked.flush()
        acked.write(f"{store.settle('i3', 'ruth', 'first', label_id='d').id}\n")
        acked.flush()
        store.people.redeem((folder / "link").read_text(), "eve", "hash")
        store.backup()


ACTS: dict[str, Act] = {act.__name__: act for act in (migrate, create, add, import_, work)}


def prepare(folder: Path) -> None:
    """A store with items, a label, an export of it, and a link."""
    with opened(folder / "a.db", 6, overlap=2) as store:
        settle(store)
        store.work.submit(store.work.next("ann", count=1)[0].id, "ann", "first", label_id="l0")
        store.export(folder / "a.jsonl")
        (folder / "link").write_text(store.people.invite("annotator", 1.0))


def killed_after(statements: int, act: Act, folder: Path) -> bool:
    """Do something in a process of its own; whether it was killed before it was done."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == signal.SIGKILL
    left = [statements]

    def count(*_: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", count)
    event.listen(Engine, "commit", count)
    act(folder)
    os._exit(0)


def main(name: str, template: str, scratch: str, step: str = "1") -> None:
    """Kill an act after 0, 1, 2, ... statements, and print what is wrong with the store afterwards."""
    act, number = ACTS[name], 0
    while True:
        folder = Path(scratch) / str(number)
        shutil.copytree(template, folder)
        killed = killed_after(number, act, folder)
        print(json.dumps({"after": number, "killed": killed, **found(name, folder)}), flush=True)
        act(folder) if name != "work" else None  # whatever was left behind is in nobody's way
        shutil.rmtree(folder)
        if not killed:
            return
        number += int(step)


def found(name: str, folder: Path) -> dict[str, object]:
    """What a process that comes next finds."""
    path = folder / {"import_": "b.db", "create": "new.db"}.get(name, "a.db")
    if not path.exists():
        return {"wrong": [], "labels": [], "items": 0, "acked": []}
    acked = (folder / "acked").read_text().split() if (folder / "acked").exists() else []
    with PreferenceStore(path) as store:
        labels = [label.id for label in store.labels(all_versions=True)]
        return {"wrong": store.check(), "labels": labels, "items": store.count_items(), "acked": acked}


if __name__ == "__main__":
    main(*sys.argv[1:])
