"""Rounds of: sample, select pairs, have them labelled, train a reward model, optimize the policy, evaluate.

The phases of a round talk to each other through files only, so the loop goes on from wherever it was stopped:

    rounds/N/samples.jsonl      completions of training prompts, with the checkpoints that wrote them
    rounds/N/held_out.jsonl     pairs of completions of held-out prompts
    rounds/N/items.jsonl        the pairs to label, and why
    rounds/N/judgements.jsonl   all labels so far, of all rounds, as the reward model learns them
    rounds/N/answers.jsonl      the held-out prompts answered by the policy after the round; round 0 is the start
    rounds/N/comparisons.jsonl  those answers beside the start's, for people
    checkpoints/round_N/        reward and policy
    preferences.db              the store that labels come through (see prefrl.data.preferences)
    loop.json                   which phases are complete (see loop_journal)
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefrl.config import LoopConfig
from prefrl.data.comparisons import Item, to_pairs
from prefrl.data.splits import split_by_prompt
from prefrl.errors import ConfigError, DataError, RunError
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.run_folder import RunFolder
from prefrl.recipes import reward as reward_recipe
from prefrl.recipes.common import final_checkpoint, load_prompts, sequence_kls
from prefrl.recipes.dpo import optimize_pairs
from prefrl.recipes.labelling import as_rollout
from prefrl.recipes.loop_evaluate import (
    COMPARISON,
    HELD_OUT,
    answer_figures,
    label_figures,
    reward_figures,
    reward_gains,
    sample_rows,
    win_figures,
    wins_in_words,
)
from prefrl.recipes.loop_files import Rounds, Sample, as_sample, begin, by_id, fingerprint
from prefrl.recipes.loop_journal import END, Journal, alone
from prefrl.recipes.loop_labels import Labels, Waiting
from prefrl.recipes.loop_policy import Actor, checkpoint, warm
from prefrl.recipes.loop_report import rounds, write
from prefrl.recipes.loop_select import candidates, model_uncertainty, question, select, selection_figures
from prefrl.recipes.loop_settings import pair_config, policy_config, refuse_impossible
from prefrl.recipes.rl import EVALUATION_SEED, optimize_policy
from prefrl.rewards.bradley_terry import BradleyTerry
from prefrl.types import Prompt, Rollout

PROMPTS_AT_A_TIME = 16  # sampled together, between two signs of progress


def run(config: LoopConfig) -> RunFolder:
    """Run the loop as configured, or go on with it; everything is left in the run folder.

    A loop that waits for people returns: its status is then `waiting`, and the same command goes on with it.

    Raises:
        ConfigError: a combination that cannot work.
        RunError: the folder holds something else, an unfinished loop of another configuration, or a damaged one.
    """
    refuse_impossible(config)
    output = Path(config.output or "runs/loop").expanduser()
    with alone(output):
        folder, journal = begin(config, output)
        with folder:
            _carry_out(folder, journal, config)
    return folder


def _carry_out(folder: RunFolder, journal: Journal, config: LoopConfig) -> None:
    loop = Loop(folder, journal, config)
    try:
        loop.run()
    except Waiting as waiting:
        folder.wait(str(waiting))
        write(folder, journal, loop.labels.about)
        print(waiting, flush=True)
        return
    folder.finish(loop.summary())
    print(f"Report: {write(folder, journal, loop.labels.about)}")
    journal.phase(END, lambda _: {})


class Loop:
    """The rounds. Every method with a round's number does one phase, unless the journal says that it is done."""

    def __init__(self, folder: RunFolder, journal: Journal, config: LoopConfig) -> None:
        self.folder, self.journal, self.config = folder, journal, config
        self.rounds = Rounds(folder.path)
        print(f"Loading {config.policy.name} ...", flush=True)
        self.actor = Actor(config, folder.checkpoints)
        self.train, self.held_out = load_prompts(config.data, self.actor.policy, config.seed)
        if not self.held_out:
            raise ConfigError("There are no held-out prompts; set data.eval, or data.eval_fraction above 0.")
        self.prompts = by_id((*self.train, *self.held_out))
        self.labels = Labels(config, folder.path)

    def run(self) -> None:
        """All rounds.

        Raises:
            Waiting: people have to label something first.
        """
        print(f"{len(self.train)} training prompts, {len(self.held_out)} held out. {self.labels.about}", flush=True)
        self._check_prompts()
        self.answer(0)
        for number in range(1, self.config.rounds + 1):
            self.sample(number)
            self.select(number)
            self.label(number)
            if self.labels.judge is None and number > 1:
                self.evaluate(number - 1)  # its comparisons were labelled in the same sitting as the pairs
            self.fit(number)
            self.optimize(number)
            self.answer(number)
            if self.labels.judge is not None:
                self.evaluate(number)
        if self.labels.judge is None:
            self.evaluate(self.config.rounds)
        self.actor.at(self.config.rounds).save(final_checkpoint(self.folder))

    def summary(self) -> dict[str, Any]:
        """The figures of every round, for `status.json`."""
        return {f"round {one['round']}": one for one in rounds(self.journal)}

    def sample(self, number: int) -> None:
        """Complete training prompts, and held-out ones in pairs, with the policy as it is."""
        config = self.config

        def work(seed: int) -> Mapping[str, Any]:
            prompts = self._prompts_of(number)
            found = self._drawn(f"round {number}: samples", number, number - 1, prompts, config.samples, seed=seed)
            if config.previous_samples and number > 1:
                title, count = f"round {number}: samples of the round before", config.previous_samples
                found += self._drawn(title, number, number - 2, prompts, count, seed=seed + 1)
            pairs = math.ceil(config.held_out_pairs / len(self.held_out))  # of a prompt
            asked = random.Random(seed).sample(self.held_out, math.ceil(config.held_out_pairs / max(1, pairs)))
            held_out = self._drawn(f"round {number}: held out", number, number - 1, asked, 2 * pairs, seed=seed)
            self.rounds.write(number, "samples", [sample.to_dict() for sample in found])
            self.rounds.write(number, "held_out", [sample.to_dict() for sample in held_out])
            return {"prompts": len(prompts), "samples": len(found), "held_out": len(held_out)}

        self.journal.phase(f"{number}/sample", work, self._paths(number, "samples", "held_out"))

    def select(self, number: int) -> None:
        """Choose the pairs to label: of training prompts as configured, of held-out prompts as they come."""
        config = self.config

        def work(seed: int) -> Mapping[str, Any]:
            asked = {question(item) for n in range(1, number) for item in self.rounds.items(n)}
            groups = _by_prompt(self.rounds.samples(number, "samples"))
            couples = (list(itertools.combinations(group, 2)) for group in groups)
            found = candidates(([self._item(a, b) for a, b in group] for group in couples), asked)
            items = self._with_uncertainty(found.items, number)
            share, most = config.random_share, config.max_per_prompt
            chosen = select(items, config.pairs_per_round, random_share=share, max_per_prompt=most, seed=seed)
            if not chosen:
                raise DataError(
                    f"Round {number} has no pair to label: {found.identical} pairs of completions are identical, "
                    f"{found.asked} were asked before. Raise samples, sampling.temperature or prompts_per_round."
                )
            if len(chosen) < config.pairs_per_round:
                print(f"Round {number}: {len(chosen)} pairs to label; {config.pairs_per_round} were asked for.")
            together = _by_prompt(self.rounds.samples(number, "held_out"))
            drawn = [self._item(*pair) for group in together for pair in zip(group[::2], group[1::2], strict=True)]
            held_out = [replace(item, why=HELD_OUT) for item in candidates([drawn], asked).items]
            mixed = random.Random(seed).sample([*chosen, *held_out], len(chosen) + len(held_out))
            self.rounds.write(number, "items", [item.to_dict() for item in mixed])
            return selection_figures(found, mixed)

        self.journal.phase(f"{number}/select", work, self._paths(number, "items"))

    def label(self, number: int) -> None:
        """Have the pairs labelled, and keep all labels so far as this round learns them.

        Raises:
            Waiting: people have not labelled all of them yet.
        """

        def work(seed: int) -> Mapping[str, Any]:
            now = self.rounds.items(number)
            known = {item.id: item for n in range(1, number + 1) for item in self.rounds.items(n)}
            judgements = self.labels.collect(now, known, f"Round {number}")
            self.rounds.write_judgements(number, judgements)
            return label_figures(judgements, number)

        self.journal.phase(f"{number}/label", work, self._paths(number, "judgements"))

    def fit(self, number: int) -> None:
        """Train the reward model on all labels so far, and measure it on held-out ones."""

        def work(seed: int) -> Mapping[str, Any]:
            self._tag(number, policy=number - 1, reward=number)
            judgements = self.rounds.judgements(number)
            held_out = [j for j in judgements if j.item.why == HELD_OUT]
            config = replace(self.config.reward, seed=seed)
            pairs = to_pairs([j for j in judgements if j.item.why != HELD_OUT], config.labels.strengths)
            train, watch = split_by_prompt(pairs, config.data.eval_fraction, seed)
            model = reward_recipe.new_model(config.model, seed, config.ensemble)
            if self.config.warm_start and number > 1:
                warm(model, self._checkpoint("reward", number - 1))
            labels = reward_recipe.fit(self.folder, model, train, watch, config, phase=f"reward_{number}")
            fitted = reward_recipe.finish(model, watch, config, labels)
            model.save(self._checkpoint("reward", number))
            figures = reward_figures(model, held_out, number)
            if figures:
                print(
                    f"Round {number}: the reward model ranks {figures['accuracy']:.0%} of {figures['pairs']} held-out "
                    "pairs right",
                    flush=True,
                )
            return {"trained_on": len(train), "watched": len(watch), **fitted, **figures}

        self.journal.phase(f"{number}/fit", work, [self._checkpoint("reward", number)])

    def optimize(self, number: int) -> None:
        """Optimize the policy against the reward model, or on the labelled pairs."""
        config = self.config

        def work(seed: int) -> Mapping[str, Any]:
            start = 0 if config.restart else number - 1
            self._tag(number, policy=start, reward=number)
            policy = self.actor.at(start)
            self.actor.leave()
            phase = f"policy_{number}"
            if config.learn == "reward":
                source = self._reward(number)
                optimize_policy(self.folder, policy, self.train, [], source, policy_config(config, seed), phase=phase)
            else:
                judgements = [j for j in self.rounds.judgements(number) if j.item.why != HELD_OUT]
                # Without a restart earlier pairs are those of another policy, and were learnt already.
                now = [j for j in judgements if config.restart or j.item.round == number]
                optimize_pairs(self.folder, policy, to_pairs(now), [], pair_config(config, seed), phase=phase)
            self.actor.save(number)
            return {"start": checkpoint("policy", start)}

        self.journal.phase(f"{number}/optimize", work, [self._checkpoint("policy", number)])

    def answer(self, number: int) -> None:
        """Answer the held-out prompts, with the same random numbers after every round."""

        def work(seed: int) -> Mapping[str, Any]:
            self._tag(number, policy=number)
            prompts, count = self.held_out, self.config.eval_samples
            answers = self._drawn(f"round {number}: answers", number, number, prompts, count, seed=EVALUATION_SEED)
            self.rounds.write(number, "answers", [sample.to_dict() for sample in answers])
            rows = [self._rollout(sample) for sample in answers]
            kls = sequence_kls(self.actor.engine, rows) if number else [0.0] * len(rows)
            if self.labels.judge is None and number:  # people compare in the sitting in which they label the next pairs
                self.labels.ask([item for item in self._asked(number) if item.first.text != item.second.text])
            return {"kls": kls}

        self.journal.phase(f"{number}/answer", work, self._paths(number, "answers"))

    def evaluate(self, number: int) -> None:
        """Compare the answers with those of the start, and write the figures of the round.

        Raises:
            Waiting: people have not compared all of them yet.
        """

        def work(seed: int) -> Mapping[str, Any]:
            self._tag(number, policy=number, reward=number)
            items = self._compared(number)
            found = self.labels.compare(items, self._asked(number), f"The comparison after round {number}")
            gains, kls = (
                reward_gains(self._reward(number).model, items),
                self.journal.figures(f"{number}/answer")["kls"],
            )
            figures = win_figures(found) | answer_figures(items, gains, kls)
            measured = {**self.journal.figures(f"{number}/label"), **self.journal.figures(f"{number}/fit"), **figures}
            self.folder.log(number, {k: v for k, v in measured.items() if v is not None}, phase="round")
            self.folder.samples(number, sample_rows(items, found, gains, kls, number))
            print(f"Round {number}: {wins_in_words(figures)}, KL {figures['kl']:.2f} nats an answer", flush=True)
            return figures

        self.journal.phase(f"{number}/evaluate", work)

    def _compared(self, number: int) -> list[Item]:
        """The answers after a round, each beside the start's to the same prompt."""
        names = checkpoint("policy", number), checkpoint("policy", 0)
        both = zip(self.rounds.samples(number, "answers"), self.rounds.samples(0, "answers"), strict=True)
        return [
            Item(
                prompt=self.prompts[new.prompt_id],
                first=new.completion,
                second=start.completion,
                round=number,
                checkpoints=names,
                why=COMPARISON,
                overlap=self.config.labeller.overlap,
            )
            for new, start in both
        ]

    def _asked(self, number: int) -> list[Item]:
        """The comparisons that people are asked for: of the same prompts in every round."""
        items = self._compared(number)[:: self.config.eval_samples]
        count = min(self.config.comparisons, len(items))
        return [items[i] for i in sorted(random.Random(self.config.seed).sample(range(len(items)), count))]

    def _drawn(
        self, title: str, number: int, policy: int, prompts: Sequence[Prompt], count: int, *, seed: int
    ) -> list[Sample]:
        """`count` completions of every prompt by a checkpoint of the policy."""
        actor, found = self.actor.at(policy), list[Sample]()
        parts = [prompts[at : at + PROMPTS_AT_A_TIME] for at in range(0, len(prompts), PROMPTS_AT_A_TIME)]
        with Progress(title, total=len(parts)) as progress:
            for part in parts:
                drawn = actor.sample(part, count, self.config.sampling, seed=seed, version=policy)
                found += [as_sample(rollout, number, checkpoint("policy", policy)) for rollout in drawn]
                progress.step(completions=len(found))
        return found

    def _prompts_of(self, number: int) -> list[Prompt]:
        """The training prompts of a round: shuffled once, then taken in turn."""
        size = min(self.config.prompts_per_round or len(self.train), len(self.train))
        order = random.Random(self.config.seed).sample(self.train, len(self.train))
        return [order[((number - 1) * size + i) % len(order)] for i in range(size)]

    def _item(self, one: Sample, other: Sample) -> Item:
        return Item(
            prompt=self.prompts[one.prompt_id],
            first=one.completion,
            second=other.completion,
            round=one.round,
            checkpoints=(one.checkpoint, other.checkpoint),
            overlap=self.config.labeller.overlap,
        )

    def _with_uncertainty(self, items: list[Item], number: int) -> list[Item]:
        if self.config.select == "random" or number == 1:
            return items
        values = model_uncertainty(self._reward(number - 1).model, items)
        judge = checkpoint("reward", number - 1)
        return [replace(item, uncertainty=v, judge=judge) for item, v in zip(items, values, strict=True)]

    def _rollout(self, sample: Sample) -> Rollout:
        prompt = self.prompts[sample.prompt_id]
        return as_rollout(prompt, sample.completion, group=prompt.id, prompt_ids=self.actor.policy.encode(prompt))

    def _reward(self, number: int) -> BradleyTerry:
        spec, path = self.config, self._checkpoint("reward", number)
        return BradleyTerry.load(str(path), device=spec.reward.model.device, combine=spec.combine)

    def _checkpoint(self, kind: str, number: int) -> Path:
        return self.folder.checkpoints / checkpoint(kind, number)

    def _paths(self, number: int, *names: str) -> list[Path]:
        return [self.rounds.path(number, name) for name in names]

    def _tag(self, number: int, **checkpoints: int) -> None:
        """What every line of metrics and samples says from now on; a checkpoint by the number of its round."""
        self.folder.tags = {"round": number, **{f"checkpoint/{kind}": n for kind, n in checkpoints.items()}}

    def _check_prompts(self) -> None:
        """Refuse to go on with other prompts than the loop began with."""
        now = fingerprint(self.train, self.held_out)
        began = self.journal.phase("prompts", lambda _: {"prompts": now})["prompts"]
        if began != now:
            raise RunError(
                f"The prompts of {self.config.data.train} are not those that the loop in {self.folder.path} began "
                "with. Restore the data, or start anew with --overwrite."
            )


def _by_prompt(samples: Sequence[Sample]) -> list[list[Sample]]:
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.prompt_id, []).append(sample)
    return list(groups.values())
