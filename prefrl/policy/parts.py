"""The parts that an algorithm is made of, what they need, and which combinations are refused.

Algorithm = credit x ratio x clip x reduction (x KL x entropy x distillation ...), or a selection, or a pair loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from prefrl.errors import ConfigError
from prefrl.policy.advantages import Baseline, Level, Reduction, Scale
from prefrl.policy.losses import Bounds, Clip, Estimator, Ratio
from prefrl.policy.preference import Divergence, ImplicitScore, PairLoss
from prefrl.types import Extra

Need = Literal["groups", "reference", "values", "teacher", "learner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditSpec:
    """What a rollout's rewards are compared with, and what the advantage is divided by.

    gamma  discount a decision; at 0 a decision answers for its own reward only
    lam    lambda of generalized advantage estimation; only with the baseline `critic`
    level  what a decision is: a sampled `token`, or a `turn`
    """

    baseline: Baseline = "group_mean"
    scale: Scale = "none"
    gamma: float = 1.0
    lam: float = 0.95
    level: Level = "token"

    @property
    def compares_rollouts(self) -> bool:
        """Whether rewards are compared with those of other rollouts; otherwise a rollout's own are summed to go."""
        return self.baseline not in ("none", "critic")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipSpec:
    """How the importance ratio is bounded.

    space  `ratio`: to [1 - low, 1 + high]; `sqrt_log`: to [exp(-low sqrt t), exp(high sqrt t)] at sampled token t
    dual   a second bound, for negative advantages, past which they no longer count: a ratio above 1 (or a
           log-ratio per sqrt t); 0 for none
    """

    kind: Clip = "none"
    low: float = 0.2
    high: float = 0.2
    space: Bounds = "ratio"
    dual: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KLSpec:
    """KL to the reference (the live start weights): coefficient, estimator and place.

    target  nats per answer that the coefficient is steered to (arXiv 1909.08593); 0 keeps it fixed
    """

    coef: float = 0.0
    estimator: Estimator = "k3"
    place: Literal["loss", "reward"] = "loss"
    target: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticSpec:
    """The critic of the baseline `critic`.

    kind    `head`: a linear head on the policy's body, which feels nothing of it; `separate`: a value network of its
            own; `lora`: a second adapter and a head on a LoRA policy's frozen base; `yes`: a language model that is
            asked whether the history will succeed
    base    of a separate network for a language model: a hub id or folder, also of a trained reward model or process
            reward model, which it then starts as; of `yes`: what `prefrl yes` trained. Empty copies the policy
    lr      learning rate; 0 takes ten times the policy's for a head, the policy's own otherwise
    clip    how far a value may move from the old one in a step; 0 for no bound
    warmup  first steps, in which only the critic learns
    loss    `mse`, or for values that are probabilities on the scale of returns, `bce`
    low, high  the returns that P = 0 and P = 1 stand for, with `yes` and process reward models
    question   what `yes` is asked; empty takes the usual question
    aggregate  what a process reward model's probabilities so far make: the `last`, their `min`, or `product`
    """

    kind: Literal["head", "separate", "lora", "yes"] = "head"
    base: str = ""
    lr: float = 0.0
    clip: float = 0.2
    warmup: int = 0
    loss: Literal["mse", "bce"] = "mse"
    low: float = 0.0
    high: float = 1.0
    question: str = ""
    aggregate: Literal["last", "min", "product"] = "last"


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlongSpec:
    """What a truncated rollout is.

    keep  as scored
    mask  out of baseline and loss (DAPO's overlong filtering)
    zero  scored 0, whatever it was
    soft  as scored, minus up to `penalty`, rising linearly over the last `buffer` share of the token budget
          (arXiv 2503.14476, equation 13)
    """

    rule: Literal["keep", "mask", "zero", "soft"] = "keep"
    buffer: float = 0.2
    penalty: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillSpec:
    """KL(policy || teacher) on the policy's own samples, beside any reward.

    form        `full`: over the whole vocabulary; `sampled`: -(log pi - log q) as a reward of each token alone
    privileged  the teacher also sees a verified solution in its prompt
    """

    coef: float = 0.0
    form: Literal["full", "sampled"] = "full"
    privileged: bool = False

    @property
    def shows_solution(self) -> bool:
        """Whether there is a teacher that sees more than the policy."""
        return self.coef != 0.0 and self.privileged


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectSpec:
    """Supervised learning on accepted samples: all `above` (or at) the threshold, or each group's `best`."""

    keep: Literal["above", "best"] = "above"
    threshold: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSpec:
    """Given pairs, or the best against the worst rollout of each group; `prospect` takes completions judged singly.

    loss             what is made of the difference of two implicit scores, see `preference.pair_loss`; `prospect` of
                     one score and the KL of mismatched prompts and completions
    score            implicit score of a completion: `log_ratio` to the reference; `log_prob`, `log_odds` without one
    average          scores are means over a completion's tokens instead of sums
    divergence       what holds the policy near the reference (f-DPO); `alpha` is that of the alpha-divergence
    gamma            margin that the sigmoid loss asks for, in units of beta times the score
    ld_alpha         weight of the tokens past the length of the pair's shorter completion (LD-DPO)
    label_smoothing  probability that a label is wrong
    coef             coefficient of the loss
    sft              coefficient of the mean negative log-prob of the tokens of preferred completions beside it
    desirable, undesirable  weights of good and of bad completions in `prospect`
    """

    loss: PairLoss = "sigmoid"
    beta: float = 0.1
    score: ImplicitScore = "log_ratio"
    average: bool = False
    divergence: Divergence = "reverse_kl"
    alpha: float = 0.5
    gamma: float = 0.0
    ld_alpha: float = 1.0
    label_smoothing: float = 0.0
    coef: float = 1.0
    sft: float = 0.0
    desirable: float = 1.0
    undesirable: float = 1.0

    @property
    def paired(self) -> bool:
        """Whether completions are compared in pairs; otherwise each is judged alone."""
        return self.loss != "prospect"

    @property
    def needs_reference(self) -> bool:
        return self.score == "log_ratio"


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """One complete algorithm.

    entropy   coefficient of the entropy bonus
    echo      coefficient of the cross-entropy on observation tokens; 0 leaves them out
    truncate  cap on the weight learner / sampler of stale or foreign samples; 0 takes the sampler's log-probs as
              those of the old policy
    resample  rounds in which groups of equal rewards are replaced by fresh prompts (DAPO's dynamic sampling)
    """

    name: str
    paper: str
    credit: CreditSpec = CreditSpec()
    ratio: Ratio = "token"
    clip: ClipSpec = ClipSpec()
    reduction: Reduction = "sequence_mean"
    kl: KLSpec = KLSpec()
    critic: CriticSpec = CriticSpec()
    overlong: OverlongSpec = OverlongSpec()
    distill: DistillSpec = DistillSpec()
    select: SelectSpec | None = None
    pairs: PairSpec | None = None
    entropy: float = 0.0
    echo: float = 0.0
    truncate: float = 0.0
    group_size: int = 8
    resample: int = 0

    @property
    def needs(self) -> frozenset[Need]:
        """What the optimizer must have or compute for it."""
        best_of_group = self.select is not None and self.select.keep == "best"
        compared = self.credit.baseline in ("group_mean", "leave_one_out") or self.credit.scale == "group_std"
        grouped = compared and self.select is None
        needs: dict[Need, bool] = {
            "groups": self.pairs is not None or grouped or best_of_group or self.resample > 0,
            "reference": self.kl.coef != 0.0 or (self.pairs is not None and self.pairs.needs_reference),
            "values": self.credit.baseline == "critic" and self.pairs is None and self.select is None,
            "teacher": self.distill.coef != 0.0,
            "learner": self.truncate != 0.0,
        }
        return frozenset(need for need, wanted in needs.items() if wanted)

    @property
    def extras(self) -> frozenset[Extra]:
        """What the policy must give beside log-probs when it learns."""
        full = self.distill.coef != 0.0 and self.distill.form == "full"
        wanted: dict[Extra, bool] = {"entropy": self.entropy != 0.0, "teacher_kl": full}
        return frozenset(extra for extra, yes in wanted.items() if yes)

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise ConfigError(f"algorithm {self.name!r}: {problem}")


