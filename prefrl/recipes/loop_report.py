"""What a loop tells: a table of its rounds, curves over them, answers side by side, and what looks wrong."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefrl.evaluate import figures
from prefrl.evaluate.alarms import find_alarms
from prefrl.evaluate.blocks import Block, Details, Figure, Headline, Report, Section, Table, Text, Warnings
from prefrl.evaluate.frontier_figures import proxy_and_gold
from prefrl.evaluate.frontier_metrics import rounds_frontier
from prefrl.evaluate.patrol_section import patrol_sections
from prefrl.evaluate.report import curve_sections, sample_sections, setup_sections, write_report
from prefrl.evaluate.run_folder import RunData, RunFolder, read
from prefrl.recipes.loop_journal import Journal

Round = dict[str, Any]
LITTLE_DATA = 30  # held-out pairs below which an accuracy says next to nothing


def write(folder: RunFolder, journal: Journal, about: str) -> Path:
    """Write the report of a loop, finished or waiting."""
    return write_report(folder, report(read(folder.path), rounds(journal), about))


def rounds(journal: Journal) -> list[Round]:
    """The figures of every round so far; those of a round that is under way are not complete."""
    found = []
    for number in range(1, int(journal.config["rounds"]) + 1):
        phases = [f"{number}/{name}" for name in ("select", "label", "fit", "answer", "evaluate")]
        done = [journal.figures(name) for name in phases if journal.done(name)]
        if done:
            found.append({"round": number} | {key: value for part in done for key, value in part.items()})
    return found


def report(data: RunData, found: list[Round], about: str) -> Report:
    """Headline, warnings, the rounds, answers, curves of every round, setup."""
    measured = [one for one in found if "win_rate" in one]
    blocks: list[Block] = [_headline(found, measured), Warnings(_warnings(data, found, measured))]
    blocks.append(Section("Rounds", [_table(found), *_curves(found, measured), Text(about)]))
    blocks += [_explained(block) for block in sample_sections(data, title="Answers side by side")]
    for one in found:
        number = one["round"]
        inner = [
            *patrol_sections(data, phase=f"policy_{number}", eval_phase=""),
            *curve_sections(data, title="Policy", phase=f"policy_{number}"),
            *curve_sections(data, title="Reward model", phase=f"reward_{number}", eval_phase=f"reward_{number}_eval"),
        ]
        if inner:
            blocks.append(Details(f"Round {number}, step by step", inner))
    return Report(title=_title(data, measured), lead=_lead(data), blocks=[*blocks, *setup_sections(data)])


def _explained(block: Block) -> Block:
    """The section of samples, with what its rewards are."""
    assert isinstance(block, Section)
    rewards = "Rewards are those of each round's own reward model, less what it gives the start's answer."
    return replace(block, lead=f"{block.lead} {rewards}".strip())


def _title(data: RunData, measured: list[Round]) -> str:
    if not measured:
        return "A loop in its first rounds"
    last = measured[-1]
    rounds = "1 round" if last["round"] == 1 else f"{last['round']} rounds"
    return f"After {rounds} the policy wins {last['win_rate']:.0%} against the model it started from"


def _lead(data: RunData) -> str:
    waiting = str(data.status.get("why", "")).partition("\n")[0]
    return waiting if data.state == "waiting" else "Nothing below was measured on a prompt that any training step saw."


def _headline(found: list[Round], measured: list[Round]) -> Headline:
    shown: list[tuple[str, str, str]] = []
    if measured:
        last = measured[-1]
        shown.append(("beats the start", f"{last['win_rate']:.0%}", f"of held-out answers {_interval(last, 'win')}"))
        shown.append(("distance", f"{last['kl']:.1f} nats", "KL from the start, an answer"))
    if ranked := [one for one in found if one.get("accuracy") is not None]:
        last = ranked[-1]
        note = f"of {last['pairs']} held-out pairs ranked right {_interval(last, 'accuracy')}"
        shown.append(("reward model", f"{last['accuracy']:.0%}", note))
    labels = next((one["labels"] for one in reversed(found) if "labels" in one), 0)
    return Headline([*shown, ("labels", str(labels), f"in {len(found)} rounds" if len(found) != 1 else "in 1 round")])


def _table(found: list[Round]) -> Table:
    columns = (
        *("round", "labels so far", "ties", "both bad", "skipped", "reward model right", "ECE"),
        *("wins against the start", "KL (nats)", "reward gained", "tokens", "finished"),
    )
    rows = [
        (
            one["round"],
            one.get("labels", "-"),
            one["ties"] if "held_out" in one and "ties" in one else "-",
            one.get("both_bad", "-"),
            one.get("skips", "-"),
            f"{one['accuracy']:.1%} {_interval(one, 'accuracy')}" if one.get("accuracy") is not None else "-",
            one["ece"] if one.get("ece") is not None else "-",
            f"{one['win_rate']:.1%} {_interval(one, 'win')}" if "win_rate" in one else "-",
            one.get("kl", "-"),
            one.get("reward_gain", "-"),
            one.get("tokens", "-"),
            f"{one['finished']:.0%}" if "finished" in one else "-",
        )
        for one in found
    ]
    caption = (
        "95 % intervals over prompts. Reward gained is what each round's own reward model gives its answers over the "
        "start's; two rounds' models have no common scale."
    )
    return Table(columns, rows, caption)


def _curves(found: list[Round], measured: list[Round]) -> list[Block]:
    blocks: list[Block] = []
    if measured:
        steps = [one["round"] for one in measured]
        win = figures.curves(
            {"win rate": ([0, *steps], [0.5, *(one["win_rate"] for one in measured)])},
            bands={"win rate": ([0.5, *(o["win_low"] for o in measured)], [0.5, *(o["win_high"] for o in measured)])},
            percent=True,
            xlabel="round",
        )
        blocks.append(Figure(win, "Wins against the start", "On held-out prompts, with its 95 % interval."))
        drawn = proxy_and_gold(rounds_frontier(measured), ylabel="log-odds against the start")
        blocks.append(Figure(drawn, "Reward and wins against distance", _DISTANCE))
    ranked = [one for one in found if one.get("accuracy") is not None]
    if ranked:
        steps = [one["round"] for one in ranked]
        lines: dict[str, figures.Curve] = {
            "all held-out pairs": (steps, [one["accuracy"] for one in ranked]),
            "those of the round": (steps, [one["accuracy_now"] for one in ranked]),
        }
        band = ([one["accuracy_low"] for one in ranked], [one["accuracy_high"] for one in ranked])
        drawn = figures.curves(lines, bands={"all held-out pairs": band}, percent=True, xlabel="round")
        blocks.append(Figure(drawn, "Reward model on held-out pairs", "Share ranked right; 50 % is guessing."))
    return blocks


_DISTANCE = (
    "Dashed: what each round's own reward model says was gained. Solid: what the win rate says. Where the dashed line "
    "leaves the solid one behind, the reward is being gamed."
)


def _warnings(data: RunData, found: list[Round], measured: list[Round]) -> list[str]:
    said = find_alarms(data, phase="", eval_phase="")
    trained = [one["round"] for one in found if data.names(f"policy_{one['round']}")]
    for number in trained[-1:]:  # earlier rounds may have had what the last one has got over
        own = find_alarms(data, phase=f"policy_{number}", eval_phase="")
        said += [f"Round {number}: {text}" for text in own if text not in said]
    return [*said, *_reward_warnings(found), *_policy_warnings(measured), *_unjudged(found)]


def _reward_warnings(found: list[Round]) -> list[str]:
    said = []
    for one in found:
        number = one["round"]
        if one.get("accuracy") is not None and one["accuracy_low"] <= 0.5:
            few = f", and {one['pairs']} pairs are few" if one["pairs"] < LITTLE_DATA else ""
            said.append(
                f"Round {number}: the reward model may be guessing: {_interval(one, 'accuracy')} of held-out pairs are "
                f"ranked right{few}. What the policy learns from it may be noise; more labels come before more steps."
            )
        if one.get("labels_now") and one.get("skips", 0) > 0.2 * (one["labels_now"] + one["skips"]):
            said.append(f"Round {number}: {one['skips']} items were skipped; ask those who label why.")
    return said


def _policy_warnings(measured: list[Round]) -> list[str]:
    said = []
    for before, now in itertools.pairwise(measured):
        if now["win_rate"] < before["win_rate"]:
            said.append(
                f"Round {now['round']} wins less often than round {before['round']} ({now['win_rate']:.0%} after "
                f"{before['win_rate']:.0%}) while its reward model calls it {now['reward_gain']:+.2f} better than the "
                "start: if this is not chance, the reward is being gamed. Read the answers; fewer steps or a higher "
                "algorithm.kl.coef hold the policy back."
            )
    return said


def _unjudged(found: list[Round]) -> list[str]:
    return [
        f"Round {one['round']}: {one['unjudged']} comparisons could not be judged"
        + ("." if "win_rate" in one else ", which were all: it has no win rate.")
        for one in found
        if one.get("unjudged")
    ]


def _interval(one: Round, name: str) -> str:
    return f"[{one[f'{name}_low']:.0%}, {one[f'{name}_high']:.0%}]"
