"""The preference store: what people are asked, and their labels, none of which is ever overwritten.

    with PreferenceStore("preferences.db") as store:
        store.add_items([Item(prompt=prompt, first=a, second=b)])
        for item in store.open_items("ann"):
            store.submit(item.id, "ann", "first")
        pairs = store.pairs()

A store is a labelling project: its settings, items, labels, people, pictures, audit log and jobs, in one SQLite file in
WAL mode, or in Postgres by a URL. A label is on the disk when `submit` returns; changing one's mind adds a version, and
the last version of each person counts. Items and labels are known by id, so whatever is handed in twice is stored once.

Many people at once are given items by `store.work.next`, which keeps places for them, and label by `store.work.submit`;
one who labels alone needs `open_items` and `submit` only. Threads share a store, and processes share a file.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from prefrl.data.comparisons import OUTCOMES, Item, Judgement, Label, Outcome, Task, to_pairs
from prefrl.data.project import ProjectSettings
from prefrl.errors import DataError, did_you_mean
from prefrl.types import Pair

if TYPE_CHECKING:
    from prefrl.data.store.records import Event, Flag, Gold, ItemState, ItemStatus


class PreferenceStore:
    """Items and labels of a project; use it as a context manager.

    Args:
        place: the file, or the URL of a Postgres database.
        create: make it where there is none.

    Attributes:
        path: the file; of Postgres the URL without its password, which is no file.
        address: the file, or the URL without its password: what other commands are told.
        environment: what they need beside it to open the same store: the password of Postgres, or nothing.
        project_id: made at random, once; the same in all processes.
        secret: made at random, once; never leaves the server, since which side is A follows from it.
        work: who gets which item, and what they say of it.
        people: accounts, sessions, one-time links.
        media: pictures.
        jobs: processes that were started for the project.

    Raises:
        DataError: there is none, or it is no preference store, a damaged one, or one of a newer version.
    """

    def __init__(self, place: str | Path, *, create: bool = True) -> None:
        from prefrl.data.store.engine import Database, disk_errors
        from prefrl.data.store.items import Items
        from prefrl.data.store.jobs import Jobs
        from prefrl.data.store.media import Media
        from prefrl.data.store.migrations import migrate
        from prefrl.data.store.people import People
        from prefrl.data.store.settings import project_of
        from prefrl.data.store.work import Work

        self._database = Database(place)
        file = self._database.path
        self.path = file or Path(self._database.name)
        self.address, self.environment = self._database.address, self._database.environment
        if file and not create and not file.is_file():
            near = did_you_mean(file.name, [p.name for p in file.parent.glob("*.db")])
            raise DataError(f"There is no preference store {file}.{near} prefrl loop makes one.")
        if file:
            with disk_errors(file):
                file.parent.mkdir(parents=True, exist_ok=True)
        try:
            migrate(self._database, create=create)
            with self._database.reading() as connection:
                project = project_of(connection)
                self.project_id, self.secret = project.id, project.secret
        except BaseException:
            self.close()
            raise
        self._items = Items(self._database)
        self.work, self.people = Work(self._database), People(self._database)
        self.media, self.jobs = Media(self._database), Jobs(self._database)

    def settings(self) -> ProjectSettings:
        """How the project asks."""
        from prefrl.data.store.settings import project_of

        with self._database.reading() as connection:
            return project_of(connection).settings

    def save_settings(self, settings: ProjectSettings, by: str = "") -> None:
        """Let the project ask differently from now on; labels that there are stay."""
        from prefrl.data.store.settings import save_settings

        with self._database.writing() as connection:
            save_settings(connection, settings, by)

    def add_items(self, items: Sequence[Item]) -> int:
        """Add pairs that are not there yet; see `add_tasks`."""
        return self._items.add(items)

    def add_tasks(self, tasks: Sequence[Task], *, by: str = "", gold: Mapping[str, Gold] | None = None) -> int:
        """Add what is not there yet; how many that were. One that is there stays, but for an overlap that grew.

        They are added in batches, between which labels come in.

        Args:
            tasks: items of any kind.
            by: who adds them.
            gold: what is known to be right, by the id of an item.

        Raises:
            DataError: an id that cannot be kept, or a known answer of an item that is not among these.
        """
        return self._items.add(tasks, by=by, gold=gold)

    def items(self) -> list[Item]:
        """All pairs in the order they were added."""
        with self._database.reading() as connection:
            return self._items.pairs(connection)

    def tasks(
        self, *, ids: Iterable[str] | None = None, kind: str = "", state: str = "", gold: bool | None = None
    ) -> list[Task]:
        """Items in the order they were added: those of these ids, of this kind, in this state, with a known answer."""
        return self._items.all(ids=ids, kind=kind, state=state, gold=gold)

    def task(self, id: str) -> Task:
        """The item of an id.

        Raises:
            DataError: there is none.
        """
        return self._items.get(id)

    def count_items(self) -> int:
        """How many items of all kinds there are."""
        return self._items.count()

    def item_states(self, now: float | None = None, *, items: Iterable[str] | None = None) -> dict[str, ItemState]:
        """Where every item stands, by its id; of some ids only where these are named."""
        return self._items.states(_at(now), items)

    def set_state(self, ids: Iterable[str], state: ItemStatus, by: str = "") -> int:
        """Open or close items, or have a reviewer settle them (adjudication); the number of those that changed.

        An item is closed by the first label of a reviewer who settles it, and that label has the detail `adjudication`.
        """
        return self._items.set_state(ids, state, by)

    def set_priority(self, ids: Iterable[str], priority: int, by: str = "") -> int:
        """Have items labelled sooner (more than 0) or later; the number of those that changed."""
        return self._items.set_priority(ids, priority, by)

    def set_overlap(self, ids: Iterable[str], overlap: int, by: str = "") -> int:
        """Have items labelled by so many people; the number of those that changed."""
        return self._items.set_overlap(ids, overlap, by)

    def set_gold(self, id: str, gold: Gold | None, by: str = "") -> None:
        """Say what is known to be right of an item, or that nothing is."""
        self._items.set_gold(id, gold, by)

    def gold(self) -> dict[str, Gold]:
        """What is known to be right, by the id of the item."""
        return self._items.gold()

    def open_items(self, annotator: str, now: float | None = None) -> list[Item]:
        """Pairs that this person may label: that have room for a label, and none of theirs.

        A pair has room while its labels and the people who have it open are fewer than its overlap, and those who
        skipped it fewer than the `skip_after` of the project.
        """
        from prefrl.data.store.leasing import about_room
        from prefrl.data.store.queue import FREE

        with self._database.reading() as connection:
            return self._items.pairs(connection, FREE, **about_room(connection, annotator, _at(now)))

    def is_open(self, item: str, annotator: str, now: float | None = None) -> bool:
        """Whether an item is one of `open_items`, which others label too."""
        from prefrl.data.store.leasing import about_room
        from prefrl.data.store.queue import FREE
        from prefrl.data.store.schema import items

        with self._database.reading() as connection:
            about = about_room(connection, annotator, _at(now))
            return bool(self._items.pairs(connection, FREE, items.c.id == item, **about))

    def submit(
        self,
        item: str,
        annotator: str,
        outcome: Outcome,
        *,
        strength: str = "",
        note: str = "",
        label_id: str = "",
        details: Mapping[str, Any] | None = None,
        now: float | None = None,
    ) -> Label:
        """Store a label, as a new version where this person labelled the item before; it is on the disk on return.

        Of an item that nobody gave them: whether others have labelled it in the meantime is for the caller to ask.

        Args:
            item: id of the item.
            annotator: who says so.
            outcome: first, second, tie, both_bad or skip; steps of steps; right, wrong or unsure of one completion.
            strength, note, details: see `Label`.
            label_id: an id of the caller's; the same one handed in again changes nothing.
            now: epoch seconds.

        Raises:
            DataError: an unknown item or outcome, no annotator, or an id that another label has.
        """
        from prefrl.data.store.settings import project_of
        from prefrl.data.store.submission import said_of, submit_freely
        from prefrl.data.store.texts import storable

        if outcome not in OUTCOMES or not annotator.strip():
            raise DataError(
                f"Got the outcome {outcome!r} of annotator {annotator!r}; expected {', '.join(OUTCOMES)}, and a name."
            )
        said, who = said_of(outcome, strength, note, details), storable(annotator)
        with self._database.writing() as connection:
            project = project_of(connection)
            return submit_freely(connection, project, storable(item), who, said, label_id, _at(now))

    def add_labels(self, labels: Sequence[Label], *, by: str = "") -> int:
        """Store labels that were given elsewhere, all of them or nothing; how many were new.

        Args:
            labels: with ids and versions of their own; one without a time is of now.
            by: who adds them.

        Raises:
            DataError: one is of an item that is nowhere, contradicts one that is here, or leaves out versions.
        """
        from prefrl.data.store.items import batches
        from prefrl.data.store.journal import record
        from prefrl.data.store.labels import add_labels

        with self._database.writing() as connection:
            added = sum(add_labels(connection, self.secret, batch) for batch in batches(labels))
            if added:
                record(connection, by, "labels added", {"added": added, "of": len(labels)})
        return added

    def settle(
        self,
        item: str,
        person: str,
        outcome: Outcome,
        *,
        strength: str = "",
        note: str = "",
        label_id: str = "",
        details: Mapping[str, Any] | None = None,
        now: float | None = None,
    ) -> Label:
        """Say what is right of an item, before all that others say, and close it: both, or nothing.

        The label has the detail `adjudication`. Whether this person may decide is for the caller to ask.

        Raises:
            Invalid: an unknown item, no name, or an outcome that the project does not ask for; a skip decides nothing.
            Conflict: another label has the id.
        """
        from prefrl.data.store.settings import project_of
        from prefrl.data.store.submission import said_of, settle
        from prefrl.data.store.texts import storable

        said, who = said_of(outcome, strength, note, details), storable(person)
        with self._database.writing() as connection:
            return settle(connection, project_of(connection), storable(item), who, said, label_id, _at(now))

    def labels(self, *, all_versions: bool = False, items: Iterable[str] | None = None) -> list[Label]:
        """The last label of every person on every item, or all versions, in the order they came.

        Args:
            all_versions: those that were changed, too.
            items: ids of the items whose labels are wanted; without it, all.
        """
        from prefrl.data.store.labels import LABELS, labels_of, live_labels, read_labels

        wanted = LABELS if all_versions else live_labels()
        with self._database.reading() as connection:
            return read_labels(connection, wanted) if items is None else labels_of(connection, wanted, items)

    def judgements(self) -> list[Judgement]:
        """Live labels of pairs with their items: by item as added, then as they came."""
        from prefrl.data.store.labels import live_labels, read_labels

        with self._database.reading() as connection:
            items = {item.id: item for item in self._items.pairs(connection)}
            labels = read_labels(connection, live_labels())
        found: dict[str, list[Judgement]] = {name: [] for name in items}
        for label in labels:
            if label.item in items:
                found[label.item].append(Judgement(items[label.item], label))
        return [judgement for of_item in found.values() for judgement in of_item]

    def pairs(self, margins: Mapping[str, float] | None = None) -> list[Pair]:
        """All judgements as training pairs; see `to_pairs`."""
        return to_pairs(self.judgements(), margins)

    def flags(self, open_only: bool = True) -> list[Flag]:
        """Reports that something is wrong with an item, in the order they came."""
        from prefrl.data.store.work import flags_of

        return flags_of(self._database, open_only)

    def resolve_flag(self, id: str, by: str) -> None:
        """Say that a report was looked at.

        Raises:
            DataError: there is no such report.
        """
        from prefrl.data.store.work import resolve_flag

        resolve_flag(self._database, id, by)

    def events(self, *, after: int = 0, kind: str = "", person: str = "", limit: int = 1000) -> list[Event]:
        """Entries of the audit log after a number, of one kind and one person where these are named, oldest first."""
        from prefrl.data.store.journal import events_of

        return events_of(self._database, after, kind, person, limit)

    def log(self, person: str, kind: str, body: Mapping[str, Any], now: float | None = None) -> None:
        """Add an entry to the audit log, which is never changed."""
        from prefrl.data.store.journal import record

        with self._database.writing() as connection:
            record(connection, person, kind, body, now)

    def export(self, path: str | Path) -> int:
        """Write all that is data as JSON lines, the same bytes every time; the number of lines.

        Settings that were saved, pictures, items with what is known of them, all versions of all labels, and reports;
        neither accounts nor the audit log.
        """
        from prefrl.data.store.transfer import export

        return export(self._database, Path(path))

    def import_(self, path: str | Path) -> int:
        """Add what an `export` wrote, all of it or nothing; the number of items, labels and reports that were new.

        Settings are taken where none were saved here, and stay otherwise.

        Raises:
            DataError: a line that `export` does not write, or a label that contradicts one that is here.
        """
        from prefrl.data.store.transfer import import_

        return import_(self._database, Path(path))

    def backup(self, path: str | Path | None = None) -> Path:
        """Copy the file while it is in use; the copy, which holds one moment and was read through.

        Raises:
            DataError: there is such a file already, the copy is damaged, or the store is in Postgres.
        """
        from prefrl.data.store.upkeep import backup

        return backup(self._database, None if path is None else Path(path))

    def check(self) -> list[str]:
        """What is wrong with the store: nothing, of a sound one. Counts are compared with the labels themselves."""
        from prefrl.data.store.upkeep import check

        return check(self._database)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _at(now: float | None) -> float:
    return time.time() if now is None else now
