"""What the fields of the Loop page may name: runs of the project for all, files of the server for admins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefrl.errors import ConfigError

MODELS = ("policy", "reward", "base", "against")
PROMPTS = "prompts"
# An embedded model, a hub id with its split, or a built-in task: what leads to no file, unless one has this very name.
_NO_FILE = re.compile(r"task(:[\w.-]+){1,4}|[\w-][\w.-]*(/[\w-][\w.-]*)?(:[\w.-]+){0,2}")

_RUN = re.compile(r"\w[\w .-]*")


def named(given: Mapping[str, Any], runs: Path, *, files: bool) -> dict[str, Any]:
    """The fields of a form, with the folders of runs that models are named by.

    Args:
        given: the fields.
        runs: the folder of the project's runs.
        files: whether who filled it in may name any file of the server.

    Raises:
        ConfigError: a file elsewhere is named by somebody who may not.
    """
    found = dict(given)
    for field in (*MODELS, PROMPTS):
        value = str(found.get(field) or "").strip()
        if not value:
            continue
        if field in MODELS and _RUN.fullmatch(value) and (runs / value / "run").is_dir():
            found[field] = str((runs / value / "run").absolute())
        elif not (files or _leads_to_no_file(value) or _inside(value, runs)):
            raise ConfigError(
                f"Only admins may name files of the server, and {value!r} may be one. Name a run of this page, or a "
                f"model or data set of the hub{', or upload the file' if field == PROMPTS else ''}."
            )
    return found


def _leads_to_no_file(value: str) -> bool:
    return _NO_FILE.fullmatch(value) is not None and not Path(value).exists()


def _inside(value: str, runs: Path) -> bool:
    try:
        return Path(value).resolve().is_relative_to(runs.resolve())
    except (OSError, ValueError):  # no name of a file at all
        return False
