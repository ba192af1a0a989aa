"""What a loop's configuration says to the recipes that it is made of, and what it cannot say."""

from __future__ import annotations

from prefrl.config import DPOConfig, LabellerConfig, LoopConfig, RLConfig
from prefrl.errors import ConfigError
from prefrl.policy.algorithms import resolve
from prefrl.recipes.dpo import pair_spec
from prefrl.recipes.rl import refuse
from prefrl.recipes.teaching import check


def refuse_impossible(config: LoopConfig) -> None:
    """Refuse settings that no loop could begin with.

    Raises:
        ConfigError: a labeller without what it needs, or an algorithm that cannot learn from what it is given.
    """
    _refuse_labeller(config)
    if config.combine != "mean" and config.reward.ensemble.members == 1:
        raise ConfigError(
            f"combine is {config.combine!r}, but the reward model has one member; set reward.ensemble.members to 2 or "
            "more, or combine to mean."
        )
    if config.learn == "pairs":
        if not pair_spec(pair_config(config, 0)).paired:
            raise ConfigError(
                f"algorithm {config.algorithm!r} learns from single completions; use one that takes pairs."
            )
        return
    algorithm = resolve(config.algorithm)
    rl = policy_config(config, 0)
    check(rl, algorithm)
    refuse(rl, algorithm)


def _refuse_labeller(config: LoopConfig) -> None:
    labeller, people = config.labeller, config.labeller.kind == "people"
    if not people and not labeller.utility:
        raise ConfigError(
            "labeller.utility is empty; a simulator needs a taste, such as "
            "--labeller.utility '[{kind: numeric, column: answer}]'. Or set labeller.kind to people."
        )
    others = ("utility", "noise", "tie_width", "flip") if people else ("store", "overlap", "name")
    default = LabellerConfig()
    idle = [f"labeller.{name}" for name in others if getattr(labeller, name) != getattr(default, name)]
    if idle:
        whose = "a simulator; people have a taste of their own" if people else "people; a simulator labels once"
        raise ConfigError(f"Set, but only for {whose}: {', '.join(idle)}. Leave out, or change labeller.kind.")
    if people and not config.judge and not config.comparisons:
        raise ConfigError(
            "comparisons is 0 and judge empty: nobody would say whether the policy got better. Set one of them."
        )


def policy_config(config: LoopConfig, seed: int) -> RLConfig:
    """How the policy is optimized against the reward model in one round."""
    return RLConfig(
        seed=seed,
        policy=config.policy,
        rewards=[{"kind": "bradley_terry"}],
        algorithm=config.algorithm,
        sampling=config.sampling,
        steps=config.steps,
        prompts_per_step=config.prompts_per_step,
        updates=config.updates,
        max_error_fraction=config.max_error_fraction,
    )


def pair_config(config: LoopConfig, seed: int) -> DPOConfig:
    """How the policy is optimized on labelled pairs in one round."""
    return DPOConfig(
        seed=seed,
        policy=config.policy,
        algorithm=config.algorithm,
        epochs=config.epochs,
        batch_size=config.batch_size,
        max_tokens=config.reward.max_tokens,
        cache_reference=False,  # every round has its own pairs and start weights: none would be found again
    )
