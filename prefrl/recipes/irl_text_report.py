"""What a policy that imitates, and a reward learnt from demonstrations, are worth on prompts never trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from torch import Tensor

from prefrl.config import IRLConfig
from prefrl.data.splits import prompt_key
from prefrl.evaluate import figures
from prefrl.evaluate.blocks import Block, Figure, Section, Table
from prefrl.evaluate.report import write_report
from prefrl.evaluate.run_folder import RunData, RunFolder, read
from prefrl.evaluate.sections import standard_sections
from prefrl.evaluate.statistics import proportion_interval
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.policy.metrics import rollout_metrics
from prefrl.recipes.common import Checked, sample_rows, sequence_kls, verifier_metrics
from prefrl.recipes.irl_files import SFT
from prefrl.recipes.irl_text_data import TextData, fine_tune, rows_of
from prefrl.recipes.rl import EVALUATION_SEED
from prefrl.recipes.score import text_rollout
from prefrl.recipes.sft import held_out_nll
from prefrl.rewards.base import RewardSource
from prefrl.rewards.specs import build
from prefrl.types import Rollout, Score

POLICIES = (("start", "eval", 0), ("end", "eval", -1), ("plain fine-tuning", f"{SFT}_eval", -1))


def ranking(better: Mapping[str, Sequence[float]], worse: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """How often the first completions of a prompt score above the second ones of the same prompt, ties half.

    The mean over prompts with both of the area under the ROC curve, with its Wilson interval over prompts; scores
    of different prompts are never compared. Empty without such a prompt.

    Args:
        better: scores by prompt, of demonstrations.
        worse: scores by prompt, of samples.
    """
    shares = []
    for prompt in better:
        pairs = [(a > b) + 0.5 * (a == b) for a in better[prompt] for b in worse.get(prompt, ())]
        if pairs:
            shares.append(fmean(pairs))
    if not shares:
        return {}
    low, high = proportion_interval(shares)
    return {"auroc": fmean(shares), "auroc/low": low, "auroc/high": high, "auroc/prompts": float(len(shares))}


@dataclass
class TextEvaluation:
    """Measures on held-out prompts; the same random numbers every time.

    weights    those the policy was loaded with
    base       its samples then, which a learnt reward has to tell from demonstrations
    last       figures of the last evaluation
    """

    folder: RunFolder
    policy: LanguageModel
    data: TextData
    config: IRLConfig
    independent: Checked | None
    weights: list[Tensor] = field(default_factory=list)
    base: list[Rollout] = field(default_factory=list)
    last: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: RunFolder, policy: LanguageModel, data: TextData, config: IRLConfig) -> TextEvaluation:
        """With the policy as it is as the base."""
        given = config.text.independent
        independent = Checked(build(given), config.max_error_fraction) if given else None
        made = cls(folder, policy, data, config, independent)
        made.base = made.drawn()
        made.weights = [p.detach().clone() for p in policy.module.parameters() if p.requires_grad]
        return made

    def drawn(self) -> list[Rollout]:
        """Completions of the held-out prompts by the policy as it is."""
        prompts, config = self.data.held_out_prompts, self.config
        if not prompts:
            return []
        return self.policy.sample(prompts, config.eval_samples, config.sampling, seed=EVALUATION_SEED)

    def at(
        self, step: int, engine: Engine, reward: RewardSource | None, *, phase: str = "eval", name: str = ""
    ) -> dict[str, float]:
        """Measure policy and reward, log the figures and keep samples; empty without held-out demonstrations."""
        rollouts = self.drawn()
        if not rollouts:
            return {}
        scores = self.independent.score(rollouts) if self.independent else [Score(value=0.0) for _ in rollouts]
        found = rollout_metrics(rollouts, scores)
        metrics = {k: v for k, v in found.items() if not k.startswith(("reward/", "groups/"))}
        metrics["nll"] = held_out_nll(engine, rows_of(self.data.held_out, self.policy))
        if self.independent:
            metrics |= {"independent/mean": found["reward/mean"], **_parts(scores), **verifier_metrics(scores)}
        if engine.has_reference:
            metrics["kl/ref"] = fmean(sequence_kls(engine, rollouts))
        if reward is not None:
            metrics |= self.ranked(reward)
        self.folder.log(step, metrics, phase=phase)
        self.folder.samples(step, sample_rows(rollouts, scores, policy=name or f"step {step}"))
        self.last = metrics
        return metrics

    def ranked(self, reward: RewardSource) -> dict[str, float]:
        """How a reward ranks held-out demonstrations against the base's samples of the same prompts."""
        rollouts = [text_rollout(*demonstration) for demonstration in self.data.held_out]
        scores = Checked(reward, self.config.max_error_fraction).score([*rollouts, *self.base])
        demos, base = scores[: len(rollouts)], scores[len(rollouts) :]
        return {f"ranking/{k}": v for k, v in ranking(_grouped(rollouts, demos), _grouped(self.base, base)).items()}


