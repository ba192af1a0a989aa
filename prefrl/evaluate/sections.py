"""The parts every run report shares, built from whatever the run measured."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prefrl.evaluate import figures
from prefrl.evaluate.alarms import EVALUATIONS, ends, find_alarms
from prefrl.evaluate.blocks import (
    Answer,
    Block,
    Definitions,
    Details,
    Figure,
    Headline,
    Report,
    Sample,
    SamplesSideBySide,
    Section,
    Table,
    Warnings,
    flatten,
    show_number,
    show_seconds,
)
from prefrl.evaluate.charts import MAIN_CHARTS, OPTIMIZER_CHARTS, Chart
from prefrl.evaluate.fitted_section import fitted_sections
from prefrl.evaluate.frontier_figures import overoptimisation_sections
from prefrl.evaluate.patrol_section import patrol_sections
from prefrl.evaluate.run_folder import RunData
from prefrl.evaluate.source_sections import source_sections
from prefrl.evaluate.wording import worded


def standard_sections(
    data: RunData,
    *,
    title: str = "",
    lead: str = "",
    headline: Sequence[tuple[str, str, str]] = (),
    extra: Sequence[Block] = (),
) -> Report:
    """A whole report: headline, alarms, curves, samples, `extra`, what was fitted, then the setup.

    Args:
        data: the run.
        title, lead: what happened, in plain words; read off the metrics when empty.
        headline: figures to put before those of the metrics.
        extra: blocks of the recipe, such as `quality_section`.
    """
    blocks: list[Block] = [Headline([*headline, *headline_figures(data)])]
    blocks += [Warnings(find_alarms(data)), *patrol_sections(data), *curve_sections(data)]
    blocks += [*overoptimisation_sections(data), *source_sections(data), *sample_sections(data)]
    extra = [*extra, *fitted_sections(data.status.get("summary") or {})]
    return Report(title=title or plain_title(data), lead=lead, blocks=[*blocks, *extra, *setup_sections(data)])


def plain_title(data: RunData, *, phase: str = "train", eval_phase: str = "eval") -> str:
    """What happened, in one line."""
    steps, rewards = data.series("reward/mean", phase)
    if rewards:
        first, last, _ = ends(rewards)
        verb = "rose" if last > first else "fell" if last < first else "stayed"
        change = f"at {_short(last)}" if verb == "stayed" else f"from {_short(first)} to {_short(last)}"
        return f"Mean reward {verb} {change} in {_steps(steps)}"
    steps, values = data.series("accuracy", eval_phase)
    if values and math.isfinite(values[-1]):
        return f"Held-out accuracy ended at {values[-1]:.1%}"
    steps, values = data.series("loss", phase)
    if values:
        first, last, _ = ends(values)
        return f"Loss went from {_short(first)} to {_short(last)} in {_steps(steps)}"
    return f"A run of kind {data.kind}"


def headline_figures(data: RunData, *, phase: str = "train", eval_phase: str = "eval") -> list[tuple[str, str, str]]:
    """Reward, independent evaluation, distance, length and time, as far as measured."""
    evaluation = next((name for name in EVALUATIONS if data.series(name, eval_phase)[1]), "")
    wanted: tuple[tuple[str, str, str, Callable[[float], str]], ...] = (
        (phase, "reward/mean", "mean reward", _short),
        (eval_phase, "reward/mean", "held-out reward", _short),
        (eval_phase, evaluation, f"held-out {evaluation.replace('_', ' ')}", "{:.0%}".format),
        (phase, "kl/ref", "nats from the start", _short),
        (phase, "length/mean", "tokens per answer", _short),
    )
    found = []
    for where, name, label, form in wanted:
        _, values = data.series(name, where) if name else ([], [])
        first, last, size = ends(values)
        if size:
            value = form(last) if len(values) == 1 else f"{form(first)} → {form(last)}"
            found.append((worded(label, data, phase), value, _ends_note(len(values), size)))
    seconds = data.status.get("seconds") or max((line.get("time", 0.0) for line in data.metrics), default=0.0)
    steps = {line["step"] for line in data.metrics if line.get("phase") == phase}
    return [*found, ("time", show_seconds(float(seconds)), f"{len(steps)} steps, {data.state}")]


def curve_sections(
    data: RunData, *, title: str = "Curves", phase: str = "train", eval_phase: str = "eval"
) -> list[Block]:
    """All curves the run has measurements for; every metric is at least in the table at the end."""
    phases = {"train": phase, "eval": eval_phase}
    main: list[Block] = [f for chart in MAIN_CHARTS if (f := _figure(data, chart, phases))]
    main[3:3] = [*_groups_figure(data, phase), *_frontier_figure(data, phase)]
    inner: list[Block] = [f for chart in OPTIMIZER_CHARTS if (f := _figure(data, chart, phases))]
    if inner:
        main.append(Details("Inside the optimizer", inner))
    if rows := _metric_rows(data, [phase, eval_phase]):
        columns = ("metric", "phase", "first", "last", "lowest", "highest", "values", "not finite")
        main.append(Details("All metrics in numbers", [Table(columns, rows)]))
    return [Section(title, main)] if main else []


def sample_sections(data: RunData, *, title: str = "Samples", limit: int = 8) -> list[Block]:
    """Answers to the same prompt side by side: by policy where it is named, else by step."""
    prompts: dict[str, list[Mapping[str, Any]]] = {}
    for row in data.samples:
        prompts.setdefault(str(row.get("prompt_id", row.get("prompt", ""))), []).append(row)
    if not prompts:
        return []
    columns = [_by_policy(rows) for rows in prompts.values()]
    columns.sort(key=len, reverse=True)  # comparisons first; otherwise as they came
    samples = [_sample(column) for column in columns]
    lead = f"The first {limit} of {len(samples)} prompts; all are in samples.jsonl." if len(samples) > limit else ""
    return [Section(title, [SamplesSideBySide(samples[:limit])], lead)]


def setup_sections(data: RunData) -> list[Block]:
    """Summary, configuration and environment: what one needs to run it again."""
    summary = data.status.get("summary") or {}
    blocks: list[Block] = [Table(("summary", "value"), flatten(summary))] if summary else []
    if data.config:
        blocks.append(Details("Configuration", [Definitions(data.config)]))
    if data.environment:
        blocks.append(Details("Environment", [Definitions(data.environment)]))
    return [Section("How it was run", blocks)] if blocks else []


def _figure(data: RunData, chart: Chart, phases: Mapping[str, str]) -> Figure | None:
    lines: dict[str, figures.Curve] = {}
    for role in chart.phases:
        for name, label in _expand(chart.metrics, data.names(phases[role])):
            steps, values = data.series(name, phases[role])
            suffix = " (held out)" if role == "eval" and "train" in chart.phases else ""
            if not (chart.once and any(_alike((steps, values), line) for line in lines.values())):
                lines[worded(label, data, phases["train"]) + suffix] = (steps, values)
    if not lines:
        return None
    steps, spread = data.series("reward/std", phases["train"])
    band = {}
    if "reward" in lines and steps == list(lines["reward"][0]):
        mean = [math.nan if v is None else v for v in lines["reward"][1]]
        pairs = list(zip(mean, spread, strict=True))
        band["reward"] = ([m - s for m, s in pairs], [m + s for m, s in pairs])
    drawn = figures.curves(lines, bands=band, percent=chart.percent, smooth=chart.smooth)
    said = chart.caption if isinstance(chart.caption, str) else chart.caption(data.names(phases["train"]))
    title, caption = (worded(text, data, phases["train"]) for text in (chart.title, said))
    return Figure(drawn, title, caption)


def _alike(one: tuple[list[int], list[float]], other: figures.Curve) -> bool:
    """Whether two curves could not be told apart in a figure; one that was not finite is like no other."""
    values = zip(one[1], other[1], strict=False)
    return one[0] == list(other[0]) and all(math.isclose(a, b or 0.0, rel_tol=1e-3, abs_tol=1e-6) for a, b in values)


def _expand(metrics: Mapping[str, str], names: Sequence[str]) -> list[tuple[str, str]]:
    """(name, label) of the metrics that exist."""
    found = []
    for wanted, label in metrics.items():
        if wanted.endswith("/"):
            found += [(name, name.removeprefix(wanted)) for name in names if name.startswith(wanted)]
        elif wanted in names:
            found.append((wanted, label))
    return found


def _groups_figure(data: RunData, phase: str) -> list[Figure]:
    """What the groups' rewards can teach: only mixed groups give a gradient."""
    names = data.names(phase)
    if "groups/mixed" not in names:
        return []
    steps, mixed = data.series("groups/mixed", phase)
    shares = {"mixed": mixed}
    for label in ("all pass", "all fail"):
        name = f"groups/{label.replace(' ', '_')}"
        if data.series(name, phase)[0] == steps:
            shares[label] = data.series(name, phase)[1]
    rest = [max(0.0, 1.0 - sum(column)) for column in zip(*shares.values(), strict=True)]
    if max(rest) > 1e-6:
        shares["all equal"] = rest
    colours = {"mixed": figures.PALETTE[0], "all pass": figures.PALETTE[2], "all fail": figures.PALETTE[1]}
    drawn = figures.stacked(steps, shares, colours=[colours.get(label, figures.GREY) for label in shares])
    caption = "Groups of answers to one prompt. Only mixed groups, with answers of different reward, can teach."
    return [Figure(drawn, "Signal in the groups", caption)]


