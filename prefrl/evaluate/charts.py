"""Which metrics of a run are drawn together, and how to read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Metrics of one figure: name -> label; a name ending in / stands for all metrics under it.

    The caption may depend on the names of all metrics of training; `once` draws no curve that repeats another.
    """

    title: str
    metrics: Mapping[str, str]
    caption: str | Callable[[Sequence[str]], str] = ""
    percent: bool = False
    smooth: float = 0.6
    once: bool = False
    phases: tuple[str, ...] = ("train", "eval")


def _about_loss(names: Sequence[str]) -> str:
    """How to read a loss: of a policy gradient its gradient counts, of a likelihood its value."""
    if "nll" not in names:
        policy = "That of a policy gradient hovers around 0, as advantages are centred: its gradient is what learns."
        return policy if "length/mean" in names else ""
    of = "the labels of steps, each .69 when guessed" if "steps/accuracy" in names else "what is to be predicted"
    return f"In nats, of {of}. Where it falls in training and rises on held-out data, these are learnt by heart."


MAIN_CHARTS = (
    Chart(
        title="Reward",
        metrics={"reward/mean": "reward"},
        caption="Mean reward of the sampled answers; the band is one standard deviation to each side.",
    ),
    Chart(
        title="On prompts never trained on",
        metrics={
            "win_rate": "win rate",
            "success": "success",
            "accuracy": "accuracy",
            "accuracy_given_parsed": "accuracy where parsed",
            "parse_rate": "parsed",
        },
        caption="The independent check: reward that rises while this stays flat is being gamed.",
        percent=True,
        phases=("eval",),
    ),
    Chart(title="Reward by part", metrics={"reward/part/": ""}, caption="Before weighting.", phases=("train",)),
    Chart(
        title="Distance from the start",
        metrics={"kl/ref": "KL to the reference"},
        caption="KL divergence in nats per answer: what the reward was bought with.",
    ),
    Chart(
        title="Distance from the teacher",
        metrics={"kl/teacher": "KL to the teacher"},
        caption="KL divergence in nats per token, over the whole vocabulary.",
    ),
    Chart(title="Answer length", metrics={"length/mean": "mean tokens"}, caption="Tokens per answer."),
    Chart(
        title="Why answers ended",
        metrics={"stop/": ""},
        caption="By the policy (eos), a stop text, the environment, or the token budget (length).",
        percent=True,
        phases=("train",),
    ),
    Chart(
        title="Accuracy on training pairs",
        metrics={"accuracy": "accuracy"},
        caption="Share of judgements that are agreed with; 50 % is guessing.",
        percent=True,
        phases=("train",),
    ),
    Chart(title="Margin", metrics={"margin": "margin"}, caption="Chosen minus rejected."),
    Chart(
        title="Log-probability of both answers",
        metrics={"chosen_logp": "chosen", "rejected_logp": "rejected"},
        caption="Summed over the answer. Both may fall while the margin grows.",
    ),
    Chart(
        title="Loss",
        metrics={"nll": "negative log-likelihood", "nll/calibrated": "at the best temperature", "loss": "loss"},
        caption=_about_loss,
        once=True,
    ),
    Chart(
        title="Steps told apart",
        metrics={"steps/accuracy": "accuracy", "steps/auroc": "AUROC"},
        caption="Accuracy depends on how many steps are fine; of AUROC 50 % is guessing, whatever that share.",
        percent=True,
    ),
)
OPTIMIZER_CHARTS = (
    Chart(
        title="Clipped tokens",
        metrics={"clip/low": "below", "clip/high": "above", "clip/dual": "second bound"},
        caption="Share of tokens whose probability ratio met a clipping bound.",
        percent=True,
    ),
    Chart(
        title="Importance ratios",
        metrics={"ratio/ess": "effective sample size"},
        caption="As a share of the tokens; under 10 % an update rests on a few completions.",
        percent=True,
    ),
    Chart(
        title="Critic",
        metrics={
            "critic/explained_variance": "of what it learns",
            "critic/explained_variance/plain": "of what was earned",
        },
        caption="Explained variance: 1 is perfect, 0 no better than a constant, below 0 worse. The first step's is "
        "that of the critic as it came. On solved tasks it means little.",
        once=True,
    ),
    Chart(
        title="Drift of the critic",
        metrics={"critic/drift": "distance"},
        caption="Mean distance of its values from those of the first step, over the same histories.",
        smooth=0.0,
    ),
    Chart(
        title="Groups replaced",
        metrics={"resample/discarded": "thrown away", "resample/filled": "batch filled"},
        caption="Shares of groups; those without a difference in reward are replaced by fresh prompts.",
        percent=True,
    ),
    Chart(title="Prompts in play", metrics={"feed/active": "in play", "feed/retired": "retired"}, smooth=0.0),
    Chart(title="Gradient norm", metrics={"grad_norm": "gradient norm"}, caption="Before scaling down."),
    Chart(title="Entropy", metrics={"entropy": "entropy"}, caption="Nats per token; near 0 nothing is explored."),
    Chart(title="Speed", metrics={"tokens_per_second": "tokens per second"}),
    Chart(title="Learning rate", metrics={"lr": "learning rate"}, smooth=0.0),
)
