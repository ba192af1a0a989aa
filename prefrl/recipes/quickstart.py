"""The whole story in small: pairs -> reward model -> two optimized policies -> evaluation -> report.

A small language model answers everyday questions; a declared simulated annotator (or your own pairs) says which
answers are better; a reward model learns that; the policy is optimized twice from the same start, online against
the reward model and directly on the pairs; everything is compared on prompts that no training step ever saw.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.resources import files

from prefrl.config import (
    DataConfig,
    DPOConfig,
    ModelConfig,
    QuickstartConfig,
    RewardConfig,
    RewardModelConfig,
    RLConfig,
    SamplingConfig,
)
from prefrl.data.formats import to_prompts
from prefrl.data.splits import split_by_prompt
from prefrl.data.tables import load_table
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.reward_quality import RewardQuality
from prefrl.evaluate.run_folder import RunFolder
from prefrl.evaluate.statistics import WinRate, win_rate
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.recipes import reward as reward_recipe
from prefrl.recipes.annotator import SimulatedAnnotator
from prefrl.recipes.common import Checked, load_pairs, load_policy, sequence_kls, start
from prefrl.recipes.dpo import optimize_pairs
from prefrl.recipes.rl import EVALUATION_SEED, optimize_policy
from prefrl.rewards.bradley_terry import BradleyTerry
from prefrl.types import Pair, Prompt, Rollout, Score

INSTRUCTION = "Answer in one short sentence."
HELD_OUT_ANSWERS = 2  # answers per held-out prompt and policy
REWARD_LAYERS = 6  # a reward model of the base's first layers: a fifth of its cost
EARLY_STOPPING_SHARE = 0.1  # share of training prompts whose pairs choose the reward model's best pass
TOKEN_BUDGET = 1024
SAMPLED_AT_A_TIME = 16  # prompts: often enough to see that something is going on


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
    def finished(self) -> float:
        """Share of answers that ended by themselves."""
        return sum(r.terminated for r in self.rollouts) / len(self.rollouts)

    @property
    def kl(self) -> float:
        """Mean nats from the starting policy per answer."""
        return sum(self.kls) / len(self.kls) if self.kls else 0.0


@dataclass
class Story:
    """What the quickstart did, for its report."""

    config: QuickstartConfig
    annotator: SimulatedAnnotator | None
    pairs: list[Pair] = field(default_factory=list)
    quality: RewardQuality | None = None
    candidates: list[Candidate] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """Announce a stage and time it."""
        print(f"\n[{len(self.seconds) + 1}/4] {title}", flush=True)
        began = time.perf_counter()
        yield
        self.seconds[title] = time.perf_counter() - began

    def outcome(self, one: Rollout, its: Score, other: Rollout, others: Score) -> float:
        """Whether `one` beats `other`: by the annotator, or by the reward model where own pairs brought no judge."""
        if self.annotator is not None:
            return self.annotator.prefer(one.prompt, one, other)
        return 0.5 if its.total == others.total else float(its.total > others.total)


@dataclass(frozen=True)
class Data:
    """Pairs for training and for evaluation, and the prompts of both sides."""

    train: list[Pair]
    held_out: list[Pair]
    train_prompts: list[Prompt]
    held_out_prompts: list[Prompt]


def run(config: QuickstartConfig) -> RunFolder:
    """Run the story and leave its folder and report."""
    from prefrl.recipes.quickstart_report import tell

    print(f"Loading {config.model} ...", flush=True)
    with start(config, "quickstart") as folder:
        story = Story(config, None if config.pairs else SimulatedAnnotator())
        policy = load_policy(model_config(config), config.seed)
        engine = Engine(policy, model_config(config), sampling=sampling(config), reference=True)
        with story.stage("Answer everyday prompts and label pairs of answers"):
            data = own_pairs(config) if story.annotator is None else simulated_pairs(story.annotator, policy, config)
            story.pairs = data.train
        with story.stage("Train a reward model on the pairs"):
            source = train_reward_model(folder, story, data)
        reward = Checked(source)
        compare(story, policy, engine, data.held_out_prompts, reward, "start")
        with story.stage("Optimize the policy against the reward model (GRPO)"):
            optimize_policy(folder, policy, data.train_prompts, [], source, rl_config(config), phase="grpo")
            compare(story, policy, engine, data.held_out_prompts, reward, "GRPO")
            engine.save(folder.checkpoints / "grpo")
        engine.reset()
        with story.stage("Optimize the policy directly on the pairs (DPO)"):
            sampled = None if config.pairs else sampling(config)
            optimize_pairs(folder, policy, data.train, [], dpo_config(config), phase="dpo", sampled=sampled)
            compare(story, policy, engine, data.held_out_prompts, reward, "DPO")
            engine.save(folder.checkpoints / "dpo")
        tell(folder, story)
    return folder


def sampling(config: QuickstartConfig) -> SamplingConfig:
    """How every answer is drawn, in training and in evaluation."""
    return SamplingConfig(max_new_tokens=config.max_new_tokens, temperature=config.temperature)


def model_config(config: QuickstartConfig) -> ModelConfig:
    """The policy: only the top layers are trained, so that backpropagation stops early."""
    return ModelConfig(name=config.model, top_layers=config.top_layers, token_budget=TOKEN_BUDGET)


def rl_config(config: QuickstartConfig) -> RLConfig:
    """Online: GRPO against the reward model, on a KL leash."""
    return RLConfig(
        seed=config.seed,
        policy=replace(model_config(config), lr=1e-4, warmup=2),
        algorithm={"name": "grpo", "kl": {"coef": 0.01}},
        sampling=sampling(config),
        steps=config.steps,
        prompts_per_step=8,
    )


def dpo_config(config: QuickstartConfig) -> DPOConfig:
    """Offline: one pass of DPO over the labelled pairs."""
    policy = replace(model_config(config), lr=1e-4, schedule="linear", warmup=4)
    return DPOConfig(seed=config.seed, policy=policy, epochs=1, batch_size=32)


def reward_config(config: QuickstartConfig) -> RewardConfig:
    """A small reward model: the first layers of the base, all trained."""
    model = RewardModelConfig(name=config.model, layers=REWARD_LAYERS, lr=1e-4, schedule="linear", warmup=5)
    return RewardConfig(seed=config.seed, model=model, epochs=2, batch_size=32, calibrate=False)


def own_pairs(config: QuickstartConfig) -> Data:
    """Pairs of the user's own, split by prompt."""
    train, held_out = load_pairs(DataConfig(train=config.pairs), config.seed)
    prompts = [list({p.prompt.id: p.prompt for p in pairs}.values()) for pairs in (train, held_out)]
    print(f"{len(train)} pairs to train on and {len(held_out)} held out, from {config.pairs}")
    return Data(train, held_out, prompts[0][: config.prompts], prompts[1][: config.eval_prompts])


