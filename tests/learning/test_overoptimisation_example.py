"""The claim of examples/04_overoptimisation.py: an ensemble outlasts a single model, and a proxy outruns gold."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from statistics import fmean

PATH = Path(__file__).parents[2] / "examples" / "04_overoptimisation.py"
SPEC = importlib.util.spec_from_file_location("overoptimisation_example", PATH)
assert SPEC is not None and SPEC.loader is not None
example = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)

SINGLE = ("one model, 400 pairs", "one model, 2,000 pairs")
ENSEMBLE = ("5 of 400, mean", "5 of 400, minimum", "5 of 400, mean - std")


def test_an_ensemble_beats_a_single_model_from_1_8_nats_on():
    runs = [example.frontiers(seed, prompts=32, samples=2048) for seed in (0, 1)]
    points = runs[0]["gold itself"].points
    far = [i for i, point in enumerate(points) if point.kl >= 1.8]
    assert len(far) == 8 and points[10].at == 1024
    golds = example.mean_golds(runs)
    for name in ENSEMBLE:
        assert all(golds[name][i] > max(golds[single][i] for single in SINGLE) + 0.1 for i in far), name
    for side, least, most in (("proxy", 0.2, 1.0), ("gold", -1.0, 0.15)):  # the proxy climbs on, gold flattens
        curve = [fmean(getattr(run[SINGLE[1]].points[i], side).mean for run in runs) for i in (0, 4, 7, 10)]
        assert least < (curve[3] - curve[2]) / (curve[1] - curve[0]) < most, (
            side
        )  # n from 128 to 1024, and from 1 to 16
    assert all(golds["gold itself"][i] > golds[name][i] for i in far for name in (*SINGLE, *ENSEMBLE))
