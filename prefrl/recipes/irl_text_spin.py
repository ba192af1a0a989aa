"""Self-play fine-tuning (SPIN): demonstrations against what the policy itself answered at the start of each round."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from prefrl.config import DPOConfig, IRLConfig
from prefrl.errors import ConfigError
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.run_folder import RunFolder
from prefrl.model.engine import Engine
from prefrl.policy.algorithms import ALGORITHMS, resolve
from prefrl.recipes.common import final_checkpoint, load_policy, quiet
from prefrl.recipes.dpo import optimize_pairs
from prefrl.recipes.irl_files import ROUND, WARM_START, stands
from prefrl.recipes.irl_text_data import TextData, fine_tune, load_demonstrations
from prefrl.recipes.irl_text_report import TextEvaluation, conclude_text
from prefrl.recipes.resuming import Checkpoints, opened
from prefrl.rewards.inverse.spin import SelfPlayReward, self_play
from prefrl.types import Completion

Answers = list[Completion]  # one for every training demonstration, in their order
PAIR_LOSS = "dpo"  # where the configuration names no algorithm with a pair loss


def run(config: IRLConfig) -> RunFolder:
    """Play rounds against oneself as configured; everything is left in the run folder."""
    learning = pair_config(config)
    quiet()
    with opened(config, "irl") as (folder, checkpoints):
        data = load_demonstrations(config)
        print(f"{data.summary()}; spin, algorithm {resolve(learning.algorithm).name}. Loading {config.policy.name} ...")
        policy = load_policy(config.policy, config.seed)
        data = data.fitting(policy, config)
        evaluation = TextEvaluation.of(folder, policy, data, config)
        if config.warm_start and not config.resume:
            fine_tune(folder, policy, data, config, epochs=config.warm_start, phase=WARM_START)
        engine = Engine(policy, config.policy, sampler=policy, sampling=config.sampling, reference=True)
        game = Game(folder, engine, data, evaluation, config, learning)
        game.play(checkpoints)
        engine.save(final_checkpoint(folder))
        conclude_text(folder, evaluation, engine, config)
    return folder


def pair_config(config: IRLConfig) -> DPOConfig:
    """How a round learns from its pairs.

    Raises:
        ConfigError: an algorithm without a pair loss against a reference, or with another beta.
    """
    given = config.algorithm
    named: dict[str, Any] = {"name": given} if isinstance(given, str) else dict(given)
    if resolve(named).pairs is None and set(named) == {"name"} and named["name"] == IRLConfig().algorithm:
        named = {"name": PAIR_LOSS}  # nobody chose one
    said = named.get("pairs", {}).get("beta", config.beta)
    if said != config.beta:
        raise ConfigError(f"algorithm.pairs.beta is {said} and beta {config.beta}; expected the same. Leave one out.")
    named["pairs"] = {**named.get("pairs", {}), "beta": config.beta}
    fits = [
        name for name, a in ALGORITHMS.items() if a.pairs is not None and a.pairs.paired and a.pairs.needs_reference
    ]
    if named["name"] not in fits:
        raise ConfigError(
            f"spin learns from pairs against its opponent, the reference; algorithm {named['name']!r} does not. Use "
            f"{', '.join(fits)}."
        )
    return DPOConfig(
        policy=config.policy,
        data=config.data,
        algorithm=named,
        epochs=config.text.epochs,
        batch_size=config.text.batch_size,
        max_tokens=config.text.max_tokens,
        cache_reference=False,
        seed=config.seed,
    )


@dataclass
class Game:
    """The policy, its opponents' answers that are still learnt from, and what it is measured by."""

    folder: RunFolder
    engine: Engine
    data: TextData
    evaluation: TextEvaluation
    config: IRLConfig
    learning: DPOConfig
    rounds: deque[Answers] = field(init=False)

    def __post_init__(self) -> None:
        self.rounds = deque(maxlen=self.config.discriminator.buffer)

    def play(self, checkpoints: Checkpoints) -> None:
        """The rounds that are left; each opponent is the policy as the round before left it."""
        config, folder = self.config, self.folder
        done = checkpoints.restore(stands=stands, engine=self.engine, game=self)
        reward = SelfPlayReward(self.engine, config.beta)
        if not done:
            self.evaluation.at(0, self.engine, None)  # the reward is 0 everywhere
        with Progress("spin", total=config.steps - done) as progress:
            for number in range(done + 1, config.steps + 1):
                figures = self.round(number)
                folder.log(number, figures)
                last = number == config.steps
                if last or (config.eval_every and number % config.eval_every == 0):
                    self.evaluation.at(number, self.engine, reward)
                checkpoints.after(number, last=last)
                progress.step({**figures, **_shown(self.evaluation.last)})

    def round(self, number: int) -> dict[str, float]:
        """The opponent's answers, and what is learnt against them; figures."""
        prompts = [prompt for prompt, _ in self.data.train]
        drawn = self.engine.sample(prompts, 1, seed=self.config.seed * 1_000_000 + number)
        self.rounds.append([Completion(text=r.text, ids=r.completion_ids, finished=r.terminated) for r in drawn])
        found = [self_play(self.data.train, answers) for answers in self.rounds]
        pairs = [pair for one in found for pair in one.pairs]
        figures = {"pairs": float(len(pairs)), "equal": float(found[-1].equal)}
        if pairs:  # else every answer is a demonstration word for word: there is nothing left to learn
            policy: Any = self.engine.actor
            learning = replace(self.learning, seed=self.config.seed + number)
            # The engine that it makes takes the policy as it is now, the opponent, as reference.
            optimize_pairs(self.folder, policy, pairs, [], learning, phase=f"{ROUND}{number}")
            self.engine.publish()
        return figures

    def state_dict(self) -> dict[str, Any]:
        """The opponents' answers."""
        kept = [[[answer.text, answer.ids or (), answer.finished] for answer in answers] for answers in self.rounds]
        return {"rounds": kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for answers in state["rounds"]:
            self.rounds.append([Completion(text=text, ids=tuple(ids), finished=done) for text, ids, done in answers])


def _shown(last: Mapping[str, float]) -> dict[str, float]:
    names = {"independent/mean": "independent", "nll": "nll", "ranking/auroc": "auroc"}
    return {short: last[name] for name, short in names.items() if name in last}
