"""The rounds of a loop as HTML. Everything that a person or a model wrote is escaped."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from annotate.jobs import Step
from annotate.loop.charts import curve, histogram, interval_bar
from annotate.loop.rounds import LoopState, Round
from annotate.loop.runs import Run

TITLES = {
    "sample": "Sample",
    "select": "Choose pairs",
    "label": "Label",
    "fit": "Reward model",
    "optimize": "Optimize",
    "answer": "Answer",
    "evaluate": "Compare",
}
STATES = {"running": "running", "waiting": "waiting", "done": "finished", "failed": "failed", "cancelled": "cancelled"}
STYLE = '<link rel="stylesheet" href="/assets/loop.css">'
EMPTY = (
    '<div class="loop-empty"><h1>No loop yet</h1><p>A loop asks a policy for answers, has people compare them, learns '
    "what they like, and makes the policy better at it, round after round. "
    "Begin one under <b>Start a loop</b>.</p></div>"
)


def overview(run: Run, labelled: Mapping[str, bool], step: Step | None) -> str:
    """A loop: where it stands, its curve, and a card for every round.

    Args:
        run: the loop.
        labelled: by the id of an item, whether it has the labels that were asked for.
        step: what it printed last of its progress.
    """
    loop = run.loop
    if loop is None:
        return f'{STYLE}<div class="loop">{_head(run, "", step)}</div>'
    begun = [one for one in loop.rounds if one.figures or one.phase]
    cards = "".join(_card(one, labelled, run.job.state) for one in reversed(begun))
    return f'{STYLE}<div class="loop">{_head(run, _place(loop), step)}{_curves(loop)}{cards}</div>'


def _head(run: Run, place: str, step: Step | None) -> str:
    state = run.job.state
    said = f'<span class="loop-state is-{state}">{STATES[state]}</span><span class="loop-place">{place}</span>'
    if run.report:
        said += f'<a href="/report/{_text(run.name)}" target="_blank">Open the report</a>'
    note = _waiting(run) if state == "waiting" else _working(run, step) if state == "running" else _ended(run)
    return f'<header class="loop-head"><h1>{_text(run.name)}</h1>{said}</header>{note}'


def _place(loop: LoopState) -> str:
    total = len(loop.rounds)
    policy = _text(str(loop.config["policy"]["name"]))
    now = f"round {loop.now.number} of {total}" if loop.now else f"{total} rounds"
    return f"{now} &middot; policy <code>{policy}</code>"


def _waiting(run: Run) -> str:
    assert run.loop is not None
    total = len(run.loop.waiting)
    done = total - run.missing
    if not run.missing:
        words = "<b>All labels are in.</b> The loop goes on in a moment, or with <b>Go on</b>."
        return f'<div class="loop-note is-ready">{words}</div>'
    bar = _bar(done, total, "labelled")
    return (
        f'<div class="loop-note is-waiting"><b>{run.missing} of {total} pairs still need a label.</b> '
        f'<a href="/label" target="_blank">Label them</a>{bar}</div>'
    )


def _working(run: Run, step: Step | None) -> str:
    now = run.loop.now if run.loop else None
    place = f"Round {now.number}: {TITLES[now.phase].lower()}" if now else "Starting"
    if step is None:
        return f'<div class="loop-note is-running"><b>{place}.</b> Loading the models takes a few seconds.</div>'
    bar = _bar(step.done, step.total, step.title)
    words = f"<b>{place}.</b> {_text(step.title)}, {step.done} of {step.total}"
    return f'<div class="loop-note is-running">{words}{bar}</div>'


def _ended(run: Run) -> str:
    if run.job.state == "failed":
        again = " Put that right, then press <b>Go on</b>: what was done is kept."
        return f'<div class="loop-note is-failed"><b>It stopped.</b> {_text(run.job.error)}{again}</div>'
    if run.job.state == "cancelled":
        return '<div class="loop-note">It was cancelled. <b>Go on</b> takes it up where it stopped.</div>'
    return ""


def _curves(loop: LoopState) -> str:
    total = len(loop.rounds)
    drawn = ""
    for title, name, label in (
        ("Wins against the start", "win", "win rate"),
        ("Reward model, held-out pairs ranked right", "accuracy", "accuracy"),
    ):
        points = [point for one in loop.rounds if (point := _share(one.figures, name)) is not None]
        if points:
            drawn += (
                f"<figure><figcaption>{title}, by round</figcaption>{curve(points, total=total, label=label)}</figure>"
            )
    return f'<div class="loop-curves">{drawn}</div>' if drawn else ""


def _card(one: Round, labelled: Mapping[str, bool], state: str) -> str:
    tiles = (_labels(one, labelled), _reward(one.figures), _wins(one.figures), _distance(one.figures))
    return (
        f'<section class="loop-round" aria-label="Round {one.number}"><h2>Round {one.number}</h2>{_steps(one, state)}'
        f'<div class="loop-tiles">{"".join(tiles)}</div>{_uncertainty(one)}{_checkpoints(one)}</section>'
    )


def _steps(one: Round, state: str) -> str:
    words = {"done": "done", "todo": "to do", "now": STATES[state] if state != "done" else "to do"}
    steps = (
        f'<li class="is-{at} at-{state}"><span>{TITLES[name]}</span><small>{words[at]}</small></li>'
        for name, at in one.phases.items()
    )
    return f'<ol class="loop-steps">{"".join(steps)}</ol>'


def _labels(one: Round, labelled: Mapping[str, bool]) -> str:
    total = len(one.asked)
    if not total:
        return _tile("Labels", "&ndash;", "no pairs chosen yet")
    done = total if one.phases["label"] == "done" else sum(labelled.get(item.id, False) for item in one.asked)
    figures = one.figures
    known = [(figures[key], words) for key, words in _LABEL_WORDS if figures.get(key) and "labels_now" in figures]
    extra = [f"{count} {words[count > 1]}" for count, words in known]
    held_out = sum(item.why == "held out" for item in one.asked)
    note = ", ".join([f"{held_out} of them held out", *extra])
    return _tile("Pairs labelled", f"{done}<small> of {total}</small>", note, _bar(done, total, "pairs labelled"))


_LABEL_WORDS = (
    ("ties", ("tie", "ties")),
    ("both_bad", ("both bad", "both bad")),
    ("skips", ("skipped", "skipped")),
)


def _reward(figures: Mapping[str, Any]) -> str:
    share = _share(figures, "accuracy")
    if share is None:
        return _tile("Reward model", "&ndash;", "not measured yet")
    note = f"of {figures['pairs']} held-out pairs ranked right {_interval(share)}"
    return _tile("Reward model", f"{share[0]:.0%}", note, interval_bar(*share, label="Held-out accuracy"))


def _wins(figures: Mapping[str, Any]) -> str:
    share = _share(figures, "win")
    if share is None:
        known = "unjudged" in figures
        return _tile("Wins against the start", "&ndash;", "nothing could be judged" if known else "not compared yet")
    note = f"{figures['won']} won, {figures['tied']} tied, {figures['lost']} lost {_interval(share)}"
    return _tile("Wins against the start", f"{share[0]:.0%}", note, interval_bar(*share, label="Win rate"))


def _distance(figures: Mapping[str, Any]) -> str:
    kl = figures.get("kl")
    if kl is None:
        return _tile("Distance", "&ndash;", "not measured yet")
    return _tile(
        "Distance", f"{kl:.2f}<small> nats</small>", f"KL from the start, an answer; {figures['tokens']:.0f} tokens"
    )


def _uncertainty(one: Round) -> str:
    kinds = {"uncertainty": "chosen for it", "random": "at random"}
    values = {
        words: [item.uncertainty for item in one.asked if item.why == why and item.uncertainty is not None]
        for why, words in kinds.items()
    }
    drawn = histogram(values, most=max((value for found in values.values() for value in found), default=0.0) or 1.0)
    if not drawn:
        why = "This round's pairs are all random: there was no reward model yet to be uncertain." if one.asked else ""
        return f'<p class="loop-aside">{why}</p>' if why else ""
    keys = "".join(f'<span class="key-{n}">{words}</span>' for n, words in enumerate(w for w in values if values[w]))
    return (
        '<figure class="loop-uncertainty"><figcaption>How uncertain the reward model was of the pairs, in nats; '
        "0.69 is the most there can be "
        f"{keys}</figcaption>{drawn}</figure>"
    )


def _checkpoints(one: Round) -> str:
    names = " ".join(f"<code>{_text(name)}</code>" for name in one.checkpoints)
    return f'<p class="loop-checkpoints">Checkpoints {names}</p>' if names else ""


def _tile(title: str, value: str, note: str, drawing: str = "") -> str:
    return (
        f'<div class="loop-tile"><h3>{title}</h3><p class="value">{value}</p>{drawing}<p class="note">{note}</p></div>'
    )


def _bar(done: int, total: int, words: str) -> str:
    share = 100.0 * done / total if total else 0.0
    said = html.escape(f"{words}: {done} of {total}")
    return (
        f'<div class="loop-bar" role="progressbar" aria-valuemin="0" aria-valuemax="{total}" aria-valuenow="{done}" '
        f'aria-label="{said}"><i style="width:{share:.1f}%"></i></div>'
    )


def _share(figures: Mapping[str, Any], name: str) -> tuple[float, float, float] | None:
    """A share with its interval; None where it was not measured."""
    rate = figures.get({"win": "win_rate"}.get(name, name))
    return None if rate is None else (rate, figures[f"{name}_low"], figures[f"{name}_high"])


def _interval(share: Sequence[float]) -> str:
    return f"[{share[1]:.0%}, {share[2]:.0%}]"


def _text(text: str) -> str:
    return html.escape(text)
