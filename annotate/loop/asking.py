"""What the tabs of the Loop page share: who may press, and errors as words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from annotate.studio import Studio
from prefrl.errors import PrefrlError

if TYPE_CHECKING:
    import gradio as gr


@contextlib.contextmanager
def pressed(studio: Studio, request: gr.Request) -> Iterator[str]:
    """The name of who pressed a button; what cannot be done is said in the page.

    Raises:
        gradio.Error: they may not, or it cannot be done.
    """
    import gradio as gr

    person = studio.person_of(request)
    try:
        yield person.name
    except PrefrlError as error:
        raise gr.Error(str(error), duration=None) from error


def refuse_settings(studio: Studio, request: gr.Request, more: str) -> None:
    """Further settings can name code that the server would run, so they are for those who run the server.

    Raises:
        gradio.Error: somebody else gave some.
    """
    import gradio as gr

    if more.strip() and studio.person_of(request).role != "admin":
        raise gr.Error("Further settings are for admins: they can name code to run. Leave them empty, or ask one.")
