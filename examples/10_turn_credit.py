"""Which turn was wrong? A lock of several turns that opens only if every turn was right, and four ways to find out.

Each turn shows a colour and asks for the letter that belongs to it. The policy, a transformer made from nothing, has
imitated play that is right in 55 turns of a hundred, so one episode in 120 succeeds; the reward comes at the end alone.
GRPO gives all turns of an episode the same advantage. PPO asks a critic before every turn what the history is worth:

    separate  a value network that starts as a copy of the policy's body
    yes       a language model that was taught, on outcomes, to answer whether the lock opens
    process   a process reward model that was taught which turns were right, which is more than outcomes say

Episodes that the last two were taught on count as samples. Run it with: python examples/10_turn_credit.py
"""

import argparse
import math
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from prefrl import rewards
from prefrl.config import ModelConfig, SamplingConfig
from prefrl.evaluate import figures
from prefrl.model.critic import Critic, Reading, make_critic
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.model.load import load
from prefrl.model.process_model import new_process_model
from prefrl.model.process_record import StepLayout
from prefrl.model.small import small_model
from prefrl.model.yes_probability import YesModel, query_row
from prefrl.model.yes_record import YesRecord
from prefrl.policy.algorithms import resolve
from prefrl.policy.optimizer import PolicyOptimizer, learn_completions
from prefrl.policy.parts import Algorithm
from prefrl.policy.step_losses import step_objective
from prefrl.policy.values import yes_objective
from prefrl.recipes.common import Checked
from prefrl.rollout.environments import Reply
from prefrl.rollout.turns import MultiTurn
from prefrl.types import Objective, Prompt, Rollout, Row

COLOURS = ("red", "green", "blue", "white", "black", "pink")
LETTERS = ("A", "B", "C", "D", "E", "F")
WORDS = ["<eos>", "Lock", *COLOURS, *LETTERS, "click", "clunk", "opens", "?", "Answer:", "yes", "no"]
TURNS, IMITATED, TARGET, BATCH, TAUGHT = 8, 0.55, 0.8, 32, 128
QUESTION = "opens ?"
TURN = SamplingConfig(max_new_tokens=1)
ALGORITHMS = ("grpo", "separate", "yes", "process")
NAMES = {
    "grpo": "GRPO",
    "separate": "PPO, learnt critic",
    "yes": "PPO, yes-probability",
    "process": "PPO, from a process model",
}
Curve = Mapping[str, list[float]]


def key(turn: int, colour: str, beside: int = 0) -> str:
    """The right letter, which depends on the turn as well; or the one so many places beside it."""
    return LETTERS[(COLOURS.index(colour) + turn + beside) % len(LETTERS)]


class Lock:
    """One episode; the prompt's column `colours` has the colour of every turn."""

    version = "1"

    def reset(self, prompt: Prompt) -> str:
        """Show the first colour."""
        self.colours, self.right = list(prompt.columns["colours"]), []
        return f" {self.colours[0]}"

    def step(self, action: str) -> Reply:
        """A click after a right letter, a clunk after a wrong one, and the next colour."""
        turn = len(self.right)
        self.right.append(action.strip() == key(turn, self.colours[turn]))
        if turn + 1 == len(self.colours):
            return Reply("", True)
        return Reply(f"{'click' if self.right[-1] else 'clunk'} {self.colours[turn + 1]}")

    def report(self) -> Mapping[str, object]:
        """Whether it opened, and which turns were right."""
        return {"success": float(len(self.right) == len(self.colours) and all(self.right)), "right": self.right}


def prompts(count: int, rng: random.Random) -> list[Prompt]:
    """Locks with colours of their own."""
    drawn = [[rng.choice(COLOURS) for _ in range(TURNS)] for _ in range(count)]
    return [Prompt(id="-".join(one), text="Lock", columns={"colours": one}) for one in drawn]


def imitate(policy: LanguageModel, seed: int, steps: int = 300) -> None:
    """Supervised learning on play that is right with probability `IMITATED`, and one letter off otherwise."""
    rng = random.Random(seed)
    engine = Engine(policy, ModelConfig(lr=3e-3, schedule="linear"), total_steps=steps)
    for _ in range(steps):
        learn_completions(engine, [_played(policy, prompt, rng) for prompt in prompts(32, rng)])


