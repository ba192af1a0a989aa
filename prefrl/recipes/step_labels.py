"""Step labels from continuations: how often a model that goes on from the end of a step ends at a right answer.

The rows go to `steps.jsonl` in the run folder, in the layout that `prefrl prm` and TRL read, with the counts they rest
on. A solution whose beginning the model cannot solve either says nothing of its steps, and is left out and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prefrl.config import StepLabelsConfig
from prefrl.data.formats import to_completions, to_prompts
from prefrl.data.reading import keep_within
from prefrl.data.steps import Stepped, find_style, load_stepped, split_steps, write_stepped
from prefrl.data.steps_counted import counted_label, find_first_error
from prefrl.data.steps_styles import Count
from prefrl.data.tables import Table
from prefrl.errors import ConfigError, DataError
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.run_folder import RunFolder
from prefrl.model.language import LanguageModel
from prefrl.recipes.common import Checked, fitting_prompts, load_policy, quiet, read_table, report_read
from prefrl.recipes.evaluation_report import leave
from prefrl.recipes.resuming import Checkpoints, opened
from prefrl.recipes.step_labels_report import agreement, cards, sections, title
from prefrl.rewards.specs import build
from prefrl.rollout.continuations import Continuations, Ids, cut_ids
from prefrl.types import Prompt, Rollout, StopReason

STEPS = "steps.jsonl"
_LOGGED = 10  # solutions between two lines of metrics
_PLAIN = Prompt(id="", text="\n")  # amid which the ids of a step are encoded


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A solution to label: its steps as ids and as texts, and the labels that the data has of them, if any.

    finished  False where the token budget cut it off, so that its last step is gone on from too
    number    which of the prompt's solutions it is
    """

    prompt: Prompt
    ids: tuple[Ids, ...]
    steps: tuple[str, ...]
    finished: bool = True
    number: int = 0
    known: Stepped | None = None


@dataclass(slots=True)
class Tally:
    """What happened, in numbers: continuations, sampled tokens, and what could not be used."""

    counts: Counter[str] = field(default_factory=Counter)
    known: list[tuple[Stepped, Stepped]] = field(default_factory=list)


