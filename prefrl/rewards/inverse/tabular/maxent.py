"""Maximum causal entropy inverse reinforcement learning with known dynamics.

The reward is fitted by maximum likelihood of the demonstrations under its soft-optimal policy. With r / temperature

    NLL(r) = E_start V_0 - sum_sa d_expert(s, a) r(s, a)        dNLL/dr = d_soft-optimal - d_expert

where V is the soft value and d counts discounted visits at t < H. NLL is the discounted sum of -log pi(a_t | s_t) of
the demonstrations, so the discount is in the backup as in the visits: leave it out of one and the gradient is wrong.

Ziebart, Bagnell, Dey (2010); Ziebart's thesis (2010), chapter 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from prefrl.errors import DataError, RewardError
from prefrl.rewards.inverse.tabular.mdp import (
    MDP,
    Array,
    Trajectory,
    action_rewards,
    empirical_occupancy,
    empirical_start,
)
from prefrl.rewards.inverse.tabular.planning import Solution, occupancy, solve

Inputs = Literal["state", "state_action"]


class TableReward(nn.Module):
    """One free number per row of features: the reward (S,) or (S, A) that no network stands between."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(shape, dtype=torch.float64))

    def forward(self, features: Tensor) -> Tensor:
        """The table; the features are not looked at."""
        return self.table


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxEntFit:
    """A reward that explains demonstrations.

    net         the fitted module, from `features` to rewards
    reward      (S,) or (S, A) its values in the process it was fitted in
    solution    the soft-optimal policy of that reward, its values among it
    loss        NLL of the demonstrations, in nats an episode
    gradient    largest |dNLL / parameter|; under the tolerance where `converged`
    gap         largest |visits of the policy - visits of the demonstrations|; 0 only where the net can express it
    history     (loss, gradient, gap) at every evaluation
    """

    net: nn.Module
    reward: Array
    solution: Solution
    loss: float
    gradient: float
    gap: float
    converged: bool
    history: tuple[tuple[float, float, float], ...]


def negative_log_likelihood(
    mdp: MDP, reward: ArrayLike, expert: Array, temperature: float = 1.0
) -> tuple[float, Array, Solution]:
    """NLL, its gradient (S, A) with respect to the reward of every action, and the soft-optimal policy.

    Args:
        expert: discounted visits (S, A) of the demonstrations.
        temperature: of the soft-optimal policy; above 0.
    """
    if temperature <= 0:
        raise RewardError(f"temperature is {temperature}; expected above 0: a hard optimum has no likelihood")
    solution = solve(mdp, reward, temperature)
    first = solution.values if mdp.horizon is None else solution.values[0]
    paid = float((expert * action_rewards(mdp, reward)).sum())
    loss = (float(mdp.start @ first) - paid) / temperature
    return loss, (occupancy(mdp, solution.policy) - expert) / temperature, solution


def fit(
    mdp: MDP,
    expert: Array | Sequence[Trajectory],
    net: nn.Module | None = None,
    *,
    inputs: Inputs = "state",
    temperature: float = 1.0,
    l2: float = 0.0,
    optimizer: Literal["lbfgs", "adam"] = "lbfgs",
    lr: float = 1e-2,
    tolerance: float = 1e-7,
    max_evaluations: int = 2000,
) -> MaxEntFit:
    """The reward under which the demonstrations are likeliest.

    Args:
        expert: discounted visits (S, A), or trajectories: then the first states are theirs too.
        net: from features (S, d), or (S, A, d + A) with the action one-hot, to one number each; a table if not given.
        l2: penalty 0.5 * l2 * |parameters|^2; with few demonstrations the likelihood alone has no optimum.
        lr: step of Adam; L-BFGS searches along a line.
        tolerance: largest |gradient| per parameter that counts as converged.

    Raises:
        RewardError: the net gives the wrong shape, or the loss is no longer finite.
        DataError: the demonstrations do not fit the process.
    """
    if isinstance(expert, np.ndarray):
        visits = expert
    else:
        _check_ends(mdp, expert)
        visits, mdp = empirical_occupancy(mdp, expert), replace(mdp, start=empirical_start(mdp, expert))
    shape = (mdp.states,) if inputs == "state" else (mdp.states, mdp.actions)
    net = net if net is not None else TableReward(*shape)
    run = _Run(mdp, visits, net, inputs, temperature, l2, tolerance)
    _OPTIMIZERS[optimizer](run, lr, max_evaluations)
    loss, gradient, gap = run.history[-1]
    return MaxEntFit(
        net=net,
        reward=run.reward().detach().numpy().copy(),
        solution=run.solution,
        loss=loss,
        gradient=gradient,
        gap=gap,
        converged=gradient <= tolerance,
        history=tuple(run.history),
    )


