"""Every knob there is. YAML keys == dataclass fields == dotted command-line flags, one to one.

Nothing here imports more than the standard library, so that help and errors come at once.
"""

from prefrl.config.annotation import AnnotateConfig
from prefrl.config.commands import (
    DPOConfig,
    EvalConfig,
    QuickstartConfig,
    RejectionConfig,
    RewardConfig,
    RLConfig,
    ScoreConfig,
    SFTConfig,
    VerifyConfig,
)
from prefrl.config.control import CloneConfig, ControlConfig, MinibatchConfig
from prefrl.config.irl import ActorConfig, DiscriminatorConfig, IRLConfig, RewardNetConfig
from prefrl.config.irl_text import TextConfig
from prefrl.config.loop import GenerateConfig, LabelCommandConfig, LabellerConfig, LoopConfig
from prefrl.config.parts import (
    EMBEDDED_MODEL,
    CurriculumConfig,
    DataConfig,
    EnsembleConfig,
    LabelConfig,
    LengthConfig,
    ModelConfig,
    Resumable,
    RewardModelConfig,
    RunConfig,
    SamplingConfig,
    Schedule,
    TeacherConfig,
)
from prefrl.config.prm import PRMConfig, StepsConfig
from prefrl.config.step_labels import StepLabelsConfig
from prefrl.config.trajectory import FragmentFitConfig, FragmentLabelsConfig, TrajectoryConfig
from prefrl.config.yes import YesConfig

__all__ = [
    "EMBEDDED_MODEL",
    "ActorConfig",
    "AnnotateConfig",
    "CloneConfig",
    "ControlConfig",
    "CurriculumConfig",
    "DPOConfig",
    "DataConfig",
    "DiscriminatorConfig",
    "EnsembleConfig",
    "EvalConfig",
    "FragmentFitConfig",
    "FragmentLabelsConfig",
    "GenerateConfig",
    "IRLConfig",
    "LabelCommandConfig",
    "LabelConfig",
    "LabellerConfig",
    "LengthConfig",
    "LoopConfig",
    "MinibatchConfig",
    "ModelConfig",
    "PRMConfig",
    "QuickstartConfig",
    "RLConfig",
    "RejectionConfig",
    "Resumable",
    "RewardConfig",
    "RewardModelConfig",
    "RewardNetConfig",
    "RunConfig",
    "SFTConfig",
    "SamplingConfig",
    "Schedule",
    "ScoreConfig",
    "StepLabelsConfig",
    "StepsConfig",
    "TeacherConfig",
    "TextConfig",
    "TrajectoryConfig",
    "VerifyConfig",
    "YesConfig",
]
