"""People as a function: ask for a comparison in Python, and get what they said.

import annotate

s = annotate.start("my-project")                    # opens the app in the browser; scripts and notebooks alike
s.compare("Name a river.", ["The Nile.", "Paris."])
answer = s.wait()                                   # Answer(outcome="chosen", chosen="The Nile.", ...)
s.export("preferences.jsonl")
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from annotate.serve import Running, browse
from prefrl.data.comparisons import Item, Label
from prefrl.data.formats import content_hash
from prefrl.errors import DataError, did_you_mean
from prefrl.types import Completion, Message, Prompt

if TYPE_CHECKING:
    from prefrl.data.exporting import Export
    from prefrl.data.store import ItemState

POLL, BUSY = 0.1, 10  # seconds between two looks; and the least of them as a multiple of how long a look takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was said of a comparison, and nothing that was not said.

    Attributes:
        item: id of the comparison.
        outcome: chosen, tie, both_bad, skipped by all who were asked, or timeout: nobody said anything in time.
        chosen, rejected: the two texts where one was chosen, else None.
        index: place of the chosen one in the list that was handed in, else None.
        label: the label with who said it, how strongly, and why; None where there is none.
    """

    item: str
    outcome: Literal["chosen", "tie", "both_bad", "skipped", "timeout"]
    chosen: str | None = None
    rejected: str | None = None
    index: int | None = None
    label: Label | None = None


class Session:
    """A project whose server runs in a thread; use it as a context manager, or call `stop`.

    Attributes:
        url: address of the app.
        link: a one-time link for who runs it; empty where somebody can sign in already.
        store: everything that was asked and said.
    """

    def __init__(self, server: Running) -> None:
        self._server = server
        self.url, self.link, self.store = server.url, server.link, server.studio.store
        self._asked: list[str] = []

    def compare(self, prompt: str | Sequence[Message], outputs: Sequence[str]) -> str:
        """Ask which of two outputs is better; the id of the comparison. The same one is asked once.

        Args:
            prompt: a text, or chat messages.
            outputs: two different texts.

        Raises:
            DataError: not two, or twice the same.
        """
        if isinstance(outputs, str) or len(outputs) != 2 or outputs[0] == outputs[1]:
            raise DataError(f"Got {outputs!r:.200} to compare; expected a list of two different texts.")
        text, messages = (prompt, None) if isinstance(prompt, str) else (None, tuple(prompt))
        asked = Prompt(id=content_hash([{"prompt": text or list(messages or ())}]), text=text, messages=messages)
        first, second = (Completion(text=output) for output in outputs)
        item = Item(prompt=asked, first=first, second=second)
        self.store.add_items([item])
        self._asked.append(item.id)
        return item.id

    def wait(self, item: str | None = None, timeout: float | None = None) -> Answer:
        """Wait until people have said something of a comparison.

        Args:
            item: its id; without one, the comparison that was asked last.
            timeout: seconds to wait; without it, as long as it takes.

        Raises:
            DataError: nothing was asked, or there is no such comparison.
        """
        if item is None and not self._asked:
            raise DataError("Nothing was asked in this session; call compare before wait.")
        return self._wait([item or self._asked[-1]], timeout)[0]

    def wait_all(self, timeout: float | None = None) -> list[Answer]:
        """Wait for all that was asked in this session: an answer each, in the order of asking."""
        return self._wait(self._asked, timeout)

    def export(self, path: str | Path | None = None, **choices: Any) -> Export:
        """The labels as rows that trainers read, written to a file where one is named.

        Args:
            path: .jsonl or .parquet.
            choices: see `prefrl.data.exporting.Choices`; without any, pairs of chosen and rejected.

        Raises:
            ConfigError: a choice that there is not, or another kind of file.
            DataError: nothing to write.
        """
        from prefrl.data.exporting import Choices, Labelled, export

        made = export(Labelled.of(self.store), Choices(**choices))
        if path is not None:
            made.write(path)
        return made

    def stop(self) -> None:
        """End the server; what was said stays in the project."""
        self._server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Session({self.link or self.url})"

    def _wait(self, ids: Sequence[str], timeout: float | None) -> list[Answer]:
        items = self._items(ids)
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            began = time.monotonic()
            found = self._answers(items)
            took = time.monotonic() - began
            if all(answer is not None for answer in found.values()) or (end is not None and began >= end):
                return [found[id] or Answer(item=id, outcome="timeout") for id in ids]
            pause = max(POLL, BUSY * took)
            time.sleep(pause if end is None else max(0.0, min(pause, end - time.monotonic())))

    def _items(self, ids: Sequence[str]) -> dict[str, Item]:
        found = {task.id: task for task in self.store.tasks(ids=ids) if isinstance(task, Item)}
        for id in ids:
            if id not in found:
                near = did_you_mean(id, self._asked)
                raise DataError(f"There is no comparison {id!r}; expected an id that compare returned.{near}")
        return found

    def _answers(self, items: dict[str, Item]) -> dict[str, Answer | None]:
        labels: dict[str, list[Label]] = {id: [] for id in items}
        for label in self.store.labels(items=items):
            labels[label.item].append(label)
        states = self.store.item_states(items=items)
        people = sum(person.active for person in self.store.people.list())
        limit = self.store.settings().skip_after or people
        return {id: _answer(item, labels[id], states[id], min(limit, people)) for id, item in items.items()}


def start(
    project: str | Path = "annotations", *, host: str = "127.0.0.1", port: int = 0, browser: bool = True
) -> Session:
    """Serve a project from this process, and open it in the browser; what was said before is still there.

    Args:
        project: its folder, made where there is none.
        host: address to listen at.
        port: port to listen at; 0 takes the first free one from 7860.
        browser: open the browser of this machine, if it has one.

    Raises:
        ConfigError: the port is taken.
        DataError: the store cannot be used.
    """
    session = Session(Running(project, host=host, port=port))
    print(f"Label at {session.link or session.url}", flush=True)
    if browser:
        browse(session.link or session.url)
    return session


def _answer(item: Item, labels: Sequence[Label], state: ItemState, skips: int) -> Answer | None:
    """What the labels say; None while somebody may still say something. The last word of those who judged counts."""
    judged = [label for label in labels if label.outcome != "skip"]
    if not judged:
        over = bool(labels) and (len(labels) >= skips or state.state == "closed")
        return Answer(item=item.id, outcome="skipped", label=labels[-1]) if over else None
    label, texts = judged[-1], (item.first.text, item.second.text)
    if label.outcome == "tie" or label.outcome == "both_bad":
        return Answer(item=item.id, outcome=label.outcome, label=label)
    index = ("first", "second").index(label.outcome)
    chosen, rejected = texts[index], texts[1 - index]
    return Answer(item=item.id, outcome="chosen", chosen=chosen, rejected=rejected, index=index, label=label)
