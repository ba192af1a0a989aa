from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from fakes import batch_of

from prefrl.config import LabelConfig
from prefrl.errors import DataError
from prefrl.policy.comparison import plackett_luce
from prefrl.policy.judgement import LabelModel
from prefrl.policy.objective import reward_objective
from prefrl.types import Row

EVERY_WAY = [
    LabelConfig(ties=ties, ranking=ranking, smoothing=0.1, reliability="learn")
    for ties in ("drop", "half", "rao_kupper", "davidson")
    for ranking in ("pairs", "plackett_luce")
]


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def log_sigmoid(x):
    return -math.log1p(math.exp(-x))


def item(**fields):
    return Row(prompt_ids=(5,), completion_ids=(1,), mask=(True,), **fields)


def pair(atom=0, **fields):
    return [item(atom=atom, side=side, **fields) for side in (1, -1)]


def ranked(ranks, atom=0, **fields):
    return [item(atom=atom, rank=rank, **fields) for rank in ranks]


def read(sums):
    """Means; NaN where nothing was counted."""
    return {name: float(value / count) for name, (value, count) in sums.items()}


def loss_of(rows, scores, config=None, center=0.0, annotators=None):
    """Loss and metrics of rows with these scores."""
    labels = LabelModel(config or LabelConfig(), annotators)
    loss, sums = reward_objective(batch_of(rows, numbers(*scores)), labels, center)
    return float(loss.detach()), read(sums)


# Pairs. ----------------------------------------------------------------------------------------------------------


def test_a_pair_by_hand():
    loss, metrics = loss_of(pair(margin=0.5, weight=0.5), (2.0, 1.0), center=0.01)
    assert loss == pytest.approx(0.5 * (-log_sigmoid(0.5) + 0.01 * 9), abs=1e-12)
    # The figure is without margin and weight.
    assert metrics == pytest.approx({"nll": -log_sigmoid(1.0), "accuracy": 1.0, "margin": 1.0, "ties": 0.0})


def test_smoothing_by_hand():
    loss, metrics = loss_of(pair(label=0.8), (1.0, 0.0), LabelConfig(smoothing=0.25))
    # .8 right with probability .75, .2 wrong with .25
    assert loss == pytest.approx(-0.65 * log_sigmoid(1.0) - 0.35 * log_sigmoid(-1.0), abs=1e-12)
    assert metrics["nll"] == pytest.approx(-0.8 * log_sigmoid(1.0) - 0.2 * log_sigmoid(-1.0), abs=1e-12)


def test_weights_are_those_of_the_pairs():
    rows = [*pair(0, weight=0.75), *pair(1, weight=0.25)]
    loss, metrics = loss_of(rows, (1.0, 0.0, 0.0, 2.0))
    assert loss == pytest.approx(-0.75 * log_sigmoid(1.0) - 0.25 * log_sigmoid(-2.0), abs=1e-12)
    assert metrics["nll"] == pytest.approx(loss)
    assert (metrics["accuracy"], metrics["margin"]) == (0.5, -0.5)


def test_accuracy_and_margin_follow_the_label_and_leave_out_what_is_not_decided():
    rows = [*pair(0, label=0.2), *pair(1, label=0.5), *pair(2, label=0.5, tie=1.0)]
    _, metrics = loss_of(rows, (0.0, 3.0, 1.0, 0.0, 1.0, 0.0), LabelConfig(ties="half"))
    assert (metrics["accuracy"], metrics["margin"]) == (1.0, 3.0)
    assert metrics["ties"] == pytest.approx(1 / 3)


def test_a_gap_of_minus_100_is_finite():
    for config in EVERY_WAY:
        rows = [*pair(0, tie=0.5), *ranked((1, 2, 2), 1)]
        scores = torch.tensor([0.0, 100.0, 0.0, 100.0, 0.0], requires_grad=True)
        loss, _ = reward_objective(batch_of(rows, scores), LabelModel(config, {"a": 1, "b": 1}), 0.1)
        loss.backward()
        assert math.isfinite(float(loss.detach())) and bool(scores.grad.isfinite().all())


