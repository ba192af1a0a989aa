from __future__ import annotations

import dataclasses

import pytest

from prefrl.errors import ConfigError
from prefrl.policy.algorithms import ALGORITHMS, resolve
from prefrl.policy.parts import Algorithm, ClipSpec, CreditSpec, KLSpec, PairSpec, SelectSpec

NEEDS = {
    "reinforce": set(),
    "reinforce_pp": {"reference"},
    "rloo": {"groups", "reference"},
    "ppo": {"reference", "values"},
    "grpo": {"groups", "reference"},
    "dr_grpo": {"groups"},
    "dapo": {"groups"},
    "cispo": {"groups"},
    "gspo": {"groups"},
    "ctpo": {"groups"},
    "full_ratio": {"groups"},
    "rejection": set(),
    "opd": {"teacher"},
    "opsd": {"teacher"},
    **{name: {"groups", "reference"} for name in ("dpo", "ipo", "kto", "ld_dpo")},
    **{name: {"groups"} for name in ("slic", "orpo", "simpo", "cpo")},
}


def test_the_table_and_what_its_rows_need():
    assert {name: set(algorithm.needs) for name, algorithm in ALGORITHMS.items()} == NEEDS
    assert {name for name, algorithm in ALGORITHMS.items() if algorithm.extras} == {"opd", "opsd"}
    assert ALGORITHMS["opd"].extras == ALGORITHMS["opsd"].extras == {"teacher_kl"}


@pytest.mark.parametrize("name", NEEDS)
def test_every_row_resolves_and_cites_its_paper(name):
    assert resolve(name) is not None
    assert resolve({"name": name}) == resolve(name) == ALGORITHMS[name]
    assert ALGORITHMS[name].name == name
    assert ALGORITHMS[name].paper


GROUP_STD = CreditSpec(baseline="group_mean", scale="group_std")


@pytest.mark.parametrize(
    ("name", "credit", "ratio", "clip", "reduction"),
    [
        ("reinforce", CreditSpec(baseline="batch_mean"), "none", ClipSpec(), "sequence_sum"),
        ("reinforce_pp", CreditSpec(baseline="none", scale="whiten"), "token", ClipSpec(kind="min"), "token_mean"),
        ("rloo", CreditSpec(baseline="leave_one_out"), "none", ClipSpec(), "sequence_sum"),
        ("ppo", CreditSpec(baseline="critic", scale="whiten"), "token", ClipSpec(kind="min"), "token_mean"),
        ("grpo", GROUP_STD, "token", ClipSpec(kind="min"), "sequence_mean"),
        ("dr_grpo", CreditSpec(baseline="group_mean"), "token", ClipSpec(kind="min"), "constant"),
        ("dapo", GROUP_STD, "token", ClipSpec(kind="min", low=0.2, high=0.28), "token_mean"),
        ("cispo", GROUP_STD, "token", ClipSpec(kind="weight", low=1.0, high=4.0), "token_mean"),
        ("gspo", GROUP_STD, "sequence_mean", ClipSpec(kind="min", low=3e-4, high=4e-4), "sequence_mean"),
        ("full_ratio", CreditSpec(baseline="leave_one_out"), "sequence", ClipSpec(), "sequence_sum"),
    ],
)
def test_rows_say_what_their_papers_say(name, credit, ratio, clip, reduction):
    row = ALGORITHMS[name]
    assert (row.credit, row.ratio, row.clip, row.reduction) == (credit, ratio, clip, reduction)


def test_the_kl_of_each_row_is_in_one_place():
    placed = {name: (row.kl.estimator, row.kl.place) for name, row in ALGORITHMS.items() if row.kl.coef}
    assert placed == {
        "reinforce_pp": ("k1", "reward"),
        "rloo": ("k1", "reward"),
        "ppo": ("k1", "reward"),
        "grpo": ("k3", "loss"),
    }