def _played(policy: LanguageModel, prompt: Prompt, rng: random.Random) -> Row:
    ids = {word: i for i, word in enumerate(WORDS)}
    colours = list(prompt.columns["colours"])
    right = [key(turn, colour) for turn, colour in enumerate(colours)]
    said = [key(turn, colour, int(rng.random() >= IMITATED)) for turn, colour in enumerate(colours)]
    words, mask = [], []
    for turn, letter in enumerate(said):
        words, mask = [*words, letter], [*mask, True]
        if turn + 1 < len(said):
            words += ["click" if letter == right[turn] else "clunk", colours[turn + 1]]
            mask += [False, False]
    first = (ids["Lock"], ids[colours[0]])
    return Row(prompt_ids=first, completion_ids=tuple(ids[word] for word in words), mask=tuple(mask))


def histories(rollout: Rollout) -> list[int]:
    """Where a critic is asked: before every turn."""
    return [start for start, _ in rollout.turns]


def taught_yes(policy: LanguageModel, episodes: Sequence[Rollout], folder: Path, seed: int) -> str:
    """A copy of the policy that has learnt to answer whether the lock opens, from outcomes; its folder."""
    asked = YesModel(policy, YesRecord(question=QUESTION), full=True)
    rows = [query_row(r.prompt_ids, r.completion_ids, [*histories(r)[1:], len(r.completion_ids)]) for r in episodes]
    targets = [[float(r.info["success"])] * len(row.mask) for r, row in zip(episodes, rows, strict=True)]
    objective = partial(yes_objective, full=True)
    _teach(Engine(asked, ModelConfig(lr=1e-3)), rows, targets, objective, seed=seed, passes=20)
    asked.save(folder)
    return str(folder)


def taught_process(base: Path, episodes: Sequence[Rollout], folder: Path, seed: int) -> str:
    """A process reward model: after each turn and the reply to it, whether all turns so far were right; its folder.

    Outcomes of the same episodes then say what that is worth: most episodes that are still right will not stay so.
    """
    process = new_process_model(str(base), layout=StepLayout(chat=False), seed=seed)
    rows, targets, won = [], [], []
    for episode in episodes:
        n, starts = len(episode.completion_ids), histories(episode)
        ends = [*(start - 1 for start in starts[1:]), n - 1]
        so_far = [all(episode.info["right"][: k + 1]) for k in range(len(ends))]
        labels = [float(so_far[sum(end < i for end in ends)]) for i in range(n)]
        rows.append(Row(prompt_ids=episode.prompt_ids, completion_ids=episode.completion_ids, mask=_at(ends, n)))
        targets.append(labels)
        won.append([float(episode.info["success"])] * n)
    engine, objective = Engine(process, ModelConfig(lr=1e-3)), partial(step_objective, kind="bce")
    _teach(engine, rows, targets, objective, seed=seed, passes=20)
    _teach(engine, rows, won, objective, seed=seed, passes=5)
    process.save(folder)
    return str(folder)


def _at(places: Sequence[int], n: int) -> tuple[bool, ...]:
    return tuple(i in places for i in range(n))


def _teach(
    engine: Engine, rows: Sequence[Row], targets: Sequence[list[float]], objective: Objective, *, seed: int, passes: int
) -> None:
    rng = random.Random(seed)
    for _ in range(passes):
        order = rng.sample(range(len(rows)), len(rows))
        for at in range(0, len(order), BATCH):
            batch = order[at : at + BATCH]
            weight = 1.0 / sum(sum(rows[i].mask) for i in batch)
            learnt = []
            for i in batch:
                target, equal = torch.tensor(targets[i]), torch.full((len(rows[i].mask),), weight)
                streams = {"returns": target, "labels": target, "vf": equal, "ce": equal}
                learnt.append(replace(rows[i], streams=streams))
            engine.step(learnt, objective)


def critic_of(kind: str, policy: LanguageModel, base: str, steps: int, seed: int) -> Critic | None:
    """What judges histories; None for GRPO, which needs nothing of the kind."""
    if kind == "grpo":
        return None
    asks = kind == "yes"
    reading = Reading(question=QUESTION if asks else "")
    name = "yes" if asks else "separate"
    return make_critic(name, policy, lr=1e-3, base=base, total_steps=steps, seed=seed, reading=reading)


def algorithm_of(kind: str) -> Algorithm:
    """GRPO over groups of eight, or PPO by turns: without a KL, and with one update a batch.

    Advantages are not whitened: where nobody succeeds, that would blow a critic's errors up to a deviation of 1.
    """
    if kind == "grpo":
        return resolve({"name": "grpo", "kl": {"coef": 0.0}, "group_size": 8})
    credit, critic = {"level": "turn", "lam": 0.8, "scale": "none"}, {"clip": 0.0}
    return resolve({"name": "ppo", "kl": {"coef": 0.0}, "credit": credit, "critic": critic})