# Ties. -----------------------------------------------------------------------------------------------------------


def test_ties_by_hand():
    # A pair with score gap 1 of which a quarter of the votes were ties; of the others .8 for the first.
    rows, scores = pair(label=0.8, tie=0.25), (1.0, 0.0)
    won, lost = log_sigmoid(1.0), log_sigmoid(-1.0)
    decided = -0.8 * won - 0.2 * lost
    assert loss_of(rows, scores, LabelConfig(ties="drop"))[0] == pytest.approx(0.75 * decided, abs=1e-12)
    half = 0.75 * decided - 0.25 * (won + lost) / 2
    assert loss_of(rows, scores, LabelConfig(ties="half"))[0] == pytest.approx(half, abs=1e-12)

    won, lost = log_sigmoid(0.6), log_sigmoid(-1.4)  # eta = .4
    tied = math.log(1 - math.exp(won) - math.exp(lost))
    wanted = -0.75 * (0.8 * won + 0.2 * lost) - 0.25 * tied
    loss, metrics = loss_of(rows, scores, LabelConfig(ties="rao_kupper", tie_parameter=0.4))
    assert loss == pytest.approx(wanted, abs=1e-12)
    assert metrics["ties"] == 0.25
    assert metrics["ties/predicted"] == pytest.approx(math.exp(tied))

    whole = math.exp(0.5) + math.exp(-0.5) + 0.4  # nu = .4
    wanted = math.log(whole) - 0.75 * (0.8 * 0.5 - 0.2 * 0.5) - 0.25 * math.log(0.4)
    assert loss_of(rows, scores, LabelConfig(ties="davidson", tie_parameter=0.4))[0] == pytest.approx(wanted, abs=1e-12)


def test_the_figure_of_dropped_ties_is_that_of_the_rest():
    rows = [*pair(0, weight=0.5), *pair(1, weight=0.5, label=0.5, tie=1.0)]
    _, metrics = loss_of(rows, (1.0, 0.0, 7.0, 0.0))
    assert metrics["nll"] == pytest.approx(-log_sigmoid(1.0))


@pytest.mark.parametrize("ties", ["rao_kupper", "davidson"])
def test_a_margin_asks_the_winner_for_more_and_ties_for_nothing(ties):
    config = LabelConfig(ties=ties, tie_parameter=0.4)
    assert loss_of(pair(margin=0.5), (2.0, 1.0), config)[0] == pytest.approx(loss_of(pair(), (1.5, 1.0), config)[0])
    lost = loss_of(pair(label=0.0, margin=0.5), (1.0, 2.0), config)[0]
    assert lost == pytest.approx(loss_of(pair(label=0.0), (1.0, 1.5), config)[0])
    tied = {"label": 0.5, "tie": 1.0}
    assert loss_of(pair(margin=0.5, **tied), (2.0, 1.0), config)[0] == loss_of(pair(**tied), (2.0, 1.0), config)[0]


@pytest.mark.parametrize("ties", ["rao_kupper", "davidson"])
def test_a_tie_parameter_is_learnt_only_when_it_is_not_given(ties):
    for given in (0.0, 0.4):
        labels = LabelModel(LabelConfig(ties=ties, tie_parameter=given))
        before = labels.tie_parameter
        loss, _ = reward_objective(batch_of(pair(label=0.5, tie=1.0), numbers(0.5, 0.0)), labels, 0.0)
        if not given:
            loss.backward()
        labels.step()
        assert (labels.tie_parameter > before) == (not given)  # a tie was seen, so ties become likelier
        after = labels.tie_parameter
        labels.step()
        assert labels.tie_parameter == after > 0  # a gradient counts once
    assert before == pytest.approx(0.4, abs=1e-12)


# Ranked lists. ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [LabelConfig(smoothing=0.1, ranking=kind) for kind in ("pairs", "plackett_luce")])
def test_a_list_of_two_is_a_pair(config):
    wanted, figures = loss_of(pair(weight=0.3), (0.2, 1.5), config, center=0.1)
    loss, metrics = loss_of(ranked((1, 2), weight=0.3), (0.2, 1.5), config, center=0.1)
    assert loss == pytest.approx(wanted, abs=1e-12)
    assert metrics == pytest.approx(figures)
    assert loss_of(ranked((2, 1), weight=0.3), (1.5, 0.2), config, center=0.1)[0] == pytest.approx(wanted, abs=1e-12)


