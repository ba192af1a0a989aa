from __future__ import annotations

import dataclasses
import functools
import random

import numpy as np
import pytest

from prefrl.errors import ConfigError
from prefrl.rewards import (
    Audit,
    Clip,
    Constraint,
    GroupNormalise,
    WeightedSum,
    fingerprint,
    function,
    numeric,
    regex,
    source_metrics,
)
from prefrl.rewards.audit import variance_shares
from prefrl.types import Score


class Column:
    def __init__(self, name):
        self.name = name

    def score(self, rollouts):
        found = [r.prompt.columns[self.name] for r in rollouts]
        return [x if isinstance(x, Score) else Score(value=x) for x in found]


def batch(rollout, groups, **columns):
    """Rollouts with the given group names and columns; `length` is the number of sampled tokens."""
    lengths = columns.pop("length", [3] * len(groups))
    made = []
    for i, (group, length) in enumerate(zip(groups, lengths, strict=True)):
        one = rollout(id=group, mask=(True,) * length, **{name: values[i] for name, values in columns.items()})
        made.append(one)
    return made


def measured(source, rollouts):
    return source_metrics(source, rollouts, source.score(rollouts))


def test_figures_of_each_component_by_hand(rollout):
    rollouts = batch(rollout, "aabb", x=[0.0, 1.0, 0.0, 1.0], y=[5.0, 1.0, 1.0, 1.0], length=[1, 2, 2, 1])
    found = measured(WeightedSum([(Column("x"), 1.0), (Column("y"), 0.5)]), rollouts)
    # Contributions minus group means: x -1/2, 1/2, -1/2, 1/2; y/2: 1, -1, 0, 0; sums 1/2, -1/2, -1/2, 1/2.
    # Shares: x (-1/4 - 1/4 + 1/4 + 1/4) / 1 = 0; y (1/2 + 1/2) / 1 = 1.  Lengths: -1/2, 1/2, 1/2, -1/2.
    assert found == pytest.approx(
        {
            "reward/corr_length": -1.0,
            "source/x/errors": 0.0, "source/x/mean": 0.5, "source/x/std": 0.5, "source/x/min": 0.0,
            "source/x/max": 1.0, "source/x/share": 0.0, "source/x/corr_total": 0.0, "source/x/corr_length": 0.0,
            "source/y/errors": 0.0, "source/y/mean": 2.0, "source/y/std": 3**0.5, "source/y/min": 1.0,
            "source/y/max": 5.0, "source/y/share": 1.0, "source/y/corr_total": 1 / 2**0.5,
            "source/y/corr_length": -1 / 2**0.5,
        }
    )  # fmt: skip


def test_shares_sum_to_1_and_agree_with_numpy(rollout):
    rng = random.Random(0)
    groups = [f"g{i % 7}" for i in range(56)]
    columns = {name: [rng.gauss(0, size) for _ in groups] for name, size in (("x", 1), ("y", 3), ("z", 0.5))}
    rollouts = batch(rollout, groups, **columns)
    weights = {"x": 2.0, "y": -0.5, "z": 1.0}
    found = measured(WeightedSum([(Column(name), weight) for name, weight in weights.items()]), rollouts)
    c = np.array([[weights[n] * v for v in columns[n]] for n in weights])
    for g in set(groups):
        mine = np.array([group == g for group in groups])
        c[:, mine] -= c[:, mine].mean(axis=1, keepdims=True)
    t = c.sum(axis=0)
    for name, row in zip(weights, c, strict=True):
        assert found[f"source/{name}/share"] == pytest.approx(row @ t / (t @ t), abs=1e-12)
        correlation = np.corrcoef(row / weights[name], t)[0, 1]
        assert found[f"source/{name}/corr_total"] == pytest.approx(correlation, abs=1e-12)
    assert sum(found[f"source/{name}/share"] for name in weights) == pytest.approx(1.0, abs=1e-12)


def test_a_component_that_works_against_the_others_has_a_negative_share():
    assert variance_shares({"x": [3.0, -3.0], "y": [-1.0, 1.0]}) == {"x": 1.5, "y": -0.5}
    assert variance_shares({"x": [1.0, -1.0], "y": [-1.0, 1.0]}) == {}  # nothing is left to share
    assert variance_shares({"x": [1.0, -1.0]}) == {}


