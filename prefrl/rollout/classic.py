"""CartPole-v1 and Pendulum-v1 of gymnasium for many episodes at once, with the same numbers as one at a time.

gymnasium's own vectorised CartPole starts all episodes from one random generator and begins anew by itself; here
every episode has its seed, starts where `gymnasium.make(...).reset(seed=seed)` does, and goes on as long as it is
stepped. Pendulum has no vectorised form there that does without JAX.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

Stepped = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class CartPoles(CartPoleVectorEnv):
    """CartPole-v1.

    Args:
        num_envs: episodes.
        horizon: 0 for the rules of CartPole-v1. Else episodes of just so many steps, that go on after a fall: the pole
            swings freely, angles are kept in [-pi, pi), and a step is paid 1 where the pole is up and the cart in its
            place, 0 elsewhere.
    """

    state: Any  # gymnasium begins with None

    def __init__(self, num_envs: int, horizon: int = 0) -> None:
        super().__init__(num_envs=num_envs, max_episode_steps=horizon or 500)
        self._fixed = horizon > 0

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start all episodes, each from its own seed."""
        super().reset(seed=0, options=options)
        self.state = np.stack([_generator(s).uniform(-0.05, 0.05, size=4) for s in seed], axis=1)
        return self.state.T.astype(np.float32), {}

    def step(self, action: np.ndarray) -> Stepped:
        """Step all episodes; none is ever begun anew."""
        self.prev_done[:] = False
        seen, rewards, terminated, truncated, info = super().step(action)
        if not self._fixed:
            return seen, rewards, terminated, truncated, info
        self.state[2] = (self.state[2] + np.pi) % (2.0 * np.pi) - np.pi
        fallen = (np.abs(self.state[0]) > self.x_threshold) | (np.abs(self.state[2]) > self.theta_threshold_radians)
        return self.state.T.astype(np.float32), 1.0 - fallen, np.zeros_like(terminated), truncated, info


class Pendulums:
    """Pendulum-v1.

    Args:
        num_envs: episodes.
        horizon: steps of an episode.
    """

    single_observation_space = spaces.Box(-np.array([1, 1, 8], np.float32), np.array([1, 1, 8], np.float32))
    single_action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, num_envs: int, horizon: int = 0) -> None:
        self.num_envs, self._horizon = num_envs, horizon or 200
        self._state, self._steps = np.zeros((2, num_envs)), 0

    def reset(self, *, seed: Sequence[int]) -> tuple[np.ndarray, dict[str, Any]]:
        """Start all episodes, each from its own seed."""
        high = np.array([np.pi, 1.0])
        self._state = np.stack([_generator(s).uniform(-high, high) for s in seed], axis=1)
        self._steps = 0
        return self._seen(), {}

    def step(self, action: np.ndarray) -> Stepped:
        """Step all episodes (gymnasium's equations: g 10, mass 1, length 1, time step .05)."""
        angle, speed = self._state
        torque = np.clip(action[:, 0], -2.0, 2.0)
        off = (angle + np.pi) % (2.0 * np.pi) - np.pi
        costs = off**2 + 0.1 * speed**2 + 0.001 * torque**2
        speed = np.clip(speed + (15.0 * np.sin(angle) + 3.0 * torque) * 0.05, -8.0, 8.0)
        self._state = np.stack([angle + speed * 0.05, speed])
        self._steps += 1
        never = np.zeros(self.num_envs, dtype=bool)
        return self._seen(), -costs, never, never | (self._steps >= self._horizon), {}

    def close(self) -> None:
        """Nothing is held."""

    def _seen(self) -> np.ndarray:
        angle, speed = self._state
        return np.stack([np.cos(angle), np.sin(angle), speed], axis=1).astype(np.float32)


VECTORISED = {"CartPole-v1": CartPoles, "Pendulum-v1": Pendulums}


def _generator(seed: int) -> np.random.Generator:
    """The generator that gymnasium makes of a seed."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
