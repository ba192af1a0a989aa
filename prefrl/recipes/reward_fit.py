"""Training a reward model, or the members of an ensemble, on judgements: early stopping, resampling, length."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from prefrl.config import LabelConfig, RewardConfig
from prefrl.data.judgements import resolve_ties, weigh_annotators
from prefrl.data.reading import Read
from prefrl.errors import ConfigError, DataError
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.run_folder import RunFolder
from prefrl.model.batching import row_columns
from prefrl.model.engine import Engine
from prefrl.model.ensemble import RewardEnsemble
from prefrl.model.reward_model import RewardModel
from prefrl.model.reward_scorer import RewardScorer
from prefrl.policy.bootstrap import bootstrap_counts
from prefrl.policy.judgement import LabelModel
from prefrl.policy.length import matching_weights, squared_correlation
from prefrl.policy.objective import reward_objective
from prefrl.recipes.common import report_read
from prefrl.recipes.early_stopping import FEWEST, Keeper, coolest, head_lr_factor
from prefrl.recipes.pairs import Rows, fitting, passes, reward_rows, weighted
from prefrl.recipes.resuming import Checkpoints, numbered
from prefrl.types import Batch, Completion, Pair, Ranking, Row, Sums

Judgements = Sequence[Pair | Ranking]


def fit(
    folder: RunFolder,
    model: RewardScorer,
    train: Judgements,
    held_out: Judgements,
    config: RewardConfig,
    *,
    phase: str = "train",
    checkpoints: Checkpoints | None = None,
) -> list[LabelModel]:
    """Passes over the judgements; the weights of the pass with the lowest held-out NLL are kept.

    Members of an ensemble that are models of their own are trained one after the other, each in its own order; their
    steps are numbered on.

    Returns:
        What was learnt of ties and annotators, by each model that was trained.

    Raises:
        ConfigError: `max_tokens` is more than the model has positions for, or a length correction is wanted, but
            nothing is held out to fit it on.
        DataError: nothing to train on, or too many rows over `max_tokens`.
    """
    if 0 < model.most_tokens < config.max_tokens:
        raise ConfigError(
            f"max_tokens is {config.max_tokens}, but {model.name} has positions for {model.most_tokens} tokens. "
            f"Type: --max_tokens {model.most_tokens} (and --long cut, to keep what is longer)"
        )
    model.record = replace(model.record, max_tokens=config.max_tokens, long=config.long)
    everyone = {judged.annotator for judged in (*train, *held_out)}
    learnt = report_read(resolved(train, config.labels, everyone), "training judgements")
    watched = report_read(resolved(held_out, config.labels, everyone), "held-out judgements")
    if config.length.kind == "residual" and not watched:
        raise ConfigError("length.kind is residual, but nothing is held out to fit it on. Set data.eval_fraction.")
    if config.length.kind == "match":
        learnt = matched(learnt)
    if not learnt:
        raise DataError(f"Of {len(train)} judgements none is left to train on; what left them out is printed above.")
    if not watched:
        print("No judgement is held out: every pass is made, and the last one kept.")
    annotators = Counter(judged.annotator for judged in learnt)
    trained = model.models if isinstance(model, RewardEnsemble) else [model]
    labels = [LabelModel(config.labels, annotators) for _ in trained]
    rows = _rows(learnt, model, config, labels[0].index, "training judgements")
    probe = _rows(watched, model, config, {}, "held-out judgements") if watched else []
    copies = bootstrap_counts(rows, model.members, config.seed) if _resamples(model, config) else None
    course = _Course(checkpoints or Checkpoints())
    for index, (member, own) in enumerate(zip(trained, labels, strict=True)):
        assert isinstance(member, RewardModel)
        mine = rows if copies is None else resampled(rows, copies if len(trained) == 1 else copies[:, index])
        _train(folder, member, own, _Plan(mine, probe, config, index, phase), course)
    return labels


def matched(judgements: Judgements) -> list[Pair | Ranking]:
    """Pairs weighed so that their longer side wins as often as it loses; what that leaves out is printed.

    Lengths are characters. Ranked lists are left as they are.
    """
    places = [i for i, judged in enumerate(judgements) if isinstance(judged, Pair) and judged.label != 0.5]
    gaps = [_longer(judgements[i]) for i in places]
    weights = torch.tensor([judgements[i].weight for i in places], dtype=torch.float64)
    factors = dict(zip(places, matching_weights(torch.tensor(gaps), weights).tolist(), strict=True))
    kept = [replace(j, weight=j.weight * factors.get(i, 1.0)) for i, j in enumerate(judgements)]
    kept = [judged for judged in kept if judged.weight > 0]
    wins = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
    others = len(judgements) - len(places)
    print(
        f"Matched by length: the longer side wins {wins[0]} pairs and loses {wins[1]}, which now weigh alike; "
        f"{len(judgements) - len(kept)} pairs without a counterpart are left out"
        + (f"; {others} ties and ranked lists are as they were" if others else "")
    )
    return kept


def _longer(judged: Pair | Ranking) -> float:
    assert isinstance(judged, Pair)
    return math.copysign(1.0, judged.label - 0.5) * (len(judged.chosen.text) - len(judged.rejected.text))


def completions_of(judged: Pair | Ranking) -> tuple[Completion, ...]:
    """What was compared, in the order of its rows."""
    return judged.completions if isinstance(judged, Ranking) else (judged.chosen, judged.rejected)


def held_out_figures(scores: Tensor, rows: Sequence[Row], labels: LabelModel) -> dict[str, float]:
    """`nll`, `accuracy`, `margin` and more of judgements under scores (R,) of their rows."""
    columns: dict[str, Any] = {**row_columns(rows, dtype=torch.float64)}
    batch = Batch(outputs=scores.double(), row=torch.arange(len(rows)), streams={}, **columns)
    with torch.no_grad():
        _, sums = reward_objective(batch, labels, 0.0)
    return {name: float(value) / max(float(count), 1e-12) for name, (value, count) in sums.items()}


def resolved(judgements: Judgements, labels: LabelConfig, everyone: Collection[str]) -> Read[Pair | Ranking]:
    """Judgements, trained on or held out, with ties and annotators taken as configured; `everyone` judged either."""
    tied = resolve_ties(judgements, labels.ties)
    weighed = weigh_annotators(tied.items, labels.annotator_weights, others=everyone)
    return Read(weighed.items, {**tied.dropped, **weighed.dropped})


def _rows(
    judgements: Judgements, model: RewardScorer, config: RewardConfig, index: dict[str, int], what: str
) -> list[Rows]:
    """Rows of the judgements within `max_tokens`; what was cut, and what was left out, is printed."""
    before = model.cut_rows
    made = reward_rows(judgements, model, index)
    if config.length.kind == "penalty":
        for judged, rows in zip(judgements, made, strict=True):
            for completion, row in zip(completions_of(judged), rows, strict=True):
                row.streams = {"characters": torch.full((len(row.mask),), float(len(completion.text)))}
    if cut := model.cut_rows - before:
        print(
            f"{what}: {cut} of {sum(map(len, made))} prompts were cut to fit {config.max_tokens} tokens, oldest first"
        )
    return report_read(fitting(made, config.max_tokens, config.data.max_dropped_fraction), what)


def _resamples(model: RewardScorer, config: RewardConfig) -> bool:
    return config.ensemble.bootstrap and model.members > 1


def resampled(rows: Sequence[Rows], copies: Tensor) -> list[Rows]:
    """Rows as the heads see them, by a stream (P, K), or one member, by its weights (P,); those never seen left out."""
    result: list[Rows] = []
    for judged, count in zip(rows, copies, strict=True):
        if not bool(count.any()):
            continue
        if copies.ndim == 1:
            result.append(tuple(replace(row, weight=row.weight * float(count)) for row in judged))
        else:
            streams = [{**row.streams, "bootstrap": count.expand(len(row.mask), -1)} for row in judged]
            result.append(tuple(replace(row, streams=s) for row, s in zip(judged, streams, strict=True)))
    return result


@dataclass(frozen=True)
class _Plan:
    """What one model is trained on, and where its figures go."""

    rows: Sequence[Rows]
    probe: Sequence[Rows]
    config: RewardConfig
    member: int
    phase: str


def _train(folder: RunFolder, model: RewardModel, labels: LabelModel, plan: _Plan, course: _Course) -> None:
    """Train one model, or put it back where the run had trained it already."""
    config = plan.config
    batches = passes(plan.rows, config.batch_size, config.epochs, config.seed + plan.member)
    steps = sum(map(len, batches))
    model.activate()
    some = [row for judged in plan.rows[:16] for row in judged]
    model.head_lr_factor = head_lr_factor(model, some, config.model)
    engine = Engine(model, config.model, total_steps=steps)
    keeper = _Keeper(engine, labels, plan.probe, config.patience, config.calibrate)
    if course.is_past(plan.member, keeper):
        return
    before, done = course.enter(engine, keeper)
    step = done
    title = f"reward model {plan.member + 1}" if plan.member else "reward model"
    with Progress(title, total=steps - done) as progress:
        for number, judgements, ends_pass in numbered(batches, done):
            if keeper.done:
                progress.note(f"Stopped after {step} of {steps} updates: the held-out NLL no longer falls.")
                break
            step = number
            metrics = update(engine, weighted(judgements), labels, config)
            folder.log(before + step, metrics, phase=plan.phase)
            if plan.probe and ends_pass:
                look = keeper.look()
                folder.log(before + step, look, phase=f"{plan.phase}_eval" if plan.phase != "train" else "eval")
            course.checkpoints.after(before + step, last=keeper.done or step == steps)
            progress.step({"loss": metrics["loss"], "accuracy": metrics["accuracy"]} | keeper.shown())
    keeper.restore()
    course.leave(keeper, before + step)


def update(engine: Engine, rows: Sequence[Row], labels: LabelModel, config: RewardConfig) -> dict[str, float]:
    """One update of the scores and of the label model on rows whose weights sum to 1; its metrics.

    A length penalty adds `coef` times the squared correlation of score and length within the judgements of the whole
    update, averaged over heads. The scores are computed without gradient first; the derivative by each of them, which
    knows all others, then weighs its row in the stream `length`. So micro-batches change nothing.
    """
    penalised = config.length.kind == "penalty"
    correlation = penalise_length(engine, rows, config.length.coef) if penalised else {}

    def objective(batch: Batch) -> tuple[Tensor, Sums]:
        loss, sums = reward_objective(batch, labels, config.center)
        return (loss + (batch.streams["length"] * batch.outputs).sum() if penalised else loss), sums

    metrics = engine.step(rows, objective)
    labels.step(engine.total)
    return metrics | correlation


def penalise_length(engine: Engine, rows: Sequence[Row], coef: float) -> dict[str, float]:
    """Put the derivatives of `coef` times the squared correlation into the streams `length`; the correlation now."""
    outputs = torch.stack([values[-1] for values in engine.outputs(rows)])
    lengths = torch.stack([row.streams["characters"][-1] for row in rows])
    atoms = torch.tensor([row.atom for row in rows])
    value, gradient = squared_correlation(outputs.reshape(len(rows), -1), lengths, atoms, engine.total)
    weights = coef * gradient.reshape(outputs.shape) / len(value)
    for row, weight in zip(rows, weights, strict=True):
        row.streams = {**row.streams, "length": weight.expand(len(row.mask), *weight.shape)}
    return {"length/squared_correlation": float(value.mean())}


def best_temperature(scores: Tensor, rows: Sequence[Row], labels: LabelModel) -> float:
    """The T in [1/20, 20] for which scores / T have the lowest NLL."""
    return coolest(lambda scale: held_out_figures(scores * scale, rows, labels)["nll"])


Learnt = tuple[list[Tensor], dict[str, Tensor]]  # weights, and the label model's state


class _Keeper(Keeper[Learnt]):
    """Early stopping: remembers the trained weights, and the label model, at the lowest held-out NLL.

    Where scores will be calibrated it is the NLL at the best temperature: a later pass that ranks better is not given
    up for being too sure of itself, which calibration mends.
    """

    def __init__(
        self, engine: Engine, labels: LabelModel, probe: Sequence[Rows], patience: int, calibrate: bool
    ) -> None:
        super().__init__(self.learnt, self.put_back, patience)
        self.engine, self.labels = engine, labels
        self.probe = [row for judged in probe for row in judged]
        self.calibrate = calibrate and len(probe) >= FEWEST

    def look(self) -> dict[str, float]:
        """Held-out figures now, of the mean over heads."""
        outputs = torch.stack([values[-1] for values in self.engine.outputs(self.probe)])
        scores = outputs.reshape(len(self.probe), -1).mean(1)
        figures = held_out_figures(scores, self.probe, self.labels)
        nll = figures["nll"]
        if self.calibrate:
            cooled = scores / best_temperature(scores, self.probe, self.labels)
            nll = figures["nll/calibrated"] = held_out_figures(cooled, self.probe, self.labels)["nll"]
        self.offer(nll)
        return figures

    def state_dict(self) -> dict[str, Any]:
        """What is remembered, and how the label model learns."""
        return {**super().state_dict(), "labels": self.labels.learning_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state)
        self.labels.load_learning_state(state["labels"])

    def learnt(self) -> Learnt:
        """A copy of what was trained, as it is now."""
        return self.engine.snapshot(), {name: value.clone() for name, value in self.labels.state_dict().items()}

    def put_back(self, kept: Learnt) -> None:
        """Restore what `learnt` returned."""
        self.engine.restore(kept[0])
        self.labels.load_state_dict(kept[1])


class _Course:
    """The models of an ensemble one after the other: where the run is, and what those before have learnt."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.checkpoints = checkpoints
        self.finished: list[tuple[Learnt, int]] = []  # and the number of steps by then
        self._past = checkpoints.part("members").get("finished", [])

    def is_past(self, member: int, keeper: _Keeper) -> bool:
        """Whether the run that goes on had finished a model; it is put back then."""
        if member >= len(self._past):
            return False
        self.finished.append(self._past[member])
        keeper.put_back(self.finished[-1][0])
        return True

    def enter(self, engine: Engine, keeper: _Keeper) -> tuple[int, int]:
        """Begin the next model, or go on with it; the steps of the models before, and its own that are done."""
        before = self.finished[-1][1] if self.finished else 0
        done = self.checkpoints.restore(engine=engine, keeper=keeper, members=self)
        return before, max(0, done - before)

    def leave(self, keeper: _Keeper, steps: int) -> None:
        """A model is finished, after so many steps of all."""
        self.finished.append((keeper.learnt(), steps))

    def state_dict(self) -> dict[str, Any]:
        """The models that are finished."""
        return {"finished": self.finished}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing: they were put back one by one."""


def fixed_labels(config: LabelConfig, learnt: Sequence[LabelModel]) -> LabelModel:
    """A label model for figures: the tie parameter as it was learnt, the mean over members, and all judges alike."""
    ties = [model.tie_parameter for model in learnt if model.models_ties]
    parameter = sum(ties) / len(ties) if ties else config.tie_parameter
    return LabelModel(replace(config, tie_parameter=parameter, reliability="none"))
