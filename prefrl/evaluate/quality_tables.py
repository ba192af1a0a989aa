"""The figures of a reward as rows, as tables for the terminal and as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from prefrl.evaluate.margins import describe, quantiles
from prefrl.evaluate.shares import amount, number, percent, percents, plain
from prefrl.evaluate.statistics import SignTest

if TYPE_CHECKING:
    from rich.table import Table

    from prefrl.evaluate.baselines import Baseline
    from prefrl.evaluate.reward_quality import RewardQuality

Row = tuple[str, str, str]

CAPTION = "95% intervals in brackets; p of paired sign tests."
SUBSET_COLUMNS = ("subset", "right", "accuracy", "exact 95%", "NLL", "balanced", "longer wins")
LENGTH_COLUMNS = ("length ratio", "pairs", "chosen shorter", "chosen longer", "balanced")
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def rows(quality: RewardQuality) -> list[Row]:
    """Measure, value and note; 95% intervals are in brackets."""
    return [
        ("accuracy", percent(quality.accuracy.rate), f"{quality.accuracy.evidence}, exactly {percents(quality.exact)}"),
        ("equal scores", str(quality.ties), "counted as wrong above"),
        ("unscored", str(quality.unscored), "with a score that is not finite; in no other figure"),
        ("undecided", str(quality.undecided), "labelled a tie or 1/2; in no other figure above the tied pairs"),
        ("NLL", number(quality.nll), "nats a pair; guessing costs 0.693"),
        ("  at its best scale", number(quality.scaled_nll), _scale(quality.temperature)),
        ("Brier", number(quality.brier), "guessing costs 0.25"),
        ("ECE", number(quality.ece), "0 is perfectly calibrated"),
        ("mean margin", amount(quality.margin), f"score(chosen) - score(rejected); {describe(quality.margins)}"),
        *(quality.length.rows() if quality.length is not None else ()),
        *(_baseline_row(quality, baseline) for baseline in quality.baselines),
        *(quality.tied.rows() if quality.tied is not None else ()),
        *(quality.agreement.rows() if quality.agreement is not None else ()),
    ]


def subset_rows(quality: RewardQuality) -> list[tuple[Any, ...]]:
    """A row a subset, under `SUBSET_COLUMNS`."""
    measured = [
        (
            name,
            f"{part.accuracy.correct}/{part.accuracy.total}",
            percent(part.accuracy.rate),
            f"{part.exact[0]:.1%} - {part.exact[1]:.1%}",
            number(part.nll),
            percent(part.length.balanced) if part.length is not None and part.length.covered else "-",
            percent(part.baselines[0].accuracy) if part.baselines else "-",
        )
        for name, part in quality.subsets.items()
    ]
    return [*measured, *((name, f"0/{total}", "no scores", *["-"] * 4) for name, total in quality.unmeasured.items())]


def table(quality: RewardQuality, title: str) -> Table:
    """The figures as a table for the terminal."""
    from rich.markup import escape
    from rich.table import Table

    found = Table("measure", title=title, title_justify="left", caption=CAPTION, caption_justify="left")
    found.add_column("value", justify="right")
    found.add_column("note", style="dim")
    for row in rows(quality):
        found.add_row(*map(escape, row))
    return found


def tables(quality: RewardQuality, title: str) -> list[Table]:
    """All tables for the terminal."""
    found = [table(quality, title)]
    if quality.subsets or quality.unmeasured:
        found.append(_grid("By subset", SUBSET_COLUMNS, subset_rows(quality)))
    if quality.length is not None:
        found.append(_grid("By length", LENGTH_COLUMNS, quality.length.stratum_rows()))
    return found


def to_dict(quality: RewardQuality, *, nested: bool = False) -> dict[str, Any]:
    """The figures as JSON has them; a NaN is None."""
    simple = ("nll", "scaled_nll", "temperature", "brier", "ece", "margin")
    length = quality.length.to_dict() if quality.length is not None else plain(dict.fromkeys(_NO_LENGTH, math.nan))
    found = {
        **quality.accuracy.to_dict("accuracy"),
        "accuracy_exact": list(quality.exact),
        "ties": quality.ties,
        "unscored": quality.unscored,
        "undecided": quality.undecided,
        **plain({name: getattr(quality, name) for name in simple}),
        **{name: value for name, value in length.items() if nested or name != "length_strata"},
        "calibration": [[b.predicted, b.observed, b.count] for b in quality.calibration],
        "baselines": {b.name: b.to_dict() | {"p_value": quality.versus(b).p_value} for b in quality.baselines},
    }
    if quality.tied is not None:
        found["tied"] = quality.tied.to_dict()
    if quality.agreement is not None:
        found["agreement"] = quality.agreement.to_dict()
    if nested:
        found["margin_quantiles"] = dict(zip(map(str, QUANTILES), quantiles(quality.margins, QUANTILES), strict=True))
        found["subsets"] = {name: to_dict(part, nested=True) for name, part in quality.subsets.items()}
        found["unmeasured_subsets"] = dict(quality.unmeasured)
    return found


_NO_LENGTH = ("length_pooled", "length_within")


def _grid(title: str, columns: tuple[str, ...], cells: list[tuple[Any, ...]]) -> Table:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    found = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    found.add_column(columns[0], overflow="fold")
    for name in columns[1:]:
        found.add_column(name, justify="right")
    for row in cells:
        found.add_row(*(escape(str(cell)) for cell in row))
    return found


def _baseline_row(quality: RewardQuality, baseline: Baseline) -> Row:
    note = f"{percents(baseline.interval)}; {_verdict(quality.versus(baseline))}"
    return f"baseline: {baseline.name}", percent(baseline.accuracy), note


def _verdict(test: SignTest) -> str:
    word = "this reward is better" if test.wins > test.losses else "this reward is worse"
    return f"{word if test.p_value < 0.05 else 'no clear difference'}, p = {test.p_value:.2g}"


def _scale(temperature: float) -> str:
    if temperature == 0:
        return "every pair is right, so it falls with the temperature for ever"
    if math.isinf(temperature):
        return "no temperature helps: the mean margin is not positive"
    return f"scores divided by {temperature:.3g}, which was fitted on these very pairs"
