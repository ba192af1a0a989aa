"""Environments of gymnasium, all episodes stepped together, with observations and actions as plain vectors.

An environment's own reward is what it reports, `return` and `rewards` of every step; whether anybody pays it is for
the reward source to say. A time limit is a truncation: the rollout stops by LENGTH, and only an end of the
environment's own is a termination.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from prefrl.errors import ConfigError
from prefrl.plugins import import_path
from prefrl.rollout.episodes import Moved, Plan

if TYPE_CHECKING:
    import numpy as np


class GymEnvironments:
    """Many episodes of one gymnasium environment.

    Args:
        name: the id of a registered environment, `my_env.py:make`, or a function that makes one.
        horizon: 0 for the environment's own ends. Else every episode has just so many steps: ends are ignored and the
            environment goes on, so that the length of an episode says nothing of how good it was.
        visible: which numbers of an observation are seen, for partial observability; empty for all.

    Attributes:
        observation_size: numbers in an observation, those of Dict and Tuple spaces in order, Discrete ones one-hot.
        actions: number of actions, or 0 where they are continuous and lie between `low` and `high`.
        limit: steps after which an episode is cut off; 0 where nothing says.

    Raises:
        ConfigError: gymnasium is missing, the environment cannot be made, or its spaces are no vectors.
    """

    exact = False

    def __init__(self, name: str | Callable[[], Any], *, horizon: int = 0, visible: Sequence[int] = ()) -> None:
        if horizon < 0:
            raise ConfigError(
                f"horizon is {horizon}; expected 0, for the environment's own ends, or a number of steps."
            )
        self.name, self.horizon, self.visible = name, horizon, tuple(visible)
        self._single = _made(name)
        space = self._single.action_space
        self._seen_space = self._single.observation_space
        self.actions, self.low, self.high, self._first = _action_bounds(space)
        self._shape = space.shape
        size = width(self._seen_space)
        if any(not 0 <= i < size for i in self.visible):
            raise ConfigError(f"visible is {list(self.visible)}; expected places among the {size} numbers observed.")
        self.observation_size = len(self.visible) or size
        self.limit = horizon or int(getattr(self._single.spec, "max_episode_steps", None) or 0)
        self._vector: Any = None

    def reset(self, plans: Sequence[Plan]) -> Tensor:
        """See `Environments`; every episode starts from its plan's seed."""
        import numpy as np

        if self._vector is None or self._vector.num_envs != len(plans):
            self.close()
            self._vector = self._make(len(plans))
        self._lengths = np.zeros(len(plans), dtype=np.int64)
        self._rewards: list[np.ndarray] = []
        observations, _ = self._vector.reset(seed=[plan.seed for plan in plans])
        return self._vectors(observations)

    def step(self, live: Tensor, actions: Tensor) -> Moved:
        """See `Environments`. Episodes that have ended are stepped too where all go together, and not looked at."""
        import numpy as np

        places, given = live.numpy(), actions.numpy()
        played = np.zeros((len(self._lengths), *given.shape[1:]), given.dtype)
        played[places] = given
        observations, rewards, terminated, truncated, _ = self._vector.step(self._playable(played))
        self._lengths[places] += 1
        self._rewards.append(np.array(rewards, dtype=np.float64))
        ended = [torch.from_numpy(np.asarray(x)[places]) for x in (terminated, truncated)]
        return Moved(self._vectors(observations)[live], ended[0], ended[1])

    def reports(self) -> list[dict[str, Any]]:
        """`rewards`, what the environment paid for each step, and `return`, their sum."""
        import numpy as np

        paid = np.stack(self._rewards, axis=1) if self._rewards else np.zeros((len(self._lengths), 0))
        own = [row[:n].tolist() for row, n in zip(paid, self._lengths, strict=True)]
        return [{"return": float(sum(rewards)), "rewards": rewards} for rewards in own]

    def close(self) -> None:
        """Release the environments."""
        if self._vector is not None:
            self._vector.close()
            self._vector = None

    def _make(self, count: int) -> Any:
        from gymnasium.vector import SyncVectorEnv

        from prefrl.rollout.classic import VECTORISED

        if self.name in VECTORISED:
            return VECTORISED[str(self.name)](count, self.horizon)

        def make() -> Any:
            made = _made(self.name)
            return fixed_horizon(made, self.horizon) if self.horizon else made

        return SyncVectorEnv([make] * count)

    def _playable(self, actions: np.ndarray) -> np.ndarray:
        import numpy as np

        if self.actions:
            return actions + self._first
        return np.clip(actions, self.low, self.high).astype(np.float32).reshape(len(actions), *self._shape)

    def _vectors(self, observations: Any) -> Tensor:
        found = torch.from_numpy(vectors(self._seen_space, observations))
        return found[:, list(self.visible)] if self.visible else found


