"""Every test runs offline, on one thread and from a fixed seed: its numbers are the same on every machine."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from prefrl.model.embedded import NAME, cache_root

# The libraries read these when they are imported, so they are set before any test module is.
os.environ.update(
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false",
    OMP_NUM_THREADS="1",
    MKL_NUM_THREADS="1",
    MPLBACKEND="Agg",
)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder of the tests' own; the embedded model, where it is converted already, is linked into it."""
    converted, folder = cache_root() / NAME, tmp_path_factory.mktemp("cache")
    if converted.exists():
        (folder / NAME).symlink_to(converted.absolute())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFRL_CACHE", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def reproducible() -> None:
    """Seed every generator; one torch thread, as a test before may have set another number."""
    import numpy
    import torch

    torch.set_num_threads(1)
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