def conclude_text(folder: RunFolder, evaluation: TextEvaluation, engine: Engine, config: IRLConfig) -> None:
    """Compare with plain fine-tuning where that is asked for; then summary and report."""
    if config.text.sft_epochs:
        engine.restore(evaluation.weights)
        tuned = fine_tune(folder, evaluation.policy, evaluation.data, config, epochs=config.text.sft_epochs, phase=SFT)
        evaluation.at(tuned.version, tuned, None, phase=f"{SFT}_eval", name="plain fine-tuning")
    data = read(folder.path)
    folder.finish(_summary(data))
    data = read(folder.path)
    title = _title(data, config)
    print(f"Report: {write_report(folder, standard_sections(data, title=title, extra=sections(data)))}")


def sections(data: RunData) -> list[Block]:
    """How the reward was learnt, and who writes how much like the demonstrations."""
    names = data.names("eval")
    shown = [n for n in names if n.startswith(("independent/", "ranking/auroc")) or n in ("nll", "length/mean")]
    rows: list[tuple[Any, ...]] = []
    for label, phase, place in POLICIES:
        values = [data.series(name, phase)[1] for name in shown]
        if any(values):
            rows.append((label, *(column[place] if column else "" for column in values)))
    blocks: list[Block] = [Table(("policy", *shown), rows)] if rows else []
    drawn = {
        "Telling demonstrations from samples": {
            "irl/accuracy_expert": "demonstrations",
            "irl/accuracy_policy": "samples",
        },
        "Effective samples": {"irl/ess": "share"},
    }
    for title, lines in drawn.items():
        curves = {label: data.series(name) for name, label in lines.items() if data.series(name)[1]}
        if curves:
            caption = "Before the reward was improved on them." if "accuracy" in next(iter(lines)) else ""
            blocks.append(Figure(figures.curves(curves, percent=True), title, caption))
    if (gap := data.series("irl/gap"))[1]:
        caption = "Mean log-odds of demonstrations less those of the policy's own samples."
        blocks.append(Figure(figures.curves({"gap": gap}), "How far demonstrations are ahead", caption))
    return [Section("Demonstrations and samples", blocks)] if blocks else []


def _title(data: RunData, config: IRLConfig) -> str:
    _, auroc = data.series("ranking/auroc", "eval")
    _, measure = data.series("independent/mean", "eval")
    said = [f"independent measure {measure[0]:.2f} to {measure[-1]:.2f}"] if measure else []
    said += [f"the reward ranks {auroc[-1]:.0%} of demonstrations above samples of the start"] if auroc else []
    return f"{config.method}: " + ("; ".join(said) or "a reward from demonstrations")


def _summary(data: RunData) -> dict[str, float]:
    found = {}
    for label, phase, place in POLICIES:
        for name in data.names(phase):
            found[f"{label.replace(' ', '_')}/{name}"] = data.series(name, phase)[1][place]
    return found


def _parts(scores: Sequence[Score]) -> dict[str, float]:
    names = dict.fromkeys(name for score in scores if score.ok for name in score.parts if "/" not in name)
    return {f"independent/{name}": fmean(s.parts[name] for s in scores if s.ok and name in s.parts) for name in names}


def _grouped(rollouts: Sequence[Rollout], scores: Sequence[Score]) -> dict[str, list[float]]:
    """Scores by the content of their prompt; unscored ones are left out."""
    found: dict[str, list[float]] = {}
    for rollout, score in zip(rollouts, scores, strict=True):
        if score.ok:
            found.setdefault(prompt_key(rollout.prompt), []).append(score.total)
    return found
