"""The empty Manage, Review and Loop pages, which their tabs fill.

A tab is a module with `def build(studio: Studio) -> None`, which is called inside a `gr.Tab`. Each of its handlers
takes a `gr.Request` and calls `studio.person_of(request)` first.
"""

from __future__ import annotations

import importlib

import gradio as gr

from annotate.manage import parts
from annotate.studio import Studio

__all__ = ["LOOP_TABS", "MANAGE_TABS", "REVIEW_TABS", "Studio", "build"]

PAGES = (("/label", "Label"), ("/manage", "Manage"), ("/loop", "Loop"))
PAGES_OF_REVIEWERS = (("/label", "Label"), ("/review", "Review"))
# What stands on a tab, and the module that builds it.
MANAGE_TABS: tuple[tuple[str, str], ...] = (
    ("Overview", "annotate.manage.overview"),
    ("Items", "annotate.manage.items"),
    ("Import", "annotate.manage.imports"),
    ("Quality", "annotate.manage.quality"),
    ("Adjudicate", "annotate.manage.adjudicate"),
    ("Leaderboard", "annotate.manage.leaderboard"),
    ("Export", "annotate.manage.exports"),
    ("People", "annotate.manage.people"),
    ("Settings", "annotate.manage.settings"),
)
REVIEW_TABS: tuple[tuple[str, str], ...] = (("Adjudicate", "annotate.manage.adjudicate"),)
LOOP_TABS: tuple[tuple[str, str], ...] = (
    ("Rounds", "annotate.loop.rounds_tab"),
    ("Start a loop", "annotate.loop.start_tab"),
    ("Single jobs", "annotate.loop.jobs_tab"),
)


def build(studio: Studio, title: str, tabs: tuple[tuple[str, str], ...], here: str = "") -> gr.Blocks:
    """A page of these tabs below links to the other pages; `here` is its own address."""
    with gr.Blocks(title=title, analytics_enabled=False, fill_width=True) as page:
        pages = PAGES_OF_REVIEWERS if here == "/review" else PAGES
        parts.view(parts.fragment("nav", title=title, pages=pages, here=here))
        with gr.Tabs():
            for name, module in tabs:
                _tab(studio, name, module)
    return page


def _tab(studio: Studio, name: str, module: str) -> None:
    with gr.Tab(name, render_children=True):
        importlib.import_module(module).build(studio)
