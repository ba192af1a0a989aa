"""Pairs and ranked lists together, as reward models learn from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Literal, TypeAlias

from prefrl.config import LabelConfig
from prefrl.data.formats import MAX_BAD_FRACTION, pair_reader, ranking_reader, to_pairs, to_rankings
from prefrl.data.reading import Read, collect
from prefrl.data.tables import Table
from prefrl.errors import DataError, did_you_mean
from prefrl.types import Pair, Ranking

Judgement: TypeAlias = Pair | Ranking
TieRule: TypeAlias = Literal["drop", "half", "rao_kupper", "davidson"]


def to_judgements(
    table: Table, labels: LabelConfig, *, max_bad_fraction: float = MAX_BAD_FRACTION
) -> Read[Pair | Ranking]:
    """Pairs and ranked lists of one table: a row that has `completions` is a list, every other one a pair.

    What is done about ties and annotators is not part of reading: see `resolve_ties` and `weigh_annotators`.

    Raises:
        DataError: as `to_pairs` and `to_rankings`; or strengths are given for a table of ranked lists.
    """
    lists = sum(row.get("completions") is not None for row in table.rows)
    if not lists:
        pairs = to_pairs(table, strengths=labels.strengths, max_bad_fraction=max_bad_fraction)
        return Read([*pairs.items], pairs.dropped)
    if lists == len(table.rows):
        if labels.strengths:
            raise DataError(
                f"{table.origin} holds ranked lists only, which have no strength, but labels.strengths gives margins "
                f"for {', '.join(map(str, labels.strengths))}. Leave it out, or give pairs with a column 'strength'."
            )
        rankings = to_rankings(table, max_bad_fraction=max_bad_fraction)
        return Read([*rankings.items], rankings.dropped)
    pair, ranking = pair_reader(table, labels.strengths), ranking_reader(table)

    def convert(row: dict[str, Any]) -> Judgement:
        return pair(row) if row.get("completions") is None else ranking(row)

    return collect(table, convert, max_bad_fraction)


def resolve_ties(judgements: Sequence[Pair | Ranking], how: TieRule) -> Read[Pair | Ranking]:
    """Ties as `LabelConfig.ties` has them: none are left to models that know of none.

    drop   ties are left out and counted; of a share of tied votes the rest counts, with the rest of the weight
    half   a tie is half a preference for either side
    other  everything stays as it is

    Ranked lists stay; only under `drop` are those left out whose completions are all of one rank.
    """
    if how == "drop":
        kept = [_without_tie(judged) for judged in judgements if not _all_tied(judged)]
        dropped = len(judgements) - len(kept)
        return Read(kept, {"tied" if dropped == 1 else "ties": dropped} if dropped else {})
    if how == "half":
        return Read([_halved(judged) for judged in judgements])
    return Read(list(judgements))


def weigh_annotators(
    judgements: Sequence[Pair | Ranking], weights: Mapping[str, float], *, others: Collection[str] = ()
) -> Read[Pair | Ranking]:
    """Judgements weighed by who made them, those of weight 0 left out and counted. Annotators not named weigh 1.

    Args:
        judgements: pairs and ranked lists.
        weights: by annotator.
        others: annotators who may have a weight though none of these judgements is theirs.

    Raises:
        DataError: a weight is given for an annotator of whom nothing is known.
    """
    weights = {str(name): weight for name, weight in weights.items()}
    known = {*map(str, others), *(judged.annotator for judged in judgements)}
    if unknown := [name for name in weights if name not in known]:
        names = ", ".join(sorted(filter(None, known))) or "none; the column annotator is missing or empty"
        raise DataError(
            f"labels.annotator_weights names {', '.join(unknown)}; annotators in the data: {names}."
            f"{did_you_mean(unknown[0], known)}"
        )
    weighed = [replace(judged, weight=judged.weight * weights.get(judged.annotator, 1.0)) for judged in judgements]
    kept = [judged for judged in weighed if judged.weight > 0]
    dropped = len(weighed) - len(kept)
    return Read(kept, {"of weight 0": dropped} if dropped else {})


def pairs_of(ranking: Ranking) -> list[Pair]:
    """All n (n - 1) / 2 pairs of a ranked list, equal ranks as ties; they share its weight equally."""
    n = len(ranking.ranks)
    placed = sorted(zip(ranking.ranks, range(n), strict=True))
    return [
        Pair(
            prompt=ranking.prompt,
            chosen=ranking.completions[better],
            rejected=ranking.completions[worse],
            label=0.5 if high == low else 1.0,
            tie=float(high == low),
            weight=ranking.weight * 2.0 / (n * (n - 1)),
            annotator=ranking.annotator,
        )
        for (high, better), (low, worse) in combinations(placed, 2)
    ]


def _all_tied(judged: Judgement) -> bool:
    return judged.tie == 1.0 if isinstance(judged, Pair) else len(set(judged.ranks)) == 1


def _without_tie(judged: Judgement) -> Judgement:
    if isinstance(judged, Ranking):
        return judged
    return replace(judged, weight=judged.weight * (1.0 - judged.tie), tie=0.0)


def _halved(judged: Judgement) -> Judgement:
    if isinstance(judged, Ranking):
        return judged
    return replace(judged, label=judged.label + judged.tie * (0.5 - judged.label), tie=0.0)