def test_rows_with_a_part_that_others_lack():
    assert (ALGORITHMS["dapo"].overlong.rule, ALGORITHMS["dapo"].resample) == ("soft", 3)
    clip = ALGORITHMS["ctpo"].clip
    assert (clip.low, clip.high, clip.space, clip.dual) == (0.025, 0.05, "sqrt_log", 0.05)
    assert ALGORITHMS["ctpo"].ratio == "cumulative"
    assert ALGORITHMS["rejection"].select == SelectSpec()
    assert ALGORITHMS["dpo"].pairs == PairSpec()
    assert ALGORITHMS["ipo"].pairs == PairSpec(loss="squared")
    assert ALGORITHMS["slic"].pairs == PairSpec(loss="hinge", score="log_prob", beta=1.0, sft=1.0)
    assert ALGORITHMS["kto"].pairs == PairSpec(loss="prospect")
    assert ALGORITHMS["orpo"].pairs == PairSpec(score="log_odds", average=True, beta=1.0, coef=0.1, sft=1.0)
    assert ALGORITHMS["simpo"].pairs == PairSpec(score="log_prob", average=True, beta=2.0, gamma=1.0)
    assert ALGORITHMS["cpo"].pairs == PairSpec(score="log_prob", sft=1.0)
    assert ALGORITHMS["ld_dpo"].pairs == PairSpec(ld_alpha=0.5)
    assert ALGORITHMS["opsd"].distill.privileged
    assert not ALGORITHMS["opd"].distill.privileged


# Needs follow from parts. ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "needs"),
    [
        ({}, {"groups"}),
        ({"credit": {"baseline": "leave_one_out"}}, {"groups"}),
        ({"credit": {"baseline": "batch_mean"}}, set()),
        ({"credit": {"baseline": "ema"}}, set()),
        ({"credit": {"baseline": "none"}}, set()),
        ({"credit": {"baseline": "critic"}}, {"values"}),
        ({"credit": {"baseline": "none"}, "resample": 1}, {"groups"}),
        ({"kl": {"coef": 0.1}}, {"groups", "reference"}),
        ({"distill": {"coef": 0.1}}, {"groups", "teacher"}),
        ({"truncate": 2}, {"groups", "learner"}),
    ],
)
def test_needs_follow_from_parts(changes, needs):
    assert resolve({"name": "dr_grpo", **changes}).needs == needs


def test_selection_of_the_best_needs_groups():
    assert resolve({"name": "rejection", "select": {"keep": "best"}}).needs == {"groups"}


@pytest.mark.parametrize(
    ("changes", "extras"),
    [
        ({}, set()),
        ({"entropy": 0.01}, {"entropy"}),
        ({"distill": {"coef": 1.0}}, {"teacher_kl"}),
        ({"distill": {"coef": 1.0, "form": "sampled"}}, set()),
        ({"entropy": 0.01, "distill": {"coef": 1.0}}, {"entropy", "teacher_kl"}),
    ],
)
def test_extras_follow_from_parts(changes, extras):
    assert resolve({"name": "dr_grpo", **changes}).extras == extras


# Changing parts. -------------------------------------------------------------------------------------------------


def test_parts_are_changed_inside_and_the_rest_stays():
    got = resolve({"name": "grpo", "clip": {"high": 0.28}, "credit": {"scale": "none"}, "kl": {"coef": 0}})
    assert got.clip == ClipSpec(kind="min", low=0.2, high=0.28)
    assert got.credit == CreditSpec(baseline="group_mean", scale="none")
    assert got.kl == KLSpec(coef=0.0)
    assert ALGORITHMS["grpo"].clip.high == 0.2


def test_numbers_take_the_type_of_the_part():
    got = resolve({"name": "grpo", "group_size": 4.0, "entropy": 1})
    assert (got.group_size, type(got.group_size)) == (4, int)
    assert (got.entropy, type(got.entropy)) == (1.0, float)


