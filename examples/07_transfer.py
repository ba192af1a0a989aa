"""A reward that is learnt in one maze and used in another: which methods of imitation bring one home?

An expert walks to a goal through the gap in a wall. Three methods imitate it perfectly. Then the gap moves, and the
policy is planned anew with the reward that each of them learnt. Run it with: python examples/07_transfer.py (seconds;
it writes transfer.png)
"""

import sys
from pathlib import Path

import numpy as np

from prefrl.evaluate import maze_figures
from prefrl.evaluate.figures import GREY, PALETTE
from prefrl.rewards.inverse import tabular
from prefrl.rewards.inverse.tabular.airl import AdversarialFit

HERE, THERE = tabular.maze(gap=0), tabular.maze(gap=3)
GOAL = 7  # at the right of the second row
REWARD = tabular.cells_reward(HERE, {GOAL: 3.0})  # for every step spent there
METHODS = {"state": "AIRL, g(s)", "state_action": "AIRL, g(s, a)", "gail": "GAIL"}


def elsewhere(reward: np.ndarray) -> float:
    """True return in the other maze of the policy that is planned there with a reward."""
    return tabular.expected_return(THERE, tabular.solve(THERE, reward).policy, REWARD)


def learn() -> dict[str, AdversarialFit]:
    """Every method on the exact visits of the expert."""
    expert = tabular.solve(HERE, REWARD).policy
    return {name: tabular.airl.fit(HERE, expert, form) for form, name in METHODS.items()}  # type: ignore[arg-type]


def table(found: dict[str, AdversarialFit]) -> str:
    """What each method reached here, and there."""
    lines = [f"{'':24}{'here':>8}{'KL to expert':>14}{'there':>8}"]
    here = tabular.expected_return(HERE, tabular.solve(HERE, REWARD).policy, REWARD)
    lines.append(f"{'the true reward':24}{here:8.3f}{0:14.0e}{elsewhere(REWARD):8.3f}")
    for name, fit in found.items():
        here = tabular.expected_return(HERE, fit.policy, REWARD)
        lines.append(f"{name:24}{here:8.3f}{fit.divergence:14.0e}{elsewhere(fit.reward):8.3f}")
    old = tabular.expected_return(THERE, tabular.solve(HERE, REWARD).policy, REWARD)
    uniform = tabular.expected_return(THERE, tabular.uniform_policy(THERE), REWARD)
    lines.append(f"{'the old policy, copied':24}{'':22}{old:8.3f}")
    lines.append(f"{'any action':24}{'':22}{uniform:8.3f}")
    return "\n".join(lines)


def draw(found: dict[str, AdversarialFit], path: Path) -> None:
    """The expert in its maze, and the policy that each learnt reward leads to in the other one."""
    most = elsewhere(REWARD)
    shape = (4, 4)
    boards = [
        maze_figures.Board(
            mdp=HERE,
            shape=shape,
            reward=REWARD,
            policy=tabular.solve(HERE, REWARD).policy,
            title="The expert",
            note="all methods imitate it\nto 1e-12 nats a step",
            share=1.0,
            colour=GREY,
            marked=(GOAL,),
        )
    ]
    for (name, fit), colour in zip(found.items(), (PALETTE[2], PALETTE[1], PALETTE[1]), strict=True):
        worth = elsewhere(fit.reward)
        boards.append(
            maze_figures.Board(
                mdp=THERE,
                shape=shape,
                reward=fit.reward,
                policy=tabular.solve(THERE, fit.reward).policy,
                title=name,
                note=f"return {worth:.2f} of {most:.2f}\nafter the gap has moved",
                share=worth / most,
                colour=colour,
                marked=(GOAL,),
            )
        )
    maze_figures.boards(boards).savefig(path, dpi=200, facecolor="white")


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    print(tabular.identifiability(HERE))
    learnt = learn()
    print(table(learnt))
    draw(learnt, folder / "transfer.png")
