"""One run of imitation 1.0.1, in an environment of its own: it imports nothing of prefrl.

    VENV/bin/python rival.py TASK --seed N --demonstrations FILE.npz --out FILE.json

TASK is expert or expert_pendulum (which make the demonstrations), gail, airl, gail_pendulum, airl_pendulum or
preferences. Settings are those of imitation's tutorials: 3 (GAIL), 4 (AIRL) and 5 (preference comparisons); on
Pendulum, the discriminator of the first two with the learner of the third and a buffer of one of its batches. GAIL and
AIRL stop at the first evaluation that reaches the goal; preferences go on for as many steps as their tutorial names for
a proficient agent. Evaluations do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BEGAN = time.process_time()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from imitation.algorithms import preference_comparisons  # noqa: E402
from imitation.algorithms.adversarial.airl import AIRL  # noqa: E402
from imitation.algorithms.adversarial.gail import GAIL  # noqa: E402
from imitation.data import rollout, types  # noqa: E402
from imitation.data.wrappers import RolloutInfoWrapper  # noqa: E402
from imitation.policies.base import FeedForward32Policy, NormalizeFeaturesExtractor  # noqa: E402
from imitation.rewards.reward_nets import BasicRewardNet, BasicShapedRewardNet  # noqa: E402
from imitation.rewards.reward_wrapper import RewardVecEnvWrapper  # noqa: E402
from imitation.util.networks import RunningNorm  # noqa: E402
from imitation.util.util import make_vec_env  # noqa: E402
from stable_baselines3 import PPO  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.ppo import MlpPolicy  # noqa: E402

IMPORTED = time.process_time()
CARTPOLE, PENDULUM = "seals:seals/CartPole-v0", "Pendulum-v1"
STEPS = {"gail": 800_000, "airl": 2_000_000, "gail_pendulum": 400_000, "airl_pendulum": 400_000}


class Reached(Exception):
    """The goal is reached."""


class Clock:
    """CPU seconds of this process, user and system, without those spent in `paused`."""

    def __init__(self) -> None:
        self.began, self.off = time.process_time(), 0.0

    def paused(self, work: Callable[[], float]) -> float:
        """What `work` returns, off the clock."""
        before = time.process_time()
        found = work()
        self.off += time.process_time() - before
        return found

    @property
    def seconds(self) -> float:
        return time.process_time() - self.began - self.off


def evaluated(policy: Any, name: str, episodes: int, seed: int) -> float:
    """Mean true return of the deterministic policy."""
    venv = make_vec_env(name, rng=np.random.default_rng(seed), n_envs=8)
    return float(evaluate_policy(policy, venv, episodes)[0])


def expert(args: argparse.Namespace) -> dict[str, Any]:
    """PPO on the true reward; its sampled episodes are the demonstrations of both sides."""
    rng, clock = np.random.default_rng(args.seed), Clock()
    wrapped = [lambda env, _: RolloutInfoWrapper(env)]
    venv = make_vec_env(CARTPOLE, rng=rng, n_envs=8, post_wrappers=wrapped)
    settings = {"batch_size": 64, "ent_coef": 0.0, "learning_rate": 3e-4, "n_epochs": 10, "n_steps": 64}
    policy = PPO(MlpPolicy, venv, seed=args.seed, **settings)
    policy.learn(100_000)
    found = rollout.rollout(policy, venv, rollout.make_sample_until(min_timesteps=None, min_episodes=60), rng=rng)
    return {"cpu": clock.seconds, **saved(args, found)}


def expert_pendulum(args: argparse.Namespace) -> dict[str, Any]:
    """The same on Pendulum, by the learner of its tutorial and with the most likely actions."""
    rng, clock = np.random.default_rng(args.seed), Clock()
    wrapped = [lambda env, _: RolloutInfoWrapper(env)]
    venv = make_vec_env(PENDULUM, rng=rng, n_envs=8, post_wrappers=wrapped)
    policy = pendulum_agent(venv, args.seed)
    policy.learn(300_000)
    enough = rollout.make_sample_until(min_timesteps=None, min_episodes=60)
    return {
        "cpu": clock.seconds,
        **saved(args, rollout.rollout(policy, venv, enough, rng=rng, deterministic_policy=True)),
    }


def saved(args: argparse.Namespace, found: Any) -> dict[str, Any]:
    """Write episodes as the file of demonstrations; their mean return, and how many there are."""
    np.savez_compressed(
        args.demonstrations,
        obs=np.concatenate([one.obs for one in found]).astype(np.float32),
        acts=np.concatenate([one.acts for one in found]),
        rews=np.concatenate([one.rews for one in found]),
        indices=np.cumsum([len(one.acts) for one in found])[:-1],
        terminated=np.zeros(len(found), bool),
    )
    returns = [float(one.rews.sum()) for one in found]
    return {"return": float(np.mean(returns)), "episodes": len(found)}


def demonstrations(path: str) -> list[types.Trajectory]:
    """Episodes of a file as imitation has them: `terminal` is true at a time limit, too."""
    with np.load(path) as data:
        acts = np.split(data["acts"], data["indices"])
        obs = np.split(data["obs"], data["indices"] + np.arange(1, len(acts)))
        pairs = zip(obs, acts, strict=True)
        return [types.Trajectory(obs=seen, acts=done, infos=None, terminal=True) for seen, done in pairs]


def adversarial(args: argparse.Namespace) -> dict[str, Any]:
    """GAIL or AIRL until the goal is reached, or the steps of the tutorial are over."""
    given, clock = demonstrations(args.demonstrations), Clock()
    gail, pendulum = args.task.startswith("gail"), args.task.endswith("pendulum")
    name = PENDULUM if pendulum else CARTPOLE
    venv = make_vec_env(name, rng=np.random.default_rng(args.seed), n_envs=8)
    if pendulum:
        learner = pendulum_agent(venv, args.seed)
    else:
        common = {"batch_size": 64, "ent_coef": 0.0, "gamma": 0.95, "n_epochs": 5, "seed": args.seed}
        own = {"learning_rate": 4e-4} if gail else {"learning_rate": 5e-4, "clip_range": 0.1, "vf_coef": 0.1}
        learner = PPO(MlpPolicy, venv, **common, **own)
    net = (BasicRewardNet if gail else BasicShapedRewardNet)(
        venv.observation_space, venv.action_space, normalize_input_layer=RunningNorm
    )
    trainer = (GAIL if gail else AIRL)(
        demonstrations=given,
        demo_batch_size=1024 if gail else 2048,
        gen_replay_buffer_capacity=2048 if pendulum else 512,
        n_disc_updates_per_round=8 if gail else 16,
        venv=venv,
        gen_algo=learner,
        reward_net=net,
    )
    curve: list[tuple[int, float, float]] = []

    def look(_: int) -> None:
        found = clock.paused(lambda: evaluated(learner, name, args.episodes, args.seed + 1000))
        curve.append((learner.num_timesteps, round(clock.seconds, 2), found))
        print(*curve[-1], flush=True)
        if found >= args.goal:
            raise Reached

    reached = True
    try:
        trainer.train(args.steps or STEPS[args.task], callback=look)
        reached = False
    except Reached:
        pass
    seconds = clock.seconds
    final = evaluated(learner, name, 50, args.seed + 2000)
    steps = learner.num_timesteps
    return {"cpu": seconds, "return": final, "reached": reached, "steps": steps, "curve": curve}


def preferences(args: argparse.Namespace) -> dict[str, Any]:
    """Preference comparisons on Pendulum, then PPO on the learned reward."""
    clock, rng = Clock(), np.random.default_rng(args.seed)
    venv = make_vec_env(PENDULUM, rng=rng)
    net = BasicRewardNet(venv.observation_space, venv.action_space, normalize_input_layer=RunningNorm)
    model = preference_comparisons.PreferenceModel(net)
    loss = preference_comparisons.CrossEntropyRewardLoss()
    generator = preference_comparisons.AgentTrainer(
        algorithm=pendulum_agent(venv, args.seed), reward_fn=net, venv=venv, exploration_frac=0.05, rng=rng
    )
    comparisons = preference_comparisons.PreferenceComparisons(
        generator,
        net,
        num_iterations=5,
        fragmenter=preference_comparisons.RandomFragmenter(warning_threshold=0, rng=rng),
        preference_gatherer=preference_comparisons.SyntheticGatherer(rng=rng),
        reward_trainer=preference_comparisons.BasicRewardTrainer(preference_model=model, loss=loss, epochs=3, rng=rng),
        fragment_length=100,
        transition_oversampling=1,
        initial_comparison_frac=0.1,
        allow_variable_horizon=False,
        initial_epoch_multiplier=4,
        query_schedule="hyperbolic",
    )
    said = comparisons.train(total_timesteps=5_000, total_comparisons=200)
    first = clock.seconds
    print("preferences", first, said, flush=True)
    learner = pendulum_agent(RewardVecEnvWrapper(venv, net.predict_processed), args.seed)
    learner.learn(args.steps or 100_000)
    seconds = clock.seconds
    final = evaluated(learner, PENDULUM, 50, args.seed + 2000)
    return {
        "cpu": seconds,
        "cpu_preferences": first,
        "return": final,
        "accuracy": held_out_accuracy(net, args.held_out),
        "accuracy_trained": said["reward_accuracy"],
        "loss_trained": said["reward_loss"],
        "comparisons": 200,
        "steps": learner.num_timesteps,
    }


def pendulum_agent(venv: Any, seed: int) -> PPO:
    """The tutorial's learner."""
    features = {"normalize_class": RunningNorm}
    policy = {"features_extractor_class": NormalizeFeaturesExtractor, "features_extractor_kwargs": features}
    return PPO(
        FeedForward32Policy,
        venv,
        policy_kwargs=policy,
        seed=seed,
        n_steps=2048 // venv.num_envs,
        batch_size=64,
        ent_coef=0.01,
        learning_rate=2e-3,
        clip_range=0.1,
        gae_lambda=0.95,
        gamma=0.97,
        n_epochs=10,
    )


