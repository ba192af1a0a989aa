"""What a run logged of the components of its reward, read back."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from prefrl.evaluate.run_folder import RunData

FEWEST = 5  # steps below which a mean over the second half is noise


def sources(data: RunData, phase: str = "train") -> list[str]:
    """Names of the components that were measured, in the order of the reward."""
    found = [
        name.removeprefix("source/").rpartition("/")[0] for name in data.names(phase) if name.startswith("source/")
    ]
    return list(dict.fromkeys(found))


def late(values: Sequence[float]) -> float:
    """Mean over the second half of the finite values; NaN for fewer than five of them."""
    finite = [value for value in values if math.isfinite(value)]
    return statistics.fmean(finite[len(finite) // 2 :]) if len(finite) >= FEWEST else math.nan
