"""One run of prefrl on the tasks of the race, in a process of its own.

    python ours.py TASK --seed N --demonstrations FILE.npz --held-out FILE.npz --out FILE.json

TASK is gail, airl, gail_pendulum, airl_pendulum or preferences, with the configurations in configs/irl. GAIL and AIRL
stop at the first evaluation that reaches the goal. Evaluations, and the pictures of the report, are not counted, as on
the other side.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BEGAN = time.process_time()

import numpy as np  # noqa: E402
import torch  # noqa: E402

from prefrl.config import IRLConfig, SamplingConfig, TrajectoryConfig  # noqa: E402
from prefrl.model.control import load_control_policy  # noqa: E402
from prefrl.parsing import parse  # noqa: E402
from prefrl.recipes import trajectory, trajectory_policy  # noqa: E402
from prefrl.recipes.control_learner import limit_of  # noqa: E402
from prefrl.recipes.irl import algorithm_of  # noqa: E402
from prefrl.recipes.irl_study import prepare, warm_up  # noqa: E402
from prefrl.rewards.trajectory.reward import TrajectoryReward  # noqa: E402
from prefrl.types import Prompt, Rollout, StopReason  # noqa: E402

IMPORTED = time.process_time()
ROOT = Path(__file__).parents[2]


class Clock:
    """CPU seconds of this process, user and system, without those spent in what is `off`."""

    def __init__(self) -> None:
        self.began, self.paused = time.process_time(), 0.0

    def off(self, owner: Any, name: str) -> None:
        """Let a function or method of `owner` not count."""
        work: Callable[..., Any] = getattr(owner, name)

        def uncounted(*args: Any, **options: Any) -> Any:
            before = time.process_time()
            try:
                return work(*args, **options)
            finally:
                self.paused += time.process_time() - before

        setattr(owner, name, uncounted)

    @property
    def seconds(self) -> float:
        return time.process_time() - self.began - self.paused


def settings(kind: type, name: str, args: argparse.Namespace, output: str) -> Any:
    """A configuration of configs/irl with a seed and a folder of its own."""
    given = [str(args.configs / f"{name}.yaml"), "--seed", str(args.seed), "--output", output, *args.more]
    return parse(kind, [*given, "--threads", "1"], prog="ours")[0]


def true_return(policy: Any, episodes: int, steps: int, seed: int) -> float:
    """Mean of what the environment pays for episodes of the most likely actions."""
    prompts = [Prompt(id=f"evaluation {seed} {i}", text="episode") for i in range(episodes)]
    found = policy.sample(prompts, 1, SamplingConfig(max_new_tokens=steps, temperature=0.0), seed=seed)
    return float(np.mean([one.info["return"] for one in found]))


def adversarial(args: argparse.Namespace, output: str) -> dict[str, Any]:
    """GAIL or AIRL until the goal is reached, or the steps of the configuration are over."""
    clock = Clock()
    config = settings(IRLConfig, args.task if "_" in args.task else f"{args.task}_cartpole", args, output)
    study = prepare(config, algorithm_of(config))
    warm_up(study)
    horizon = limit_of(study.policy, config.horizon)
    played = config.prompts_per_step * (config.train_horizon or horizon)
    curve: list[tuple[int, float, float]] = []
    for step in range(1, config.steps + 1):
        study.round(step)
        seconds, began = clock.seconds, time.process_time()
        found = true_return(study.policy, args.episodes, horizon, args.seed + 1000)
        clock.paused += time.process_time() - began
        curve.append((step * played, round(seconds, 2), found))
        print(*curve[-1], flush=True)
        if found >= args.goal:
            break
    final = true_return(study.policy, 50, horizon, args.seed + 2000)
    reached = curve[-1][2] >= args.goal
    return {"cpu": clock.seconds, "return": final, "reached": reached, "steps": curve[-1][0], "curve": curve}


def preferences(args: argparse.Namespace, output: str) -> dict[str, Any]:
    """Comparisons of fragments of Pendulum and PPO on the reward learnt from them."""
    clock = Clock()
    clock.off(trajectory.Rounds, "_measured")
    clock.off(trajectory_policy.Actor, "evaluate")
    clock.off(trajectory, "write")
    config = settings(TrajectoryConfig, "preferences_pendulum", args, output)
    folder = trajectory.run(config)
    seconds = clock.seconds
    reward = TrajectoryReward.load(str(folder.path))
    policy = load_control_policy(folder.checkpoints / "final")
    played = config.rounds * config.steps + config.final_steps
    sampled = 2 * config.rounds * config.episodes  # for fragments, and for the scale of the reward
    return {
        "cpu": seconds,
        "return": true_return(policy, 50, 200, args.seed + 2000),
        "accuracy": held_out_accuracy(reward, args.held_out),
        "comparisons": config.comparisons,
        "steps": 200 * (played * config.episodes_per_step + sampled),
    }


def held_out_accuracy(reward: TrajectoryReward, path: str) -> float:
    """Share of the pairs of fragments in a file whose better one, by true return, gets the higher return."""
    with np.load(path) as data:
        observations, actions, rewards = data["observations"], data["actions"], data["rewards"]
    sides = [fragment(*one) for one in zip(observations, actions, strict=True)]
    found = reward.gaps(list(zip(sides[::2], sides[1::2], strict=True))).mean(0).numpy()
    true = rewards.sum(1)
    return float(np.mean((found > 0) == (true[::2] > true[1::2])))


def fragment(observations: np.ndarray, actions: np.ndarray) -> Rollout:
    """Numbers of a file as a fragment."""
    n = len(actions)
    return Rollout(
        prompt=Prompt(id="held out", text="held out"),
        completion_ids=(0,) * n,
        mask=(True,) * n,
        logps=(0.0,) * n,
        text="",
        stop=StopReason.LENGTH,
        group="held out",
        observations=torch.from_numpy(observations),
        actions=torch.from_numpy(actions),
    )


def main() -> None:
    """Run the task, write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("gail", "airl", "gail_pendulum", "airl_pendulum", "preferences"))
    parser.add_argument("--demonstrations", default="")
    parser.add_argument("--held-out", default="")
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--goal", type=float, default=495.0)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--configs", type=Path, default=ROOT / "configs" / "irl")
    args, args.more = parser.parse_known_args()
    torch.set_num_threads(1)
    if args.task != "preferences":
        args.more = ["--demonstrations", args.demonstrations, *args.more]
    work = preferences if args.task == "preferences" else adversarial
    with tempfile.TemporaryDirectory() as scratch:
        found = {"task": args.task, "seed": args.seed, **work(args, f"{scratch}/run")}
    found |= {"cpu_import": IMPORTED - BEGAN, "load": os.getloadavg()[0]}
    partial = Path(args.out).with_suffix(".part")
    partial.write_text(json.dumps(found, indent=1))
    partial.replace(args.out)
    print(json.dumps({k: v for k, v in found.items() if k != "curve"}))


if __name__ == "__main__":
    main()
