"""A Bradley-Terry reward model from preference pairs, kept at its lowest held-out NLL."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from rich.console import Console

from prefrl.config import RewardConfig, RewardModelConfig
from prefrl.errors import DataError
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.reward_quality import RewardQuality, evaluate_pairs
from prefrl.evaluate.run_folder import RunFolder
from prefrl.model.engine import Engine
from prefrl.model.reward_model import RewardModel, new_reward_model
from prefrl.policy.objective import reward_objective
from prefrl.policy.preference import bradley_terry
from prefrl.recipes.common import conclude, final_checkpoint, last_metrics, load_pairs, report_read, start
from prefrl.recipes.pairs import Rows, fitting, passes, reward_rows, weighted
from prefrl.types import Pair


def run(config: RewardConfig) -> RunFolder:
    """Train a reward model as configured; everything is left in the run folder."""
    with start(config, "reward") as folder:
        train, held_out = load_pairs(config.data, config.seed)
        print(f"{len(train)} training pairs, {len(held_out)} held out. Loading {config.model.name} ...", flush=True)
        model = new_model(config.model, config.seed)
        fit(folder, model, train, held_out, config)
        model.save(final_checkpoint(folder))
        quality = pair_quality(model, held_out, train) if held_out else None
        if quality is not None:
            Console().print(quality.table())
        conclude(folder, quality.to_dict() if quality is not None else last_metrics(folder, "train"), quality)
    return folder


def new_model(config: RewardModelConfig, seed: int) -> RewardModel:
    """A fresh reward model as configured."""
    return new_reward_model(
        config.name,
        lora=config.lora,
        top_layers=config.top_layers,
        layers=config.layers,
        dtype=config.dtype,
        device=config.device,
        seed=seed,
    )


def fit(
    folder: RunFolder,
    model: RewardModel,
    train: Sequence[Pair],
    held_out: Sequence[Pair],
    config: RewardConfig,
    *,
    phase: str = "train",
) -> None:
    """Passes over the pairs; the weights of the pass with the lowest held-out NLL are kept."""
    limit, allowed = config.max_tokens, config.data.max_dropped_fraction
    pairs = report_read(fitting(reward_rows(train, model), limit, allowed), "training pairs")
    probe = report_read(fitting(reward_rows(held_out, model), limit, allowed), "held-out pairs") if held_out else []
    if not pairs:
        raise DataError("No training pairs; expected rows with prompt, chosen and rejected.")
    for row in (row for pair in pairs for row in pair):
        row.label += config.labels.smoothing * (1.0 - 2.0 * row.label)
    plan = passes(pairs, config.batch_size, config.epochs, config.seed)
    steps = sum(map(len, plan))
    engine = Engine(model, config.model, total_steps=steps)
    keeper = _Keeper(engine, probe, config.patience)
    step = 0
    with Progress("reward model", total=steps) as progress:
        for batches in plan:
            for batch in batches:
                step += 1
                metrics = engine.step(weighted(batch), lambda b: reward_objective(b, config.center))
                folder.log(step, metrics, phase=phase)
                figures = {"loss": metrics["loss"], "accuracy": metrics["accuracy"]}
                progress.step(figures | keeper.shown())
            if probe:
                folder.log(step, keeper.look(), phase=f"{phase}_eval" if phase != "train" else "eval")
            if keeper.done:
                progress.note(f"Stopped after {step} of {steps} updates: the held-out NLL no longer falls.")
                break
    keeper.restore()


class _Keeper:
    """Early stopping: remembers the trained weights at the lowest held-out NLL."""

    def __init__(self, engine: Engine, probe: Sequence[Rows], patience: int) -> None:
        self.engine, self.probe, self.patience = engine, probe, patience
        self.best, self.worse = math.inf, 0
        self.weights: list[torch.Tensor] | None = None

    @property
    def done(self) -> bool:
        return bool(self.patience) and self.worse >= self.patience

    def look(self) -> dict[str, float]:
        """Held-out figures now."""
        scores = torch.stack([values.sum() for values in self.engine.logps([r for p in self.probe for r in p])])
        chosen, rejected = scores[::2], scores[1::2]
        label = torch.tensor([pair[0].label for pair in self.probe])
        nll = float(bradley_terry(chosen, rejected, label, torch.zeros_like(label)).mean())
        if nll < self.best:
            self.best, self.worse = nll, 0
            self.weights = self.engine.snapshot()
        else:
            self.worse += 1
        return {
            "nll": nll,
            "accuracy": float((chosen > rejected).float().mean()),
            "margin": float((chosen - rejected).mean()),
        }

    def shown(self) -> dict[str, float]:
        """The best NLL so far for the progress bar; nothing before the first look."""
        return {"held_out_nll": self.best} if math.isfinite(self.best) else {}

    def restore(self) -> None:
        """Put the best weights back."""
        if self.weights is not None:
            self.engine.restore(self.weights)


def pair_quality(model: RewardModel, held_out: Sequence[Pair], train: Sequence[Pair]) -> RewardQuality:
    """Everything one should know of a reward model on held-out pairs, baselines beside it."""
    rows = [row for pair in reward_rows(held_out, model) for row in pair]
    scores = model.scores(rows)
    return evaluate_pairs(scores[::2], scores[1::2], held_out, train)
