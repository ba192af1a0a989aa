"""Small control policies as actors: networks with a distribution over actions, in the place of a language model."""

from prefrl.model.control.building import control_policy, load_control_policy
from prefrl.model.control.policy import ControlPolicy, Mask
from prefrl.model.networks import last_linear, mlp, zero
from prefrl.model.recurrent import seen
from prefrl.rollout.episodes import Environment, Environments, Reporting

__all__ = [
    "ControlPolicy",
    "Environment",
    "Environments",
    "Mask",
    "Reporting",
    "control_policy",
    "last_linear",
    "load_control_policy",
    "mlp",
    "seen",
    "zero",
]
