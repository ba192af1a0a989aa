"""What a run ran on, found out without importing anything heavy."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from prefrl.rollout.environments import Terms, find_environment, version_of

PACKAGES = ("prefrl", "torch", "transformers", "trl", "peft", "accelerate", "datasets")


def describe_environment(config: Mapping[str, Any]) -> dict[str, Any]:
    """Versions, machine, command line, git commit, the seed and threads of the configuration, and terms of episodes."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "gpus": _gpus(),
        "packages": {name: _version(name) for name in PACKAGES},
        "command": shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),
        "git_commit": _git("rev-parse", "HEAD"),
        "git_clean": None if (changed := _git("status", "--porcelain")) is None else not changed,
        "seed": config.get("seed"),
        "threads": config.get("threads") or os.cpu_count(),
        # Environments of control, which have no turns, are described by their name in the configuration.
        **({"episodes": _episodes(config)} if config.get("environment") and "max_turns" in config else {}),
    }


def _episodes(config: Mapping[str, Any]) -> Terms:
    """What the rollouts of a run over several turns are played in, as every one of them says too."""
    name = config["environment"]
    return Terms(
        name=name,
        version=version_of(find_environment(name)()),
        max_turns=config["max_turns"],
        turn_tokens=config["sampling"]["max_new_tokens"],
        budget=0,
    )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _gpus() -> list[str]:
    """Names of the CUDA devices, when torch is loaded already."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
