"""Rounds of: sample, select pairs, have them labelled, train a reward model, optimize the policy, evaluate.

The phases of a round talk to each other through files only, so the loop goes on from wherever it was stopped:

    rounds/N/samples.jsonl      completions of training prompts, with the checkpoints that wrote them
    rounds/N/held_out.jsonl     pairs of completions of held-out prompts
    rounds/N/items.jsonl        the pairs to label, and why; more_1.jsonl, ... further ones where those taught nothing
    rounds/N/judgements.jsonl   all labels so far, of all rounds, as the reward model learns them
    rounds/N/answers.jsonl      the held-out prompts answered by the policy after the round; round 0 is the start
    checkpoints/round_N/        reward and policy
    preferences.db              the store that labels come through (see prefrl.data.preferences)
    loop.json                   which phases are complete (see loop_journal)
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefrl.config import LoopConfig
from prefrl.data.comparisons import Item, Judgement, to_pairs
from prefrl.errors import ConfigError, DataError
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.run_folder import RunFolder
from prefrl.recipes import reward as reward_recipe
from prefrl.recipes.common import final_checkpoint, load_prompts, record_reward, sequence_kls
from prefrl.recipes.dpo import optimize_pairs
from prefrl.recipes.labelling import as_rollout
from prefrl.recipes.loop_evaluate import (
    HELD_OUT,
    answer_figures,
    label_figures,
    reward_figures,
    reward_gains,
    sample_rows,
    win_figures,
    wins_in_words,
)
from prefrl.recipes.loop_files import Rounds, Sample, as_sample, by_id, fingerprint, refuse_changed
from prefrl.recipes.loop_items import by_prompt, compared, couples, neighbours, paired, taken_in_turn
from prefrl.recipes.loop_journal import Journal
from prefrl.recipes.loop_labels import Labels, teaches, training_pairs
from prefrl.recipes.loop_policy import Actor, checkpoint, warm
from prefrl.recipes.loop_report import rounds, write
from prefrl.recipes.loop_run import carry_out
from prefrl.recipes.loop_select import (
    Candidates,
    Question,
    candidates,
    model_uncertainty,
    question,
    select,
    selection_figures,
)
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
    return carry_out(config, Path(config.output or "runs/loop").expanduser(), "loop", Loop, write)


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
        self._check_beginning()
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
        if self.config.learn == "reward":
            record_reward(self._reward(self.config.rounds), final_checkpoint(self.folder))

    def summary(self) -> dict[str, Any]:
        """The figures of every round, for `status.json`."""
        return {f"round {one['round']}": one for one in rounds(self.journal)}

    def sample(self, number: int) -> None:
        """Complete training prompts, and held-out ones in pairs, with the policy as it is."""
        config = self.config

        def work(seed: int) -> Mapping[str, Any]:
            prompts = taken_in_turn(self.train, config.prompts_per_round, number, config.seed)
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
            asked = {question(item) for n in range(1, number) for item in self._items(n)}
            found, chosen = self._chosen(number, asked, seed)
            if not chosen:
                raise DataError(
                    f"Round {number} has no pair to label: {found.identical} pairs of completions are identical, "
                    f"{found.asked} were asked before. Raise samples, sampling.temperature or prompts_per_round."
                )
            if len(chosen) < config.pairs_per_round:
                print(f"Round {number}: {len(chosen)} pairs to label; {config.pairs_per_round} were asked for.")
            groups = by_prompt(self.rounds.samples(number, "held_out"))
            drawn = (paired(neighbours(group), self.prompts, config.labeller.overlap) for group in groups)
            held_out = [replace(item, why=HELD_OUT) for item in candidates(drawn, asked).items]
            mixed = random.Random(seed).sample([*chosen, *held_out], len(chosen) + len(held_out))
            self.rounds.write(number, "items", [item.to_dict() for item in mixed])
            return selection_figures(found, mixed)

        self.journal.phase(f"{number}/select", work, self._paths(number, "items"))

    def label(self, number: int) -> None:
        """Have the pairs labelled, and keep all labels so far as this round learns them.

        Where all were skipped or called even, so that there is nothing to learn, further pairs are asked for.

        Raises:
            Waiting: people have not labelled all of them yet.
            DataError: there is nothing to learn, and there are no further pairs.
        """
        if self.journal.done(f"{number}/label"):
            return
        while not teaches(judgements := self._collected(number), self.config, number):
            self._ask_for_more(number)

        def work(seed: int) -> Mapping[str, Any]:
            self.rounds.write_judgements(number, judgements)
            return label_figures(judgements, number)

        self.journal.phase(f"{number}/label", work, self._paths(number, "judgements"))

    def _collected(self, number: int) -> list[Judgement]:
        known = {item.id: item for n in range(1, number + 1) for item in self._items(n)}
        return self.labels.collect(self._items(number), known, f"Round {number}")

    def _ask_for_more(self, number: int) -> None:
        """Choose further pairs of a round, as those it had taught nothing."""
        had = self._items(number)
        name = f"more_{len(self._further(number)) + 1}"

        def work(seed: int) -> Mapping[str, Any]:
            asked = {question(item) for n in range(1, number + 1) for item in self._items(n)}
            found, chosen = self._chosen(number, asked, seed)
            if not chosen:
                raise DataError(
                    f"Round {number} has nothing to learn from: all {len(had)} pairs of answers were skipped or called "
                    "even, and there are no others. Change some of their labels, then type the same again; or start "
                    "anew with --overwrite, and with more samples or another sampling.temperature."
                )
            print(f"Round {number}: nothing can be learnt from its {len(had)} pairs; {len(chosen)} more are asked for.")
            self.rounds.write(number, name, [item.to_dict() for item in chosen])
            return selection_figures(found, chosen)

        self.journal.phase(f"{number}/{name}", work, self._paths(number, name))

    def fit(self, number: int) -> None:
        """Train the reward model on all labels so far, and measure it on held-out ones."""

        def work(seed: int) -> Mapping[str, Any]:
            self._tag(number, policy=number - 1, reward=number)
            judgements = self.rounds.judgements(number)
            held_out = [j for j in judgements if j.item.why == HELD_OUT]
            config = replace(self.config.reward, seed=seed)
            train, watch = training_pairs(judgements, config, seed)
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
                self.actor.save(number)
                record_reward(source, self._checkpoint("policy", number))
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
        new, start = (self.rounds.samples(n, "answers") for n in (number, 0))
        return compared(new, start, self.prompts, number, self.config.labeller.overlap)

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

    def _items(self, number: int) -> list[Item]:
        """All pairs that were to be labelled in a round."""
        return [item for name in ("items", *self._further(number)) for item in self.rounds.items(number, name)]

    def _further(self, number: int) -> list[str]:
        """Names of the files of pairs that were asked for later in a round."""
        names = (f"more_{n}" for n in itertools.count(1))
        return list(itertools.takewhile(lambda name: self.journal.done(f"{number}/{name}"), names))

    def _chosen(self, number: int, asked: Collection[Question], seed: int) -> tuple[Candidates, list[Item]]:
        """What could be asked of the samples of a round, and what is."""
        config = self.config
        groups = by_prompt(self.rounds.samples(number, "samples"))
        found = candidates((paired(couples(g), self.prompts, config.labeller.overlap) for g in groups), asked)
        chosen = select(
            self._with_uncertainty(found.items, number),
            config.pairs_per_round,
            random_share=config.random_share,
            max_per_prompt=config.max_per_prompt,
            diversity=config.diversity,
            seed=seed,
        )
        return found, chosen

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

    def _check_beginning(self) -> None:
        """Refuse to go on with other prompts, or another judge or taste, than the loop began with."""
        now = {"prompts": fingerprint(self.train, self.held_out), **self.labels.fingerprints()}
        began = self.journal.phase("prompts", lambda _: now)
        refuse_changed(began, now, f"the loop in {self.folder.path}")
