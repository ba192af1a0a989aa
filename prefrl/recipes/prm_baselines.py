"""A strong baseline of process reward models: place and length of a step together, and no word of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from prefrl.data.steps import Stepped
from prefrl.evaluate.step_quality import StepQuality, choose_threshold, evaluate_steps, step_baselines


def baselines(train: Sequence[Stepped], dev: Sequence[Stepped], test: Sequence[Stepped]) -> dict[str, StepQuality]:
    """Those of `step_baselines`, and a logistic regression on places and lengths, its threshold chosen on `dev`.

    The regression is missing where the steps of `train` are all of one kind.
    """
    found = step_baselines(train, test)
    fitted = _regression(train, (dev, test))
    if fitted is not None:
        found["place and length"] = evaluate_steps(test, fitted[1], choose_threshold(dev, fitted[0]))
    return found


def features(solution: Stepped) -> list[list[float]]:
    """Of every step: index, its logarithm, share of the steps so far; log lengths of step, text so far and question.

    It knows how many steps there are, which no score of a prefix does.
    """
    sizes = [len(step) for step in solution.steps]
    count, question = len(sizes), len(str(solution.prompt.content))
    return [
        [float(at), math.log1p(at), (at + 1) / count, math.log1p(size), math.log1p(so_far), math.log1p(question)]
        for at, (size, so_far) in enumerate(zip(sizes, accumulate(sizes), strict=True))
    ]


def _regression(train: Sequence[Stepped], others: Sequence[Sequence[Stepped]]) -> list[list[list[float]]] | None:
    """P(fine) of every step of the others; None where there is nothing to tell apart."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    known = [
        (row, label > 0.5)
        for one in train
        for row, label in zip(features(one), one.labels, strict=True)
        if label is not None and label != 0.5
    ]
    if len({fine for _, fine in known}) < 2:
        return None
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    model.fit([row for row, _ in known], [fine for _, fine in known])
    return [[model.predict_proba(features(one))[:, 1].tolist() for one in solutions] for solutions in others]