@pytest.mark.parametrize("change", [GroupNormalise, lambda source: Clip(GroupNormalise(source), 0.0, 0.5), Audit])
def test_what_a_source_said_is_measured_before_it_is_rescaled(change, rollout):
    rollouts = batch(rollout, "aab", x=[1.0, 3.0, 8.0], y=[1.0, 2.0, 3.0])
    weight = 0.0 if change is Audit else 1.0
    found = measured(WeightedSum([(change(Column("x")), weight), (Column("y"), 1.0)]), rollouts)
    assert [found[f"source/x/{key}"] for key in ("mean", "min", "max")] == [4.0, 1.0, 8.0]


def test_a_sum_that_cancels_has_no_shares_and_no_correlations(rollout):
    """In floating point 0.1 x + 0.2 x - 0.3 x is not 0."""
    rollouts = batch(rollout, "aaa", x=[0.1, 0.7, 0.9], length=[1, 2, 3])
    total = WeightedSum([(Column("x"), 0.1), (Column("x"), 0.2), (Column("x"), -0.3)])
    assert len({score.value for score in total.score(rollouts)}) > 1
    found = measured(total, rollouts)
    assert [name for name in found if "share" in name or "total" in name or "reward/" in name] == []


def test_groups_of_one_are_compared_with_the_batch(rollout):
    rollouts = batch(rollout, "abc", x=[0.0, 1.0, 2.0], y=[0.0, 0.0, 0.0], length=[1, 2, 3])
    found = measured(WeightedSum([(Column("x"), 1.0), (Column("y"), 1.0)]), rollouts)
    assert (found["source/x/share"], found["source/y/share"]) == (1.0, 0.0)
    assert found["reward/corr_length"] == pytest.approx(1.0)
    assert "source/y/corr_total" not in found  # it does not vary


def test_prompts_that_differ_make_no_correlation(rollout):
    # Longer prompts of group b pay more, but within a group length pays nothing.
    rollouts = batch(rollout, "aabb", x=[0.0, 1.0, 9.0, 8.0], length=[1, 2, 7, 8])
    assert measured(WeightedSum([(Column("x"), 1.0)]), rollouts)["reward/corr_length"] == 0.0


def test_an_audit_is_measured_and_never_paid(rollout):
    total = WeightedSum([(Column("x"), 1.0)]) + 3.0 * Audit(Column("gold"))
    rollouts = batch(rollout, "aabb", x=[0.0, 1.0, 0.0, 1.0], gold=[4.0, 2.0, 1.0, Score.failed("slow")])
    assert [s.value for s in total.score(rollouts)] == [0.0, 1.0, 0.0, 1.0]
    found = measured(total, rollouts)
    assert found["audit/mean"] == pytest.approx(7 / 3)
    assert found["source/gold/errors"] == 0.25
    assert found["reward/corr_audit"] == found["source/x/corr_audit"] == pytest.approx(-((2 / 3) ** 0.5))
    assert not {"source/gold/corr_audit", "source/gold/share", "source/x/share"} & set(found)
    with pytest.raises(ConfigError, match=r"weight of reward 'gold' is 0.5, but it is an audit"):
        WeightedSum([(Audit(Column("gold")), 0.5)])
    with pytest.raises(ConfigError, match="two rewards are audits"):
        Audit(Column("x")) + Audit(Column("gold"))


