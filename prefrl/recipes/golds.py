"""The first thing a run asks of its verifiers: do the known right answers pass?"""

from __future__ import annotations

from collections.abc import Sequence

from prefrl.recipes.score import text_rollout
from prefrl.rewards.base import RewardSource, parts_of
from prefrl.rewards.verifiers.common import Verifier
from prefrl.types import Completion, Prompt

SHOWN = 3  # prompts that are named
FULL = 1.0 - 1e-9


def gold_figures(source: RewardSource, prompts: Sequence[Prompt]) -> dict[str, float]:
    """`gold/passed`, the share of the gold answers that every verifier takes, and `gold/tried`, how many there are.

    What does not pass is printed. Empty where no verifier knows a right answer, such as one of form alone.
    """
    passed = tried = 0
    for verifier in parts_of(source):
        if not isinstance(verifier, Verifier) or verifier.gold is None:
            continue
        known = [(prompt, text) for prompt in prompts if (text := verifier.gold(prompt.columns)) is not None]
        verdicts = verifier.verdicts([text_rollout(prompt, Completion(text=text)) for prompt, text in known])
        wrong = [
            f"{prompt.id} ({verdict.evidence or verdict.status})"
            for (prompt, _), verdict in zip(known, verdicts, strict=True)
            if verdict.score is None or verdict.score < FULL
        ]
        if wrong:
            more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
            print(
                f"{len(wrong)} of {len(known)} known right answers do not pass {verifier.name}: "
                f"{'; '.join(wrong[:SHOWN])}{more}. Repair these rows, or the verifier: prefrl verify audit.",
                flush=True,
            )
        tried, passed = tried + len(known), passed + len(known) - len(wrong)
    return {"gold/passed": passed / tried, "gold/tried": float(tried)} if tried else {}
