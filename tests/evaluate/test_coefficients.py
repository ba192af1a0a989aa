"""Coefficients of agreement, against published examples and by hand."""

from __future__ import annotations

import math

import pytest

from prefrl.evaluate.coefficients import (
    Ratings,
    cohen_kappa,
    cohen_kappas,
    fleiss_kappa,
    krippendorff,
    raw_agreement,
)

# Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), section C: four observers, twelve units.
ROWS = {"A": "123321412...", "B": "1233224125.3", "C": ".3332342251.", "D": "12332441251."}
CANONICAL = {str(unit): {name: int(row[unit]) for name, row in ROWS.items() if row[unit] != "."} for unit in range(12)}
# Fleiss' kappa, the example of 10 subjects, 14 raters and 5 categories: counts of each category.
FLEISS = (
    (0, 0, 0, 0, 14),
    (0, 2, 6, 4, 2),
    (0, 0, 3, 5, 6),
    (0, 3, 9, 2, 0),
    (2, 2, 8, 1, 1),
    (7, 7, 0, 0, 0),
    (3, 2, 6, 3, 0),
    (2, 5, 3, 2, 2),
    (6, 5, 2, 1, 0),
    (0, 2, 2, 3, 7),
)


def two_by_two(yes_yes: int, yes_no: int, no_yes: int, no_no: int) -> Ratings:
    cells = {("y", "y"): yes_yes, ("y", "n"): yes_no, ("n", "y"): no_yes, ("n", "n"): no_no}
    return {f"{a}{b}{k}": {"ann": a, "bob": b} for (a, b), n in cells.items() for k in range(n)}


def test_krippendorff_published() -> None:
    found = krippendorff(CANONICAL)
    assert found.value == pytest.approx(0.743421, abs=1e-6)
    assert (found.items, found.votes) == (11, 40)  # the last unit has one rating, which says nothing
    assert krippendorff(CANONICAL, "ordinal").value == pytest.approx(0.815388, abs=1e-6)


def test_krippendorff_by_hand() -> None:
    """Units xx, xy, yy: o_xx = o_yy = 2, o_xy = o_yx = 1, n = 6, n_x = n_y = 3: alpha = 1 - 5 * 2 / 18."""
    found = krippendorff({"1": {"a": "x", "b": "x"}, "2": {"a": "x", "b": "y"}, "3": {"a": "y", "b": "y"}})
    assert found.value == pytest.approx(4 / 9)


def test_an_ordinal_alpha_takes_near_misses_lightly() -> None:
    """Marginals are the same; the disagreements are by one step in the first, by three in the second."""
    near: dict[str, dict[str, str | int]] = {str(k): {"a": k % 4, "b": k % 4} for k in range(8)}
    far = near | {"x": {"a": 0, "b": 3}, "y": {"a": 3, "b": 0}}
    near = near | {"x": {"a": 0, "b": 1}, "y": {"a": 3, "b": 2}}
    assert krippendorff(near, "ordinal").value > krippendorff(near).value
    assert krippendorff(far, "ordinal").value < krippendorff(far).value


def test_cohen_by_hand() -> None:
    """20, 5, 10, 15: p_o = 35 / 50, p_e = .5 * .6 + .5 * .4, kappa = .2 / .5."""
    found = cohen_kappa(two_by_two(20, 5, 10, 15), "ann", "bob")
    assert found.value == pytest.approx(0.4) and found.items == 50
    assert found.interval is not None and found.interval[0] < 0.4 < found.interval[1]
    # The large-sample standard error of kappa here is 0.127 (Fleiss, Cohen and Everitt, 1969).
    assert found.interval == pytest.approx((0.4 - 0.25, 0.4 + 0.25), abs=0.03)


def test_cohen_of_every_two_people() -> None:
    table = {"1": {"a": 1, "b": 1, "c": 0}, "2": {"a": 0, "b": 0}, "3": {"a": 1, "b": 1}}
    found = cohen_kappas(table)
    assert list(found) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert found["a", "b"].value == pytest.approx(1.0)
    assert found["a", "c"].value == 0.0  # one item, on which a said nothing but 1 and c nothing but 0: p_o = p_e = 0


def test_fleiss_published() -> None:
    table = {
        str(i): {f"r{k}": c for k, c in enumerate(c for c, n in enumerate(row) for _ in range(n))}
        for i, row in enumerate(FLEISS)
    }
    assert fleiss_kappa(table).value == pytest.approx(0.209931, abs=1e-6)


def test_fleiss_of_differing_numbers_by_hand() -> None:
    """xxx and xy: mean shares x 3/4, y 1/4, p_e = 10/16; p_o = (1 + 0) / 2; kappa = -1/8 / (6/16)."""
    found = fleiss_kappa({"1": {"a": "x", "b": "x", "c": "x"}, "2": {"a": "x", "b": "y"}})
    assert found.value == pytest.approx(-1 / 3)


def test_raw_agreement_by_hand() -> None:
    """xxy has one equal pair of three, xx one of one."""
    found = raw_agreement({"1": {"a": "x", "b": "x", "c": "y"}, "2": {"a": "x", "b": "x"}, "3": {"a": "y"}})
    assert (found.value, found.items, found.votes) == (0.5, 2, 5)
    assert raw_agreement({"1": {"a": "x", "b": "x"}}).value == 1.0


@pytest.mark.parametrize(
    ("ratings", "reason"),
    [
        ({}, "nobody rated anything yet"),
        ({"1": {"ann": "x"}, "2": {"ann": "y"}}, "ann is the only one who rated anything"),
        ({"1": {"ann": "x"}, "2": {"bob": "y"}}, "no item was rated by two people"),
        ({"1": {"ann": "x", "bob": "x"}, "2": {"ann": "x", "bob": "x"}}, "every rating is 'x'"),
    ],
)
def test_what_is_not_defined_says_why(ratings: Ratings, reason: str) -> None:
    for found in (krippendorff(ratings), krippendorff(ratings, "ordinal"), fleiss_kappa(ratings)):
        assert found.undefined.startswith(reason) and math.isnan(found.value) and found.interval is None
        assert str(found).startswith(f"not defined because {reason}")
    kappa = cohen_kappa(ratings, "ann", "bob")
    assert kappa.undefined and math.isnan(kappa.value)


def test_perfect_agreement_has_no_interval_of_no_width() -> None:
    found = krippendorff({str(k): {"a": k % 2, "b": k % 2} for k in range(10)})
    assert found.value == 1.0 and found.interval is None and str(found) == "1.00 no interval"


def test_intervals_narrow_and_repeat() -> None:
    few, many = two_by_two(8, 2, 2, 8), two_by_two(160, 40, 40, 160)
    narrow, wide = krippendorff(many).interval, krippendorff(few).interval
    assert narrow is not None and wide is not None
    assert 3.5 < (wide[1] - wide[0]) / (narrow[1] - narrow[0]) < 6.0  # twenty times the items: about sqrt(20)
    assert krippendorff(many).interval == narrow
