"""The whole story in small: pairs -> reward model -> two optimized policies -> evaluation -> report.

A small language model answers everyday questions; a declared simulated annotator (or your own pairs) says which
answers are better; a reward model learns that; the policy is optimized twice from the same start, online against
the reward model and directly on the pairs; everything is compared on prompts that no training step ever saw.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.resources import files

from prefrl.config import (
    DPOConfig,
    ModelConfig,
    QuickstartConfig,
    RewardConfig,
    RewardModelConfig,
    RLConfig,
    SamplingConfig,
)
from prefrl.data.formats import to_pairs, to_prompts
from prefrl.data.splits import split_by_prompt
from prefrl.data.tables import load_table
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.reward_quality import RewardQuality
from prefrl.evaluate.run_folder import RunFolder
from prefrl.evaluate.statistics import WinRate, win_rate
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.model.reward_model import RewardModel
from prefrl.recipes import reward as reward_recipe
from prefrl.recipes.annotator import SimulatedAnnotator
from prefrl.recipes.common import Checked, load_policy, sequence_kls, start
from prefrl.recipes.dpo import optimize_pairs
from prefrl.recipes.rl import EVALUATION_SEED, optimize_policy
from prefrl.rewards.bradley_terry import BradleyTerry
from prefrl.types import Completion, Pair, Prompt, Rollout, Score

SAMPLES = 2  # answers per held-out prompt and policy
INSTRUCTION = "Answer in one short sentence."
REWARD_LAYERS = 10
TOKEN_BUDGET = 1024


@dataclass
class Candidate:
    """A policy on the held-out prompts."""

    name: str
    rollouts: list[Rollout]
    scores: list[Score]
    kls: list[float] = field(default_factory=list)
    wins: WinRate | None = None

    @property
    def reward(self) -> float:
        """Mean score of the reward model."""
        return sum(s.total for s in self.scores) / len(self.scores)

    @property
    def length(self) -> float:
        """Mean tokens of an answer."""
        return sum(sum(r.mask) for r in self.rollouts) / len(self.rollouts)

    @property
    def kl(self) -> float:
        """Mean nats from the starting policy per answer."""
        return sum(self.kls) / len(self.kls) if self.kls else 0.0


@dataclass
class Story:
    """What the quickstart did, for its report."""

    config: QuickstartConfig
    annotator: SimulatedAnnotator
    pairs: list[Pair] = field(default_factory=list)
    quality: RewardQuality | None = None
    candidates: list[Candidate] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """Announce a stage and time it."""
        print(f"\n[{len(self.seconds) + 1}/5] {title}", flush=True)
        began = time.perf_counter()
        yield
        self.seconds[title] = time.perf_counter() - began


def run(config: QuickstartConfig) -> RunFolder:
    """Run the story and leave its folder and report."""
    from prefrl.recipes.quickstart_report import tell

    print(f"Loading {config.model} ...", flush=True)
    with start(config, "quickstart") as folder:
        story = Story(config, SimulatedAnnotator())
        policy = load_policy(model_config(config), config.seed)
        train, held_out = everyday_prompts(config)
        sampling = SamplingConfig(max_new_tokens=config.max_new_tokens, temperature=config.temperature)
        engine = Engine(policy, model_config(config), reference=True)
        with story.stage("Answer everyday prompts and label pairs of answers"):
            story.pairs, base = collect(story, policy, train, held_out, sampling)
        with story.stage("Train a reward model on the pairs"):
            source = BradleyTerry(train_reward_model(folder, story, base))
        reward = Checked(source)
        story.candidates.append(Candidate("start", base, reward.score(base)))
        with story.stage("Optimize the policy against the reward model (GRPO)"):
            rl = rl_config(config, sampling)
            optimize_policy(folder, policy, train, [], source, rl)
            story.candidates.append(judge("GRPO", story, engine, held_out, reward, sampling))
        engine.reset()
        with story.stage("Optimize the policy on the pairs (DPO)"):
            optimize_pairs(folder, policy, story.pairs, [], dpo_config(config))
            story.candidates.append(judge("DPO", story, engine, held_out, reward, sampling))
        with story.stage("Write the report"):
            tell(folder, story)
    return folder


def model_config(config: QuickstartConfig) -> ModelConfig:
    """The policy: only the top layers are trained, so that backpropagation stops early."""
    return ModelConfig(name=config.model, top_layers=config.top_layers, token_budget=TOKEN_BUDGET)


def rl_config(config: QuickstartConfig, sampling: SamplingConfig) -> RLConfig:
    """Online: GRPO against the reward model, with a KL leash."""
    return RLConfig(
        seed=config.seed,
        policy=replace(model_config(config), lr=3e-5, warmup=2),
        algorithm={"name": "grpo", "kl": {"coef": 0.02}},
        sampling=sampling,
        steps=config.steps,
        prompts_per_step=8,
    )


def dpo_config(config: QuickstartConfig) -> DPOConfig:
    """Offline: DPO on the labelled pairs."""
    policy = replace(model_config(config), lr=2e-5, schedule="linear", warmup=4)
    return DPOConfig(seed=config.seed, policy=policy, epochs=1, batch_size=16)


def reward_config(config: QuickstartConfig) -> RewardConfig:
    """A small reward model: the first layers of the base, all trained."""
    model = RewardModelConfig(name=config.model, layers=REWARD_LAYERS, lr=5e-5, schedule="linear", warmup=8)
    return RewardConfig(seed=config.seed, model=model, epochs=3, batch_size=16)


def everyday_prompts(config: QuickstartConfig) -> tuple[list[Prompt], list[Prompt]]:
    """Training and held-out prompts that ship with the project, each with the same short instruction."""
    table = load_table(str(files("prefrl.recipes") / "assets" / "everyday_prompts.jsonl"))
    prompts = [
        replace(p, messages=({"role": "system", "content": INSTRUCTION}, *(p.messages or ())))
        for p in to_prompts(table).items
    ]
    rng = random.Random(config.seed)
    train = [p for p in prompts if p.columns["split"] == "train"]
    held_out = [p for p in prompts if p.columns["split"] == "held_out"]
    return rng.sample(train, min(config.prompts, len(train))), held_out[: config.eval_prompts]


def label(rollouts: Sequence[Rollout], annotator: SimulatedAnnotator, seed: int) -> list[Pair]:
    """Neighbouring answers of every prompt as pairs, labelled by the annotator; ties are left out."""
    rng = random.Random(seed)
    pairs = [annotator.label(a.prompt, a, b, rng) for a, b in zip(rollouts[::2], rollouts[1::2], strict=True)]
    return [pair for pair in pairs if pair is not None]
