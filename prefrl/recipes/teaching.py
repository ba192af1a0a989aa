"""A teacher as a recipe has it: what computes, what it is shown, and how far the policy is from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from prefrl.model.batching import row_outputs
from prefrl.model.language import LanguageModel
from prefrl.model.teacher import Teacher
from prefrl.policy.optimizer import TeacherPrompt
from prefrl.types import Extra, Rollout, Row

TEACHER_KL: tuple[Extra, ...] = ("teacher_kl",)


@dataclass(frozen=True)
class Teaching:
    """A teacher, and the prompt of a rollout as it sees it where that is another one than the policy's."""

    teacher: Teacher
    prompt: TeacherPrompt | None = None

    def kl(self, policy: LanguageModel, rollouts: Sequence[Rollout], *, temperature: float, token_budget: int) -> float:
        """Mean over sampled tokens of KL(policy || teacher), in nats over the whole vocabulary; NaN without tokens."""
        rows = [
            Row(
                prompt_ids=r.prompt_ids,
                completion_ids=r.completion_ids,
                mask=r.mask,
                teacher_prompt_ids=self.prompt(r) if self.prompt else None,
            )
            for r in rollouts
        ]

        def compute(distinct: Sequence[Row]) -> Tensor:
            return policy.token_statistics(distinct, temperature, TEACHER_KL, self.teacher)["teacher_kl"]

        kls = row_outputs(rows, compute, token_budget, shared=policy.shares_prompts)
        tokens = sum(sum(row.mask) for row in rows)
        return sum(float(kl.sum()) for kl in kls) / tokens if tokens else float("nan")
