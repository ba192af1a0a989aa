"""Training a process reward model on labelled steps: rows, passes, early stopping, temperature and threshold."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from prefrl.config import PRMConfig
from prefrl.data.reading import keep_within
from prefrl.data.steps import Stepped
from prefrl.errors import ConfigError, DataError
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.run_folder import RunFolder
from prefrl.evaluate.step_metrics import step_auroc
from prefrl.model.batching import row_columns
from prefrl.model.engine import Engine
from prefrl.model.process_model import ProcessModel
from prefrl.policy.step_losses import step_loss, step_objective, step_weights
from prefrl.recipes.common import report_read
from prefrl.recipes.early_stopping import FEWEST, Keeper, coolest, head_lr_factor
from prefrl.recipes.resuming import Checkpoints, numbered
from prefrl.types import Batch, Row


@dataclass(frozen=True)
class StepRows:
    """Rows of solutions with labelled steps that fit; a mask is True only where a labelled step is read."""

    rows: list[Row]
    labelled: int
    cut: int


def step_rows(solutions: Sequence[Stepped], model: ProcessModel, config: PRMConfig, what: str) -> StepRows:
    """Rows with the streams `labels` and `weight`; what is cut and left out is counted and printed.

    An ignored step is not computed at all. Steps that do not fit go from the end, whole, with their labels.

    Raises:
        DataError: `long` is refuse and more solutions are too long than may be, or none has a labelled step that fits.
    """
    encoded = [model.encode(one.prompt, one.steps) for one in solutions]
    if config.long == "refuse":
        lengths, allowed = [one.tokens for one in encoded], config.data.max_dropped_fraction
        named = "prompt and steps (max_tokens)"
        pairs = list(zip(solutions, encoded, strict=True))
        read = keep_within(pairs, lengths, config.max_tokens, named, max_dropped_fraction=allowed)
        kept = report_read(read, what)
    else:
        kept = list(zip(solutions, encoded, strict=True))
    rows = [_labelled(one, row.row, row.kept, config) for one, row in kept]
    useful = [row for row in rows if any(row.mask)]
    cut = [row.cut for _, row in kept if row.cut]
    lost = sum(x is not None for one, row in kept for x in one.labels[row.kept :])
    if cut:
        print(
            f"{what}: {sum(cut)} steps of {len(cut)} solutions do not fit into {config.max_tokens} tokens and are cut, "
            f"{lost} of them with a label"
        )
    if len(useful) < len(rows):
        print(f"{what}: {len(rows) - len(useful)} of {len(rows)} solutions have no labelled step that fits")
    if solutions and not useful:
        raise DataError(
            f"{what}: none of {len(solutions)} has a labelled step within {config.max_tokens} tokens. Label steps, "
            "or raise max_tokens."
        )
    return StepRows(rows=useful, labelled=sum(sum(row.mask) for row in useful), cut=sum(cut))


def _labelled(solution: Stepped, row: Row, kept: int, config: PRMConfig) -> Row:
    labels, weights = step_weights(solution.labels[:kept], solution.counts[:kept], config.loss)
    places = [at for at, read in enumerate(row.mask) if read]
    streams = {name: torch.zeros(len(row.mask)) for name in ("labels", "weight")}
    for at, label, weight in zip(places, labels, weights, strict=True):
        streams["labels"][at], streams["weight"][at] = label, weight
    mask = tuple(bool(weight > 0) for weight in streams["weight"])
    size = max((at + 1 for at, read in enumerate(mask) if read), default=0)  # nothing after it changes its score
    return replace(
        row,
        completion_ids=row.completion_ids[:size],
        mask=mask[:size],
        streams={name: stream[:size] for name, stream in streams.items()},
    )


def weighted(rows: Sequence[Row], engine: Engine) -> list[Row]:
    """The rows of an update with the stream `ce`: weights over their sum, which is that of all processes.

    So the loss is a weighted mean over steps however the rows are split.
    """
    local = sum(float(row.streams["weight"].sum()) for row in rows)
    total = float(engine.total(torch.tensor([local], dtype=torch.float64)).clamp(min=1e-12))
    return [replace(row, streams={**row.streams, "ce": row.streams["weight"] / total}) for row in rows]


def fit(
    folder: RunFolder,
    model: ProcessModel,
    train: Sequence[Stepped],
    held_out: Sequence[Stepped],
    config: PRMConfig,
    *,
    checkpoints: Checkpoints | None = None,
) -> None:
    """Passes over the solutions; the weights of the pass with the lowest held-out NLL are kept.

    Raises:
        ConfigError: `max_tokens` is more than the model has positions for.
        DataError: nothing to train on, or too many solutions over `max_tokens`.
    """
    if 0 < model.most_tokens < config.max_tokens:
        raise ConfigError(
            f"max_tokens is {config.max_tokens}, but {model.name} has positions for {model.most_tokens} tokens. "
            f"Type: --max_tokens {model.most_tokens}"
        )
    model.record = replace(model.record, max_tokens=config.max_tokens)
    rows = step_rows(train, model, config, "training solutions").rows
    probe = step_rows(held_out, model, config, "held-out solutions").rows if held_out else []
    if not probe:
        print("No solution is held out: every pass is made, and the last one kept.")
    model.head_lr_factor = head_lr_factor(model, rows[:16], config.model)
    plan = _passes(rows, config)
    steps = sum(map(len, plan))
    engine = Engine(model, config.model, total_steps=steps)
    keeper = Keeper(engine.snapshot, engine.restore, config.patience)
    checkpoints = checkpoints or Checkpoints()
    done = checkpoints.restore(engine=engine, keeper=keeper)
    with Progress("process reward model", total=steps - done) as progress:
        for step, part, ends_pass in numbered(plan, done):
            if keeper.done:
                progress.note(f"Stopped after {step - 1} of {steps} updates: the held-out NLL no longer falls.")
                break
            metrics = engine.step(weighted(part, engine), lambda found: step_objective(found, config.loss))
            folder.log(step, metrics)
            if probe and ends_pass:
                keeper.offer(_look(folder, step, engine, probe, config))
            checkpoints.after(step, last=keeper.done or step == steps)
            progress.step({"loss": metrics["loss"], "accuracy": metrics["steps/accuracy"]} | keeper.shown())
    keeper.restore()


def temperature_of(odds: Sequence[Sequence[float]], solutions: Sequence[Stepped]) -> dict[str, float]:
    """The `temperature` of lowest NLL of labelled steps, and the NLL before and after; empty with fewer than 20.

    Args:
        odds: log-odds of the steps of each solution, missing from the end where they did not fit.
        solutions: the labels.
    """
    found = [
        (x, label)
        for own, one in zip(odds, solutions, strict=True)
        for x, label in zip(own, one.labels, strict=False)
        if label is not None
    ]
    if len(found) < FEWEST:
        print(f"Not calibrated: {len(found)} held-out steps are labelled, and it takes {FEWEST}.")
        return {}
    raw, labels = torch.tensor(found, dtype=torch.float64).unbind(1)
    temperature = coolest(lambda scale: _nll(raw * scale, labels))
    return {"temperature": temperature, "nll/raw": _nll(raw, labels), "nll/calibrated": _nll(raw / temperature, labels)}


def _look(folder: RunFolder, step: int, engine: Engine, probe: Sequence[Row], config: PRMConfig) -> float:
    """Held-out figures, logged; the NLL that decides: at the best temperature, where log-odds will be calibrated."""
    found = engine.outputs(probe)
    masks = [torch.tensor(row.mask) for row in probe]
    odds = torch.cat([values[mask] for values, mask in zip(found, masks, strict=True)]).double()
    labels = torch.cat([row.streams["labels"][mask] for row, mask in zip(probe, masks, strict=True)]).double()
    figures = _figures(odds, labels) | {"steps/auroc": step_auroc(odds.tolist(), (labels >= 0.5).double().tolist())}
    if config.calibrate and len(odds) >= FEWEST:
        figures["nll/calibrated"] = _nll(odds / coolest(lambda scale: _nll(odds * scale, labels)), labels)
    folder.log(step, figures, phase="eval")
    return figures.get("nll/calibrated", figures["nll"])


def _figures(odds: Tensor, labels: Tensor) -> dict[str, float]:
    one = Row(prompt_ids=(), completion_ids=(0,), mask=(True,))
    columns: dict[str, Any] = {**row_columns([one], dtype=torch.float64)}
    streams = {"labels": labels, "ce": torch.zeros_like(odds)}
    batch = Batch(outputs=odds, row=torch.zeros(len(odds), dtype=torch.long), streams=streams, **columns)
    _, sums = step_objective(batch, "bce")
    return {name: float(value) / max(float(count), 1e-12) for name, (value, count) in sums.items()}


def _nll(odds: Tensor, labels: Tensor) -> float:
    return float(step_loss(odds, labels).mean())


def _passes(rows: Sequence[Row], config: PRMConfig) -> list[list[list[Row]]]:
    """The updates of every pass, each over all rows in an order of its own."""
    rng = random.Random(config.seed)
    plan = []
    for _ in range(config.epochs):
        order = rng.sample(list(rows), len(rows))
        plan.append([order[at : at + config.batch_size] for at in range(0, len(order), config.batch_size)])
    return plan
