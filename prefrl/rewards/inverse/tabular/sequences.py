"""Adversarial IRL of short token sequences, all of which are listed: what the log-ratio in the discriminator is worth.

The expert is the KL-regularised optimum of a reward, pi_E(y|x) = ref(y|x) exp(r(y) / beta) / Z(x). With

    logit(x, y) = r(y) / beta - (log pi(y|x) - log ref(y|x)) - c(x)

the discriminator is at 1/2 when pi = pi_E and r is the expert's, up to a constant; c(x) = log Z(x), up to the same. A
plain discriminator, logit = r(y), is at 1/2 with r = 0: the same imitation, and no reward.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from prefrl.rewards.inverse.tabular.logistic import best_discriminator
from prefrl.rewards.inverse.tabular.mdp import Array


@dataclass(frozen=True, slots=True)
class Sequences:
    """All N = V^L sequences of a vocabulary.

    tokens     (N, L)
    features   (N, V + V^2) how often each token and each pair of neighbours occurs
    reference  (P, N) log-probability of every sequence under the reference, by prompt
    """

    tokens: NDArray[np.int64]
    features: Array
    reference: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceFit:
    """What was learnt from an expert (P, N).

    reward      (N,) of every sequence, in units of the expert's reward where the log-ratio is in the discriminator
    constants   (P,) c(x); 0 of a plain discriminator
    policy      (P, N) log-probabilities
    divergence  KL(expert || policy), a mean over prompts, by round
    """

    reward: Array
    constants: Array
    policy: Array
    divergence: tuple[float, ...]


def all_sequences(vocabulary: int, length: int, prompts: int, *, seed: int, spread: float = 1.0) -> Sequences:
    """Every sequence, and references that draw each token by a table of the prompt and the token before.

    Args:
        spread: standard deviation of the references' logits.
    """
    tokens = np.array(list(product(range(vocabulary), repeat=length)))
    pairs = tokens[:, :-1] * vocabulary + tokens[:, 1:]
    counts = [
        (some[:, :, None] == np.arange(kinds)).sum(1) for some, kinds in ((tokens, vocabulary), (pairs, vocabulary**2))
    ]
    logits = spread * np.random.default_rng(seed).normal(size=(prompts, vocabulary + 1, vocabulary))
    logs = logits - np.logaddexp.reduce(logits, -1, keepdims=True)
    before = np.concatenate([np.full((len(tokens), 1), vocabulary), tokens[:, :-1]], 1)
    return Sequences(tokens, np.concatenate(counts, 1).astype(np.float64), logs[:, before, tokens].sum(-1))


def optimum(reference: Array, reward: Array, beta: float) -> tuple[Array, Array]:
    """log pi* (P, N) = log ref + r / beta - log Z, the best of E r - beta KL(pi || ref), and log Z (P,)."""
    logits = reference + reward / beta
    partition = np.logaddexp.reduce(logits, -1)
    return logits - partition[:, None], partition


def fit(
    world: Sequences,
    expert: Array,
    beta: float,
    *,
    plain: bool = False,
    step: float = 0.5,
    rounds: int = 200,
    tolerance: float = 1e-12,
) -> SequenceFit:
    """Discriminator and policy in turn, over all sequences.

    Args:
        expert: log-probabilities (P, N).
        beta: coefficient of the KL to the reference, the expert's and the policy's.
        plain: leave the log-ratio, and with it the prompt's constant, out of the discriminator.
        step: how far the policy moves to the best answer in a round, in (0, 1].
        tolerance: KL(expert || policy) at which to stop.
    """
    prompts, count = world.reference.shape
    features = np.tile(world.features, (prompts, 1))
    constants = np.zeros((prompts * count, 0)) if plain else -np.repeat(np.eye(prompts), count, 0)
    design = np.concatenate([features, constants], 1)
    parameters, policy, history = np.zeros(design.shape[1]), world.reference, []
    for _ in range(rounds):
        offset = np.zeros(design.shape[0]) if plain else (world.reference - policy).ravel()
        masses = [np.exp(logs).ravel() / prompts for logs in (expert, policy)]
        parameters = best_discriminator(design, offset, masses[0], masses[1], parameters)
        reward = world.features @ parameters[: world.features.shape[1]] * (1.0 if plain else beta)
        history.append(float((np.exp(expert) * (expert - policy)).sum() / prompts))
        if history[-1] <= tolerance:
            break
        if plain:  # a step from where the policy is: the KL to the reference would pull it off the expert
            policy, _ = optimum(policy, reward, 1.0 / step)
        else:
            best, _ = optimum(world.reference, reward, beta)
            policy = np.log((1.0 - step) * np.exp(policy) + step * np.exp(best))
    learnt = np.zeros(prompts) if plain else parameters[world.features.shape[1] :]
    return SequenceFit(reward=reward, constants=learnt, policy=policy, divergence=tuple(history))
