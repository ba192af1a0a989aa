"""Programmatic checks of a completion: its answer, its form, and what other programs say of it."""

from prefrl.rewards.verifiers.adapters import http, shell
from prefrl.rewards.verifiers.common import Verifier
from prefrl.rewards.verifiers.constraints import constraints
from prefrl.rewards.verifiers.json_reward import json_object
from prefrl.rewards.verifiers.numeric import numeric
from prefrl.rewards.verifiers.rubric import rubric
from prefrl.rewards.verifiers.schema import json_schema
from prefrl.rewards.verifiers.structure import think_format, xml_format
from prefrl.rewards.verifiers.style import language, repetition
from prefrl.rewards.verifiers.text import choice, exact, length_band, regex
from prefrl.rewards.verifiers.units import units
from prefrl.rewards.verifiers.verdict import Status, Verdict, graded

__all__ = [
    "Status",
    "Verdict",
    "Verifier",
    "choice",
    "constraints",
    "exact",
    "graded",
    "http",
    "json_object",
    "json_schema",
    "language",
    "length_band",
    "numeric",
    "regex",
    "repetition",
    "rubric",
    "shell",
    "think_format",
    "units",
    "xml_format",
]
