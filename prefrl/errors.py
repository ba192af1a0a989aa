"""Errors that a person reads.

Every message says what was got, what was expected and what to type instead.
The command line prints a `PrefrlError` as one line and exits with status 2;
anything else is a defect of prefrl and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PrefrlError(Exception):
    """Base of all errors caused by input, configuration or the environment."""


class ConfigError(PrefrlError):
    """A configuration key, value or combination that cannot work."""


class DataError(PrefrlError):
    """A dataset that cannot be read as what it was asked to be."""


class ModelError(PrefrlError):
    """A model, adapter or checkpoint that cannot be loaded or saved."""


class RewardError(PrefrlError):
    """A reward source that failed on too many rollouts, or on all of them."""


class RunError(PrefrlError):
    """A run folder that cannot be used or written."""


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Return `" Did you mean 'x'?"` for the nearest valid name, or an empty string."""
    close = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""
