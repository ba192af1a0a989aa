"""What the forms of the Loop page say, as the configurations of the commands that they start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefrl.errors import ConfigError

Config = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopForm:
    """A loop that people label in.

    Attributes:
        policy: a folder or a hub id.
        prompts: a file or a hub id.
        reward: the base of the reward model; empty takes the policy.
        selection: uncertainty, or random.
        more: further settings of `prefrl loop`, in YAML.
    """

    policy: str
    prompts: str
    reward: str = ""
    rounds: int = 3
    pairs: int = 60
    held_out_pairs: int = 20
    comparisons: int = 20
    samples: int = 4
    overlap: int = 1
    selection: str = "uncertainty"
    random_share: float = 0.25
    diversity: float = 1.0
    members: int = 4
    algorithm: str = ""
    steps: int = 10
    max_new_tokens: int = 128
    more: str = ""

    def config(self, store: str, name: str) -> Config:
        """The configuration of `prefrl loop`.

        Args:
            store: where people label.
            name: of the loop, which its checkpoints are called by in the store.

        Raises:
            ConfigError: no policy or no prompts, or further settings that are no YAML.
        """
        algorithm = {"algorithm": self.algorithm} if self.algorithm else {}
        config: Config = {
            "policy": {"name": _model(self.policy, "policy")},
            "data": {"train": _given(self.prompts, "file of prompts")},
            "sampling": {"max_new_tokens": self.max_new_tokens},
            "labeller": {"kind": "people", "store": store, "name": name, "overlap": self.overlap},
            "rounds": self.rounds,
            "samples": self.samples,
            "pairs_per_round": self.pairs,
            "held_out_pairs": self.held_out_pairs,
            "comparisons": self.comparisons,
            "select": self.selection,
            "random_share": self.random_share,
            "diversity": self.diversity,
            "reward": {
                "model": {"name": _model(self.reward or self.policy, "policy")},
                "ensemble": {"members": self.members},
            },
            **algorithm,
            "steps": self.steps,
        }
        return merged(config, settings_of(self.more))


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardForm:
    """A reward model on the labels that there are."""

    base: str
    members: int = 4
    epochs: int = 2
    held_out: float = 0.2
    more: str = ""

    def config(self, store: str) -> Config:
        """The configuration of `prefrl reward`."""
        config: Config = {
            "model": {"name": _model(self.base, "base model")},
            # A policy may answer nothing at all; labels of such pairs are left out, counted and printed.
            "data": {"train": store, "eval_fraction": self.held_out, "max_dropped_fraction": 0.5},
            "ensemble": {"members": self.members},
            "epochs": self.epochs,
        }
        return merged(config, settings_of(self.more))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsForm:
    """Pairs of a policy's answers for people to label; with `compare`, of two policies, whose answers are compared."""

    policy: str
    prompts: str
    against: str = ""
    compare: bool = False
    reward: str = ""
    pairs: int = 60
    samples: int = 4
    random_share: float = 0.25
    overlap: int = 1
    max_new_tokens: int = 128
    more: str = ""

    def config(self, store: str) -> Config:
        """The configuration of `prefrl generate`."""
        second = self.compare or self.against.strip()
        against = _model(self.against, "second policy") if second else ""
        config: Config = {
            "model": _model(self.policy, "policy"),
            "against": against,
            "compare": self.compare,
            "data": {"train": _given(self.prompts, "file of prompts")},
            "store": store,
            "reward": self.reward.strip(),
            "sampling": {"max_new_tokens": self.max_new_tokens},
            "samples": self.samples,
            "pairs": self.pairs,
            "random_share": self.random_share,
            "overlap": self.overlap,
        }
        return merged(config, settings_of(self.more))


def settings_of(text: str) -> Config:
    """Settings written as YAML; none of an empty text.

    Raises:
        ConfigError: the text is something else.
    """
    import yaml

    try:
        found = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" in line {where.line + 1}" if where is not None else ""
        raise ConfigError(
            f"The further settings are no YAML{line}; expected lines such as policy: {{lr: 1.0e-5}}"
        ) from error
    if not isinstance(found, dict):
        raise ConfigError(f"The further settings are {found!r}; expected lines such as policy: {{lr: 1.0e-5}}")
    return found


def merged(config: Mapping[str, Any], more: Mapping[str, Any]) -> Config:
    """A configuration with further settings put over it, section by section."""
    both = {
        name: merged(config[name], value)
        if isinstance(value, Mapping) and isinstance(config.get(name), Mapping)
        else value
        for name, value in more.items()
    }
    return {**config, **both}


def default_name(kind: str, folder: Path) -> str:
    """The first free name for a run of a kind."""
    taken = {place.name for place in folder.iterdir()} if folder.is_dir() else set()
    return next(name for n in range(1, len(taken) + 2) if (name := f"{kind}-{n}") not in taken)


def _model(value: str, what: str) -> str:
    """A model as commands take it: of a run folder, or the folder of a run on this page, the final checkpoint."""
    given = _given(value, what)
    places = (Path(given).expanduser() / inside / "checkpoints" / "final" for inside in (".", "run"))
    return next((str(place) for place in places if place.is_dir()), given)


def _given(value: str, what: str) -> str:
    if not value.strip():
        raise ConfigError(f"No {what} is named; fill it in.")
    return value.strip()