def net_inputs(mdp: MDP, inputs: Inputs = "state") -> Tensor:
    """What a reward net is shown: features (S, d), or features and one-hot actions (S, A, d + A)."""
    features = torch.as_tensor(mdp.features, dtype=torch.float64)
    if inputs == "state":
        return features
    actions = torch.eye(mdp.actions, dtype=torch.float64).expand(mdp.states, -1, -1)
    return torch.cat([features[:, None].expand(-1, mdp.actions, -1), actions], -1)


def net_rewards(net: nn.Module, mdp: MDP, inputs: Inputs = "state") -> Tensor:
    """What a net pays, (S,) or (S, A) in float64, with gradient.

    Raises:
        RewardError: it gives another shape.
    """
    shown = net_inputs(mdp, inputs)
    parameter = next(net.parameters(), shown)
    found: Tensor = net(shown.to(parameter.dtype)).to(torch.float64)
    want = shown.shape[:-1]
    if found.shape == (*want, 1):
        found = found[..., 0]
    if found.shape != want:
        raise RewardError(
            f"the reward net gives shape {tuple(found.shape)} for {tuple(shown.shape)}; expected {tuple(want)}: one "
            f"number per {inputs.replace('_', ' and ')}"
        )
    return found


def _check_ends(mdp: MDP, trajectories: Sequence[Trajectory]) -> None:
    """Episodes that are cut short would be explained by a reward that makes living a punishment without bound."""
    if mdp.horizon is None:
        raise RewardError("demonstrations end and the process does not; give the MDP the horizon of the demonstrations")
    for index, one in enumerate(trajectories):
        if len(one.actions) < mdp.horizon and not mdp.terminal[one.states[-1]]:
            raise DataError(
                f"demonstration {index} ends after {len(one.actions)} of {mdp.horizon} actions in a state that is not "
                "terminal; give complete episodes, or set the horizon to their length"
            )


class _Run:
    """The likelihood as a function of the net's parameters, and what was seen of it."""

    def __init__(
        self, mdp: MDP, expert: Array, net: nn.Module, inputs: Inputs, temperature: float, l2: float, tolerance: float
    ) -> None:
        self.mdp, self.expert, self.net, self.inputs = mdp, expert, net, inputs
        self.temperature, self.l2, self.tolerance = temperature, l2, tolerance
        self.parameters = [p for p in net.parameters() if p.requires_grad]
        self.history: list[tuple[float, float, float]] = []
        self.solution: Solution

    def reward(self) -> Tensor:
        """The net's rewards in float64."""
        return net_rewards(self.net, self.mdp, self.inputs)

    def evaluate(self) -> Tensor:
        """The loss, with the gradient left in the parameters."""
        reward = self.reward()
        loss, gradient, self.solution = negative_log_likelihood(
            self.mdp, reward.detach().numpy(), self.expert, self.temperature
        )
        for parameter in self.parameters:
            parameter.grad = self.l2 * parameter.detach()
        by_reward = gradient.sum(-1) if self.inputs == "state" else gradient
        reward.backward(torch.as_tensor(by_reward))
        loss += 0.5 * self.l2 * sum(float(p.detach().square().sum()) for p in self.parameters)
        if not math.isfinite(loss):
            raise RewardError("the likelihood is no longer finite; give a smaller lr, an l2 penalty, or use lbfgs")
        slope = max(float(p.grad.abs().max()) for p in self.parameters if p.grad is not None)
        self.history.append((loss, slope, float(np.abs(by_reward).max()) * self.temperature))
        return torch.tensor(loss, dtype=torch.float64)


def _lbfgs(run: _Run, lr: float, limit: int) -> None:
    """L-BFGS with a line search, started anew while that still helps: its memory can go stale near the optimum."""
    before = math.inf
    while len(run.history) < limit:
        left = limit - len(run.history)
        search = torch.optim.LBFGS(
            run.parameters,
            max_iter=left,
            max_eval=left,
            history_size=50,
            tolerance_grad=run.tolerance,
            tolerance_change=0.0,
            line_search_fn="strong_wolfe",
        )
        search.step(run.evaluate)
        run.evaluate()
        slope = run.history[-1][1]
        if slope <= run.tolerance or slope > 0.5 * before:
            return
        before = slope


def _adam(run: _Run, lr: float, limit: int) -> None:
    search = torch.optim.Adam(run.parameters, lr=lr)
    for _ in range(limit):
        run.evaluate()
        if run.history[-1][1] <= run.tolerance:
            return
        search.step()
    run.evaluate()


_OPTIMIZERS: dict[str, Callable[[_Run, float, int], None]] = {"lbfgs": _lbfgs, "adam": _adam}