def everyday_prompts(config: QuickstartConfig) -> tuple[list[Prompt], list[Prompt]]:
    """Training and held-out prompts that ship with the project, each with the same short instruction."""
    table = load_table(str(files("prefrl.recipes") / "assets" / "everyday_prompts.jsonl"))
    prompts = [
        replace(p, messages=({"role": "user", "content": f"{p.question} {INSTRUCTION}"},))
        for p in to_prompts(table).items
    ]
    train = [p for p in prompts if p.columns["split"] == "train"]
    held_out = [p for p in prompts if p.columns["split"] == "held_out"]
    random.Random(config.seed).shuffle(train)
    return train[: config.prompts], held_out[: config.eval_prompts]


def simulated_pairs(annotator: SimulatedAnnotator, policy: LanguageModel, config: QuickstartConfig) -> Data:
    """All pairs among a few answers to every everyday prompt, labelled by the declared annotator."""
    train, held_out = everyday_prompts(config)
    print(annotator.description)
    sides = []
    parts = [-(-len(prompts) // SAMPLED_AT_A_TIME) for prompts in (train, held_out)]
    with Progress("answers", total=sum(parts)) as progress:
        for prompts, seed in ((train, config.seed), (held_out, EVALUATION_SEED - 1)):
            rollouts: list[Rollout] = []
            for begin in range(0, len(prompts), SAMPLED_AT_A_TIME):
                part = prompts[begin : begin + SAMPLED_AT_A_TIME]
                rollouts += policy.sample(part, config.answers, sampling(config), seed=seed)
                progress.step(answers=len(rollouts), finished=sum(r.terminated for r in rollouts) / len(rollouts))
            sides.append(rollouts)
    pairs = label(sides[0], annotator, config.seed)
    # The truth is known on the held-out side: its labels carry no noise.
    held_out_pairs = label(sides[1], replace(annotator, noise=0.0), config.seed)
    print(f"{len(pairs)} labelled pairs to train on, {len(held_out_pairs)} held out; ties are left out")
    return Data(pairs, held_out_pairs, train, held_out)


def label(rollouts: Sequence[Rollout], annotator: SimulatedAnnotator, seed: int) -> list[Pair]:
    """All pairs of answers to the same prompt, labelled by the annotator; ties are left out."""
    rng = random.Random(seed)
    groups = itertools.groupby(rollouts, key=lambda r: r.group)
    couples = (couple for _, group in groups for couple in itertools.combinations(list(group), 2))
    labelled = (annotator.label(a.prompt, a, b, rng) for a, b in couples)
    return [pair for pair in labelled if pair is not None]


def train_reward_model(folder: RunFolder, story: Story, data: Data) -> BradleyTerry:
    """Train on most pairs, stop early on the rest, and measure on prompts that neither has seen."""
    config = reward_config(story.config)
    fit_on, watch = split_by_prompt(data.train, EARLY_STOPPING_SHARE, story.config.seed)
    model = reward_recipe.new_model(config.model, story.config.seed)
    reward_recipe.fit(folder, model, fit_on, watch, config, phase="reward")
    story.quality = reward_recipe.pair_quality(model, data.held_out, data.train)
    model.save(folder.checkpoints / "reward")
    return BradleyTerry(model)


def compare(
    story: Story, policy: LanguageModel, engine: Engine, prompts: Sequence[Prompt], reward: Checked, name: str
) -> None:
    """Answer the held-out prompts with the policy as it is now and compare with the start, prompt by prompt."""
    rollouts = policy.sample(prompts, HELD_OUT_ANSWERS, sampling(story.config), seed=EVALUATION_SEED)
    candidate = Candidate(name, rollouts, reward.score(rollouts))
    if story.candidates:
        base = story.candidates[0]
        candidate.kls = sequence_kls(engine, rollouts)
        rows = zip(rollouts, candidate.scores, base.rollouts, base.scores, strict=True)
        candidate.wins = win_rate([story.outcome(*row) for row in rows], groups=[r.prompt.id for r in rollouts])
        print(f"{name}: preferred to the start in {candidate.wins}, KL {candidate.kl:.1f} nats an answer")
    story.candidates.append(candidate)
