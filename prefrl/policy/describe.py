"""Algorithms in a few words, for tables."""

from __future__ import annotations

from collections.abc import Mapping

from prefrl.policy.parts import Algorithm, ClipSpec


def credit_of(algorithm: Algorithm) -> Mapping[str, str]:
    """What a reward is compared with, by what critic, over how many completions of a prompt."""
    credit = algorithm.credit
    baseline: str = credit.baseline
    scale: str = credit.scale
    if algorithm.pairs is not None:
        baseline, scale = "best - worst", "none"
    if algorithm.select is not None:
        baseline, scale = f"accepted ({algorithm.select.keep})", "none"
    critic = f"{algorithm.critic.kind}, GAE {credit.lam:g}" if "values" in algorithm.needs else "none"
    return {"baseline": baseline, "scale": scale, "critic": critic, "group": str(algorithm.group_size)}


def loss_of(algorithm: Algorithm) -> Mapping[str, str]:
    """Importance ratio, its bound, and what a token counts."""
    if algorithm.pairs is not None:
        pairs = algorithm.pairs
        return {"ratio": "none", "clip": f"{pairs.loss}, beta {pairs.beta:g}", "reduction": "pair_mean"}
    return {"ratio": algorithm.ratio, "clip": _clip(algorithm.clip), "reduction": algorithm.reduction}


def rest_of(algorithm: Algorithm) -> Mapping[str, str]:
    """KL to the start, what else there is, and where it is from."""
    kl = algorithm.kl
    held = f"{kl.coef:g} {kl.estimator}, {kl.place}" if kl.coef else "none"
    held += f", to {kl.target:g}" if kl.target else ""
    if algorithm.pairs is not None:
        held = "in the pair loss"
    return {"KL to the start": held, "besides": _besides(algorithm), "paper": algorithm.paper}


def _clip(clip: ClipSpec) -> str:
    if clip.kind == "none":
        return "none"
    if clip.space == "sqrt_log":
        return f"{clip.kind} exp(-{clip.low:g}/+{clip.high:g} \N{SQUARE ROOT}t)"
    return f"{clip.kind} -{clip.low:g}/+{clip.high:g}"


def _besides(algorithm: Algorithm) -> str:
    distill, overlong = algorithm.distill, algorithm.overlong.rule
    found = {
        "by turn": algorithm.credit.level == "turn",
        f"gamma {algorithm.credit.gamma:g}": algorithm.credit.gamma != 1.0,
        "dual clip": bool(algorithm.clip.dual),
        f"weights up to {algorithm.truncate:g}": bool(algorithm.truncate),
        "entropy": bool(algorithm.entropy),
        "echo": bool(algorithm.echo),
        f"overlong {overlong}": overlong != "keep",
        f"resample {algorithm.resample}": bool(algorithm.resample),
        "teacher": bool(distill.coef) and not distill.privileged,
        "by sampled tokens": bool(distill.coef) and distill.form == "sampled",
        "teacher, sees solution": bool(distill.coef) and distill.privileged,
    }
    return ", ".join(name for name, there in found.items() if there)
