"""The best discriminator that is linear in its parameters, exactly: weighted logistic regression by Newton's method."""

from __future__ import annotations

import numpy as np

from prefrl.errors import RewardError
from prefrl.rewards.inverse.tabular.mdp import Array

_CERTAIN = 30.0  # a logit that float64 cannot tell from certainty


def best_discriminator(design: Array, offset: Array, expert: Array, policy: Array, start: Array) -> Array:
    """Parameters (k,) of the logit z = design @ parameters + offset with the least cross-entropy.

    That is the sum of expert * softplus(-z) + policy * softplus(z). Where several are equally good it is the one
    nearest to `start`.

    Args:
        design: (n, k) of n transitions or sequences.
        offset: (n,) the part of the logit that is given, such as -log pi.
        expert, policy: (n,) how often each side visits them.

    Raises:
        RewardError: no optimum, as where one side goes where the other never does.
    """
    parameters, loss = start.copy(), np.inf
    for _ in range(200):
        logit = design @ parameters + offset
        chance = 1.0 / (1.0 + np.exp(-logit))
        slope = design.T @ (policy * chance - expert * (1.0 - chance))
        if np.abs(slope).max() <= 1e-14 * (expert.sum() + policy.sum()):
            return _finite(parameters, logit)
        curvature = (design * ((expert + policy) * chance * (1.0 - chance))[:, None]).T @ design
        direction = np.linalg.lstsq(curvature, -slope, rcond=1e-12)[0]
        step, before = 1.0, _loss(logit, expert, policy)
        while (loss := _loss(logit + step * design @ direction, expert, policy)) > before and step > 1e-4:
            step /= 2.0
        if loss >= before:  # as good as float64 can tell
            return _finite(parameters, logit)
        parameters = parameters + step * direction
    raise RewardError("the discriminator did not settle in 200 steps of Newton's method")


def _finite(parameters: Array, logit: Array) -> Array:
    """The parameters, where they are an optimum and not on the way to infinity."""
    if np.abs(logit).max() > _CERTAIN:
        raise RewardError("the discriminator has no optimum: one side hardly goes where the other does; soften both")
    return parameters


def _loss(logit: Array, expert: Array, policy: Array) -> float:
    return float(expert @ np.logaddexp(0.0, -logit) + policy @ np.logaddexp(0.0, logit))