@dataclass(slots=True)
class _Made:
    """The cases, and what came of the first of them; None where nothing could be said."""

    cases: Sequence[Case]
    tally: Tally
    labelled: list[Stepped | None] = field(default_factory=list)

    def state_dict(self) -> dict[str, Any]:
        """Labels, counts and outcomes, for an exact continuation."""
        labelled = [None if one is None else [one.labels, one.counts, one.outcome] for one in self.labelled]
        return {"counts": dict(self.tally.counts), "labelled": labelled}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned for the same cases."""
        self.tally.counts = Counter(state["counts"])
        self.labelled = [
            None
            if kept is None
            else Stepped(prompt=case.prompt, steps=case.steps, labels=kept[0], counts=kept[1], outcome=kept[2])
            for case, kept in zip(self.cases, state["labelled"], strict=False)
        ]


def run(config: StepLabelsConfig) -> RunFolder:
    """Label as configured.

    Raises:
        ConfigError: no rewards.
        DataError: there is no solution, or the model solves none of the prompts.
    """
    if not config.rewards:
        raise ConfigError("rewards is empty; name what judges an answer: --rewards '[{kind: math, column: answer}]'")
    quiet()
    with opened(config, "steplabels") as (folder, checkpoints):
        table = read_table(config.data.train, config.data.limit)
        reward = Checked(build(config.rewards), max_error_fraction=1.0)  # unjudged continuations are counted
        print(f"Loading {config.model.name} ...", flush=True)
        model = load_policy(config.model, config.seed)
        tally = Tally()
        cases = _fitting(_cases(config, table, model, tally), model, config)
        made = _labelled(config, model, reward, _Made(cases, tally), folder, checkpoints)
        write_stepped(folder.path / STEPS, made)
        known = agreement(tally.known)
        leave(
            folder,
            title(made, tally.counts),
            cards(made, tally.counts, known),
            sections(made, tally.counts, known),
            summary={"solutions": len(made), **tally.counts},
            figures={"counts": dict(tally.counts), "solutions": len(made), "against_known": known},
            rows=[],
        )
        print(f"Labelled steps: {folder.path / STEPS} ({_words(tally)})")
    return folder


def _labelled(
    config: StepLabelsConfig,
    model: LanguageModel,
    reward: Checked,
    made: _Made,
    folder: RunFolder,
    checkpoints: Checkpoints,
) -> list[Stepped]:
    cases, tally = made.cases, made.tally
    done = checkpoints.restore(made=made)
    with Progress("solutions labelled", total=len(cases) - done) as progress:
        for place, case in enumerate(cases[done:], start=done + 1):
            made.labelled.append(_Labeller(config, model, reward, tally, case).label())
            progress.step(continuations=tally.counts["continuations"])
            if place % _LOGGED == 0 or place == len(cases):
                folder.log(place, {name: float(count) for name, count in tally.counts.items()})
            checkpoints.after(place, last=place == len(cases))
    tally.known += [(c.known, one) for c, one in zip(cases, made.labelled, strict=True) if c.known and one]
    found = [one for one in made.labelled if one is not None]
    if not found:
        raise DataError(
            f"None of {len(cases)} solutions could be labelled: {_words(tally)}. Take easier prompts, a stronger "
            "model or more continuations, or look at what the rewards say with prefrl verify audit."
        )
    return found


def _words(tally: Tally) -> str:
    return ", ".join(f"{count} {name}" for name, count in tally.counts.items()) or "nothing was left out"


def _cases(config: StepLabelsConfig, table: Table, model: LanguageModel, tally: Tally) -> list[Case]:
    """The solutions of the data, or those that the model gives to its prompts."""
    allowed = config.data.max_dropped_fraction
    if find_style(table.columns):
        rows, changed = load_stepped(
            config.data.train,
            after_error="keep",
            separator=config.separator,
            limit=config.data.limit or None,
            max_bad_fraction=allowed,
        )
        tally.counts.update(changed)
        return list(_numbered([(one.prompt, one.steps, one) for one in rows], model))
    if "completion" in table.columns:
        read = report_read(to_completions(table, max_bad_fraction=allowed), f"solutions of {config.data.train}")
        texts = [(prompt, split_steps(given.text, config.separator), None) for prompt, given in read]
        return list(_numbered(texts, model))
    asked = report_read(to_prompts(table, max_bad_fraction=allowed), f"prompts of {config.data.train}")
    prompts = fitting_prompts(asked, model, config.data)
    print(f"Solving {len(prompts)} prompts, {config.samples} times each ...", flush=True)
    rollouts = model.sample(prompts, config.samples, config.sampling, seed=config.seed)
    found = [_sampled(rollout, model, config.separator, at % config.samples) for at, rollout in enumerate(rollouts)]
    tally.counts["tokens"] += sum(len(rollout.completion_ids) for rollout in rollouts)
    if empty := found.count(None):
        tally.counts["empty solutions"] += empty
    return [case for case in found if case is not None]


def _numbered(texts: Sequence[tuple[Prompt, tuple[str, ...], Stepped | None]], model: LanguageModel) -> Iterator[Case]:
    """Texts as cases; the ids of every step are encoded by themselves, so that a beginning is one of the whole."""
    seen: Counter[str] = Counter()
    for prompt, steps, known in texts:
        ids = tuple(model.encode_reply(_PLAIN, step, closed=False) for step in steps)
        yield Case(prompt=prompt, ids=ids, steps=steps, number=seen[prompt.id], known=known)
        seen[prompt.id] += 1


def _sampled(rollout: Rollout, model: LanguageModel, separator: str, number: int) -> Case | None:
    ids = rollout.completion_ids
    ids = ids[:-1] if rollout.stop is StopReason.EOS else ids
    steps = split_steps(model.decode(list(ids)), separator)
    if not steps:
        return None
    ends = [sum(map(len, steps[: at + 1])) for at in range(len(steps))]
    pieces, texts = cut_ids(ids, ends, model.decode)
    finished = rollout.terminated
    return Case(prompt=rollout.prompt, ids=tuple(pieces), steps=tuple(texts), finished=finished, number=number)


def _fitting(cases: Sequence[Case], model: LanguageModel, config: StepLabelsConfig) -> list[Case]:
    lengths = [len(model.encode(case.prompt)) + sum(map(len, case.ids)) for case in cases]
    if not cases:
        raise DataError(f"{config.data.train} has no solutions to label, and the model gave none that is not empty.")
    share = config.data.max_dropped_fraction
    kept = keep_within(cases, lengths, config.max_tokens, "prompt and solution", max_dropped_fraction=share)
    return report_read(kept, "solutions")


class _Labeller:
    """Labels one solution, and counts what that takes."""

    def __init__(
        self, config: StepLabelsConfig, model: LanguageModel, reward: Checked, tally: Tally, case: Case
    ) -> None:
        self.config, self.model, self.reward, self.tally, self.case = config, model, reward, tally, case
        self.continuations = Continuations(
            model, case.prompt, case.ids, config.sampling, seed=config.seed, number=case.number
        )

    def label(self) -> Stepped | None:
        """The labelled solution; None, and counted, where its labels would say nothing."""
        outcome = self._outcome()
        start = self._tried([0])[0]
        if start is None or outcome is None:
            self.tally.counts["solutions that could not be judged"] += 1
            return None
        if not start[0]:
            self.tally.counts["solutions of prompts that were never solved"] += 1
            if not self.config.keep_unsolved:
                return None
        try:
            found = self._searched(outcome) if self.config.method == "search" else self._all(outcome)
        except DataError:
            self.tally.counts["solutions that could not be judged"] += 1
            return None
        return found

    def _all(self, outcome: bool) -> Stepped:
        steps = len(self.case.steps)
        last = steps if self.case.finished else steps + 1
        counts = self._tried(range(1, last)) + ([(int(outcome), 1)] if self.case.finished else [])
        labels = [counted_label(count, self.config.labels) for count in counts]
        return self._stepped(labels, counts, outcome)

    def _searched(self, outcome: bool) -> Stepped:
        steps = len(self.case.steps)
        counts: dict[int, Count] = {steps: (int(outcome), 1)} if self.case.finished else {}
        if outcome:
            return self._stepped([1.0] * steps, [counts.get(at + 1) for at in range(steps)], outcome)
        first, tried = find_first_error(steps, lambda cut: self._tried([cut])[0])
        counts |= tried
        labels = [1.0 if at < first else 0.0 if at == first else None for at in range(steps)]
        return self._stepped(labels, [counts.get(at + 1) for at in range(steps)], outcome)

    def _stepped(self, labels: Sequence[float | None], counts: Sequence[Count], outcome: bool) -> Stepped:
        return Stepped(
            prompt=self.case.prompt,
            steps=self.case.steps,
            labels=tuple(labels),
            counts=tuple(counts),
            outcome=float(outcome),
        )

    def _outcome(self) -> bool | None:
        ids = tuple(i for step in self.case.ids for i in step)
        whole = Rollout(
            prompt=self.case.prompt,
            prompt_ids=self.continuations.prompt_ids,
            completion_ids=ids,
            mask=(True,) * len(ids),
            logps=(0.0,) * len(ids),
            text="".join(self.case.steps),
            stop=StopReason.EOS if self.case.finished else StopReason.LENGTH,
            group=self.case.prompt.id,
        )
        count = self._judged([whole])
        return None if count is None else bool(count[0])

    def _tried(self, cuts: Sequence[int]) -> list[Count]:
        groups = self.continuations.draw(cuts, self.config.continuations)
        drawn = [rollout for group in groups for rollout in group]
        self.tally.counts["continuations"] += len(drawn)
        self.tally.counts["tokens"] += sum(sum(rollout.mask) for rollout in drawn)
        self.tally.counts["cut off"] += sum(rollout.truncated for rollout in drawn)
        return [self._judged(group) for group in groups]

    def _judged(self, rollouts: Sequence[Rollout]) -> Count:
        """How many are right of those that could be judged; None where none could."""
        scores = [score for score in self.reward.score(rollouts) if score.ok]
        if lost := len(rollouts) - len(scores):
            self.tally.counts["unjudged"] += lost
        right = sum(score.total >= self.config.success for score in scores)
        return (right, len(scores)) if scores else None
