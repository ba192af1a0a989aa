"""Where labels of fragments come from: a program that knows what the environment paid, or people who look at clips."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from prefrl.config import TrajectoryConfig
from prefrl.data.comparisons import WINS, Item
from prefrl.data.preferences import PreferenceStore
from prefrl.data.waiting import unanswered
from prefrl.errors import DataError
from prefrl.recipes.loop_labels import Waiting
from prefrl.recipes.trajectory_clips import clip_of, view_of
from prefrl.rewards.trajectory.preferences import synthetic_labels
from prefrl.types import Completion, Prompt, Rollout

STORE = "preferences.db"
Couple = tuple[Rollout, Rollout]


class Labels:
    """Who says which of two fragments is better.

    Args:
        config: of the run.
        folder: its run folder, where people's store is unless the configuration names another.
    """

    def __init__(self, config: TrajectoryConfig, folder: Path) -> None:
        self.config, self.folder = config, folder
        store = config.labels.store
        self.path = store if "://" in store else Path(store or folder / STORE).expanduser()

    @property
    def people(self) -> bool:
        """Whether people label."""
        return self.config.labels.kind == "people"

    @property
    def about(self) -> str:
        """Who labels, for the report."""
        how = self.config.labels
        if self.people:
            return "People label clips, through the preference store."
        chance = "always prefers the better one" if not how.temperature else f"errs at temperature {how.temperature}"
        flips = f", and says the opposite in {how.flip:.0%}" if how.flip else ""
        return f"A program labels by what the environment paid; it {chance}{flips}."

    def ask(self, couples: Sequence[Couple], number: int) -> list[str]:
        """Put the comparisons of a round before people; their ids, or nothing where a program labels."""
        if not self.people:
            return []
        with PreferenceStore(self.path) as store:
            items = [self._item(store, couple, number) for couple in couples]
            store.add_items(items)
        return [item.id for item in items]

    def collect(self, couples: Sequence[Couple], asked: Sequence[str], number: int, seed: int) -> list[float | None]:
        """Label of each comparison of a round: the probability that the first is better; None where all skipped it.

        Several people's labels of a comparison become the share of them that prefer the first, a tie counting half.

        Args:
            couples: what is compared.
            asked: their ids in the store, where people label.
            number: of the round.
            seed: of a program's draws.

        Raises:
            Waiting: people have not labelled all of them yet.
            DataError: all were skipped.
        """
        how = self.config.labels
        if not self.people:
            options = {"temperature": how.temperature, "tie_width": how.tie_width, "flip": how.flip}
            found = synthetic_labels(couples, seed=seed, discount=self.config.fit.discount, **options)
            return [preference.label for preference in found]
        with PreferenceStore(self.path, create=False) as store:
            missing = len(unanswered(store, asked))
            if missing:
                raise Waiting(self._wait(missing, len(asked), number), asked)
            said: dict[str, list[float]] = {name: [] for name in asked}
            for item, label in store.judgements():
                if item.id in said and label.outcome in WINS:
                    said[item.id].append(WINS[label.outcome])
        if not any(said.values()):
            raise DataError(
                f"All {len(asked)} comparisons of round {number} were skipped, so there is nothing to learn. Label "
                f"some of them in {self.path}, then type the same again."
            )
        return [fmean(said[name]) if said[name] else None for name in asked]

    def _item(self, store: PreferenceStore, couple: Couple, number: int) -> Item:
        how, environment = self.config.labels, self.config.environment
        keep, view = store.media.put if how.frames else None, view_of(environment)
        first, second = couple
        return Item(
            prompt=Prompt(id=f"{environment} clips", text=how.question),
            first=Completion(text=_name(first)),
            second=Completion(text=_name(second)),
            round=number,
            checkpoints=(f"round {first.version}", f"round {second.version}"),
            why="fragments",
            overlap=how.overlap,
            clips=(clip_of(first, view, keep), clip_of(second, view, keep)),
        )

    def _wait(self, missing: int, total: int, number: int) -> str:
        store, config = (shlex.quote(str(path)) for path in (self.path, self.folder / "config.yaml"))
        return (
            f"Round {number} waits for people: {missing} of {total} pairs of clips still need a label.\n"
            f"  Label them in a browser with:  prefrl annotate {store}\n"
            f"  Then go on with:  prefrl fragments {config}   (or the command that you began with)"
        )


def _name(fragment: Rollout) -> str:
    """What a clip is called: by what is in it, so that the same question always has the same id."""
    assert fragment.observations is not None, "fragments have observations"
    seen = hashlib.sha256(fragment.observations.contiguous().numpy().tobytes())
    acted = fragment.completion_ids if fragment.actions is None else fragment.actions.tolist()
    seen.update(repr(acted).encode())
    return f"clip {seen.hexdigest()[:12]}, {fragment.text}"
