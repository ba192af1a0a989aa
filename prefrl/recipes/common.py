"""What every recipe shares: the run folder, data as prompts and pairs, checked rewards, policy evaluation."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from prefrl.config import DataConfig, ModelConfig, RunConfig, SamplingConfig
from prefrl.data.formats import to_pairs, to_prompts
from prefrl.data.reading import Read, keep_within
from prefrl.data.splits import check_disjoint, prompt_key, split_by_prompt
from prefrl.data.tables import Table, load_table
from prefrl.errors import ConfigError
from prefrl.evaluate.files import to_plain, write_atomic
from prefrl.evaluate.report import write_run_report
from prefrl.evaluate.reward_quality import RewardQuality
from prefrl.evaluate.run_folder import RunFolder, read
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.model.load import load
from prefrl.parsing import to_dict
from prefrl.policy.metrics import rollout_metrics
from prefrl.rewards.audit import source_metrics
from prefrl.rewards.base import RewardSource, checked_scores
from prefrl.rewards.identity import fingerprint
from prefrl.rewards.normalise import frozen
from prefrl.rollout.sampler import Sampler
from prefrl.types import Pair, Prompt, Rollout, Row, Score

T = TypeVar("T")


@contextmanager
def start(config: RunConfig, kind: str) -> Iterator[RunFolder]:
    """Open the run folder; threads and seeds are set, and an error is recorded in the folder before it rises."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}: several processes were started, and each would train on all of "
            "the data. Start one, without accelerate launch or torchrun."
        )
    quiet()
    if config.threads:
        torch.set_num_threads(config.threads)
    random.seed(config.seed)
    torch.manual_seed(config.seed)
    output = config.output or f"runs/{kind}"
    with RunFolder.create(output, kind, to_dict(config), overwrite=config.overwrite) as folder:
        print(f"Run folder: {folder.path}", flush=True)
        yield folder


def conclude(folder: RunFolder, summary: Mapping[str, Any], quality: RewardQuality | None = None) -> None:
    """Mark the run finished, write its report, and say where that is."""
    folder.finish(summary)
    print(f"Report: {write_run_report(folder, quality)}")


def last_metrics(folder: RunFolder, *phases: str) -> dict[str, float]:
    """The last value of every metric of some phases, as `phase/metric`."""
    data = read(folder.path)
    return {f"{phase}/{name}": data.series(name, phase)[1][-1] for phase in phases for name in data.names(phase)}


def quiet() -> None:
    """Silence the progress bars and notices of libraries below; errors still come through."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def load_policy(config: ModelConfig, seed: int) -> LanguageModel:
    """The policy that a configuration describes."""
    return load(
        config.name,
        lora=config.lora,
        top_layers=config.top_layers,
        dtype=config.dtype,
        device=config.device,
        seed=seed,
    )


def read_table(source: str, limit: int = 0, flag: str = "data.train") -> Table:
    """A dataset by name; says which flag to type when there is none."""
    if not source:
        raise ConfigError(f"{flag} is empty; expected a file, a hub id or a task. Type: --{flag} FILE.jsonl")
    return load_table(source, limit=limit or None)


def train_table(data: DataConfig) -> Table:
    """The rows of `data.train`, its columns as `data.columns` calls them."""
    return _renamed(read_table(data.train, data.limit), data.columns)


def report_read(read: Read[T], what: str) -> list[T]:
    """The items of a read; what was left out is printed."""
    if read.dropped:
        print(f"{what}: {read.summary()}")
    return read.items


def train_and_held_out(
    data: DataConfig,
    convert: Callable[[Table], Read[T]],
    seed: int,
    what: str,
    *,
    key: Callable[[T], str] = prompt_key,
) -> tuple[list[T], list[T]]:
    """Items of `data.train` and of `data.eval`, or a share of train split off; the two never share a `key`.

    Raises:
        DataError: data cannot be read, or `data.eval` holds what is trained on.
    """
    train = report_read(convert(train_table(data)), f"{what} of {data.train}")
    if not data.eval:
        return split_by_prompt(train, data.eval_fraction, seed, key=key)
    held_out = report_read(convert(_renamed(read_table(data.eval), data.columns)), f"{what} of {data.eval}")
    check_disjoint(train, held_out, key=key)
    return train, held_out


def _renamed(table: Table, columns: Mapping[str, str]) -> Table:
    """The table with columns renamed; ConfigError where it has none of those, nor any of the new names."""
    names = {old: new for old, new in columns.items() if old in table.columns}
    if columns and not names and not set(columns.values()) & set(table.columns):
        raise ConfigError(
            f"data.columns renames {', '.join(columns)}, but {table.origin} has {', '.join(table.columns)}."
        )
    return table.rename(names)


def load_prompts(
    data: DataConfig, model: LanguageModel, seed: int, *, key: Callable[[Prompt], str] = prompt_key
) -> tuple[list[Prompt], list[Prompt]]:
    """Training and held-out prompts; longer ones than `data.max_prompt_tokens` are counted, never cut.

    Args:
        key: what the two must not share.
    """

    def convert(table: Table) -> Read[Prompt]:
        return to_prompts(table, max_bad_fraction=data.max_dropped_fraction)

    train, held_out = train_and_held_out(data, convert, seed, "prompts", key=key)
    return fitting_prompts(train, model, data), fitting_prompts(held_out, model, data)


def fitting_prompts(prompts: Sequence[Prompt], model: LanguageModel, data: DataConfig) -> list[Prompt]:
    """Prompts of at most `data.max_prompt_tokens`; the others are counted, never cut."""
    lengths = [len(model.encode(prompt)) for prompt in prompts]
    limit, allowed = data.max_prompt_tokens, data.max_dropped_fraction
    return report_read(keep_within(prompts, lengths, limit, "prompt", max_dropped_fraction=allowed), "prompts")


def load_pairs(data: DataConfig, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Training and held-out pairs."""
    return train_and_held_out(
        data, lambda table: to_pairs(table, max_bad_fraction=data.max_dropped_fraction), seed, "pairs"
    )


