"""What a loop's configuration says to the recipes that it is made of, and what it cannot say."""

from __future__ import annotations

from prefrl.config import DPOConfig, LoopConfig, RLConfig
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
    labeller = config.labeller
    if labeller.kind == "simulator" and not labeller.utility:
        raise ConfigError(
            "labeller.utility is empty; a simulator needs a taste, such as "
            "--labeller.utility '[{kind: numeric, column: answer}]'. Or set labeller.kind to people."
        )
    if labeller.kind == "people" and labeller.utility:
        raise ConfigError("labeller.utility is for a simulator; people have their own. Leave it out, or use judge.")
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
