"""Pairs of Pendulum fragments that neither side learns from: of policies between a random one and one that balances."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

LENGTH, PAIRS = 100, 500


def swing_up(observation: np.ndarray) -> float:
    """Pump energy into the pendulum while it hangs, hold it when it is nearly upright; a torque in [-2, 2]."""
    cos, sin, speed = observation
    angle = np.arctan2(sin, cos)
    if cos > 0.9:
        return float(np.clip(-(12.0 * angle + 3.0 * speed), -2.0, 2.0))
    energy = speed**2 / 6.0 + 5.0 * (cos - 1.0)  # 0 when it just reaches the top
    return float(2.0 * np.sign(speed if energy < 0.0 else -speed) or 2.0)


def episode(env: Any, skill: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """200 steps in which the controller acts with probability `skill`: observations, actions, rewards."""
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    seen, acted, paid = [observation], [], []
    for _ in range(200):
        action = swing_up(observation) if rng.random() < skill else rng.uniform(-2.0, 2.0)
        observation, reward, *_ = env.step(np.array([action], np.float32))
        seen.append(observation)
        acted.append([action])
        paid.append(reward)
    return np.array(seen, np.float32), np.array(acted, np.float32), np.array(paid, np.float64)


def write(path: Path, seed: int = 12345) -> None:
    """Pairs of fragments, the two of a pair one after the other, as NPZ: observations, actions, rewards."""
    rng, env = np.random.default_rng(seed), gymnasium.make("Pendulum-v1")
    found: list[tuple[np.ndarray, ...]] = []
    for _ in range(2 * PAIRS):
        seen, acted, paid = episode(env, rng.uniform(), rng)
        start = int(rng.integers(200 - LENGTH + 1))
        end = start + LENGTH
        found.append((seen[start : end + 1], acted[start:end], paid[start:end]))
    observations, actions, rewards = (np.stack(column) for column in zip(*found, strict=True))
    np.savez_compressed(path, observations=observations, actions=actions, rewards=rewards)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    write(parser.parse_args().path)
