"""The models of a loop at their checkpoints: one policy in memory, whose trained weights are exchanged."""

from __future__ import annotations

from pathlib import Path

from prefrl.config import LoopConfig
from prefrl.model.engine import Engine
from prefrl.model.ensemble import RewardEnsemble, load_reward_scorer
from prefrl.model.language import LanguageModel
from prefrl.model.load import load
from prefrl.model.reward_model import RewardModel
from prefrl.model.reward_scorer import RewardScorer
from prefrl.recipes.common import load_policy


def checkpoint(kind: str, number: int) -> str:
    """The id of a checkpoint, which is its place under checkpoints/: `round_2/policy`; round 0 is the start."""
    return f"round_{number}/{kind}" if number else "start"


class Actor:
    """The policy, its start weights as the reference, and where its checkpoints are.

    Args:
        config: of the loop.
        folder: of the checkpoints.
    """

    def __init__(self, config: LoopConfig, folder: Path) -> None:
        self._config, self._folder = config, folder
        self.policy: LanguageModel
        self.engine: Engine
        self._number: int | None
        self._load()

    def at(self, number: int) -> LanguageModel:
        """The policy as round `number` left it; 0 is the start."""
        if self._number != number:
            if self._number is None:
                self._load()
            self._exchange(number)
        return self.policy

    def leave(self) -> None:
        """Say that the policy is being trained, and at no checkpoint; it may get more parts, such as adapters."""
        self._number = None

    def save(self, number: int) -> None:
        """Write the policy as it is as the checkpoint of a round."""
        self.policy.save(self._folder / checkpoint("policy", number))
        self._number = number if self._names == _names(self.policy) else None

    def _load(self) -> None:
        config = self._config
        self.policy = load_policy(config.policy, config.seed)
        self.engine = Engine(self.policy, config.policy, sampling=config.sampling, reference=True)
        self._number, self._names = 0, _names(self.policy)

    def _exchange(self, number: int) -> None:
        if number:
            spec = self._config.policy
            path = str(self._folder / checkpoint("policy", number))
            other = load(path, top_layers=spec.top_layers, dtype=spec.dtype, device=spec.device)
            self.engine.restore([p.detach() for p in other.module.parameters() if p.requires_grad])
        else:
            self.engine.reset()
        self._number = number


def warm(model: RewardScorer, folder: Path) -> None:
    """Let a fresh reward model, or every member of an ensemble, start from the weights in a checkpoint."""
    for own, saved in zip(_members(model), _members(load_reward_scorer(str(folder))), strict=True):
        own.module.load_state_dict(saved.module.state_dict())


def _members(model: RewardScorer) -> list[RewardModel]:
    if isinstance(model, RewardEnsemble):
        return model.models
    assert isinstance(model, RewardModel)
    return [model]


def _names(policy: LanguageModel) -> list[str]:
    return [name for name, _ in policy.module.named_parameters()]
