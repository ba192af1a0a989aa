"""A yes-probability model from answers with outcomes: trained, calibrated, measured before and after, saved."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import torch
from rich.console import Console
from rich.table import Table as RichTable

from prefrl.config import YesConfig
from prefrl.errors import DataError
from prefrl.evaluate import figures
from prefrl.evaluate.blocks import Block, Figure, Section, Table, Warnings
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.report import write_report
from prefrl.evaluate.run_folder import RunFolder, read
from prefrl.evaluate.sections import standard_sections
from prefrl.evaluate.yes_quality import YesQuality, platt, yes_quality
from prefrl.model.engine import Engine
from prefrl.model.yes_probability import YesModel
from prefrl.model.yes_record import CORRECT, SUCCEED, YesRecord
from prefrl.policy.values import yes_objective
from prefrl.recipes.common import final_checkpoint, last_metrics, load_policy
from prefrl.recipes.early_stopping import FEWEST, Keeper
from prefrl.recipes.resuming import Checkpoints, opened
from prefrl.recipes.yes_data import outcomes, rows_of
from prefrl.types import Row


def run(config: YesConfig) -> RunFolder:
    """Train a yes-probability model as configured; everything is left in the run folder.

    The figures after training and calibration are those on the held-out part, which chose the pass, the temperature
    and the bias; half of it fits the calibration and the other half is measured, where there are enough prompts.
    """
    with opened(config, "yes") as (folder, checkpoints):
        print(f"Loading {config.model.name} ...", flush=True)
        language = load_policy(config.model, config.seed)
        model = YesModel(language, _record(config), full=config.loss == "full")
        _show_audit(model)
        train, held_out = outcomes(config, language)
        print(f"{len(train)} answers to learn from, {len(held_out)} held out")
        rows, probe = rows_of(train, model, config), rows_of(held_out, model, config)
        fitting, measuring = _halves(probe)
        before = measured(model, measuring, config)
        fit(folder, model, rows, probe, config, checkpoints=checkpoints)
        raw = measured(model, measuring, config)
        if config.calibrate and len(fitting) >= FEWEST:
            calibrate(model, fitting)
        after = measured(model, measuring, config)
        model.save(final_checkpoint(folder))
        _conclude(folder, model, _Figures(before, raw, after), config)
    return folder


def _record(config: YesConfig) -> YesRecord:
    question = config.question or (SUCCEED if config.positions else CORRECT)
    return YesRecord(question=question, yes=config.yes_words, no=config.no_words, low=config.low, high=config.high)


def fit(
    folder: RunFolder,
    model: YesModel,
    rows: Sequence[Row],
    probe: Sequence[Row],
    config: YesConfig,
    *,
    checkpoints: Checkpoints | None = None,
) -> None:
    """Passes over the rows; the weights of the pass with the lowest held-out NLL are kept, those before it included.

    Raises:
        DataError: nothing to train on.
    """
    if not config.epochs:
        return
    if not rows:
        raise DataError("No answer is left to train on; what left them out is printed above.")
    checkpoints = checkpoints or Checkpoints()
    size = min(config.batch_size, len(rows))
    per_pass = -(-len(rows) // size)
    steps = config.epochs * per_pass
    engine = Engine(model, config.model, total_steps=steps)
    keeper = Keeper(engine.snapshot, engine.restore, 0)
    objective = partial(yes_objective, full=config.loss == "full")
    done = checkpoints.restore(engine=engine, keeper=keeper)
    if not done:
        _look(folder, engine, probe, keeper, 0)
    with Progress("yes probability", total=steps - done) as progress:
        for step, batch in islice(enumerate(_batches(rows, size, config), start=1), done, None):
            metrics = engine.step(batch, objective)
            folder.log(step, metrics)
            if step % per_pass == 0:
                _look(folder, engine, probe, keeper, step)
            checkpoints.after(step, last=step == steps)
            progress.step({"nll": metrics["nll"], "mass": metrics["yesno_mass"], **keeper.shown()})
    keeper.restore()


def _batches(rows: Sequence[Row], size: int, config: YesConfig) -> Iterator[list[Row]]:
    """Each pass in an order of its own; every row once a pass, and its places weigh alike within a batch."""
    rng = random.Random(config.seed)
    for _ in range(config.epochs):
        order = rng.sample(range(len(rows)), len(rows))
        for at in range(0, len(order), size):
            batch = [rows[i] for i in order[at : at + size]]
            count = sum(sum(row.mask) for row in batch)
            weight = [torch.tensor(row.mask, dtype=torch.float32) / count for row in batch]
            yield [replace(r, streams={**r.streams, "vf": w}) for r, w in zip(batch, weight, strict=True)]


def _look(folder: RunFolder, engine: Engine, probe: Sequence[Row], keeper: Keeper[Any], step: int) -> None:
    if not probe:
        return
    found = torch.cat([o[torch.tensor(r.mask)] for o, r in zip(engine.outputs(probe), probe, strict=True)])
    target = _targets(probe)
    nll = float((torch.nn.functional.softplus(found[:, 0]) - target * found[:, 0]).mean())
    folder.log(step, {"nll": nll, "yesno_mass": float(found[:, 1].exp().mean())}, phase="eval")
    keeper.offer(nll)


def calibrate(model: YesModel, rows: Sequence[Row]) -> None:
    """Fit temperature and bias on rows with outcomes, and put them into the model's record."""
    answers = [a for own in model.ask(rows) for a in own]
    temperature, bias = platt([a.logit for a in answers], _targets(rows).tolist())
    model.record = replace(model.record, temperature=temperature, bias=bias)