def test_an_algorithm_is_itself():
    made = dataclasses.replace(ALGORITHMS["grpo"], name="mine", group_size=3)
    assert resolve(made) is made


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("grop", r"Unknown algorithm 'grop'; valid: reinforce, .*Did you mean 'grpo'\?"),
        ({}, "An algorithm has no name"),
        ({"name": "grpo", "clipp": {}}, r"algorithm 'grpo' has no part 'clipp'; valid: .*Did you mean 'clip'\?"),
        ({"name": "grpo", "paper": "mine"}, "has no part 'paper'"),
        ({"name": "grpo", "clip": {"hihg": 1}}, r"'grpo': clip has no part 'hihg'; valid: kind, .*Did you mean 'high'"),
        ({"name": "grpo", "clip": {"kind": "pppo"}}, r"clip: kind is 'pppo'; valid: none, min, weight"),
        ({"name": "grpo", "ratio": "word"}, "ratio is 'word'; valid: none, token, cumulative"),
        ({"name": "grpo", "ratio": 1}, "ratio is 1; valid"),
        ({"name": "grpo", "kl": {"coef": float("nan")}}, r"kl: coef is nan; expected a number\."),
        ({"name": "grpo", "entropy": float("inf")}, r"entropy is inf; expected a number\."),
        ({"name": "grpo", "group_size": float("inf")}, r"group_size is inf; expected an integer\."),
        ({"name": "grpo", "kl": {"coef": "much"}}, r"kl: coef is 'much'; expected a number\."),
        ({"name": "grpo", "kl": {"coef": True}}, r"kl: coef is True; expected a number\."),
        ({"name": "grpo", "group_size": 2.5}, r"group_size is 2.5; expected an integer\."),
        ({"name": "grpo", "group_size": "8"}, r"group_size is '8'; expected an integer\."),
        ({"name": "opsd", "distill": {"privileged": 1}}, "distill: privileged is 1"),
        ({"name": "grpo", "clip": None}, "clip is None; it cannot be changed"),
    ],
)
def test_what_cannot_be_read_is_refused(spec, message):
    with pytest.raises(ConfigError, match=message):
        resolve(spec)


# Combinations that cannot work. ----------------------------------------------------------------------------------