def require_gymnasium() -> Any:
    """The module; ConfigError, with what to type, where it is not installed."""
    try:
        import gymnasium
    except ImportError as error:
        raise ConfigError(
            f"Environments of gymnasium need the package ({error}). Type: pip install 'prefrl[control]'"
        ) from error
    return gymnasium


def width(space: Any) -> int:
    """Numbers that an observation of a space has as a vector.

    Raises:
        ConfigError: a space of another kind than Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple.
    """
    import numpy as np

    parts = _parts(space)
    if parts is not None:
        return sum(width(part) for _, part in parts)
    kind = type(space).__name__
    if kind == "Discrete":
        return int(space.n)
    if kind == "MultiDiscrete":
        return int(space.nvec.sum())
    if kind in ("Box", "MultiBinary"):
        return int(np.prod(space.shape, dtype=np.int64))
    raise ConfigError(
        f"Observations of the space {kind} have no size; expected Box, Discrete, MultiDiscrete, MultiBinary, or a Dict "
        "or Tuple of these. Wrap the environment with gymnasium.wrappers.TransformObservation."
    )


def vectors(space: Any, batch: Any) -> np.ndarray:
    """A batch of observations, as a vectorised environment gives them, as float32 (N, width(space)).

    Numbers keep the order in which they lie: an image (h, w, c) is laid out by row, column and channel, and the parts
    of a Dict by their keys in the order of the space. Discrete ones are one-hot.
    """
    import numpy as np

    parts = _parts(space)
    if parts is not None:
        return np.concatenate([vectors(part, batch[key]) for key, part in parts], axis=1)
    kind, values = type(space).__name__, np.asarray(batch)
    if kind == "Discrete":
        places = values - space.start
        if ((places < 0) | (places >= space.n)).any():
            raise ConfigError(
                f"An observation is {int(values[(places < 0) | (places >= space.n)][0])}, which {space} does not have. "
                "With a horizon an environment must go on after its own ends; set horizon to 0 where it cannot."
            )
        return np.eye(int(space.n), dtype=np.float32)[places]
    if kind == "MultiDiscrete":
        flat, sizes = (values - space.start).reshape(len(values), -1), space.nvec.reshape(-1)
        return np.concatenate([np.eye(n, dtype=np.float32)[flat[:, i]] for i, n in enumerate(sizes)], axis=1)
    return values.reshape(len(values), -1).astype(np.float32)


def fixed_horizon(environment: Any, horizon: int) -> Any:
    """An environment whose episodes have just `horizon` steps: it goes on after its own ends."""
    gymnasium = require_gymnasium()

    class FixedHorizon(gymnasium.Wrapper):  # type: ignore[misc, name-defined]
        def reset(self, **more: Any) -> Any:
            self.steps = 0
            return self.env.reset(**more)

        def step(self, action: Any) -> Any:
            observation, reward, _, _, info = self.env.step(action)
            self.steps += 1
            return observation, reward, False, self.steps >= horizon, info

    return FixedHorizon(environment)  # wrappers stay: what they make of observations and actions is the environment


def _parts(space: Any) -> list[tuple[Any, Any]] | None:
    """The parts of a space that has any, by key."""
    kind = type(space).__name__
    if kind == "Dict":
        return list(space.spaces.items())
    return list(enumerate(space.spaces)) if kind == "Tuple" else None


def _action_bounds(space: Any) -> tuple[int, tuple[float, ...], tuple[float, ...], int]:
    """Number of actions, bounds of continuous ones, and the number of the first."""
    kind = type(space).__name__
    if kind == "Discrete":
        return int(space.n), (), (), int(space.start)
    if kind == "Box":
        return 0, tuple(space.low.reshape(-1).tolist()), tuple(space.high.reshape(-1).tolist()), 0
    raise ConfigError(
        f"The actions are a {kind}; expected Discrete or Box. Wrap the environment with "
        "gymnasium.wrappers.TransformAction."
    )


def _made(name: str | Callable[[], Any]) -> Any:
    gymnasium = require_gymnasium()
    if callable(name):
        return name()
    if ".py:" in name:
        made = import_path(name, "environment")()
        if not isinstance(made, gymnasium.Env):
            raise ConfigError(f"The environment {name!r} made a {type(made).__name__}; expected a gymnasium.Env.")
        return made
    try:
        return gymnasium.make(name, disable_env_checker=True)
    except (gymnasium.error.Error, ImportError, ValueError) as error:  # the last for a name with two colons
        raise ConfigError(f"The environment {name!r} cannot be made: {error}") from error
