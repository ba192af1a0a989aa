"""Where the loop's labels come from: people through the preference store, or a simulator through the same store."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from prefrl.config import LoopConfig
from prefrl.data.comparisons import Item, Judgement, Outcome
from prefrl.data.preferences import PreferenceStore
from prefrl.recipes.common import Checked
from prefrl.recipes.labelling import Judge, simulator
from prefrl.recipes.loop_evaluate import HELD_OUT, Verdict, verdicts
from prefrl.recipes.loop_files import SIMULATED, STORE
from prefrl.rewards.specs import build


class Waiting(Exception):
    """The loop cannot go on before people have labelled something; not an error."""


class Labels:
    """Who labels pairs, and who says which policy is better.

    Args:
        config: of the loop.
        folder: its run folder, where the store is unless the configuration names another.

    Attributes:
        simulator: None where people label.
        judge: what decides win rates; None where people do.
    """

    def __init__(self, config: LoopConfig, folder: Path) -> None:
        errors = config.max_error_fraction
        people = config.labeller.kind == "people"
        self.folder, self._judged_by = folder, bool(config.judge)
        self.simulator = None if people else simulator(config.labeller, config.seed, errors)
        self.judge: Judge | None = self.simulator.judge if self.simulator else None
        if config.judge:
            self.judge = Judge(Checked(build(config.judge), errors))
        self.path = Path(config.labeller.store or folder / STORE).expanduser()

    @property
    def about(self) -> str:
        """Who labels and who decides, for the report."""
        labels = self.simulator.description if self.simulator else "People label, through the preference store."
        decides = "the same utility without its noise" if self.judge else "people, who compare answers blindly"
        return f"{labels} Win rates are decided by {self.judge.name if self.judge and self._judged_by else decides}."

    def ask(self, items: Sequence[Item]) -> None:
        """Put items into the store; those that are there already stay as they are."""
        with PreferenceStore(self.path) as store:
            store.add_items(items)

    def collect(self, items: Sequence[Item], known: Mapping[str, Item], what: str) -> list[Judgement]:
        """Have items labelled; all judgements of the items that are known.

        Args:
            items: what is labelled now.
            known: items of this loop by id, earlier ones too. What they are for is told by them and not by the store,
                in which another loop may have asked the same.
            what: is labelled, for people.

        Raises:
            Waiting: people have not labelled all of them yet.
        """
        with PreferenceStore(self.path) as store:
            store.add_items(items)
            if self.simulator is not None:
                self._simulate(store, items)
            else:
                self._wait(store, items, what)
            return [Judgement(known[item.id], label) for item, label in store.judgements() if item.id in known]

    def compare(self, items: Sequence[Item], asked: Sequence[Item], what: str) -> list[Verdict]:
        """Which completion of every item is better: the judge says of all, people of those that they are asked.

        Raises:
            Waiting: people have not compared all of them yet.
        """
        if self.judge is not None:
            return [Verdict(item, outcome) for item, outcome in zip(items, self.judge.outcomes(items), strict=True)]
        different = [item for item in asked if item.first.text != item.second.text]
        return verdicts(asked, self.collect(different, {item.id: item for item in different}, what))

    def _wait(self, store: PreferenceStore, items: Sequence[Item], what: str) -> None:
        labelled = Counter(label.item for label in store.labels())
        missing = sum(labelled[item.id] < item.overlap for item in items)
        if missing:
            store_path, config = (shlex.quote(str(path)) for path in (self.path, self.folder / "config.yaml"))
            several = max(item.overlap for item in items)
            each = f" of {several} people each, who say --annotator NAME" if several > 1 else ""
            raise Waiting(
                f"{what} waits for people: {missing} of {len(items)} pairs still need a label{each}.\n"
                f"  Label them with:  prefrl label {store_path}\n"
                f"  Then go on with:  prefrl loop {config}   (or the command that you began with)"
            )

    def _simulate(self, store: PreferenceStore, items: Sequence[Item]) -> None:
        """Let the simulator label; held-out pairs without its noise, as the truth about them is known."""
        assert self.simulator is not None
        noisy = [item for item in items if item.why != HELD_OUT]
        exact = [item for item in items if item.why == HELD_OUT]
        said: list[tuple[Item, Outcome]] = [*zip(noisy, self.simulator.label(noisy), strict=True)]
        said += zip(exact, self.simulator.judge.outcomes(exact), strict=True)
        for item, outcome in said:
            store.submit(item.id, SIMULATED, outcome, label_id=f"{item.id}-{SIMULATED}")
