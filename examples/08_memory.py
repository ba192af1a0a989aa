"""What a memory is worth: places that look alike, a door that may be locked, a pole seen without its speed.

The same optimizer trains a policy that sees the last observation only, and one with a GRU over all it saw and did. On
A/B/C aliasing the first can do no better than to go left or right at random (value .909), the second reaches what a
memory is worth (.95). Run it with: python examples/08_memory.py, and for CartPole without velocities, which takes some
minutes: python examples/08_memory.py cartpole
"""

import math
import sys
import time

import torch

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.model.control import ControlPolicy, control_policy
from prefrl.recipes.common import Checked
from prefrl.recipes.control_learner import control_learner, evaluate_control, minibatches_for, resolve_control
from prefrl.rewards import environment
from prefrl.rollout.pomdp import (
    Aliased,
    LockedDoor,
    aliased_history_value,
    aliased_prompts,
    aliased_value,
    discounted_return,
    door_prompts,
    memoryless_prediction,
    share_opened,
)

STEPS, GROUP = 150, 32


def learn_aliased(memory: int, seed: int) -> ControlPolicy:
    """REINFORCE on A/B/C, 64 episodes a step, discount .9."""
    policy = control_policy(Aliased, hidden=(16,), recurrent=memory, normalise=False, seed=seed)
    algorithm = resolve_control(
        {"name": "reinforce", "credit": {"baseline": "none", "gamma": 0.9}, "group_size": GROUP}
    )
    optim = ModelConfig(lr=2e-2, schedule="linear")
    learner = control_learner(
        policy, Checked(environment("rewards")), algorithm, optim, episodes=GROUP, steps=STEPS, horizon=40, seed=seed
    )
    for step in range(STEPS):
        learner.optimizer.step(aliased_prompts(), seed=seed * STEPS + step)
    return policy


def value(policy: ControlPolicy) -> float:
    """Of 4000 episodes from both starts."""
    return discounted_return(policy.sample(aliased_prompts(), 2000, SamplingConfig(max_new_tokens=60), seed=7))


def probability_of_right(policy: ControlPolicy) -> float:
    """In the only observation there is."""
    with torch.no_grad():
        return float(policy.distribution(torch.ones(1, 1)).exp()[0, 1])


def learn_cartpole(memory: int, seed: int, steps: int = 40) -> ControlPolicy:
    """PPO on CartPole of which only the two positions are seen, until 20 episodes last 450 steps on average."""
    policy = control_policy("CartPole-v1", visible=(0, 2), hidden=(32,), recurrent=memory, seed=seed)
    algorithm = resolve_control({"name": "ppo", "credit": {"gamma": 0.98, "lam": 0.95}})
    learner = control_learner(
        policy,
        Checked(0.02 * environment("rewards")),  # returns of about 1, which a critic's small weights can reach
        algorithm,
        ModelConfig(lr=3e-3, schedule="linear", max_grad_norm=0.5),
        episodes=16,
        steps=steps,
        updates=6,
        minibatches=minibatches_for(policy, algorithm, 2),
        seed=seed,
    )
    for _ in range(steps):
        returns = [r.info["return"] for r in learner.step().rollouts]
        if sum(returns) / len(returns) >= 300 and cartpole_return(policy) >= 475:
            break
    return policy


def cartpole_return(policy: ControlPolicy) -> float:
    """Mean of 20 episodes of the most likely actions."""
    return evaluate_control(policy, 20)[0]["return/mean"]


def door() -> None:
    """A model without a memory of a door that may be locked."""
    pushing = control_policy(LockedDoor)
    rollouts = pushing.sample(door_prompts(100), 1, SamplingConfig(max_new_tokens=10), seed=0)
    for pushes in (1, 5, 10):
        predicted = memoryless_prediction(rollouts, pushes)
        print(f"  {pushes:2d} pushes: the model says {predicted:.5f}, the truth is {share_opened(rollouts):.2f}")


def main() -> None:
    """Print what is learnt beside the exact figures."""
    torch.set_num_threads(1)
    print("A/B/C aliasing, discount .9")
    alone, remembering = learn_aliased(0, 0), learn_aliased(16, 0)
    right = probability_of_right(alone)
    print(f"  without a memory: right with probability {right:.3f}, value {aliased_value(right):.4f} (best .9091)")
    print(f"  with a memory:    value {value(remembering):.4f} (best {aliased_history_value():.4f})")
    print("Locked door")
    door()
    if "cartpole" in sys.argv[1:]:
        print("CartPole without velocities, 500 steps at most")
        for memory in (0, 32):
            begun = time.process_time()
            found = cartpole_return(learn_cartpole(memory, 0))
            minutes = math.ceil((time.process_time() - begun) / 6) / 10
            print(f"  {'with' if memory else 'without'} a memory: {found:.0f} steps, {minutes} CPU minutes")


if __name__ == "__main__":
    main()
