"""Rejection-sampling self-training: sample, keep what the rewards accept, fine-tune on it, and again.

ReST (arXiv 2308.08998) goes on from the last weights with rising thresholds; ReST-EM (arXiv 2312.06585) trains every
round from the start weights on what the last policy sampled. Both are settings of one loop.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from torch import Tensor

from prefrl.config import RejectionConfig
from prefrl.errors import ConfigError, RewardError
from prefrl.evaluate.files import append_lines, to_plain, writing
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.run_folder import RunFolder
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.policy.advantages import reaches
from prefrl.policy.metrics import rollout_metrics
from prefrl.policy.optimizer import learn_completions
from prefrl.recipes.common import (
    Checked,
    batches,
    conclude,
    evaluate_policy,
    final_checkpoint,
    last_metrics,
    load_policy,
    load_prompts,
    quiet,
    record_reward,
    sample_rows,
)
from prefrl.recipes.resuming import Checkpoints, opened
from prefrl.recipes.rl import EVALUATION_SEED
from prefrl.rewards.specs import build
from prefrl.types import Prompt, Rollout, Row, Score

_PROMPTS_AT_A_TIME = 16  # prompts sampled and scored together, between two signs of progress


def run(config: RejectionConfig) -> RunFolder:
    """Self-train a policy as configured; everything is left in the run folder.

    Raises:
        ConfigError: no rewards.
        RewardError: the first round accepted nothing, so there is nothing to train on.
    """
    if not config.rewards:
        raise ConfigError("rewards is empty; name at least one: --rewards '[{kind: numeric, column: answer}]'")
    quiet()
    source = build(config.rewards)
    with opened(config, "rejection") as (folder, checkpoints):
        print(f"Loading {config.policy.name} ...", flush=True)
        policy = load_policy(config.policy, config.seed)
        train, held_out = load_prompts(config.data, policy, config.seed)
        print(f"{len(train)} training prompts, {len(held_out)} held out")
        reward = Checked(source, config.max_error_fraction)
        record_reward(source, folder.path)
        stopped = SelfTraining(folder, policy, train, held_out, reward, config).run(checkpoints)
        policy.save(final_checkpoint(folder))
        record_reward(source, final_checkpoint(folder))
        conclude(folder, last_metrics(folder, "train", "eval") | ({"stopped": stopped} if stopped else {}))
    return folder


@dataclass(frozen=True)
class Kept:
    """What a round learns from, and figures of the selection."""

    rollouts: list[Rollout]
    scores: list[Score]
    metrics: dict[str, float]


def select(rollouts: Sequence[Rollout], scores: Sequence[Score], *, threshold: float | None, limit: int = 0) -> Kept:
    """The accepted completions, each distinct one of a prompt once, at most `limit` a prompt and the best of them.

    Args:
        threshold: least total reward; None accepts the best of every prompt.
        limit: most completions a prompt, earlier samples first among equals; 0 for all.
    """
    scored = [(r, s) for r, s in zip(rollouts, scores, strict=True) if s.ok and any(r.mask)]
    least: dict[str, float] = {}
    for rollout, score in scored:
        name = rollout.prompt.id
        least[name] = max(least.get(name, -math.inf), score.total) if threshold is None else threshold
    accepted = [(r, s) for r, s in scored if reaches(s.total, least[r.prompt.id])]
    distinct: dict[str, dict[tuple[int, ...], tuple[Rollout, Score]]] = {}
    for rollout, score in accepted:
        distinct.setdefault(rollout.prompt.id, {}).setdefault(rollout.completion_ids, (rollout, score))
    best = [sorted(found.values(), key=lambda rs: -rs[1].total)[: limit or None] for found in distinct.values()]
    kept = [pair for found in best for pair in found]
    metrics = {
        "accept/fraction": len(accepted) / max(1, len(scored)),
        "accept/distinct": sum(map(len, distinct.values())) / max(1, len(accepted)),
        "accept/coverage": len(distinct) / max(1, len({r.prompt.id for r in rollouts})),
        "accept/kept": float(len(kept)),
        "accept/truncated": fmean(r.truncated for r, _ in kept) if kept else 0.0,
        "accept/highest": max((s.total for _, s in scored), default=math.nan),
    }
    metrics |= {} if threshold is None else {"accept/threshold": threshold}
    return Kept([r for r, _ in kept], [s for _, s in kept], metrics)


@dataclass
class SelfTraining:
    """The rounds. Metrics stand at the number of updates made until then.

    A round's samples are figures of the phase train; held-out prompts, answered before the first round and after
    every one, of the phase eval. What a round learnt from is written to `kept/round_N.jsonl` in the run folder.
    """

    folder: RunFolder
    policy: LanguageModel
    train: Sequence[Prompt]
    held_out: Sequence[Prompt]
    reward: Checked
    config: RejectionConfig
    updates: int = field(default=0, init=False)

    def run(self, checkpoints: Checkpoints | None = None) -> str:
        """All rounds that are left; why they ended early, or an empty text.

        Raises:
            RewardError: the first round accepted nothing.
        """
        config = self.config
        checkpoints = checkpoints or Checkpoints()
        beginning = Engine(self.policy, config.policy).snapshot() if config.restart else None
        size = min(config.prompts_per_round or len(self.train), len(self.train))
        feed = batches(self.train, size, config.seed)
        done = checkpoints.restore(stands=self._stands, rounds=self, reward=self.reward)
        for _ in range(done):
            next(feed)
        if not done:
            self._evaluate(0)
        for number in range(done + 1, config.rounds + 1):
            kept = self._gather(number, next(feed))
            if not kept.rollouts:
                return self._nothing_kept(number, kept)
            self._write(number, kept)
            self._fit(number, kept, beginning)
            self._evaluate(number)
            checkpoints.after(number, last=number == config.rounds)
        return ""

    def state_dict(self) -> dict[str, Any]:
        """The number of updates made, and the trained weights: every round has an optimizer of its own."""
        return {"updates": self.updates, "weights": Engine(self.policy, self.config.policy).snapshot()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.updates = int(state["updates"])
        Engine(self.policy, self.config.policy).restore(state["weights"])

    def _stands(self, line: Mapping[str, Any], number: int) -> bool:
        """Whether a line was written by the end of a round: a round's samples stand at the updates made before it."""
        return bool(line["step"] <= self.updates and line.get("round", 0) <= number)

    def _gather(self, number: int, prompts: Sequence[Prompt]) -> Kept:
        """Sample and score every prompt, and select."""
        config, rollouts, scores = self.config, list[Rollout](), list[Score]()
        chunks = [prompts[at : at + _PROMPTS_AT_A_TIME] for at in range(0, len(prompts), _PROMPTS_AT_A_TIME)]
        began = time.perf_counter()
        with Progress(f"round {number}: samples", total=len(chunks)) as progress:
            for place, chunk in enumerate(chunks):
                # Every chunk has a seed of its own, so that a prompt that comes twice is answered twice.
                seed = (config.seed * 100_000 + number) * 100_000 + place
                drawn = self.policy.sample(chunk, config.samples, config.sampling, seed=seed, version=self.updates)
                rollouts += drawn
                scores += self.reward.score(drawn)
                totals = [s.total for s in scores if s.ok]
                progress.step({"reward": fmean(totals)} if totals else {})
        threshold = config.thresholds[min(number, len(config.thresholds)) - 1] if config.keep == "above" else None
        kept = select(rollouts, scores, threshold=threshold, limit=config.max_per_prompt)
        figures = {"round": float(number), "seconds": time.perf_counter() - began}
        figures |= self.reward.update(rollouts, scores)
        self.folder.log(self.updates, {**rollout_metrics(rollouts, scores), **kept.metrics, **figures})
        return kept

    def _nothing_kept(self, number: int, kept: Kept) -> str:
        asked, best = kept.metrics.get("accept/threshold"), kept.metrics["accept/highest"]
        if asked is None or math.isnan(best):  # the best of a prompt is always accepted, so there was none
            found = "none has both tokens and a score"
            cure = "See errors, length/mean and stop/ in metrics.jsonl of the run."
        else:
            found = f"the highest reward is {best:g}, the threshold {asked:g}"
            cure = "Lower thresholds, raise samples or sampling.temperature, or warm up with prefrl sft."
        why = f"Round {number} accepted none of its completions: {found}."
        if number == 1:
            raise RewardError(f"{why} There is nothing to train on. {cure}")
        print(f"{why} The weights of round {number - 1} are kept. {cure}")
        return why

    def _write(self, number: int, kept: Kept) -> None:
        """Leave what was kept as rows that can be read, and given to `prefrl sft`."""
        path = self.folder.path / "kept" / f"round_{number}.jsonl"
        with writing(path):
            path.parent.mkdir(exist_ok=True)
            path.unlink(missing_ok=True)  # of a round that is done again
        pairs = list(zip(kept.rollouts, kept.scores, strict=True))
        append_lines(path, [_as_row(rollout, score) for rollout, score in pairs])
        shown = sample_rows(kept.rollouts, kept.scores, f"kept in round {number}", limit=4)
        self.folder.samples(self.updates, [{**row, "round": number} for row in shown])

    def _fit(self, number: int, kept: Kept, beginning: list[Tensor] | None) -> None:
        """Fine-tune on what was kept, from the start weights where they are given."""
        config = self.config
        rows = [Row(prompt_ids=r.prompt_ids, completion_ids=r.completion_ids, mask=r.mask) for r in kept.rollouts]
        size = min(config.batch_size, len(rows))
        steps = config.epochs * math.ceil(len(rows) / size)
        engine = Engine(self.policy, config.policy, total_steps=steps)
        if beginning is not None:
            engine.restore(beginning)
        feed = batches(rows, size, config.seed + number)
        with Progress(f"round {number}: updates", total=steps) as progress:
            for _ in range(steps):
                metrics = learn_completions(engine, next(feed))
                self.updates += 1
                self.folder.log(self.updates, metrics)
                progress.step(nll=metrics["nll"], grad_norm=metrics["grad_norm"])

    def _evaluate(self, number: int) -> None:
        """Answer the held-out prompts."""
        if not self.held_out:
            return
        config = self.config
        result = evaluate_policy(
            self.policy, self.held_out, self.reward, config.sampling, samples=config.eval_samples, seed=EVALUATION_SEED
        )
        self.folder.log(self.updates, {**result.metrics, "round": float(number)}, phase="eval")
        shown = sample_rows(result.rollouts, result.scores, policy=f"round {number}")
        self.folder.samples(self.updates, [{**row, "round": number} for row in shown])
        if "reward/mean" in result.metrics:
            print(f"Round {number}: held-out reward {result.metrics['reward/mean']:.3f}", flush=True)


def _as_row(rollout: Rollout, score: Score) -> dict[str, Any]:
    row = {"id": rollout.prompt.id, "prompt": rollout.prompt.content, "completion": rollout.completion}
    plain: dict[str, Any] = to_plain({**row, "reward": score.total, "stop": rollout.stop.value})
    return plain