def measured(model: YesModel, rows: Sequence[Row], config: YesConfig) -> YesQuality | None:
    """Figures of the model as it is, by prompts; None without rows."""
    if not rows:
        return None
    answers = model.ask(rows)
    flat = [a for own in answers for a in own]
    logits = model.calibrated(torch.tensor([a.logit for a in flat], dtype=torch.float64)).tolist()
    groups = [row.prompt_ids for row, own in zip(rows, answers, strict=True) for _ in own]
    masses = [a.mass for a in flat]
    return yes_quality(logits, _targets(rows).tolist(), groups=groups, masses=masses, floor=config.floor)


def _targets(rows: Sequence[Row]) -> torch.Tensor:
    return torch.cat([row.streams["returns"][torch.tensor(row.mask)] for row in rows])


def _halves(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Rows to calibrate on and rows to measure, by prompts; both are all of them where there are too few."""
    prompts = list(dict.fromkeys(row.prompt_ids for row in rows))
    first = set(prompts[::2])
    fitting, measuring = ([r for r in rows if (r.prompt_ids in first) is side] for side in (True, False))
    enough = min(len(fitting), len(measuring)) >= FEWEST
    return (fitting, measuring) if enough else (list(rows), list(rows))


def _show_audit(model: YesModel) -> None:
    for side in ("yes", "no"):
        kept = ", ".join(repr(s.text) for s in model.tokens.audit if s.says == side and s.ids)
        left = ", ".join(f"{s.text!r} ({s.refused})" for s in model.tokens.audit if s.says == side and s.refused)
        print(f"{side}: {kept}" + (f"; not {left}" if left else ""))


@dataclass(frozen=True)
class _Figures:
    """Quality before training, after it, and once calibrated."""

    before: YesQuality | None
    raw: YesQuality | None
    after: YesQuality | None


def _conclude(folder: RunFolder, model: YesModel, found: _Figures, config: YesConfig) -> None:
    """Mark the run finished, write its report, and say where that is."""
    record = {"temperature": model.record.temperature, "bias": model.record.bias, "question": model.record.question}
    summary: dict[str, Any] = {"calibration": record, "audit": model.tokens.report()}
    if found.before is None or found.raw is None or found.after is None:
        folder.finish({**last_metrics(folder, "train"), **summary})
        print(f"Report: {write_report(folder)}")
        return
    stages = {"before": found.before, "trained": found.raw, "calibrated": found.after}
    folder.finish({**found.after.to_dict(), **summary, **{name: one.to_dict() for name, one in stages.items()}})
    table = RichTable("measure", *stages, title="On held-out answers", title_justify="left")
    for lines in zip(*(one.rows() for one in stages.values()), strict=True):
        table.add_row(lines[0][0], *(value for _, value, _ in lines))
    Console().print(table)
    auroc = found.after.auroc
    report = standard_sections(
        read(folder.path),
        title=f"Successes are told from failures with an AUROC of {auroc.mean:.2f}",
        headline=[("AUROC", f"{auroc.mean:.3f}", f"[{auroc.low:.3f}, {auroc.high:.3f}]")],
        extra=[_section(stages, model, config)],
    )
    print(f"Report: {write_report(folder, report)}")


def _section(stages: dict[str, YesQuality], model: YesModel, config: YesConfig) -> Section:
    after, before = stages["calibrated"], stages["before"]
    curve = ([b.predicted for b in before.bins], [b.observed for b in before.bins])
    picture = figures.calibration(
        [b.predicted for b in after.bins],
        [b.observed for b in after.bins],
        [b.count for b in after.bins],
        others={"before": curve},
    )
    warning = (
        f"Yes and no have {after.mass:.2f} of the probability together, below the floor of {config.floor:g}: the model "
        "hardly answers the question. Ask it otherwise, or train with loss: full."
    )
    blocks: list[Block] = [
        Warnings([warning] if after.mass < config.floor else []),
        Figure(picture, "Calibration", "On the dashed line a probability means what it says."),
        Table(("measure", "value", "note"), after.rows(), "On held-out answers, calibrated."),
        Table(("measure", "value", "note"), before.rows(), "The same before training."),
        Table(
            ("spelling", "says", "tokens", "left out"),
            [(repr(s.text), s.says, ", ".join(map(str, s.ids)), s.refused) for s in model.tokens.audit],
            f"The answers to: {model.record.question}",
        ),
    ]
    return Section("Yes-probability", blocks, "Intervals are of a bootstrap over prompts.")