def test_all_pairs_of_a_list_share_its_weight():
    loss, metrics = loss_of(ranked((3, 1, 2), weight=0.6), (0.0, 1.0, 3.0), center=0.1)
    gaps, sums = (1.0, 3.0, -2.0), (1.0, 3.0, 4.0)  # 1 over 3, 2 over 3, 1 over 2
    wanted = sum(-log_sigmoid(gap) for gap in gaps) + 0.1 * sum(s * s for s in sums)
    assert loss == pytest.approx(0.2 * wanted, abs=1e-12)
    assert metrics["accuracy"] == pytest.approx(2 / 3)
    assert metrics["margin"] == pytest.approx(2 / 3)


def test_equal_ranks_are_ties():
    rows, scores = ranked((1, 1, 2)), (1.0, 0.0, -1.0)
    decided = -log_sigmoid(2.0) - log_sigmoid(1.0)
    assert loss_of(rows, scores, LabelConfig(ties="drop"))[0] == pytest.approx(decided / 3)
    tie = -(log_sigmoid(1.0) + log_sigmoid(-1.0)) / 2
    loss, metrics = loss_of(rows, scores, LabelConfig(ties="half"))
    assert loss == pytest.approx((decided + tie) / 3)
    assert metrics["ties"] == pytest.approx(1 / 3)


def test_a_list_as_a_whole():
    scores = (0.3, -0.5, 1.1)
    config = LabelConfig(ranking="plackett_luce", smoothing=0.1)
    right, reversed_ = (
        float(plackett_luce(numbers([*scores]), torch.tensor([ranks]))) for ranks in ((2, 3, 1), (2, 1, 3))
    )
    loss, metrics = loss_of(ranked((2, 3, 1), weight=0.5), scores, config)
    assert loss == pytest.approx(-0.5 * (0.9 * right + 0.1 * reversed_), abs=1e-12)
    assert metrics["nll"] == pytest.approx(-right)


# Heads and micro-batches. ----------------------------------------------------------------------------------------


def everything():
    """Pairs and lists of all kinds, with weights, margins, ties and annotators: rows by atom."""
    made = [
        pair(0, label=0.9, margin=0.3, weight=0.2, annotator=0),
        pair(1, label=0.5, tie=1.0, weight=0.1, annotator=1),
        pair(2, label=0.7, tie=0.25, weight=0.2),
        ranked((2, 1, 3, 1), 3, weight=0.3, annotator=1),
        ranked((1, 2), 4, weight=0.2, annotator=0),
    ]
    return [list(rows) for rows in made]


def differentiated(batches, scores, config, bootstrap=None):
    """Loss, gradients of scores and of the label model's parameters, metrics; over micro-batches, lists of atoms."""
    labels = LabelModel(config, {"ann": 2, "bob": 3})
    scores, whole = scores.clone().requires_grad_(), torch.zeros((), dtype=torch.float64)
    sums = {}
    for batch in batches:
        index = [i for rows in batch for i in rows]
        rows = [FLAT[i] for i in index]
        one = batch_of(rows, scores[index])
        if bootstrap is not None:
            one = replace(one, streams={"bootstrap": bootstrap[index]})
        loss, metrics = reward_objective(one, labels, 0.1)
        whole = whole + loss
        for name, (value, count) in metrics.items():
            before = sums.get(name, (0.0, 0.0))
            sums[name] = (before[0] + value, before[1] + count)
    whole.backward()
    return float(whole.detach()), scores.grad, labels.raw_tie.grad, labels.raw_alpha.grad, read(sums)


FLAT = [row for rows in everything() for row in rows]
PLACES = [[i for i, row in enumerate(FLAT) if row.atom == atom] for atom in range(5)]


