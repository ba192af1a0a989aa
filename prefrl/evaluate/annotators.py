"""Everything that labels tell about the people who made them: agreement, reliability and behaviour, in one report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from prefrl.data.comparisons import Label
from prefrl.evaluate.adjudication import independent
from prefrl.evaluate.behaviour import (
    Count,
    Run,
    Side,
    Speed,
    Thresholds,
    gold,
    side_bias,
    speed,
    straight_lining,
    ties,
)
from prefrl.evaluate.coefficients import (
    Coefficient,
    Ratings,
    cohen_kappas,
    fleiss_kappa,
    krippendorff,
    raw_agreement,
)
from prefrl.evaluate.ratings import by_person, choices, grades, step_ratings
from prefrl.evaluate.reliability import DawidSkene, Reliability, Worker, dawid_skene, noisy_bradley_terry

_SHARES = {"first": 1.0, "second": 0.0, "tie": 0.5, "both_bad": 0.5}
_ANSWERS = {"a": "A", "b": "B", "tie": "a tie", "both_bad": "both bad"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotator:
    """One person's figures; None where their labels say nothing of it.

    labels, skips  live labels that are none, or are skips
    worker         Dawid-Skene
    noisy          noisy Bradley-Terry
    concerns       what is remarkable, by kind, in words
    """

    name: str
    labels: int
    skips: int
    worker: Worker | None
    noisy: Reliability | None
    gold: Count | None
    side: Side | None
    speed: Speed | None
    ties: Count | None
    run: Run | None

    @property
    def concerns(self) -> dict[str, str]:
        """Kind of concern -> what was found."""
        found: dict[str, str] = {}
        if self.worker and self.worker.verdict == "adversarial":
            found["adversarial"] = f"says the opposite of what is likely true: {self.worker.accuracy:.0%} right"
        if self.worker and self.worker.verdict == "random":
            found["random"] = f"may as well guess: {self.worker.accuracy:.0%} right"
        if self.gold and self.gold.verdict == "fail":
            found["gold"] = f"gives {self.gold.count} of {self.gold.total} known answers"
        if self.side and self.side.flagged:
            found["side"] = f"chose A {self.side.chosen_a} times of {self.side.decided}"
        if self.speed and self.speed.verdict:
            found["speed"] = f"{self.speed.verdict}: {self.speed.median_seconds:.1f} s a label at the median"
        if self.ties and self.ties.verdict:
            found["ties"] = f"says neither in {self.ties.count} of {self.ties.total}"
        if self.run and self.run.flagged:
            found["run"] = f"said {_ANSWERS.get(self.run.answer, self.run.answer)} {self.run.length} times in a row"
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatorReport:
    """Agreement of all, and figures of each.

    agreement  of choices: raw, Fleiss, Krippendorff; and, ordinal, of graded preferences and of ratings of steps
    kappas     Cohen's, of every two people
    truth      Dawid-Skene of choices
    """

    agreement: Sequence[Coefficient]
    kappas: Mapping[tuple[str, str], Coefficient]
    truth: DawidSkene
    people: Sequence[Annotator]
    adjudicated: int


def annotator_report(
    labels: Sequence[Label],
    answers: Mapping[str, str] | None = None,
    strengths: Sequence[str] = (),
    thresholds: Thresholds | None = None,
) -> AnnotatorReport:
    """The report of live labels.

    Args:
        labels: the last one of every person and item; adjudicating ones are counted and left out.
        answers: outcome that is known to be right, by item.
        strengths: words of the scale, from the weakest to the strongest, where preferences are graded.
        thresholds: from where on a figure is remarked upon.
    """
    said = independent(labels)
    table = choices(said)
    truth, noisy = dawid_skene(table), noisy_bradley_terry(_shares(table))
    known, sides = gold(said, answers or {}, thresholds), side_bias(said, thresholds)
    times, neither = speed(said, thresholds), ties(said, thresholds)
    runs = straight_lining(said, thresholds)
    people = [
        Annotator(
            name=name,
            labels=sum(label.outcome != "skip" for label in theirs),
            skips=sum(label.outcome == "skip" for label in theirs),
            worker=truth.workers.get(name),
            noisy=noisy.get(name),
            gold=known.get(name),
            side=sides.get(name),
            speed=times.get(name),
            ties=neither.get(name),
            run=runs.get(name),
        )
        for name, theirs in by_person(said).items()
    ]
    return AnnotatorReport(
        agreement=_agreement(said, table, strengths),
        kappas=cohen_kappas(table),
        truth=truth,
        people=people,
        adjudicated=len(labels) - len(said),
    )


def _agreement(labels: Sequence[Label], table: Ratings, strengths: Sequence[str]) -> list[Coefficient]:
    found = [raw_agreement(table), fleiss_kappa(table), krippendorff(table)]
    if len(strengths) > 1:
        found.append(_named(krippendorff(grades(labels, strengths), "ordinal"), "graded preferences"))
    steps = step_ratings(labels)
    if steps:
        found.append(_named(krippendorff(steps, "ordinal"), "steps"))
    return found


def _named(coefficient: Coefficient, of: str) -> Coefficient:
    return replace(coefficient, name=f"{coefficient.name}, of {of}")


def _shares(table: Ratings) -> dict[str, dict[str, float]]:
    """Votes on pairs as shares of the first; of pairs that one person voted on nothing can be learnt."""
    shares = {
        item: {person: _SHARES[str(vote)] for person, vote in said.items() if vote in _SHARES}
        for item, said in table.items()
    }
    return {item: said for item, said in shares.items() if len(said) > 1}
