"""What a round of the loop is measured by: the reward model on held-out labels, the policy beside its start."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from prefrl.data.comparisons import WINS, Item, Judgement, Outcome, to_pairs
from prefrl.evaluate.reward_quality import evaluate_pairs
from prefrl.evaluate.shares import Share
from prefrl.evaluate.statistics import win_rate
from prefrl.model.reward_scorer import RewardScorer
from prefrl.types import Completion, Pair

HELD_OUT, COMPARISON = "held out", "comparison"  # what an item is for, besides training
DECIDED: tuple[Outcome, ...] = ("first", "second")  # outcomes that prefer one side
_BADGES: Mapping[str, str] = {
    "first": "beats the start",
    "second": "the start was better",
    "tie": "as good as the start",
    "both_bad": "as bad as the start",
}


@dataclass(frozen=True)
class Verdict:
    """What was said of one item: once a judge, or once for every person who labelled it."""

    item: Item
    outcome: Outcome


def label_figures(judgements: Sequence[Judgement], number: int) -> dict[str, int]:
    """How many labels there are so far, and of what kind those of a round are."""
    now = [j for j in judgements if j.item.round == number]
    outcomes = Counter(j.label.outcome for j in now)
    return {
        "labels": sum(j.label.outcome != "skip" for j in judgements),
        "labels_now": len(now) - outcomes["skip"],
        "held_out": sum(j.item.why == HELD_OUT for j in now),
        "ties": outcomes["tie"],
        "both_bad": outcomes["both_bad"],
        "skips": outcomes["skip"],
        "annotators": len({j.label.annotator for j in judgements}),
    }


def reward_figures(model: RewardScorer, held_out: Sequence[Judgement], number: int) -> dict[str, Any]:
    """Accuracy and calibration on all held-out labels so far, and accuracy on those of this round; {} without any.

    A pair on whose completions the scores are equal counts as wrong. Ties and two bad answers count in neither.
    """
    decided = [j for j in held_out if j.label.outcome in DECIDED]
    if not decided:
        return {}
    pairs = to_pairs(decided)
    chosen, rejected = member_means(model, pairs)
    quality = evaluate_pairs(chosen, rejected, pairs)
    right = [c > r for c, r in zip(chosen, rejected, strict=True)]
    now = [hit for hit, j in zip(right, decided, strict=True) if j.item.round == number]
    share = Share.of(right, [pair.prompt.id for pair in pairs])
    return {
        "accuracy": share.rate,
        "accuracy_low": share.interval[0],
        "accuracy_high": share.interval[1],
        "pairs": share.total,
        "accuracy_now": fmean(map(float, now)) if now else math.nan,
        "nll": quality.nll,
        "ece": quality.ece,
    } | {f"baseline/{baseline.name}": baseline.accuracy for baseline in quality.baselines}


def member_means(model: RewardScorer, pairs: Sequence[Pair]) -> tuple[list[float], list[float]]:
    """Mean scores of both sides of every pair."""
    prompts = [pair.prompt for pair in pairs]
    sides = ([pair.chosen for pair in pairs], [pair.rejected for pair in pairs])
    chosen, rejected = ([judged.mean for judged in model.judge(prompts, side)] for side in sides)
    return chosen, rejected


def verdicts(items: Sequence[Item], judgements: Sequence[Judgement]) -> list[Verdict]:
    """What people said of comparisons; completions of the same text are a tie that nobody is asked about."""
    said: dict[str, list[Outcome]] = {}
    for judgement in judgements:
        said.setdefault(judgement.item.id, []).append(judgement.label.outcome)
    found = []
    for item in items:
        same: list[Outcome] = ["tie"]
        found += [Verdict(item, o) for o in (same if item.first.text == item.second.text else said.get(item.id, []))]
    return found


def win_figures(found: Sequence[Verdict]) -> dict[str, Any]:
    """Win rate of the first completions with its interval over prompts; verdicts that could not be made are counted.

    Two bad answers are a tie. There is no win rate where no verdict could be made.
    """
    made = [v for v in found if v.outcome in WINS]
    if not made:
        return {"unjudged": len(found)}
    wins = win_rate([WINS[v.outcome] for v in made], groups=[v.item.prompt.id for v in made])
    return {
        "win_rate": wins.rate,
        "win_low": wins.low,
        "win_high": wins.high,
        "won": wins.wins,
        "tied": wins.ties,
        "lost": wins.losses,
        "unjudged": len(found) - len(made),
    }


def wins_in_words(figures: Mapping[str, Any]) -> str:
    """What `win_figures` found."""
    if "win_rate" not in figures:
        return f"none of {figures['unjudged']} comparisons with the start could be judged"
    interval = f"[{figures['win_low']:.1%}, {figures['win_high']:.1%}]"
    return f"preferred to the start in {figures['win_rate']:.1%} {interval} of held-out answers"


def reward_gains(model: RewardScorer, items: Sequence[Item]) -> list[float]:
    """How much more this round's reward model gives every new answer than that of the start.

    Scores of different rounds' models have no common scale; the difference within one has.
    """
    prompts = [item.prompt for item in items]
    new, start = (model.judge(prompts, side) for side in ([i.first for i in items], [i.second for i in items]))
    return [one.mean - other.mean for one, other in zip(new, start, strict=True)]


def answer_figures(items: Sequence[Item], gains: Sequence[float], kls: Sequence[float]) -> dict[str, float]:
    """Means over the answers after a round: reward gained, nats from the start, tokens, and how many finished."""
    return {
        "reward_gain": fmean(gains),
        "kl": fmean(kls),
        "tokens": fmean(len(i.first.ids or ()) for i in items),
        "finished": fmean(float(i.first.finished) for i in items),
    }


def sample_rows(
    items: Sequence[Item], found: Sequence[Verdict], gains: Sequence[float], kls: Sequence[float], number: int
) -> list[dict[str, Any]]:
    """The answers after a round as rows of samples.jsonl, with the reward gained; the start's too after the first."""
    said: dict[str, set[Outcome]] = {}
    for one in found:
        said.setdefault(one.item.id, set()).add(one.outcome)
    rows = []
    for item, gain, kl in zip(items, gains, kls, strict=True):
        outcomes = said.get(item.id, set())
        outcome = next(iter(outcomes)) if len(outcomes) == 1 else ""  # none where people disagree
        verdict = {"won": outcome == "first", "badge": _BADGES.get(outcome, ""), "reward": gain, "kl": kl}
        rows.append(_row(item, item.first, f"round {number}") | verdict)
    return [_row(item, item.second, "start") for item in items] + rows if number == 1 else rows


def _row(item: Item, answer: Completion, policy: str) -> dict[str, Any]:
    return {
        "policy": policy,
        "prompt_id": item.prompt.id,
        "prompt": item.prompt.question,
        "completion": answer.text,
        "reward": 0.0,
        "tokens": len(answer.ids or ()),
        "stop": "eos" if answer.finished else "length",
    }
