"""Manage, Leaderboard: which policy people prefer, with intervals, and what cannot be compared."""

from __future__ import annotations

from itertools import groupby
from typing import Any, cast

import gradio as gr

from annotate.manage import parts
from annotate.studio import Studio
from prefrl.data.comparisons import Item, Judgement
from prefrl.evaluate.adjudication import independent
from prefrl.evaluate.leaderboard import Leaderboard, games_of, leaderboard

_LEAST_SPAN = 150.0  # points around the average policy that are always shown


class Board:
    """The handlers of the tab."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio

    def show(self, request: gr.Request, left_out: list[str] | None, round: str) -> tuple[str, Any, Any]:
        """The board without the votes of some people, of one round or all, and what there is to choose from."""
        self._studio.person_of(request)
        with parts.plainly():
            judgements = self._judgements()
            people = sorted({label.annotator for _, label in judgements})
            rounds = sorted({item.round for item, _ in judgements})
            absent = [name for name in left_out or () if name in people]
            wanted = [
                judgement
                for judgement in judgements
                if judgement.label.annotator not in absent and round in (_ALL, "", None, str(judgement.item.round))
            ]
            drawn = _fragment(leaderboard(games_of(wanted)), absent)
            return drawn, gr.update(choices=people), gr.update(choices=[_ALL, *map(str, rounds)])

    def _judgements(self) -> list[Judgement]:
        """Votes on pairs; a reviewer who decided over others has no second vote."""
        store = self._studio.store
        pairs = {task.id: cast(Item, task) for task in store.tasks(kind="pair")}
        labels = independent(store.labels())
        return [Judgement(pairs[label.item], label) for label in labels if label.item in pairs]


_ALL = "All rounds"


def build(studio: Studio) -> None:
    """Draw the tab."""
    handlers = Board(studio)
    with gr.Row():
        absent = gr.Dropdown([], multiselect=True, label="Leave out the votes of", scale=2)
        round_ = gr.Dropdown([_ALL], value=_ALL, label="Round", scale=1)
        refresh = parts.button("Refresh")
    shown = parts.view()
    inputs, outputs = [absent, round_], [shown, absent, round_]
    parts.on_open(handlers.show, inputs, outputs)
    gr.on([refresh.click, absent.input, round_.input], handlers.show, inputs, outputs, api_visibility="private")


def _fragment(board: Leaderboard, left_out: list[str]) -> str:
    edges = [edge for s in board.standings for edge in (s.elo, *(s.elo_interval or ()))]
    span = max([_LEAST_SPAN, *(abs(edge - 1000) for edge in edges)])
    return parts.fragment(
        "leaderboard",
        board=board,
        groups=[(key, list(some)) for key, some in groupby(board.standings, key=lambda s: s.component)],
        low=1000 - span,
        high=1000 + span,
        left_out=left_out,
    )