def test_an_audit_counts_where_it_says_otherwise(rollout):
    paid, judged = [1.0] * 4 + [0.0] * 3, [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    source = WeightedSum([(Column("x"), 1.0), (Audit(Column("y")), 0.0)])
    found = measured(source, batch(rollout, "aaaaaaa", x=paid, y=judged))
    names = ("passed", "failed", "false_positives", "false_negatives")
    assert [found[f"audit/{name}"] for name in names] == [4.0, 3.0, 2.0, 1.0]
    partly = measured(source, batch(rollout, "aa", x=[0.99, 1.0], y=[1.0, 0.99]))
    assert [partly[f"audit/{name}"] for name in names] == [1.0, 1.0, 1.0, 1.0]
    assert not any(name.startswith("audit/pass") for name in measured(source, batch(rollout, "a", x=[2.0], y=[1.0])))


@pytest.mark.parametrize(
    "terms",
    [
        [(Column("x"), 1.0), (Column("form"), 0.2)],  # totals above 1, and below it for a right answer
        [(Column("x"), 0.5), (Column("form"), -0.3)],
        [(GroupNormalise(Column("x")), 1.0), (Column("form"), 0.5)],
        [(Clip(Column("x"), 0.0, 0.5), 1.0)],
        [(Column("x"), 1.0), (Column("one"), 1.0)],
    ],
)
def test_what_is_added_for_form_changes_no_count(rollout, terms):
    columns = {"x": [1.0, 1.0, 0.0, 0.0], "y": [1.0, 0.0, 0.0, 1.0], "form": [0.5, -0.5, 1.0, 0.0], "one": [1.0] * 4}
    found = measured(WeightedSum([*terms, (Audit(Column("y")), 0.0)]), batch(rollout, "aaaa", **columns))
    names = ("passed", "failed", "false_positives", "false_negatives")
    assert [found[f"audit/{name}"] for name in names] == [2.0, 2.0, 1.0, 1.0]


def test_an_audit_of_a_share_leaves_the_rest_out_and_calls_it_no_error(rollout):
    asked = []

    class Slow(Column):
        def score(self, rollouts):
            asked.extend(rollouts)
            return super().score(rollouts)

    rollouts = [dataclasses.replace(r, text=str(n)) for n, r in enumerate(batch(rollout, "a" * 400, x=[1.0] * 400))]
    source = WeightedSum([(Column("x"), 1.0), (Audit(Slow("x"), 0.25), 0.0)])
    scores = source.score(rollouts)
    found = source_metrics(source, rollouts, scores)
    assert 70 <= len(asked) <= 130
    assert [score.value for score in scores] == [1.0] * 400
    assert (found["source/x_2/errors"], found["audit/mean"], found["audit/passed"]) == (0.0, 1.0, len(asked))
    assert not any("error" in part for score in scores for part in score.parts)
    seen = [rollout.text for rollout in asked]
    source.score(rollouts[::-1])
    assert sorted(r.text for r in asked[len(seen) :]) == sorted(seen)
    with pytest.raises(ConfigError, match=r"share 0 of the answers; expected a number in \(0, 1\]"):
        Audit(Column("x"), 0)


def test_errors_are_counted_where_they_arose_and_shift_nobody(rollout):
    good = {"x": [0.0, 1.0, 5.0], "y": [2.0, 1.0, 0.0]}
    total = WeightedSum([(Column("x"), 1.0), (Column("y"), 1.0)])
    clean = measured(total, batch(rollout, "aab", **good))
    broken = measured(total, batch(rollout, "aaba", x=[0.0, 1.0, 5.0, 7.0], y=[2.0, 1.0, 0.0, Score.failed("down")]))
    assert (broken.pop("source/y/errors"), broken.pop("source/x/errors")) == (0.25, 0.0)
    assert broken == {k: v for k, v in clean.items() if not k.endswith("/errors")}


def test_order_does_not_matter_and_weights_scale_contributions(rollout):
    rng = random.Random(1)
    groups = [f"g{i % 3}" for i in range(12)]
    rollouts = batch(rollout, groups, x=[rng.random() for _ in groups], y=[rng.random() for _ in groups])
    total = WeightedSum([(Column("x"), 1.0), (Column("y"), 2.0)])
    found = measured(total, rollouts)
    assert measured(total, rng.sample(rollouts, 12)) == pytest.approx(found)
    tenfold = measured(WeightedSum([(Column("x"), 10.0), (Column("y"), 20.0)]), rollouts)
    assert tenfold == pytest.approx(found)


def test_a_constraint_has_components_and_other_sources_have_totals_only(rollout):
    rollouts = batch(rollout, "aa", x=[0.0, 1.0], cost=[1.0, 3.0], length=[1, 2])
    found = measured(Constraint(Column("x"), Column("cost"), 0.0, start=0.25), rollouts)
    assert (found["source/x/share"], found["source/cost/share"]) == (2.0, -1.0)
    assert measured(Column("x"), rollouts) == {"reward/corr_length": pytest.approx(1.0)}
    assert source_metrics(Column("x"), [], []) == {}


def test_the_trap_on_the_page(rollout):
    """Weights of 4 to 1 for what is right, and shares of 4 to 1 for style, until each source has a scale of its own."""
    rollouts = batch(rollout, "aaaa", right=[1.0, 1.0, 0.0, 0.0], style=[-4.0, 4.0, 4.0, -4.0])
    right, style = Column("right"), Column("style")
    plain = WeightedSum([(right, 0.8), (style, 0.2)])
    cured = WeightedSum([(GroupNormalise(right), 0.8), (GroupNormalise(style), 0.2)])
    assert [s.value for s in plain.score(rollouts)] == pytest.approx([0.0, 1.6, 0.8, -0.8])
    assert [s.value for s in cured.score(rollouts)] == pytest.approx([0.6, 1.0, -0.6, -1.0])
    found = [measured(total, rollouts)["source/right/share"] for total in (plain, cured)]
    assert found == pytest.approx([0.2, 0.64 / 0.68])


# The code that tells rewards apart.


def test_equal_rewards_have_equal_codes_and_every_change_shows():
    def code(source):
        return fingerprint(source)["id"]

    base = 0.7 * numeric("answer") + 0.3 * regex("a+")
    changed = [
        0.7 * numeric("answer") + 0.4 * regex("a+"),
        0.7 * numeric("gold") + 0.3 * regex("a+"),
        0.7 * numeric("answer", rel_tol=0.1) + 0.3 * regex("a+"),
        0.7 * numeric("answer") + 0.3 * regex("b+"),
        0.7 * numeric("answer").normalised("group") + 0.3 * regex("a+"),
        0.7 * numeric("answer") + 0.3 * regex("a+").clip(0, 1),
        0.7 * numeric("answer") + 0.3 * regex("a+").clip(0, 2),
    ]
    assert code(base) == code(0.7 * numeric("answer") + 0.3 * regex("a+"))
    assert len({code(base), *map(code, changed)}) == 8


def test_a_source_of_others_is_known_by_what_it_keeps():
    class Shy:
        """Keeps its argument under another name."""

        def __init__(self, threshold, others=()):
            self.name, self.level, self.children = "shy", threshold, tuple(others)

        def score(self, rollouts):
            return [Score(value=self.level)] * len(rollouts)

    made = [Shy(1.0), Shy(2.0), Shy(1.0, [numeric()]), Shy(1.0, [numeric("gold")])]
    assert len({fingerprint(source)["id"] for source in made}) == 4
    assert fingerprint(Shy(1.0))["reward"]["level"] == 1.0


def test_secrets_are_not_recorded():
    class Caller:
        """Keeps a secret among plain attributes."""

        name = "caller"

        def __init__(self):
            self.api_key, self.model = "sk-secret", "m"

        def score(self, rollouts):
            return []

    password = "sk-secret"
    held = function(lambda text: float(password in text), name="closure")
    bound = function(functools.partial(lambda text, hf_token: 1.0, hf_token="sk-secret"), name="partial")
    for source in (Caller(), held, bound):
        assert "sk-secret" not in str(fingerprint(source)) and "(not recorded)" in str(fingerprint(source))
    assert fingerprint(Caller())["reward"]["model"] == "m"


def test_state_is_no_part_of_what_a_reward_is(rollout):
    source = numeric().normalised()
    before = fingerprint(source)
    source.score([rollout("4", answer=4), rollout("5", answer=4)])
    assert fingerprint(source) == before


def test_the_code_of_a_function_follows_its_file(tmp_path):
    from prefrl.rewards import build

    def record(text):
        (tmp_path / "mine.py").write_text(text)
        return fingerprint(build([f"{tmp_path}/mine.py:fn"]))

    first = record("def helper(x):\n    return 1.0\n\ndef fn(text):\n    return helper(text)\n")
    second = record("def helper(x):\n    return 2.0\n\ndef fn(text):\n    return helper(text)\n")
    assert first["id"] != second["id"]
    assert first["reward"]["fn"]["function"].endswith(":fn")
    three, four = (fingerprint(function(lambda text, k=k: k))["reward"]["fn"] for k in (3, 4))
    assert (three["code"], three["defaults"], four["defaults"]) == (four["code"], [3], [4])


def test_the_weights_of_a_model_show():
    torch = pytest.importorskip("torch")

    @dataclasses.dataclass
    class Model:
        module: object
        name: str = "tiny"

    class Learned:
        def __init__(self, model):
            self.model, self.name = model, "learned"

        def score(self, rollouts):
            return []

    torch.manual_seed(0)
    model = Model(torch.nn.Linear(300, 20))
    before = fingerprint(Clip(Learned(model), 0, 1))
    assert before == fingerprint(Clip(Learned(model), 0, 1))
    with torch.no_grad():
        model.module.weight.mul_(1.0001)
    after = fingerprint(Clip(Learned(model), 0, 1))
    assert before["reward"]["source"]["model"]["name"] == "tiny"
    assert before["id"] != after["id"]
