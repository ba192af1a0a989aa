"""Algorithms in a few words, for tables."""

from __future__ import annotations

from collections.abc import Mapping

from prefrl.policy.parts import Algorithm, ClipSpec, PairSpec


def credit_of(algorithm: Algorithm) -> Mapping[str, str]:
    """What a reward is compared with, by what critic, over how many completions of a prompt."""
    credit = algorithm.credit
    baseline: str = credit.baseline
    scale: str = credit.scale
    if algorithm.pairs is not None:
        baseline, scale = "best - worst" if algorithm.pairs.paired else "sign of group_mean", "none"
    if algorithm.select is not None:
        baseline, scale = f"accepted ({algorithm.select.keep})", "none"
    critic = f"{algorithm.critic.kind}, GAE {credit.lam:g}" if "values" in algorithm.needs else "none"
    return {"baseline": baseline, "scale": scale, "critic": critic, "group": str(algorithm.group_size)}


def loss_of(algorithm: Algorithm) -> Mapping[str, str]:
    """Importance ratio, its bound, and what a token counts."""
    if algorithm.pairs is not None:
        pairs = algorithm.pairs
        reduction = "pair_mean" if pairs.paired else "sequence_mean"
        return {"ratio": "none", "clip": f"{pairs.loss}, beta {pairs.beta:g}", "reduction": reduction}
    return {"ratio": algorithm.ratio, "clip": _clip(algorithm.clip), "reduction": algorithm.reduction}


def rest_of(algorithm: Algorithm) -> Mapping[str, str]:
    """KL to the start, what else there is, and where it is from."""
    kl = algorithm.kl
    held = f"{kl.coef:g} {kl.estimator}, {kl.place}" if kl.coef else "none"
    held += f", to {kl.target:g}" if kl.target else ""
    if algorithm.pairs is not None:
        held = "in the pair loss" if algorithm.pairs.needs_reference else "none"
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
        **_besides_pairs(algorithm.pairs or PairSpec()),
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


def _besides_pairs(pairs: PairSpec) -> Mapping[str, bool]:
    return {
        pairs.score.replace("_", "-"): not pairs.needs_reference,
        "mean over tokens": pairs.average,
        pairs.divergence: pairs.divergence not in ("reverse_kl", "alpha"),
        f"alpha {pairs.alpha:g}": pairs.divergence == "alpha",
        f"margin {pairs.gamma:g}": pairs.gamma != 0.0,
        f"surplus tokens {pairs.ld_alpha:g}": pairs.ld_alpha != 1.0,
        f"labels {pairs.label_smoothing:g} wrong": pairs.label_smoothing != 0.0,
        f"times {pairs.coef:g}": pairs.coef != 1.0,
        f"SFT {pairs.sft:g}": pairs.sft != 0.0,
    }