def _problems(algorithm: Algorithm) -> Iterator[str]:
    """Illegal combinations, each with its reason and the fix."""
    yield from _credit_problems(algorithm)
    yield from _clip_problems(algorithm)
    yield from _kl_problems(algorithm)
    yield from _other_problems(algorithm)
    if algorithm.pairs is not None:
        yield from _pair_problems(algorithm, algorithm.pairs)


def _credit_problems(algorithm: Algorithm) -> Iterator[str]:
    credit = algorithm.credit
    if not credit.compares_rollouts and credit.scale in ("group_std", "batch_std"):
        yield (
            f"credit.scale {credit.scale!r} divides by a spread of rollouts' rewards, but baseline "
            f"{credit.baseline!r} compares no rollouts. Set credit.scale to 'whiten' or 'none'."
        )
    if "groups" in algorithm.needs and algorithm.group_size < 2:
        yield (
            f"group_size is {algorithm.group_size}, but it compares the completions of a prompt with each "
            "other. Set group_size to 2 or more, or credit.baseline to 'batch_mean' or 'none' and resample to 0."
        )
    if algorithm.group_size < 1:
        yield f"group_size is {algorithm.group_size}. Use 1 or more."
    if not (0.0 <= credit.gamma <= 1.0 and 0.0 <= credit.lam <= 1.0):
        yield f"credit.gamma is {credit.gamma} and credit.lam {credit.lam}. Use numbers in [0, 1]."
    critic = algorithm.critic
    if critic.lr < 0 or critic.clip < 0 or critic.warmup < 0:
        yield f"critic.lr ({critic.lr}), clip ({critic.clip}) or warmup ({critic.warmup}) is negative. Use 0 or more."
    if not critic.low < critic.high:
        yield f"critic.low is {critic.low} and high {critic.high}. Use the least and the most return: 0 and 1."
    if critic.loss == "bce" and (critic.kind in ("head", "lora") or (critic.kind == "separate" and not critic.base)):
        yield f"critic.loss 'bce' is for probabilities; a critic {critic.kind!r} has none. Set critic.kind to 'yes'."
    if critic.base and critic.kind in ("head", "lora"):
        yield f"critic.base is {critic.base!r}, but a critic {critic.kind!r} reads none. Set critic.kind to 'separate'."
    if critic.question and critic.kind != "yes":
        yield f"critic.question is for a critic that is asked, not {critic.kind!r}. Set critic.kind to 'yes'."


