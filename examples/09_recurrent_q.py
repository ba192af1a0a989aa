"""Where values break and histories fix it: Q-learning on A/B/C aliasing, without a memory and with one.

Values of what is seen assume that it says where one is. A and C look alike, so that Q(right) and Q(left) are learnt
as means over both, and the greedy policy, which is deterministic, walks into a wall for ever from one of the two: its
value is .5 where a random walk has .909. A recurrent Q-function of all that was seen and done reaches .95.

Replayed pieces of episodes begin in the middle, where the state of a GRU is not known: the first `BURN_IN` steps only
warm it up, and their errors do not count. A loss over steps BURN_IN .. T - 2 needs T > BURN_IN + 1, or it is the mean
of nothing, NaN; shorter pieces are refused here. Policies of prefrl need no burn-in: whole sequences are computed anew.
Run it with: python examples/09_recurrent_q.py
"""

import random

import torch
from torch import Tensor, nn

from prefrl.rollout.pomdp import DISCOUNT, Aliased, aliased_prompts

BURN_IN, HORIZON = 1, 6
Step = tuple[int, float, bool]  # action, reward, whether the episode ended


class Q(nn.Module):
    """Q-values of both actions at every step of sequences of (observation, action before it one-hot)."""

    def __init__(self, memory: bool) -> None:
        super().__init__()
        self.memory = memory
        self.gru = nn.GRU(3, 16, batch_first=True)
        self.head = nn.Linear(16 if memory else 1, 2)

    def forward(self, seen: Tensor) -> Tensor:
        """(B, T, 3) -> (B, T, 2)."""
        return self.head(self.gru(seen)[0] if self.memory else seen[..., :1])


def encode(actions: list[int]) -> Tensor:
    """What is seen before each next action: 1 for the only observation there is, and the last action."""
    rows = [[1.0, 0.0, 0.0]] + [[1.0, float(a == 0), float(a == 1)] for a in actions]
    return torch.tensor(rows)


def play(q: Q, start: int, epsilon: float, chance: random.Random) -> list[Step]:
    """One epsilon-greedy episode."""
    world, steps, actions = Aliased(), [], []
    world.reset(aliased_prompts()[start])
    while len(steps) < HORIZON and not (steps and steps[-1][2]):
        with torch.no_grad():
            values = q(encode(actions)[None])[0, -1]
        action = chance.randrange(2) if chance.random() < epsilon else int(values.argmax())
        ended = world.step(action)[1]
        actions.append(action)
        steps.append((action, world.rewards[-1], ended))
    return steps


def td_loss(q: Q, target: Q, episode: list[Step], burn_in: int) -> Tensor:
    """Mean over steps after the burn-in of (r + gamma (1 - ended) max Q'(h') - Q(h, a))^2.

    Raises:
        ValueError: the piece is too short to hold a step after the burn-in with one that follows it.
    """
    actions = [a for a, _, _ in episode]
    length = len(episode) + 1  # observations: one more than actions
    if length <= burn_in + 1:
        raise ValueError(f"a piece of {length} observations has none left after a burn-in of {burn_in}")
    seen = encode(actions)[None]
    values = q(seen)[0, :-1].gather(-1, torch.tensor(actions)[:, None])[:, 0]
    with torch.no_grad():
        following = target(seen)[0, 1:].max(-1).values
    rewards, ended = torch.tensor([r for _, r, _ in episode]), torch.tensor([float(e) for _, _, e in episode])
    errors = rewards + DISCOUNT * (1.0 - ended) * following - values
    return (errors[burn_in:] ** 2).mean()


def learn(memory: bool, seed: int, episodes: int = 1500) -> Q:
    """Q-learning from a replay of the last 200 episodes."""
    chance = random.Random(seed)
    torch.manual_seed(seed)
    q, target = Q(memory), Q(memory)
    optimizer, replay = torch.optim.Adam(q.parameters(), lr=1e-2), list[list[Step]]()
    for episode in range(episodes):
        replay = [*replay[-199:], play(q, episode % 2, 0.3, chance)]
        if episode % 20 == 0:
            target.load_state_dict(q.state_dict())
        # Whole episodes, from their start: there a state of 0 is right, and nothing is burnt in.
        losses = [td_loss(q, target, piece, 0) for piece in chance.sample(replay, min(8, len(replay)))]
        # Pieces from the middle do need it; those that are too short for it are left out.
        middles = [p[1:] for p in chance.sample(replay, min(4, len(replay))) if len(p) - 1 > BURN_IN] if memory else []
        losses += [td_loss(q, target, piece, BURN_IN) for piece in middles]
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
    return q


def greedy_value(q: Q) -> float:
    """Exact: the greedy policy and the world are deterministic. What is not found in six steps never is."""
    chance, total = random.Random(0), 0.0
    for start in (0, 1):
        steps = play(q, start, 0.0, chance)
        total += sum(DISCOUNT**t * reward for t, (_, reward, _) in enumerate(steps))
    return total / 2


def main() -> None:
    """Print the value of both greedy policies."""
    torch.set_num_threads(1)
    for memory in (False, True):
        value = greedy_value(learn(memory, seed=0))
        print(f"greedy, {'with' if memory else 'without'} a memory: value {value:.3f}")


if __name__ == "__main__":
    main()
