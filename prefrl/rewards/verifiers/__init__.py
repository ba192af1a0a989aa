"""Programmatic checks of a completion: exact, choice, regex, length band, number, JSON."""

from prefrl.rewards.verifiers.common import Verifier, graded
from prefrl.rewards.verifiers.json_reward import json_object
from prefrl.rewards.verifiers.numeric import numeric
from prefrl.rewards.verifiers.text import choice, exact, length_band, regex

__all__ = ["Verifier", "choice", "exact", "graded", "json_object", "length_band", "numeric", "regex"]