def _clip_problems(algorithm: Algorithm) -> Iterator[str]:
    clip = algorithm.clip
    if clip.kind != "none" and algorithm.ratio == "none":
        yield "clip bounds the importance ratio, but ratio is 'none'. Set ratio to 'token', or clip.kind to 'none'."
    if clip.low < 0 or clip.high < 0 or (clip.space == "ratio" and clip.low > 1):
        yield (
            f"clip bounds [1 - {clip.low}, 1 + {clip.high}] are not an interval around 1. Use low in [0, 1], high >= 0."
        )
    if clip.space == "sqrt_log" and algorithm.ratio != "cumulative":
        yield (
            f"clip.space 'sqrt_log' widens with the number of summed log-ratios, but ratio is {algorithm.ratio!r}. "
            "Set ratio to 'cumulative', or clip.space to 'ratio'."
        )
    if clip.kind != "none" and not (clip.low > 0 and clip.high > 0):
        yield f"clip.low is {clip.low} and clip.high {clip.high}: no room is left around ratio 1. Use numbers above 0."
    if clip.dual < 0:
        yield f"clip.dual is {clip.dual}; it would lose every negative advantage. Use 0 for none, or a bound above."
    if clip.dual and clip.kind != "min":
        yield f"clip.dual bounds the clipped surrogate, but clip.kind is {clip.kind!r}. Set clip.kind to 'min'."
    if clip.dual and clip.space == "ratio" and clip.dual <= 1.0:
        yield f"clip.dual is {clip.dual}; it must lie above 1, or every negative advantage is lost. Use 3."
    if algorithm.truncate and algorithm.truncate < 1.0:
        yield f"truncate is {algorithm.truncate}; a cap below 1 cuts fresh samples too. Use 1 or more, such as 2."


def _kl_problems(algorithm: Algorithm) -> Iterator[str]:
    kl = algorithm.kl
    if kl.coef < 0:
        yield f"kl.coef is {kl.coef}; a negative coefficient rewards drifting away. Use 0 or more."
    if kl.place == "reward" and kl.coef and kl.estimator != "k1":
        yield f"kl.place 'reward' takes the log-ratio itself, but kl.estimator is {kl.estimator!r}. Set it to 'k1'."
    if kl.target < 0 or (kl.target and not kl.coef):
        yield (
            f"kl.target is {kl.target} with kl.coef {kl.coef}: a coefficient of 0 stays 0. "
            "Give kl.coef a start such as 0.1, and a target above 0."
        )


