"""What the tabs of the Loop page share: who may press, and errors as words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from annotate.loop.sources import named
from annotate.studio import Studio
from prefrl.data.importing import uploaded
from prefrl.errors import ConfigError, PrefrlError

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


def allowed(studio: Studio, request: gr.Request, given: Mapping[str, Any], runs: Path) -> dict[str, Any]:
    """The fields of a form, of what who pressed may name; further settings can name code, so they are for admins.

    Args:
        studio: the project.
        request: who pressed.
        given: the fields.
        runs: the folder of the project's runs.

    Raises:
        ConfigError: somebody else gave further settings, or named a file of the server.
    """
    admin = studio.person_of(request).role == "admin"
    if not admin and str(given["more"]).strip():
        raise ConfigError("Further settings are for admins: they can name code to run. Leave them empty, or ask one.")
    return named(given, runs, files=admin)


def sent(file: str | None) -> Path | None:
    """A file that was uploaded; None where none was.

    Raises:
        DataError: it is one of the server's.
    """
    from gradio.utils import get_upload_folder

    return uploaded(file, get_upload_folder()) if file else None
