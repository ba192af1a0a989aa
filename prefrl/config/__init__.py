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
from prefrl.config.loop import GenerateConfig, LabelCommandConfig, LabellerConfig, LoopConfig
from prefrl.config.parts import (
    EMBEDDED_MODEL,
    CurriculumConfig,
    DataConfig,
    EnsembleConfig,
    LabelConfig,
    LengthConfig,
    ModelConfig,
    RewardModelConfig,
    RunConfig,
    SamplingConfig,
    Schedule,
    TeacherConfig,
)

__all__ = [
    "EMBEDDED_MODEL",
    "AnnotateConfig",
    "CurriculumConfig",
    "DPOConfig",
    "DataConfig",
    "EnsembleConfig",
    "EvalConfig",
    "GenerateConfig",
    "LabelCommandConfig",
    "LabelConfig",
    "LabellerConfig",
    "LengthConfig",
    "LoopConfig",
    "ModelConfig",
    "QuickstartConfig",
    "RLConfig",
    "RejectionConfig",
    "RewardConfig",
    "RewardModelConfig",
    "RunConfig",
    "SFTConfig",
    "SamplingConfig",
    "Schedule",
    "ScoreConfig",
    "TeacherConfig",
    "VerifyConfig",
]