REFUSED = {
    "group std of one": ({"name": "reinforce", "credit": {"scale": "group_std"}}, "group_size is 1, but it compares"),
    "negative dual": ({"name": "ctpo", "clip": {"dual": -1}}, "would lose every negative advantage"),
    "entropy of a selection": ({"name": "rejection", "entropy": 0.01}, "by cross-entropy alone"),
    "echo of a selection": ({"name": "rejection", "echo": 0.1}, "by cross-entropy alone"),
    "truncated selection": ({"name": "rejection", "truncate": 2}, "by cross-entropy alone"),
    "group of one": ({"name": "grpo", "group_size": 1}, "group_size is 1, but it compares"),
    "pair of one": ({"name": "dpo", "group_size": 1}, "group_size is 1, but it compares"),
    "best of one": ({"name": "rejection", "select": {"keep": "best"}, "group_size": 1}, "group_size is 1, but"),
    "replacing groups of one": ({"name": "reinforce", "resample": 1}, "resample to 0"),
    "no group": ({"name": "reinforce", "group_size": 0}, "group_size is 0. Use 1 or more"),
    "group std alone": ({"name": "reinforce_pp", "credit": {"scale": "group_std"}}, "'none' compares no rollouts"),
    "batch std of a critic": ({"name": "ppo", "credit": {"scale": "batch_std"}}, "'critic' compares no rollouts"),
    "gamma below 0": ({"name": "ppo", "credit": {"gamma": -0.1}}, r"credit.gamma is -0.1 .*numbers in \[0, 1\]"),
    "gamma 1.1": ({"name": "ppo", "credit": {"gamma": 1.1}}, "credit.gamma is 1.1"),
    "lambda": ({"name": "ppo", "credit": {"lam": -0.1}}, r"lam -0.1. Use numbers in \[0, 1\]"),
    "critic lr": ({"name": "ppo", "critic": {"lr": -1}}, r"critic.lr \(-1.0\)"),
    "critic clip": ({"name": "ppo", "critic": {"clip": -1}}, r"clip \(-1.0\)"),
    "base of a head": (
        {"name": "ppo", "critic": {"base": "runs/prm"}},
        "base is 'runs/prm', but a critic 'head' reads",
    ),
    "critic warmup": ({"name": "ppo", "critic": {"warmup": -1}}, r"warmup \(-1\) is negative"),
    "clip without ratio": ({"name": "rloo", "clip": {"kind": "min"}}, "clip bounds the importance ratio, but ratio is"),
    "low above 1": ({"name": "grpo", "clip": {"low": 1.5}}, r"\[1 - 1.5, 1 \+ 0.2\] are not an interval"),
    "low below 0": ({"name": "grpo", "clip": {"low": -0.1}}, "not an interval around 1"),
    "high below 0": ({"name": "grpo", "clip": {"high": -0.1}}, "not an interval around 1"),
    "widening for a token": ({"name": "grpo", "clip": {"space": "sqrt_log"}}, "but ratio is 'token'"),
    "second bound alone": ({"name": "cispo", "clip": {"dual": 3}}, "clip.dual bounds the clipped surrogate"),
    "second bound of 1": ({"name": "grpo", "clip": {"dual": 1}}, "clip.dual is 1.0; it must lie above 1"),
    "truncate below 1": ({"name": "grpo", "truncate": 0.5}, "truncate is 0.5; a cap below 1"),
    "negative truncate": ({"name": "grpo", "truncate": -2}, "truncate is -2.0"),
    "negative kl": ({"name": "grpo", "kl": {"coef": -0.1}}, "rewards drifting away"),
    "k3 in the reward": ({"name": "grpo", "kl": {"place": "reward"}}, "estimator is 'k3'. Set it to 'k1'"),
    "target without kl": ({"name": "grpo", "kl": {"coef": 0, "target": 6}}, "a coefficient of 0 stays 0"),
    "negative target": ({"name": "grpo", "kl": {"target": -6}}, "kl.target is -6.0"),
    "buffer 0": ({"name": "dapo", "overlong": {"buffer": 0}}, "overlong.buffer is 0.0"),
    "buffer above 1": ({"name": "dapo", "overlong": {"buffer": 2}}, r"share of the token budget in \(0, 1\]"),
    "negative penalty": ({"name": "dapo", "overlong": {"penalty": -1}}, "overlong.penalty -1.0"),
    "negative entropy": ({"name": "grpo", "entropy": -1}, "entropy, echo, distill.coef or resample is negative"),
    "negative echo": ({"name": "grpo", "echo": -1}, "is negative. Use 0 or more"),
    "negative distill": ({"name": "grpo", "distill": {"coef": -1}}, "is negative. Use 0 or more"),
    "negative resample": ({"name": "grpo", "resample": -1}, "is negative. Use 0 or more"),
    "teacher of pairs": ({"name": "dpo", "distill": {"coef": 1}}, "distill works on every sample"),
    "teacher of a selection": ({"name": "rejection", "distill": {"coef": 1}}, "distill works on every sample"),
    "kl of a selection": ({"name": "rejection", "kl": {"coef": 1}}, "select learns accepted samples by cross-entropy"),
    "kl of pairs": ({"name": "dpo", "kl": {"coef": 1}}, "already holds the policy near the reference"),
    "entropy of pairs": ({"name": "dpo", "entropy": 1}, "a pair loss has no entropy, echo or truncate"),
    "echo of pairs": ({"name": "dpo", "echo": 1}, "a pair loss has no entropy"),
    "truncate of pairs": ({"name": "dpo", "truncate": 2}, "a pair loss has no entropy"),
    "beta": ({"name": "dpo", "pairs": {"beta": 0}}, "pairs.beta is 0.0. Use a positive number"),
    "smoothing": ({"name": "dpo", "pairs": {"label_smoothing": 0.5}}, r"label_smoothing is 0.5. Use a number in \[0"),
    "coefficient": ({"name": "orpo", "pairs": {"coef": 0}}, "pairs.coef is 0.0. Use a positive number"),
    "negative sft": ({"name": "dpo", "pairs": {"sft": -1}}, "pairs.sft is -1.0 and"),
    "negative margin": ({"name": "simpo", "pairs": {"gamma": -1}}, "pairs.gamma -1.0. Use 0 or more"),
    "surplus above 1": ({"name": "ld_dpo", "pairs": {"ld_alpha": 1.1}}, "a weight of surplus tokens. Use a number in"),
    "weight of bad ones": ({"name": "kto", "pairs": {"undesirable": 0}}, "undesirable 0.0. Use positive numbers"),
    "divergence from nothing": ({"name": "cpo", "pairs": {"divergence": "js"}}, "pairs.score 'log_prob' looks at none"),
    "margin of ipo": ({"name": "ipo", "pairs": {"gamma": 1}}, "pairs.loss is 'squared', whose margin is set by beta"),
    "margin of hinge": ({"name": "slic", "pairs": {"gamma": 1}}, "pairs.gamma is a margin of the sigmoid loss"),
    "desirable pairs": ({"name": "dpo", "pairs": {"desirable": 2}}, "'sigmoid' compares two. Set both to 1"),
    "judged log-probs": ({"name": "kto", "pairs": {"score": "log_prob"}}, "compares whole log-ratios with a KL"),
    "judged divergence": ({"name": "kto", "pairs": {"divergence": "js"}}, "compares whole log-ratios with a KL"),
    "judged means": ({"name": "kto", "pairs": {"average": True}}, "pairs.average to false"),
    "judged surplus": ({"name": "kto", "pairs": {"ld_alpha": 0.5}}, "and the prospect loss has none. Set"),
    "alpha of another": ({"name": "dpo", "pairs": {"alpha": 0.3}}, "'reverse_kl' has no alpha. Set pairs.divergence"),
    "credit of pairs": ({"name": "dpo", "credit": {"scale": "group_std"}}, "no credit, critic, clip or reduction"),
    "critic of pairs": ({"name": "kto", "critic": {"warmup": 5}}, "no credit, critic, clip or reduction"),
    "clip of pairs": ({"name": "dpo", "clip": {"high": 0.28}}, "no credit, critic, clip or reduction"),
    "reduction of pairs": ({"name": "ipo", "reduction": "token_mean"}, "no credit, critic, clip or reduction"),
    "groups of judged ones": ({"name": "kto", "group_size": 1}, "group_size is 1, but it compares"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_combinations_that_cannot_work_are_refused(case):
    spec, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message) as caught:
        resolve(spec)
    assert str(caught.value).startswith(f"algorithm {spec['name']!r}: ")


def test_pairs_of_a_selection_are_refused():
    with pytest.raises(ConfigError, match="leave pairs out"):
        Algorithm(name="mine", paper="", select=SelectSpec(), pairs=PairSpec())


@pytest.mark.parametrize(
    "spec",
    [
        {"name": "grpo", "clip": {"low": 1.0}},
        {"name": "grpo", "clip": {"dual": 3}},
        {"name": "grpo", "truncate": 1},
        {"name": "grpo", "kl": {"coef": 0.1, "target": 6}},
        {"name": "ppo", "credit": {"gamma": 1.0, "lam": 0.0, "level": "turn"}},
        {"name": "dapo", "overlong": {"buffer": 1.0, "penalty": 0}},
        {"name": "ipo", "pairs": {"label_smoothing": 0.49, "divergence": "alpha", "alpha": -1, "ld_alpha": 0}},
        {"name": "cpo", "pairs": {"loss": "squared", "average": True, "ld_alpha": 1, "sft": 0}},
        {"name": "kto", "pairs": {"desirable": 1.33, "sft": 0.1, "label_smoothing": 0.1}},
        {"name": "reinforce", "credit": {"baseline": "ema", "scale": "batch_std"}},
        {"name": "grpo", "kl": {"coef": 0, "place": "reward"}},
    ],
)
def test_their_legal_neighbours_are_not(spec):
    assert resolve(spec).name == spec["name"]