def _other_problems(algorithm: Algorithm) -> Iterator[str]:
    overlong = algorithm.overlong
    if not 0.0 < overlong.buffer <= 1.0 or overlong.penalty < 0:
        yield (
            f"overlong.buffer is {overlong.buffer} and overlong.penalty {overlong.penalty}. "
            "Use a share of the token budget in (0, 1], and 0 or more."
        )
    if algorithm.entropy < 0 or algorithm.echo < 0 or algorithm.distill.coef < 0 or algorithm.resample < 0:
        yield "entropy, echo, distill.coef or resample is negative. Use 0 or more."
    if algorithm.distill.coef and (algorithm.pairs is not None or algorithm.select is not None):
        yield "distill works on every sample, pairs and select on a few. Set distill.coef to 0."
    others = algorithm.entropy or algorithm.echo or algorithm.truncate
    if algorithm.select is not None and (others or algorithm.kl.coef or algorithm.pairs is not None):
        yield (
            "select learns accepted samples by cross-entropy alone. Set kl.coef, entropy, echo and truncate to 0, and "
            "leave pairs out."
        )


def _pair_problems(algorithm: Algorithm, pairs: PairSpec) -> Iterator[str]:
    if algorithm.kl.coef:
        yield "a pair loss already holds the policy near the reference through pairs.beta. Set kl.coef to 0."
    if algorithm.entropy or algorithm.echo or algorithm.truncate:
        yield "a pair loss has no entropy, echo or truncate. Set them to 0."
    unused = (algorithm.credit, algorithm.critic, algorithm.clip, algorithm.reduction)
    if unused != (CreditSpec(), CriticSpec(), ClipSpec(), "sequence_mean"):
        yield "a pair loss has no credit, critic, clip or reduction. Leave them out, or name an algorithm with them."
    if pairs.beta <= 0:
        yield f"pairs.beta is {pairs.beta}. Use a positive number, such as 0.1."
    if pairs.coef <= 0:
        yield f"pairs.coef is {pairs.coef}. Use a positive number, or learn chosen completions with: prefrl sft"
    if not 0.0 <= pairs.label_smoothing < 0.5:
        yield f"pairs.label_smoothing is {pairs.label_smoothing}. Use a number in [0, 0.5)."
    if pairs.sft < 0 or pairs.gamma < 0:
        yield f"pairs.sft is {pairs.sft} and pairs.gamma {pairs.gamma}. Use 0 or more."
    if not 0.0 <= pairs.ld_alpha <= 1.0:
        yield f"pairs.ld_alpha is {pairs.ld_alpha}, a weight of surplus tokens. Use a number in [0, 1]; 1 counts all."
    if pairs.desirable <= 0 or pairs.undesirable <= 0:
        yield f"pairs.desirable is {pairs.desirable} and undesirable {pairs.undesirable}. Use positive numbers."
    yield from _score_problems(pairs)
    yield from _single_problems(pairs)


def _score_problems(pairs: PairSpec) -> Iterator[str]:
    if pairs.divergence != "reverse_kl" and not pairs.needs_reference:
        yield (
            f"pairs.divergence is one from the reference, but pairs.score {pairs.score!r} looks at none. "
            "Set pairs.score to 'log_ratio', or pairs.divergence to 'reverse_kl'."
        )
    if pairs.alpha != PairSpec().alpha and pairs.divergence != "alpha":
        yield (
            f"pairs.alpha is {pairs.alpha}, but pairs.divergence {pairs.divergence!r} has no alpha. Set "
            "pairs.divergence to 'alpha', or leave pairs.alpha out."
        )
    if pairs.gamma and pairs.loss != "sigmoid":
        yield (
            f"pairs.gamma is a margin of the sigmoid loss, but pairs.loss is {pairs.loss!r}, whose margin is set by "
            "beta alone. Set pairs.gamma to 0, or pairs.loss to 'sigmoid'."
        )


def _single_problems(pairs: PairSpec) -> Iterator[str]:
    if pairs.paired:
        if (pairs.desirable, pairs.undesirable) != (1.0, 1.0):
            yield (
                f"pairs.desirable and undesirable weigh completions judged singly, but pairs.loss {pairs.loss!r} "
                "compares two. Set both to 1, or pairs.loss to 'prospect'."
            )
        return
    if not pairs.needs_reference or pairs.divergence != "reverse_kl" or pairs.average:
        yield (
            "the prospect loss compares whole log-ratios with a KL. Set pairs.score to 'log_ratio', pairs.divergence "
            "to 'reverse_kl' and pairs.average to false."
        )
    if pairs.ld_alpha != 1.0:
        yield "pairs.ld_alpha compares the lengths of a pair, and the prospect loss has none. Set pairs.ld_alpha to 1."
