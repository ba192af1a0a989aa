"""The policy of a run that learns from fragments: sampled, improved on a learnt reward, measured on the true one."""

from __future__ import annotations

from pathlib import Path

from prefrl.config import SamplingConfig, TrajectoryConfig
from prefrl.errors import ConfigError
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.run_folder import RunFolder
from prefrl.model.control import ControlPolicy, control_policy, load_control_policy
from prefrl.model.critic import ValueHead
from prefrl.recipes.common import Checked
from prefrl.recipes.control_learner import (
    control_learner,
    episodes,
    evaluate_control,
    limit_of,
    minibatches_for,
    resolve_control,
    returns_of,
)
from prefrl.rewards.trajectory.reward import TrajectoryReward
from prefrl.types import Rollout

SHOWN = ("reward/mean", "return/mean")


class Actor:
    """The policy with its critic; every round goes on with the weights that the round before left.

    Args:
        config: of the run.
        checkpoints: where every round's weights are.

    Raises:
        ConfigError: nothing says how long an episode may be, fragments are longer, or there is no such device.
    """

    def __init__(self, config: TrajectoryConfig, checkpoints: Path) -> None:
        self.config, self.checkpoints = config, checkpoints
        self.algorithm = resolve_control(config.algorithm)
        network = config.control
        self.policy = control_policy(
            config.environment,
            hidden=network.hidden,
            recurrent=network.recurrent,
            distribution=network.distribution,
            normalise=network.normalise,
            horizon=config.horizon,
            seed=config.seed,
            device=config.policy.device,
        )
        self._at = 0
        self.horizon = limit_of(self.policy, config.train_horizon)
        if config.length > self.horizon:
            raise ConfigError(
                f"length is {config.length}, but episodes of {config.environment} have at most {self.horizon} steps. "
                "Lower length."
            )

    @property
    def action_size(self) -> int:
        """Numbers of an action, or number of actions."""
        return self.policy.actions

    def at(self, number: int) -> ControlPolicy:
        """The policy as a round left it; round 0 is the start."""
        if number != self._at:
            device = self.config.policy.device
            self.policy, self._at = load_control_policy(self._folder(number) / "policy", device=device), number
        return self.policy

    def sample(self, number: int, count: int, seed: int) -> list[Rollout]:
        """Episodes of the policy as a round left it."""
        params = SamplingConfig(max_new_tokens=self.horizon)
        return self.at(number).sample(episodes(count), 1, params, seed=seed, version=number)

    def improve(self, folder: RunFolder, number: int, reward: TrajectoryReward, seed: int) -> None:
        """Improve the policy that the round before left, and keep it with its critic as this round's."""
        config, policy, steps = self.config, self.at(number - 1), self.steps(number)
        learner = control_learner(
            policy,
            Checked(reward, config.max_error_fraction),
            self.algorithm,
            config.policy,
            episodes=config.episodes_per_step,
            steps=steps,
            updates=config.updates,
            minibatches=minibatches_for(policy, self.algorithm, config.minibatches.count, config.minibatches.over),
            horizon=self.horizon,
            seed=seed,
        )
        if learner.critic is not None and number > 1:
            values = learner.critic.engine.actor
            assert isinstance(values, ValueHead), "critics of control policies are"
            values.load(self._folder(number - 1) / "critic")
        with Progress(f"round {number}: {self.algorithm.name}", total=steps) as progress:
            for step in range(1, steps + 1):
                found = learner.step()
                metrics = dict(found.metrics)
                if returns := returns_of(found.rollouts):
                    metrics["return/mean"] = sum(returns) / len(returns)
                folder.log(self.done(number - 1) + step, metrics)
                progress.step({name.removesuffix("/mean"): metrics[name] for name in SHOWN if name in metrics})
        self._at = number
        learner.engine.save(self._folder(number) / "policy")
        if learner.critic is not None:
            learner.critic.save(self._folder(number) / "critic")

    def evaluate(self, number: int) -> dict[str, float]:
        """What the environment pays for episodes of the most likely actions, from the same starts every time."""
        return evaluate_control(self.at(number), self.config.eval_samples)[0]

    def steps(self, number: int) -> int:
        """Updates in a round."""
        return self.config.steps + (self.config.final_steps if number == self.config.rounds else 0)

    def done(self, number: int) -> int:
        """Updates in all rounds up to this one."""
        return sum(self.steps(n) for n in range(1, number + 1))

    def _folder(self, number: int) -> Path:
        return self.checkpoints / f"round_{number}"
