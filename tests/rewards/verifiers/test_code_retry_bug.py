"""The retry bug: behaviour on four inputs, and two verifiers that are wrong about it."""

from __future__ import annotations

from typing import Any

import pytest

from prefrl.rewards.verifiers import retry_bug
from prefrl.rewards.verifiers.code import code

BOX = {"floor": "B"}
CANDIDATES = {
    # candidate: (right, the wording verifier's verdict, the one-case verifier's)
    'def retries(config):\n    value = config.get("retries")\n    return 3 if value is None else value': (1, 1, 1),
    'def retries(config):\n    if config.get("retries") is not None:\n        return config["retries"]\n    return 3': (
        1,
        0,
        1,
    ),
    'def retries(config):\n    try:\n        return config["retries"] + 0\n    except (KeyError, '
    "TypeError):\n        return 3": (
        1,
        0,
        1,
    ),
    retry_bug.BUGGY: (0, 0, 0),
    "def retries(config):\n    return 0": (0, 0, 1),
    "def retries(config):\n    return 0  # value is None": (0, 1, 1),
    'def retries(config):\n    return config.get("retries", 3)': (0, 0, 1),
    "def retries(config):\n    return 3": (0, 0, 0),
    'def retries(config):\n    return config.get("retries") or 0': (0, 0, 1),
}


@pytest.mark.parametrize("candidate", CANDIDATES, ids=range(len(CANDIDATES)))
def test_the_three_verifiers(rollout: Any, candidate: str) -> None:
    answer = rollout(f"```python\n{candidate}\n```", cases=list(retry_bug.CASES))
    sources = retry_bug.four_cases(BOX), retry_bug.wording(), retry_bug.one_case(BOX)
    assert tuple(int(source.score([answer])[0].value) for source in sources) == CANDIDATES[candidate]


def test_the_bug_fails_exactly_where_zero_is_configured(rollout: Any) -> None:
    verdict = code(partial="fraction", sandbox=BOX).verdicts([rollout(retry_bug.BUGGY, cases=list(retry_bug.CASES))])[0]
    assert verdict.score == 0.75 and "retries({'retries': 0}): expected 0, got 3" in verdict.evidence


def test_the_task_is_a_prompt_with_its_cases() -> None:
    prompt = retry_bug.prompt()
    assert retry_bug.BUGGY in prompt.question and len(prompt.columns["cases"]) == 4
    assert [case["expected"] for case in prompt.columns["cases"]] == [3, 3, 0, 2]
