"""Several turns: a transformer made from nothing learns to find a number in four guesses.

First it imitates guesses that are merely possible. Then each guess is paid for how far it can be expected to narrow
the search. Success itself is only measured, on numbers that are never trained on: paid for success, a policy learns
not to guess those. Run it with: python examples/02_number_guessing.py
"""

import random

import torch

from prefrl import rewards
from prefrl.config import ModelConfig, SamplingConfig
from prefrl.data.chat import encode_completion
from prefrl.data.tasks import task_rows
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.model.small import small_model
from prefrl.policy.algorithms import resolve
from prefrl.policy.optimizer import PolicyOptimizer, learn_completions
from prefrl.recipes.common import Checked
from prefrl.rollout.guessing import GuessingInWords, evaluate_play, optimal_play, uniform_consistent
from prefrl.rollout.turns import MultiTurn
from prefrl.types import Completion, Prompt, Row

WORDS = ["<eos>", "Guess", "higher", "lower", "correct", "invalid", *map(str, range(1, 17))]
TURN = SamplingConfig(max_new_tokens=2)  # a number and the end of the turn


def prompts(split: str) -> list[Prompt]:
    """One prompt per hidden number; the policy sees the word `Guess` and nothing else."""
    rows = task_rows(f"task:guessing:{split}")
    return [Prompt(id=row["id"], text="Guess", columns={"target": row["target"]}) for row in rows]


def random_play(policy: LanguageModel, prompt: Prompt, rng: random.Random) -> Row:
    """A game in which every guess is possible, but no better than that."""
    environment = GuessingInWords()
    environment.reset(prompt)
    ids: list[int] = []
    mask: list[bool] = []
    while True:
        guess = str(rng.choice(environment.game.state.candidates))
        turn = encode_completion(policy.tokenizer, prompt, Completion(text=guess))
        ids, mask = [*ids, *turn], [*mask, *(True,) * len(turn)]
        reply = environment.step(guess)
        if reply.ended:
            return Row(prompt_ids=policy.encode(prompt), completion_ids=tuple(ids), mask=tuple(mask))
        heard = policy.encode_reply(prompt, reply.text, closed=True)
        ids, mask = [*ids, *heard], [*mask, *(False,) * len(heard)]


def imitate(policy: LanguageModel, steps: int, seed: int) -> None:
    """Supervised learning on random games with the training numbers."""
    rng, some = random.Random(seed), prompts("train")
    engine = Engine(policy, ModelConfig(lr=3e-3, schedule="linear"), total_steps=steps)
    for _ in range(steps):
        learn_completions(engine, [random_play(policy, rng.choice(some), rng) for _ in range(64)])


def reinforce(policy: LanguageModel, steps: int, seed: int) -> None:
    """Policy optimization through the environment, on the training numbers."""
    credit = {"level": "turn", "gamma": 0.0}  # a guess answers for its own reward only
    algorithm = resolve({"name": "rloo", "credit": credit, "kl": {"coef": 0.0}, "entropy": 0.01})
    engine = Engine(
        policy,
        ModelConfig(lr=3e-3, schedule="linear"),
        sampler=MultiTurn(policy, "guessing", max_turns=4),
        sampling=TURN,
        total_steps=steps,
    )
    optimizer = PolicyOptimizer(engine, Checked(rewards.environment("narrowing")), algorithm)
    for step in range(1, steps + 1):
        result = optimizer.step(prompts("train"), seed=seed * 1_000_000 + step)
        if step % 20 == 0:
            won = sum(r.info["success"] for r in result.rollouts) / len(result.rollouts)
            print(f"step {step}: reward {result.metrics['reward/mean']:.2f}, success {won:.3f}", flush=True)


def success(policy: LanguageModel, split: str, games: int = 64) -> float:
    """Share of games won."""
    sampler = MultiTurn(policy, "guessing", max_turns=4)
    rollouts = sampler.sample(prompts(split), games, TURN, seed=-1)
    return sum(r.info["success"] for r in rollouts) / len(rollouts)


if __name__ == "__main__":
    torch.set_num_threads(1)
    policy = small_model(WORDS)
    imitate(policy, steps=150, seed=0)
    before = success(policy, "held_out")
    reinforce(policy, steps=100, seed=0)
    after = success(policy, "held_out")
    print(f"success on held-out numbers: {before:.3f} after imitation, {after:.3f} after policy optimization")
    exact = evaluate_play(uniform_consistent).success, evaluate_play(optimal_play()).success
    print(f"exact, all numbers: {exact[0]:.3f} for random possible guesses, {exact[1]:.4f} for the best play")
