"""Agreement of people, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from prefrl.evaluate.agreement import Agreement, agreement, krippendorff_alpha, pair_agreement
from prefrl.types import Completion, Pair, Prompt


def pair(chosen: str = "a", rejected: str = "b", *, prompt: str = "p", votes: Any = None, **more: Any) -> Pair:
    columns = {} if votes is None else {"votes": votes}
    return Pair(
        prompt=Prompt(id=prompt, text=prompt, columns=columns),
        chosen=Completion(text=chosen),
        rejected=Completion(text=rejected),
        **more,
    )


def test_figures_by_hand() -> None:
    """Units 111, 221, 10 and 22, nine votes for a side and one for neither."""
    found = agreement([[1, 1, 1], [2, 2, 1], [1, 0], [2, 2], [1]])
    assert (found.pairs, found.votes, found.neither) == (4, 10, 1)
    # majority of all: 3 + 2 + 1 + 2 of 9 votes
    assert found.best == pytest.approx(8 / 9)
    # majority of the others: 3, then two times half and a miss, half, 2
    assert found.leave_one_out == pytest.approx((3 + 0.5 + 0.5 + 0 + 0.5 + 2) / 9)
    assert found.interval[0] < found.leave_one_out < found.interval[1]
    # pairs of votes: 3 of 3, 1 of 3, 0 of 1, 1 of 1
    assert found.pairwise == pytest.approx(5 / 8)


def test_alpha_by_hand() -> None:
    """Units 11 and 12: in both orders o11 = o22 = 1, o12 = o21 = 1, so n = 4 and alpha = 1 - 3 * 2 / 8."""
    assert krippendorff_alpha([[1, 1], [1, 2]]) == pytest.approx(0.25)
    # 10 and 22: o10 = o01 = o20 = o02 = .5, o11 = o22 = 1; n1 = n2 = 1.5, n0 = 1; sum n n' = 2 (2.25 + 1.5 + 1.5)
    assert krippendorff_alpha([[1, 0], [2, 2]]) == pytest.approx(1 - 3 * 2.0 / 10.5)


def test_alpha_does_not_depend_on_which_side_comes_first() -> None:
    units = [[1, 1, 2], [1, 1, 1], [2, 1, 0], [2, 2, 2]]
    turned = [[{1: 2, 2: 1, 0: 0}[vote] for vote in unit] if k % 2 else unit for k, unit in enumerate(units)]
    assert krippendorff_alpha(units) == pytest.approx(krippendorff_alpha(turned))
    assert krippendorff_alpha([[1, 1]] * 9) == pytest.approx(1.0)  # perfect, though all votes are for the first


def test_perfect_and_opposite_people() -> None:
    same = agreement([[1, 1, 1], [2, 2, 2]])
    assert (same.best, same.leave_one_out, same.pairwise, same.alpha) == (1.0, 1.0, 1.0, pytest.approx(1.0))
    split = agreement([[1, 2], [2, 1]])
    assert (split.best, split.leave_one_out, split.pairwise) == (0.5, 0.0, 0.0)
    assert split.alpha < 0


def test_what_cannot_be_defined_says_why() -> None:
    alone = agreement([[1], [2]])
    assert alone.undefined == "no pair was judged by two people" and math.isnan(alone.best)
    assert alone.rows() == [("agreement of people", "not defined", "because no pair was judged by two people")]
    assert alone.to_dict() == {"undefined": "no pair was judged by two people"}
    ties = agreement([[0, 0], [0, 0]])  # no vote for a side, no variation: nothing to define, nothing to crash on
    assert ties.pairwise == 1.0 and ties.to_dict()["alpha"] is None and ties.to_dict()["best"] is None
    assert "undefined" in ties.rows()[0]


def test_votes_in_a_column() -> None:
    pairs = [pair(votes=[1, 1, 2], prompt="1"), pair(votes="[2, 2, null]", prompt="2"), pair(prompt="3")]
    assert pair_agreement(pairs) == agreement([[1, 1, 2], [2, 2]])
    assert pair_agreement([pair(votes=["1", "2", "2"])]).votes == 3


@pytest.mark.parametrize("votes", [17, [1, 3], ["up"], {"ann": 1.5}])
def test_another_kind_of_votes_is_no_crash(votes: Any) -> None:
    found = pair_agreement([pair(votes=votes)])
    assert found.undefined.startswith("the column votes has")


def test_rows_of_one_pair_by_several_annotators() -> None:
    pairs = [
        pair("a", "b", annotator="ann"),
        pair("b", "a", annotator="bob"),  # the other way round
        pair("b", "a", label=0.0, annotator="cat"),  # and the label turns it once more: agrees with ann
        pair("a", "b", tie=1.0, annotator="dan"),
        pair("a", "b", prompt="other", annotator="ann"),
        pair("a", "b", prompt="other", annotator="bob"),
        pair("a", "b", prompt="other", annotator="bob"),  # once more
    ]
    found = pair_agreement(pairs)
    assert found == agreement([[1, 2, 1, 0], [1, 1]], repeated=1)
    assert "1 repeated judgements" in found.rows()[0][2]


def test_pairs_that_nobody_judged() -> None:
    assert pair_agreement([pair(), pair()]).undefined == "the data has neither a column votes nor a column annotator"
    assert pair_agreement([pair(annotator="ann")]).undefined == "no pair was judged by two people"
    assert isinstance(pair_agreement([]), Agreement)