def taught(kind: str, policy: LanguageModel, sampler: MultiTurn, folder: Path, seed: int) -> str:
    """What a critic starts from, taught on `TAUGHT` episodes of the policy's; its folder, or nothing."""
    if kind not in ("yes", "process"):
        return ""
    policy.save(folder / "policy")
    episodes = sampler.sample(prompts(TAUGHT, random.Random(2_000 + seed)), 1, TURN, seed=seed + 77)
    if kind == "process":
        return taught_process(folder / "policy", episodes, folder / "process", seed)
    return taught_yes(load(str(folder / "policy")), episodes, folder / "yes", seed)


def run(kind: str, seed: int, steps: int) -> Curve:
    """Success of every step's samples, samples so far, and figures of the critic."""
    policy = small_model(WORDS, width=48, seed=seed)
    imitate(policy, seed)
    sampler = MultiTurn(policy, Lock, max_turns=TURNS)
    rng = random.Random(1_000 + seed)
    with tempfile.TemporaryDirectory() as scratch:
        base = taught(kind, policy, sampler, Path(scratch), seed)
        critic = critic_of(kind, policy, base, steps, seed)
    spent = TAUGHT if base else 0
    engine = Engine(policy, ModelConfig(lr=1e-3), sampler=sampler, sampling=TURN, budget=TURNS, total_steps=steps)
    algorithm = algorithm_of(kind)
    optimizer = PolicyOptimizer(engine, Checked(rewards.environment("success")), algorithm, critic=critic)
    found: dict[str, list[float]] = {"success": [], "samples": [], "explained": [], "drift": []}
    for step in range(1, steps + 1):
        result = optimizer.step(prompts(BATCH // algorithm.group_size, rng), seed=seed * 1_000_000 + step)
        spent += len(result.rollouts)
        found["success"].append(result.metrics["reward/mean"])
        found["samples"].append(float(spent))
        found["explained"].append(result.metrics.get("critic/explained_variance/plain", 0.0))
        found["drift"].append(result.metrics.get("critic/drift", 0.0))
    return found


def reached(curve: Curve, window: int = 10) -> float:
    """Samples after which the mean success of the last steps first reached the target; infinite if it never did."""
    success, samples = curve["success"], curve["samples"]
    for at in range(window, len(success) + 1):
        if statistics.fmean(success[at - window : at]) >= TARGET:
            return samples[at - 1]
    return math.inf


def draw(curves: Mapping[str, Sequence[Curve]], file: Path, window: int = 10) -> None:
    """Success against samples: the mean over seeds and their range."""

    def paint(axes: Any) -> None:
        for index, (kind, found) in enumerate(curves.items()):
            colour = figures.PALETTE[index]
            smooth = [
                [statistics.fmean(c["success"][max(0, i - window + 1) : i + 1]) for i in range(len(c["success"]))]
                for c in found
            ]
            columns, samples = list(zip(*smooth, strict=True)), found[0]["samples"]
            axes.plot(samples, [statistics.fmean(c) for c in columns], color=colour, label=NAMES[kind])
            axes.fill_between(samples, list(map(min, columns)), list(map(max, columns)), color=colour, alpha=0.15)
        axes.axhline(TARGET, color=figures.GREY, linewidth=1.0, linestyle=(0, (4, 3)))
        figures.legend(axes)

    figures.plot(paint, xlabel="episodes sampled", ylabel="success", percent=True).savefig(file, dpi=150)


def main() -> None:
    """Run all, print a table, and draw the curves where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--only", nargs="*", default=list(ALGORITHMS), choices=ALGORITHMS)
    parser.add_argument("--figure", default="", help="file to draw the curves into")
    options = parser.parse_args()
    torch.set_num_threads(1)
    curves: dict[str, list[Curve]] = {}
    for kind in options.only:
        curves[kind] = [run(kind, seed, options.steps) for seed in range(options.seeds)]
        at = [reached(curve) for curve in curves[kind]]
        mean, spread = statistics.fmean(at), statistics.stdev(at) if len(at) > 1 and max(at) < math.inf else math.nan
        last = statistics.fmean(x for curve in curves[kind] for x in curve["success"][-10:])
        start = statistics.fmean(curve["explained"][0] for curve in curves[kind])
        print(
            f"{NAMES[kind]:32s} samples to {TARGET:.0%}: {at}, mean {mean:.0f} +- {spread:.0f}; success at the end "
            f"{last:.2f}; explained variance at the start {start:.2f}",
            flush=True,
        )
    if options.figure:
        draw(curves, Path(options.figure))


if __name__ == "__main__":
    main()