def held_out_accuracy(net: Any, path: str) -> float:
    """Share of the pairs of fragments in a file whose better one, by true return, gets the higher return."""
    with np.load(path) as data:
        observations, actions, rewards = data["observations"], data["actions"], data["rewards"]
    count, length = rewards.shape
    flat = observations[:, :-1].reshape(count * length, -1), actions.reshape(count * length, -1)
    following = observations[:, 1:].reshape(count * length, -1)
    found = net.predict(*flat, following, np.zeros(count * length, bool)).reshape(count, length).sum(1)
    true = rewards.sum(1)
    return float(np.mean((found[::2] > found[1::2]) == (true[::2] > true[1::2])))


def main() -> None:
    """Run the task, write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("expert", "expert_pendulum", *STEPS, "preferences"))
    parser.add_argument("--demonstrations", default="")
    parser.add_argument("--held-out", default="")
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0, help="0 takes the tutorial's")
    parser.add_argument("--goal", type=float, default=495.0)
    parser.add_argument("--episodes", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    tasks = {"expert": expert, "expert_pendulum": expert_pendulum, "preferences": preferences}
    found = {"task": args.task, "seed": args.seed, "goal": args.goal, **tasks.get(args.task, adversarial)(args)}
    found |= {"cpu_import": IMPORTED - BEGAN, "load": os.getloadavg()[0]}
    partial = Path(args.out).with_suffix(".part")
    partial.write_text(json.dumps(found, indent=1))
    partial.replace(args.out)
    print(json.dumps({k: v for k, v in found.items() if k != "curve"}))


if __name__ == "__main__":
    main()
