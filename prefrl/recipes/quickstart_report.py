"""What the quickstart tells at its end: a report to look at and five lines to read."""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence
from typing import Any

from prefrl.evaluate import figures
from prefrl.evaluate.blocks import (
    Answer,
    Block,
    Figure,
    Headline,
    Report,
    Sample,
    SamplesSideBySide,
    Section,
    Table,
    Text,
    show_seconds,
)
from prefrl.evaluate.report import curve_sections, quality_section, setup_sections, write_report
from prefrl.evaluate.run_folder import RunFolder, read
from prefrl.evaluate.statistics import WinRate
from prefrl.recipes.quickstart import Candidate, Story

SHOWN = 8  # held-out prompts whose answers are shown
NO_JUDGE = (
    "Your own pairs bring no independent judge, so the reward model that was trained on them decides. It is the very "
    "reward that GRPO maximised: read its win rate as a proxy."
)


def tell(folder: RunFolder, story: Story) -> None:
    """Record the figures, write the report and print what happened."""
    start, *optimized = story.candidates
    for candidate in story.candidates:
        folder.samples(0, sample_rows(candidate))
    folder.finish(summary(story))
    page = write_report(folder, report(folder, story))
    best = max(optimized, key=lambda c: _wins(c).rate)
    print(
        f"\n1. {len(story.pairs)} labelled pairs of answers, {judge(story)} as the judge.\n"
        f"2. Reward model on held-out pairs: {reward_line(story)}.\n"
        + "\n".join(
            f"{i}. {c.name}: preferred to the start in {_wins(c)}; KL {c.kl:.1f} nats, "
            f"{start.length:.0f} -> {c.length:.0f} tokens, finished {start.finished:.0%} -> {c.finished:.0%}."
            for i, c in enumerate(optimized, start=3)
        )
        + f"\n5. {best.name} did best; {show_seconds(sum(story.seconds.values()))}, {peak_gib():.1f} GiB at the peak.\n"
        f"\nReport: {page}\n\n"
        "Try next:\n"
        "  prefrl quickstart --pairs my_pairs.jsonl --output runs/mine     your own pairs\n"
        "  prefrl rl configs/rl/products.yaml --output runs/products       a verifier as the reward\n"
        f"  prefrl eval --what reward --model {folder.path}/checkpoints/reward --data.train my_pairs.jsonl"
    )


def judge(story: Story) -> str:
    """Who decides which of two answers is better."""
    return "the simulated annotator" if story.annotator is not None else "the reward model itself"


def reward_line(story: Story) -> str:
    """The reward model's accuracy and what it has to beat, in a line."""
    assert story.quality is not None
    quality = story.quality
    others = ", ".join(f"{b.name} {b.accuracy:.0%}" for b in quality.baselines)
    return f"{quality.accuracy.rate:.0%} right ({others})"


def peak_gib() -> float:
    """Peak resident memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)


def summary(story: Story) -> dict[str, Any]:
    """The figures of the run, for `status.json`."""
    assert story.quality is not None
    return {
        "pairs": len(story.pairs),
        "judge": judge(story),
        "reward_model": story.quality.to_dict(),
        "policies": {
            c.name: {
                "proxy_reward": c.reward,
                "tokens": c.length,
                "finished": c.finished,
                **({"win_rate": c.wins.rate, "low": c.wins.low, "high": c.wins.high, "kl": c.kl} if c.wins else {}),
            }
            for c in story.candidates
        },
        "seconds": story.seconds,
        "peak_gib": round(peak_gib(), 2),
    }


def sample_rows(candidate: Candidate) -> list[dict[str, Any]]:
    """A candidate's answers as rows of `samples.jsonl`."""
    return [
        {
            "policy": candidate.name,
            "prompt_id": r.prompt.id,
            "prompt": r.prompt.question,
            "completion": r.text,
            "reward": s.total,
            "kl": candidate.kls[i] if candidate.kls else 0.0,
            "stop": r.stop.value,
            "tokens": sum(r.mask),
        }
        for i, (r, s) in enumerate(zip(candidate.rollouts, candidate.scores, strict=True))
    ]


