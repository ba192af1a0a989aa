"""Scores, tie parameters and reliabilities are recovered from simulated judgements of known people."""

from __future__ import annotations

import math

import pytest
import torch

from prefrl.config import LabelConfig, ModelConfig
from prefrl.model.engine import Engine
from prefrl.model.features import FeatureRewardModel
from prefrl.policy.comparison import davidson, rao_kupper
from prefrl.policy.judgement import LabelModel
from prefrl.policy.objective import reward_objective

SIZE = 4  # features of an item
GOLD = torch.tensor([1.2, -0.8, 0.5, 0.3])  # what items are worth to people
ALPHAS = {"ann": 2.0, "bob": 1.0, "cleo": 0.5, "dan": 1.0, "mallory": -1.0}  # in the order of names, as indices are
JUDGED = {"ann": 900, "bob": 900, "cleo": 900, "dan": 900, "mallory": 600}


def items(pairs, seed):
    """Features (pairs, 2, SIZE) and gold gaps (pairs,)."""
    features = torch.randn(pairs, 2, SIZE, generator=torch.Generator().manual_seed(seed))
    return features, (features @ GOLD).diff(dim=1).squeeze(1).neg()


def drawn(outcome, seed):
    """0 for a win of the first, 1 for a loss, 2 for a tie, by the given log-probabilities."""
    generator = torch.Generator().manual_seed(seed)
    return torch.stack(outcome, 1).exp().multinomial(1, generator=generator).squeeze(1)


def rows_of(model, features, outcomes, annotators=None):
    """Two rows for every judged pair."""
    result = []
    for i, (both, outcome) in enumerate(zip(features, outcomes.tolist(), strict=True)):
        rows = [model.encode(item) for item in both]
        for row, side in zip(rows, (1, -1), strict=True):
            row.atom, row.side, row.label, row.tie = i, side, (1.0, 0.0, 0.5)[outcome], float(outcome == 2)
            row.annotator = -1 if annotators is None else int(annotators[i])
        result.append(rows)
    return result


def fit(features, outcomes, labels, annotators=None, *, epochs=4, batch=100):
    """A linear reward model, trained in mini-batches."""
    net = torch.nn.Linear(SIZE, 1, bias=False)
    torch.nn.init.zeros_(net.weight)
    model = FeatureRewardModel(net)
    pairs = rows_of(model, features, outcomes, annotators)
    steps = epochs * len(pairs) // batch
    engine = Engine(model, ModelConfig(lr=0.03, schedule="cosine", max_grad_norm=0.0), total_steps=steps)
    order = torch.Generator().manual_seed(1)
    for _ in range(epochs):
        for chosen in torch.randperm(len(pairs), generator=order).split(batch):
            rows = [row for i in chosen.tolist() for row in pairs[i]]
            for row in rows:
                row.weight = 1.0 / len(chosen)
            engine.step(rows, lambda b: reward_objective(b, labels, 0.0))
            labels.step(engine.total)
    return model


def gold_accuracy(model):
    """On fresh pairs, without anyone's noise."""
    features, gap = items(4000, 99)
    scores = model.scores(features.reshape(-1, SIZE)).reshape(-1, 2)
    return float(((scores[:, 0] - scores[:, 1]) * gap > 0).float().mean())


def judged():
    """Judgements of people whose reliability is known, one after the other: features, outcomes, index of who judged."""
    who = torch.tensor([i for i, count in enumerate(JUDGED.values()) for _ in range(count)])
    features, gap = items(len(who), 0)
    first = torch.sigmoid(torch.tensor(list(ALPHAS.values()))[who] * gap)
    return features, (torch.rand(len(who), generator=torch.Generator().manual_seed(1)) > first).long(), who


@pytest.mark.parametrize(("ties", "model", "true"), [("davidson", davidson, 0.7), ("rao_kupper", rao_kupper, 0.75)])
def test_tie_parameters_are_recovered(ties, model, true):
    features, gap = items(4000, 0)
    outcomes = drawn(model(gap, torch.tensor(true)), 1)
    assert 0.17 < float((outcomes == 2).float().mean()) < 0.23
    labels = LabelModel(LabelConfig(ties=ties))
    torch.nn.init.constant_(labels.raw_tie, -1.5)  # the usual start is as near as one may end
    assert labels.tie_parameter < 0.21
    learnt = fit(features, outcomes, labels)
    found, wanted = labels.tie_parameter, true
    if ties == "rao_kupper":
        found, wanted = math.exp(found), math.exp(wanted)  # theta
    assert found == pytest.approx(wanted, rel=0.1)
    torch.testing.assert_close(learnt.net.weight.detach()[0], GOLD, rtol=0.15, atol=0.05)


def test_reliabilities_are_recovered_and_the_adversary_is_found():
    features, outcomes, who = judged()
    trusting = fit(features, outcomes, LabelModel(LabelConfig()))
    labels = LabelModel(LabelConfig(reliability="learn"), JUDGED)
    learnt = fit(features, outcomes, labels, who)
    report = {figures.name: figures for figures in labels.report()}
    # Only products of reliabilities and scores can be known: that of the average judgement is 1.
    average = sum(ALPHAS[name] * count for name, count in JUDGED.items()) / sum(JUDGED.values())
    for name, alpha in ALPHAS.items():
        assert report[name].alpha == pytest.approx(alpha / average, rel=0.2), name
    assert [name for name, figures in report.items() if figures.flagged] == ["mallory"]
    assert report["mallory"].agreement < 0.3 < 0.6 < report["cleo"].agreement < report["ann"].agreement
    assert gold_accuracy(learnt) > gold_accuracy(trusting) + 0.01
