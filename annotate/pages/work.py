"""The page on which people label: one element of Gradio's, beside which our own scripts draw everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import gradio as gr

STYLES = ("base", "controls", "text", "item", "kinds", "bar", "dialogs")


def build() -> gr.Blocks:
    """The label page, for all kinds of items.

    Buttons of Gradio's take several hundred milliseconds a press and drop presses that come quickly, so none is used:
    the scripts in assets/ speak with the routes under /api/. There is no state of Gradio's either, of which every tab
    would keep a connection open.
    """
    import gradio as gr

    links = "".join(f'<link rel="stylesheet" href="/assets/{name}.css">' for name in STYLES)
    with gr.Blocks(title="Label", analytics_enabled=False) as page:
        gr.HTML(head=links, js_on_load='import("/assets/work.js").then((page) => page.start())', padding=False)
    return page