@dataclass
class Checked:
    """A reward source behind its checks: NaN, exceptions and hangs are counted, never a 0."""

    source: RewardSource
    max_error_fraction: float = 0.1

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """One checked score per rollout."""
        return checked_scores(self.source, rollouts, max_error_fraction=self.max_error_fraction)

    def update(self, rollouts: Sequence[Rollout], scores: Sequence[Score]) -> Mapping[str, float]:
        """What every component contributed; then a co-trained source learns from the rollouts, others do nothing."""
        metrics = source_metrics(self.source, rollouts, scores)
        learn = getattr(self.source, "update", None)
        return {**metrics, **((learn(rollouts, scores) or {}) if learn is not None else {})}

    def state_dict(self) -> dict[str, Any]:
        """The source's running state; empty where it keeps none."""
        kept = getattr(self.source, "state_dict", None)
        return dict(kept()) if kept is not None else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        load = getattr(self.source, "load_state_dict", None)
        if load is not None and state:
            load(state)


def record_reward(source: RewardSource, *folders: Path) -> None:
    """Leave reward.json in every folder: what the reward is made of, so that old rollouts can be told apart."""
    record = json.dumps(to_plain(fingerprint(source)), indent=2, ensure_ascii=False) + "\n"
    for folder in folders:
        write_atomic(folder / "reward.json", record)


def batches(items: Sequence[T], size: int, seed: int) -> Iterator[list[T]]:
    """Endless batches over shuffled passes; every item comes once a pass, and every batch is full."""
    rng = random.Random(seed)
    queue: list[T] = []
    while True:
        while len(queue) < size:
            queue += rng.sample(list(items), len(items))
        yield queue[:size]
        queue = queue[size:]


@dataclass(frozen=True)
class PolicyEvaluation:
    """Completions of held-out prompts, their scores, and figures."""

    rollouts: list[Rollout]
    scores: list[Score]
    metrics: dict[str, float]


def evaluate_policy(
    sampler: Sampler,
    prompts: Sequence[Prompt],
    reward: Checked,
    sampling: SamplingConfig,
    *,
    samples: int,
    seed: int,
) -> PolicyEvaluation:
    """Sample and score completions of prompts that training never sees; the random numbers are the same every time.

    Running statistics of the reward stay as training left them.
    """
    rollouts = sampler.sample(prompts, samples, sampling, seed=seed)
    with frozen(reward.source):
        scores = reward.score(rollouts)
    metrics = {k: v for k, v in rollout_metrics(rollouts, scores).items() if not k.startswith("groups/")}
    return PolicyEvaluation(rollouts, scores, metrics | verifier_metrics(scores))


def verifier_metrics(scores: Sequence[Score]) -> dict[str, float]:
    """Accuracy, parse rate and accuracy given parsed, from the parts that verifiers leave; empty without them.

    Right is what has the part `correct`, or `strict` of a verifier with partial credit; one with neither has a parse
    rate alone.
    """
    parts = [score.parts for score in scores if score.ok]
    names = {name.rpartition("/")[0] for p in parts for name in p if name.endswith("parsed")}
    if len(names) != 1:
        return {}
    prefix = names.pop()
    prefix = f"{prefix}/" if prefix else ""
    judged = [p for p in parts if f"{prefix}parsed" in p]  # a part that only measures may be missing where it failed
    parsed = [p[f"{prefix}parsed"] for p in judged]
    metrics = {"parse_rate": sum(parsed) / len(parsed)}
    right = next((n for n in ("correct", "strict") if any(f"{prefix}{n}" in p for p in judged)), None)
    if right is None:
        return metrics
    correct = sum(p.get(f"{prefix}{right}", 0.0) for p in judged)  # what cannot be read has no such part
    metrics["accuracy"] = correct / len(judged)
    return metrics | ({"accuracy_given_parsed": correct / sum(parsed)} if sum(parsed) else {})


def sequence_kls(engine: Engine, rollouts: Sequence[Rollout]) -> list[float]:
    """`sum_t log pi - log ref` of every rollout, both computed by the learner: nats from the reference per answer."""
    rows = [
        Row(
            prompt_ids=r.prompt_ids,
            completion_ids=r.completion_ids,
            mask=r.mask,
            observations=r.observations,
            actions=r.actions,
        )
        for r in rollouts
    ]
    live, reference = engine.logps(rows, "policy"), engine.logps(rows, "reference")
    return [float((a - b).sum()) for a, b in zip(live, reference, strict=True)]


def sample_rows(
    rollouts: Sequence[Rollout], scores: Sequence[Score], policy: str, limit: int = 16
) -> list[dict[str, Any]]:
    """Rollouts as rows for `samples.jsonl` and reports."""
    return [
        {
            "policy": policy,
            "prompt_id": r.prompt.id,
            "prompt": r.prompt.question,
            "completion": r.text,
            "reward": s.total if s.ok else None,
            "parts": dict(s.parts),
            "error": s.error,
            "stop": r.stop.value,
            "tokens": sum(r.mask),
            **({"environment": r.info["environment"]} if "environment" in r.info else {}),
        }
        for r, s in list(zip(rollouts, scores, strict=True))[:limit]
    ]


def final_checkpoint(folder: RunFolder) -> Path:
    """Where a run leaves its last weights."""
    return folder.checkpoints / "final"