def report(folder: RunFolder, story: Story) -> Report:
    """Headline, comparison, samples, reward model, curves, then how to run it again."""
    optimized = story.candidates[1:]
    best = max(optimized, key=lambda c: _wins(c).rate)
    assert story.quality is not None
    data = read(folder.path)
    blocks: list[Block] = [
        Headline(
            [
                (
                    f"{c.name} beats the start",
                    f"{_wins(c).rate:.0%}",
                    f"of held-out answers [{_wins(c).low:.0%}, {_wins(c).high:.0%}]",
                )
                for c in optimized
            ]
            + [
                ("reward model", f"{story.quality.accuracy.rate:.0%}", "of held-out pairs ranked right"),
                ("distance", f"{best.kl:.1f} nats", f"KL of {best.name} from the start, an answer"),
                ("time", show_seconds(sum(story.seconds.values())), f"{peak_gib():.1f} GiB of memory at the peak"),
            ]
        ),
        comparison(story),
        Section("Answers side by side", [samples(story)], "The same held-out prompt, answered by each policy."),
        quality_section(story.quality),
        *curve_sections(data, title="GRPO, step by step", phase="grpo"),
        *curve_sections(data, title="DPO, step by step", phase="dpo"),
        *curve_sections(data, title="Reward model, step by step", phase="reward", eval_phase="reward_eval"),
        *setup_sections(data),
    ]
    lead = (
        f"{story.config.model} answered {len({p.prompt.id for p in story.pairs})} everyday prompts; {len(story.pairs)} "
        "pairs of its answers were labelled, a reward model learnt the labels, and the policy was optimized twice "
        "from the same start. Nothing below was measured on a prompt that any training step saw."
    )
    title = f"{best.name} now wins {_wins(best).rate:.0%} against the model it started from"
    return Report(title=title, lead=lead, blocks=blocks)


def comparison(story: Story) -> Section:
    """Win rates, proxy reward, distance and length of every policy."""
    optimized = story.candidates[1:]
    wins = [_wins(c) for c in optimized]
    bounds = [(w.low, w.high) for w in wins]
    chart = figures.bars(
        [c.name for c in optimized], [w.rate for w in wins], bounds, reference=0.5, coloured=len(optimized)
    )
    scores = {c.name: [s.total for s in c.scores] for c in story.candidates}
    base = story.candidates[0].reward
    frontier = figures.kl_reward({c.name: ([0.0, c.kl], [base, c.reward]) for c in optimized})
    rows = [
        (c.name, str(c.wins or "-"), round(c.reward, 3), round(c.kl, 2), round(c.length, 1), f"{c.finished:.0%}")
        for c in story.candidates
    ]
    columns = ("policy", "wins against the start", "proxy reward", "KL (nats)", "tokens", "finished")
    about = story.annotator.description if story.annotator is not None else NO_JUDGE
    return Section(
        "Before and after",
        [
            Table(columns, rows),
            Figure(chart, "Win rate on held-out prompts, 95 % interval; 50 % is no difference"),
            Figure(figures.histogram(scores, xlabel="score"), "Reward-model scores of held-out answers"),
            Figure(frontier, "Reward bought with distance from the start"),
            Text(about),
        ],
    )


def samples(story: Story) -> SamplesSideBySide:
    """One answer per policy to each of the first held-out prompts; the judge's favourite over the start is marked."""
    base = story.candidates[0]
    per_prompt = len(base.rollouts) // len({r.prompt.id for r in base.rollouts})
    places = range(0, min(len(base.rollouts), SHOWN * per_prompt), per_prompt)
    return SamplesSideBySide([Sample(base.rollouts[i].prompt.question, _answers(story, i)) for i in places])


def _answers(story: Story, at: int) -> Sequence[Answer]:
    base = story.candidates[0]
    answers = []
    for c in story.candidates:
        won = c is not base and story.outcome(c.rollouts[at], c.scores[at], base.rollouts[at], base.scores[at]) == 1.0
        answers.append(
            Answer(
                policy=c.name,
                text=c.rollouts[at].text,
                reward=c.scores[at].total,
                length=sum(c.rollouts[at].mask),
                kl=c.kls[at] if c.kls else 0.0,
                badge="beats the start" if won else "",
                won=won,
            )
        )
    return answers


def _wins(candidate: Candidate) -> WinRate:
    assert candidate.wins is not None, "only optimized policies are compared with the start"
    return candidate.wins
