"""A repair task with a trap for verifiers: `config.get("retries") or 3` loses a 0 that was meant.

    {}                 -> 3        {"retries": 0} -> 0
    {"retries": None}  -> 3        {"retries": 2} -> 2

Beside the true verifier there are two that look right and are not, to see whether an audit finds them: one demands a
    wording and rejects sound code, one has a single case and accepts `return 0`.
"""

from __future__ import annotations

from typing import Any

from prefrl.rewards.verifiers.code import Box, code
from prefrl.rewards.verifiers.code_text import extract_code
from prefrl.rewards.verifiers.common import Verifier
from prefrl.rewards.verifiers.verdict import Verdict, graded
from prefrl.types import Prompt, Rollout

BUGGY = 'def retries(config):\n    return config.get("retries") or 3\n'
CASES: tuple[dict[str, Any], ...] = (
    {"function": "retries", "args": [{}], "expected": 3},
    {"function": "retries", "args": [{"retries": None}], "expected": 3},
    {"function": "retries", "args": [{"retries": 0}], "expected": 0},
    {"function": "retries", "args": [{"retries": 2}], "expected": 2},
)
QUESTION = (
    "Repair this function. It must return the configured number of retries, and 3 when none is configured or it "
    f"is None. A configured 0 must stay 0.\n\n```python\n{BUGGY}```\n\n"
    "Answer with the whole function in a Python code block."
)
WORDING = "value is None"


def prompt() -> Prompt:
    """The task, with its four cases in the column `cases`."""
    columns = {"cases": [dict(case) for case in CASES], "entry_point": "retries"}
    return Prompt(id="retry_bug", text=QUESTION, columns=columns)


def four_cases(sandbox: Box = None) -> Verifier:
    """The true verifier: behaviour on all four inputs."""
    return _named("retry_four_cases", code(cases=CASES, sandbox=sandbox))


def one_case(sandbox: Box = None) -> Verifier:
    """A false-positive fixture: it only looks at the input 0, which `return 0` passes."""
    return _named("retry_one_case", code(cases=CASES[2:3], sandbox=sandbox))


def wording() -> Verifier:
    """A false-negative fixture: it demands the text `value is None`, which sound code need not contain."""

    def check(rollout: Rollout) -> Verdict:
        text = extract_code(rollout.text, ["retries"])
        found = text is not None and WORDING in text
        return graded(
            parsed=text is not None, correct=found, evidence=f"{WORDING!r} {'found' if found else 'not found'}"
        )

    return Verifier("retry_wording", check)


def _named(name: str, verifier: Verifier) -> Verifier:
    verifier.name = name
    return verifier
