"""Mathematical answers: extraction, exact comparison, and symbolic comparison in workers that can be killed."""

from prefrl.rewards.verifiers.math.verifier import Case, judge_all, math

__all__ = ["Case", "judge_all", "math"]