@pytest.mark.parametrize("config", EVERY_WAY, ids=lambda c: f"{c.ties}-{c.ranking}")
@pytest.mark.parametrize("heads", [(), (3,)])
def test_no_split_into_micro_batches_matters(config, heads):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(len(FLAT), *heads, generator=generator, dtype=torch.float64)
    bootstrap = torch.randint(0, 3, (5, *heads), generator=generator).double() if heads else None
    if bootstrap is not None:
        bootstrap = bootstrap[[row.atom for row in FLAT]]
    whole = differentiated([PLACES], scores, config, bootstrap)
    shuffled = [[rows[::-1] for rows in PLACES[::-1]]]
    for split in ([[rows] for rows in PLACES], [PLACES[3:], PLACES[:3]], shuffled):
        other = differentiated(split, scores, config, bootstrap)
        assert other[0] == pytest.approx(whole[0], abs=1e-12)
        for a, b in zip(other[1:4], whole[1:4], strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
        assert other[4] == pytest.approx(whole[4])


@pytest.mark.parametrize("config", EVERY_WAY, ids=lambda c: f"{c.ties}-{c.ranking}")
def test_heads_are_averaged(config):
    scores = torch.randn(len(FLAT), 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    both = differentiated([PLACES], scores, config)
    alone = [differentiated([PLACES], scores[:, k], config) for k in range(2)]
    assert both[0] == pytest.approx((alone[0][0] + alone[1][0]) / 2, abs=1e-12)
    torch.testing.assert_close(both[1], torch.stack([a[1] for a in alone], 1) / 2)


def test_bootstrap_weighs_judgements_for_each_head():
    scores = torch.randn(len(FLAT), 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    seen = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    config = LabelConfig(ties="half", ranking="plackett_luce")
    both = differentiated([PLACES], scores, config, seen[[row.atom for row in FLAT]])
    first = differentiated([[PLACES[0], PLACES[1], PLACES[3]]], scores[:, 0], config)
    second = differentiated([[PLACES[2]]], scores[:, 1], config)
    assert both[0] == pytest.approx((first[0] + 2 * second[0]) / 2, abs=1e-12)


@pytest.mark.parametrize("config", EVERY_WAY, ids=lambda c: f"{c.ties}-{c.ranking}")
def test_gradients(config):
    scores = torch.randn(len(FLAT), generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    labels = LabelModel(config, {"ann": 2, "bob": 3})
    learnt = [p for p in labels.parameters() if p.requires_grad]
    assert torch.autograd.gradcheck(
        lambda s, *_: reward_objective(batch_of(FLAT, s), labels, 0.1)[0], (scores, *learnt)
    )


# Annotators. -----------------------------------------------------------------------------------------------------


def test_reliability_scales_the_gap():
    labels = LabelModel(LabelConfig(reliability="learn"), {"ann": 3, "bob": 1})
    with torch.no_grad():
        labels.raw_alpha.copy_(numbers(0.0, -2.0))
    # The mean over judgements is 1: 3/4 alpha_ann + 1/4 alpha_bob with alpha_ann - alpha_bob = 2.
    assert labels.alphas.tolist() == pytest.approx([1.5, -0.5])
    rows = [*pair(0, annotator=0), *pair(1, annotator=1), *pair(2)]
    loss, _ = reward_objective(batch_of(rows, numbers(1.0, 0.0, 1.0, 0.0, 1.0, 0.0)), labels, 0.0)
    assert float(loss.detach()) == pytest.approx(-log_sigmoid(1.5) - log_sigmoid(-0.5) - log_sigmoid(1.0), abs=1e-12)
    assert [(f.name, f.alpha, f.labels, f.flagged) for f in labels.report()] == [
        ("bob", pytest.approx(-0.5), 1, True),
        ("ann", pytest.approx(1.5), 3, False),
    ]


def trained(counts, wrong, steps=150):
    """Reliabilities after everyone judged a gap of 2 in every update, `wrong` all of it the other way round."""
    labels = LabelModel(LabelConfig(reliability="learn"), counts)
    total = sum(counts.values())
    rows = [
        row
        for i, (name, count) in enumerate(sorted(counts.items()))
        for row in pair(i, annotator=i, label=1.0 if name != wrong else 0.0, weight=count / total)
    ]
    scores = numbers(*([2.0, 0.0] * len(counts)))
    for _ in range(steps):
        reward_objective(batch_of(rows, scores), labels, 0.0)[0].backward()
        labels.step()
    return {figures.name: figures for figures in labels.report()}


def test_few_contrary_judgements_make_nobody_adversarial_and_many_do():
    few = trained({"ann": 200, "new": 3}, "new")["new"]
    assert 0.0 < few.alpha < 0.9
    assert (few.flagged, few.agreement) == (False, 0.0)
    many = trained({"ann": 200, "mallory": 60}, "mallory")
    assert many["mallory"].alpha < -0.3 and many["mallory"].flagged
    assert many["ann"].agreement == 1.0


def test_the_average_judgement_keeps_reliability_one():
    counts = {"ann": 200, "mallory": 60, "new": 3}
    report = trained(counts, "mallory", steps=50)
    assert sum(counts[name] * figures.alpha for name, figures in report.items()) == pytest.approx(263)


def test_agreement_is_a_running_mean_of_about_a_pass():
    labels = LabelModel(LabelConfig(), {"ann": 4})
    assert math.isnan(labels.report()[0].agreement)
    for gap in (1.0, -1.0, 1.0, 1.0):
        reward_objective(batch_of(pair(annotator=0), numbers(gap, 0.0).requires_grad_()), labels, 0.0)
        labels.step()
    assert labels.report()[0].agreement == pytest.approx(0.75)
    # The next pass takes the place of the first: a fifth judgement counts a quarter.
    reward_objective(batch_of(pair(annotator=0), numbers(-1.0, 0.0).requires_grad_()), labels, 0.0)
    labels.step()
    assert labels.report()[0].agreement == pytest.approx(0.75 * 0.75)


def test_held_out_figures_leave_agreement_alone():
    labels = LabelModel(LabelConfig(), {"ann": 1})
    with torch.no_grad():
        reward_objective(batch_of(pair(annotator=0), numbers(1.0, 0.0)), labels, 0.0)
    labels.step()
    assert math.isnan(labels.report()[0].agreement)


def test_processes_are_summed():
    def learnt(parts, total_of=lambda local: local):
        labels = LabelModel(LabelConfig(reliability="learn", ties="davidson"), {"ann": 2, "bob": 2})
        for rows, scores in parts:
            reward_objective(batch_of(rows, numbers(*scores)), labels, 0.0)[0].backward()
        labels.step(total_of)
        return [labels.tie_parameter, *labels.alphas.tolist(), *(f.agreement for f in labels.report())]

    rows, scores = [*pair(0, annotator=0, weight=0.25), *pair(1, annotator=1, weight=0.25)], (1.0, 0.0, 0.0, 2.0)
    # Two processes with the same share of the rows are one with all of them.
    assert learnt([(rows, scores)], lambda local: 2 * local) == pytest.approx(learnt([(rows, scores)] * 2))


def test_state_is_kept():
    config = LabelConfig(reliability="learn", ties="davidson")
    labels, other = (LabelModel(config, {"ann": 2, "bob": 2}) for _ in range(2))
    loss, _ = reward_objective(batch_of(pair(annotator=1, tie=0.5), numbers(1.0, 0.0)), labels, 0.0)
    loss.backward()
    labels.step()
    assert other.report() != labels.report()
    other.load_state_dict(labels.state_dict())
    assert other.tie_parameter == labels.tie_parameter
    assert [(f.name, f.alpha) for f in other.report()] == [(f.name, f.alpha) for f in labels.report()]


@pytest.mark.parametrize(("annotators", "count"), [({}, 0), ({"": 7}, 0), ({"ann": 7}, 1)])
def test_reliability_needs_two_annotators(annotators, count):
    with pytest.raises(DataError, match=f"names {count} annotators; expected at least 2 in the column annotator"):
        LabelModel(LabelConfig(reliability="learn"), annotators)
