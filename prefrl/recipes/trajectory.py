"""Rounds of: sample episodes, cut fragments, have pairs of them labelled, fit a reward, improve the policy.

A round's phases talk to each other through files only, so a run goes on from wherever it was stopped:

    rounds/N/fragments.safetensors  the fragments that are compared, two by two
    rounds/N/asked.json             ids of the comparisons in the store, where people label
    rounds/N/labels.json            the label of each comparison; null where it was skipped
    checkpoints/round_N/            policy, critic and reward after the round
    checkpoints/reward              the last reward, for `{kind: trajectory_reward, path: RUN}`
    loop.json                       which phases are complete (see loop_journal)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from prefrl.config import TrajectoryConfig
from prefrl.evaluate.files import write_atomic
from prefrl.evaluate.run_folder import RunFolder
from prefrl.evaluate.statistics import pearson
from prefrl.recipes.common import final_checkpoint, record_reward
from prefrl.recipes.labelling import seed_of
from prefrl.recipes.loop_journal import Journal
from prefrl.recipes.loop_run import carry_out
from prefrl.recipes.trajectory_labels import Couple, Labels
from prefrl.recipes.trajectory_policy import Actor
from prefrl.recipes.trajectory_report import rounds, write
from prefrl.rewards.inverse.nets import NetSpec, RewardNet
from prefrl.rewards.trajectory.fitting import Fitting, fit
from prefrl.rewards.trajectory.fragments import couples, fragments, true_rewards
from prefrl.rewards.trajectory.preferences import Preference, agreement, discounted
from prefrl.rewards.trajectory.queries import disagreement, query_counts, select
from prefrl.rewards.trajectory.reward import TrajectoryReward
from prefrl.rewards.trajectory.storage import load_fragments, save_fragments


def run(config: TrajectoryConfig) -> RunFolder:
    """Learn a reward from comparisons as configured, or go on with it; everything is left in the run folder.

    A run that waits for people returns: its status is then `waiting`, and the same command goes on with it.

    Raises:
        ConfigError: a combination that cannot work.
        RunError: the folder holds something else, an unfinished run of another configuration, or a damaged one.
    """
    return carry_out(config, Path(config.output or "runs/fragments").expanduser(), "fragments", Rounds, write)


class Rounds:
    """The rounds. Every method with a round's number does one phase, unless the journal says that it is done."""

    def __init__(self, folder: RunFolder, journal: Journal, config: TrajectoryConfig) -> None:
        self.folder, self.journal, self.config = folder, journal, config
        self.actor = Actor(config, folder.checkpoints)
        self.labels = Labels(config, folder.path)
        self.counts = query_counts(
            config.comparisons, config.rounds, first_share=config.first_share, schedule=config.schedule
        )

    def run(self) -> None:
        """All rounds.

        Raises:
            Waiting: people have to label something first.
        """
        shared = ", ".join(map(str, self.counts))
        print(f"{self.config.environment}; comparisons a round: {shared}. {self.labels.about}", flush=True)
        for number in range(1, self.config.rounds + 1):
            self.ask(number)
            self.label(number)
            self.fit(number)
            self.improve(number)
        last = self.reward(self.config.rounds)
        last.save(self.folder.checkpoints / "reward")
        record_reward(last, self.folder.path)
        self.actor.at(self.config.rounds).save(final_checkpoint(self.folder))

    def summary(self) -> dict[str, Any]:
        """The figures of every round, for `status.json`."""
        return {f"round {one['round']}": one for one in rounds(self.journal)}

    def ask(self, number: int) -> None:
        """Sample episodes with the policy as it is, choose pairs of fragments, and put them before people."""
        config, count = self.config, self.counts[number - 1]

        def work(seed: int) -> Mapping[str, Any]:
            episodes = self.actor.sample(number - 1, config.episodes, seed)
            informed = config.select == "disagreement" and number > 1
            wanted = count * (config.candidates if informed else 1)
            found = fragments(episodes, config.length, 2 * wanted, seed)
            pairs = couples(found.fragments, seed)
            figures: dict[str, float] = {"episodes": len(episodes), "too_short": found.short}
            figures |= {"candidates": len(pairs), "asked": count}
            if informed:
                pairs, measured = self._disputed(number, pairs, count, seed)
                figures |= measured
            path = self._path(number, "fragments.safetensors")
            path.parent.mkdir(parents=True, exist_ok=True)
            save_fragments(path, [side for pair in pairs for side in pair])
            asked = self.labels.ask(pairs, number)
            write_atomic(self._path(number, "asked.json"), json.dumps(asked) + "\n")
            lengths = {len(one.completion_ids) for one in episodes}
            if len(lengths) > 1 and config.fit.scale == "standardise":
                print(
                    f"Round {number}: episodes end after {min(lengths)} to {max(lengths)} steps. Comparisons of "
                    "fragments of one length do not say what a further step is worth: set horizon, or fit.scale: scale."
                )
            return figures | {"shortest": min(lengths), "longest": max(lengths)}

        files = [self._path(number, name) for name in ("fragments.safetensors", "asked.json")]
        self.journal.phase(f"{number}/ask", work, files)

    def _disputed(
        self, number: int, pairs: Sequence[Couple], count: int, seed: int
    ) -> tuple[list[Couple], dict[str, float]]:
        how = self.config.fit
        gaps = self.reward(number - 1).gaps(pairs, how.discount)
        unsure = disagreement(gaps, noise=how.noise)
        chosen = select(unsure, count, random_share=self.config.random_share, seed=seed)
        found = {"disagreement/candidates": float(unsure.mean()), "disagreement/asked": float(unsure[chosen].mean())}
        return [pairs[i] for i in chosen], found

    def label(self, number: int) -> None:
        """Have the comparisons of a round labelled.

        Raises:
            Waiting: people have not labelled all of them yet.
        """
        if self.journal.done(f"{number}/label"):
            return
        asked = json.loads(self._path(number, "asked.json").read_text(encoding="utf-8"))
        pairs = self._pairs(number)
        seed = seed_of(self.config.seed, f"{number}/labels")
        said = self.labels.collect(pairs, asked, number, seed)

        def work(_: int) -> Mapping[str, Any]:
            write_atomic(self._path(number, "labels.json"), json.dumps(said) + "\n")
            given = [label for label in said if label is not None]
            figures = {"labels": len(given), "skipped": len(said) - len(given)}
            figures |= {"ties": sum(label == 0.5 for label in given)}
            return figures | _truthfulness(pairs, said, self.config.fit.discount)

        self.journal.phase(f"{number}/label", work, [self._path(number, "labels.json")])

    def fit(self, number: int) -> None:
        """Fit the reward to all labels so far, and measure it on fresh fragments where the environment pays."""
        config = self.config

        def work(seed: int) -> Mapping[str, Any]:
            preferences = [p for n in range(1, number + 1) for p in self._preferences(n)]
            fresh = config.fit.anew or number == 1
            net = self._fresh(preferences, seed) if fresh else self.reward(number - 1).net
            how, epochs = config.fit, config.fit.epochs
            epochs = (how.first_epochs or epochs) if number == 1 else epochs
            fitting = Fitting(
                epochs=epochs,
                batch_size=how.batch_size,
                lr=how.lr,
                weight_decay=how.weight_decay,
                noise=how.noise,
                discount=how.discount,
                bootstrap=config.net.bootstrap,
            )
            figures = fit(net, preferences, fitting, seed)
            reward = TrajectoryReward(net)
            compared = [side for p in preferences for side in (p.first, p.second)]
            reward.normalise(reward.transitions(compared), how.scale)
            reward.save(self._checkpoint(number, "reward"))
            figures = {f"fit/{name}": value for name, value in figures.items()}
            figures |= self._measured(reward, number, seed)
            self.folder.log(number, figures, phase="reward")
            return {"comparisons": len(preferences), **figures}

        self.journal.phase(f"{number}/fit", work, [self._checkpoint(number, "reward")])

    def improve(self, number: int) -> None:
        """Improve the policy on the reward, and measure it on what the environment pays."""

        def work(seed: int) -> Mapping[str, Any]:
            if number == 1:
                self.folder.log(0, self.actor.evaluate(0), phase="eval")
            self.actor.improve(self.folder, number, self.reward(number), seed)
            figures = self.actor.evaluate(number)
            self.folder.log(self.actor.done(number), figures, phase="eval")
            if "return/mean" in figures:
                print(f"Round {number}: true return {figures['return/mean']:.1f}", flush=True)
            return {"steps": self.actor.steps(number), **figures}

        self.journal.phase(f"{number}/improve", work, [self._checkpoint(number, "policy")])

    def reward(self, number: int) -> TrajectoryReward:
        """The reward as a round left it."""
        return TrajectoryReward.load(str(self._checkpoint(number, "reward")))

    def _fresh(self, preferences: Sequence[Preference], seed: int) -> RewardNet:
        seen, net = preferences[0].first.observations, self.config.net
        assert seen is not None, "fragments have observations"
        spec = NetSpec(
            state_size=seen[0].numel(),
            action_size=self.actor.action_size,
            discrete=preferences[0].first.actions is None,
            inputs=net.inputs,
            hidden=net.hidden,
            members=net.members,
            normalise=net.normalise_inputs,
        )
        return RewardNet(spec, seed=seed)

    def _measured(self, reward: TrajectoryReward, number: int, seed: int) -> dict[str, float]:
        """How far a reward agrees with what the environment pays, on fragments that nobody labelled."""
        episodes = self.actor.sample(number - 1, self.config.episodes, seed)
        if any("rewards" not in one.info for one in episodes):
            return {}
        config = self.config
        pairs = couples(fragments(episodes, config.length, 2 * config.eval_pairs, seed + 1).fragments, seed)
        first, second = (true_rewards([pair[side] for pair in pairs]) for side in (0, 1))
        gap = discounted(first, config.fit.discount) - discounted(second, config.fit.discount)
        label = (gap > 0).float().masked_fill(gap == 0, 0.5)
        paid = reward.each(reward.transitions([side for pair in pairs for side in pair])).mean(0)
        true = true_rewards([side for pair in pairs for side in pair]).flatten()
        guessed = reward.gaps(pairs, config.fit.discount).mean(0)
        figures = {"accuracy": float(agreement(guessed, label)), "decided": float((label != 0.5).sum())}
        return figures | {"correlation": pearson(paid.tolist(), true.tolist())}

    def _pairs(self, number: int) -> list[Couple]:
        sides = load_fragments(self._path(number, "fragments.safetensors"))
        return list(zip(sides[::2], sides[1::2], strict=True))

    def _preferences(self, number: int) -> list[Preference]:
        said = json.loads(self._path(number, "labels.json").read_text(encoding="utf-8"))
        pairs = zip(self._pairs(number), said, strict=True)
        return [Preference(*pair, label) for pair, label in pairs if label is not None]

    def _path(self, number: int, name: str) -> Path:
        return self.folder.path / "rounds" / str(number) / name

    def _checkpoint(self, number: int, name: str) -> Path:
        return self.folder.checkpoints / f"round_{number}" / name


def _truthfulness(pairs: Sequence[Couple], said: Sequence[float | None], discount: float) -> dict[str, float]:
    """Share of decided labels that agree with what the environment paid; nothing where it does not say."""
    known = [Preference(*pair, label) for pair, label in zip(pairs, said, strict=True) if label is not None]
    sides = [p.first for p in known] + [p.second for p in known]
    if not known or any("rewards" not in side.info for side in sides):
        return {}
    first, second = discounted(true_rewards(sides), discount).chunk(2)
    share = float(agreement(first - second, torch.tensor([p.label for p in known])))
    return {"truthful": share} if math.isfinite(share) else {}