def _frontier_figure(data: RunData, phase: str) -> list[Figure]:
    steps, kl = data.series("kl/ref", phase)
    reward_steps, reward = data.series("reward/mean", phase)
    if len(steps) < 2 or steps != reward_steps:
        return []
    drawn = figures.kl_reward({"policy": (kl, reward)})
    return [Figure(drawn, "Reward against distance", "One point a step; the large one is the last.")]


def _metric_rows(data: RunData, phases: Sequence[str]) -> list[tuple[Any, ...]]:
    """Every metric of every phase, those of `phases` first."""
    others = {str(line.get("phase")): None for line in data.metrics}
    rows = []
    for phase in dict.fromkeys([*phases, *others]):
        for name in data.names(phase):
            _, values = data.series(name, phase)
            finite = [v for v in values if math.isfinite(v)]
            span = (min(finite), max(finite)) if finite else (math.nan, math.nan)
            rows.append((name, phase, values[0], values[-1], *span, len(values), len(values) - len(finite)))
    return rows


def _by_policy(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Answers to one prompt by policy; of a series of steps only the first and the last."""
    columns: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        columns.setdefault(str(row.get("policy", f"step {row['step']}")), []).append(row)
    names = list(columns)
    if len(names) > 2 and all(re.fullmatch(r"step \d+", name) for name in names):
        names = [names[0], names[-1]]
    return {name: columns[name] for name in names}


def _sample(columns: Mapping[str, Sequence[Mapping[str, Any]]]) -> Sample:
    """One card: an answer per policy, or up to four of a lone one."""
    most = 4 if len(columns) == 1 else 1
    answers = [
        _answer(name if len(rows) <= most else f"{name} ({most} of {len(rows)} answers)", row)
        for name, rows in columns.items()
        for row in rows[:most]
    ]
    first = next(iter(columns.values()))[0]
    return Sample(str(first.get("prompt", "")), answers)


def _answer(policy: str, row: Mapping[str, Any]) -> Answer:
    return Answer(
        policy=policy,
        text=str(row.get("completion", "")),
        reward=row.get("reward"),
        error=str(row.get("error") or ""),
        length=row.get("tokens"),
        kl=row.get("kl"),
        stop=str(row.get("stop") or ""),
        won=bool(row.get("won", False)),
        badge=str(row.get("badge", "preferred" if row.get("won") else "")),
    )


def _steps(steps: Sequence[int]) -> str:
    return "1 step" if len(steps) == 1 else f"{len(steps)} steps"


def _ends_note(count: int, size: int) -> str:
    if count == 1:
        return "measured once"
    return "first → last" if size == 1 else f"means of the first and last {size} of {count}"


def _short(value: float) -> str:
    """Few enough digits for a headline."""
    if 0.01 <= abs(value) < 1000:
        return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
    return show_number(value)
