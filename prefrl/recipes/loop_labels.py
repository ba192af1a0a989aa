"""Where the loop's labels come from: people through the preference store, or a simulator through the same store."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from prefrl.config import LoopConfig, RewardConfig
from prefrl.data.comparisons import Item, Judgement, Outcome, to_pairs
from prefrl.data.judgements import resolve_ties
from prefrl.data.preferences import PreferenceStore
from prefrl.data.splits import prompt_key, split_by_prompt
from prefrl.data.waiting import unanswered
from prefrl.recipes.common import Checked
from prefrl.recipes.labelling import Judge, seed_of, simulator
from prefrl.recipes.loop_evaluate import DECIDED, HELD_OUT, Verdict, verdicts
from prefrl.recipes.loop_files import SIMULATED, STORE
from prefrl.rewards.identity import fingerprint
from prefrl.rewards.specs import build
from prefrl.types import Pair


class Waiting(Exception):
    """The loop cannot go on before people have labelled something; not an error.

    items  ids of all items that it waits for, labelled or not
    """

    def __init__(self, message: str, items: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.items = list(items)


def training_pairs(judgements: Sequence[Judgement], config: RewardConfig, seed: int) -> tuple[list[Pair], list[Pair]]:
    """What a reward model learns of judgements, and what stops it early; nothing where that cannot be split."""
    pairs = to_pairs([j for j in judgements if j.item.why != HELD_OUT], config.labels.strengths)
    if config.data.eval_fraction and len({prompt_key(pair) for pair in pairs}) < 2:
        return [], []
    return split_by_prompt(pairs, config.data.eval_fraction, seed)


def teaches(judgements: Sequence[Judgement], config: LoopConfig, number: int) -> bool:
    """Whether the judgements of all rounds so far are something to learn from in a round."""
    train, _ = training_pairs(judgements, config.reward, seed_of(config.seed, f"{number}/fit"))
    if not resolve_ties(train, config.reward.labels.ties).items:
        return False
    if config.learn == "reward":
        return True
    rounds = range(1, number + 1) if config.restart else (number,)
    return any(j.label.outcome in DECIDED and j.item.why != HELD_OUT and j.item.round in rounds for j in judgements)


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
        self.folder, self._judged_by, self._name = folder, bool(config.judge), config.labeller.name
        self.simulator = None if people else simulator(config.labeller, config.seed, errors)
        self.judge: Judge | None = self.simulator.judge if self.simulator else None
        if config.judge:
            self.judge = Judge(Checked(build(config.judge), errors))
        store = config.labeller.store
        self.path = store if "://" in store else Path(store or folder / STORE).expanduser()

    @property
    def about(self) -> str:
        """Who labels and who decides, for the report."""
        labels = self.simulator.description if self.simulator else "People label, through the preference store."
        decides = "the same utility without its noise" if self.judge else "people, who compare answers blindly"
        return f"{labels} Win rates are decided by {self.judge.name if self.judge and self._judged_by else decides}."

    def fingerprints(self) -> dict[str, str]:
        """What tells the judge and the simulator's utility, with their code, from others."""
        sources = {
            "judge": self.judge.reward.source if self.judge and self._judged_by else None,
            "utility": self.simulator.judge.reward.source if self.simulator else None,
        }
        return {name: fingerprint(source)["id"] for name, source in sources.items() if source is not None}

    def ask(self, items: Sequence[Item]) -> None:
        """Put items into the store; those that are there already stay as they are."""
        with PreferenceStore(self.path) as store:
            store.add_items(list(map(self._named, items)))

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
            store.add_items(list(map(self._named, items)))
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

    def _named(self, item: Item) -> Item:
        """The item as a store that others share knows it."""
        if not self._name:
            return item
        first, second = (f"{self._name}/{checkpoint}" for checkpoint in item.checkpoints)
        return replace(item, checkpoints=(first, second), judge=item.judge and f"{self._name}/{item.judge}")

    def _wait(self, store: PreferenceStore, items: Sequence[Item], what: str) -> None:
        missing = len(unanswered(store, [item.id for item in items]))
        if missing:
            store_path, config = (shlex.quote(str(path)) for path in (self.path, self.folder / "config.yaml"))
            several = max(item.overlap for item in items)
            each = f" of {several} people each, who say --annotator NAME" if several > 1 else ""
            raise Waiting(
                f"{what} waits for people: {missing} of {len(items)} pairs still need a label{each}.\n"
                f"  Label them with:  prefrl label {store_path}   (or in a browser: prefrl annotate {store_path})\n"
                f"  Then go on with:  prefrl loop {config}   (or the command that you began with)",
                [item.id for item in items],
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
