"""Which pairs are worth a label: some at random, the others where the reward model is least sure.

A reward model of M members says `p_m = sigmoid(score_m(a) - score_m(b))`. With several members the uncertainty is the
mutual information of label and member, `H(mean p) - mean H(p)` (Houlsby et al., arXiv 1112.5745): high where members
disagree and each is sure, low where all call it even. A single member has only the entropy `H(p)`.

Pairs that are alike teach the same thing twice. So they are taken one after the other, each time the one of the largest

    uncertainty * (1 - similarity)^diversity

where the similarity is that to the most similar pair taken so far: the share of words, of question and answers
together, that two pairs have in common (Jaccard).
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean

from prefrl.data.comparisons import Item
from prefrl.model.reward_scorer import RewardScorer

Question = tuple[str, frozenset[str]]


@dataclass(frozen=True)
class Candidates:
    """Pairs that could be labelled, and how many could not: of the same text, or asked before."""

    items: list[Item]
    identical: int
    asked: int


def question(item: Item) -> Question:
    """What is asked, whatever the order of the two completions."""
    return item.prompt.id, frozenset((item.first.text, item.second.text))


def candidates(groups: Iterable[Sequence[Item]], asked: Collection[Question]) -> Candidates:
    """All distinct pairs of every group whose completions differ and that were not asked before.

    Args:
        groups: pairs of completions to one prompt.
        asked: questions of earlier rounds.
    """
    seen, found, identical, repeated = set(asked), list[Item](), 0, 0
    for item in itertools.chain.from_iterable(groups):
        key = question(item)
        if len(key[1]) < 2:
            identical += 1
        elif key in seen:
            repeated += 1
        else:
            seen.add(key)
            found.append(item)
    return Candidates(found, identical, repeated)


def word_overlap(one: Item, other: Item) -> float:
    """Share of words that two items have in common, in [0, 1]: 1 for the same words, 0 for none."""
    mine, theirs = (_words(item.prompt.question, item.first.text, item.second.text) for item in (one, other))
    together = len(mine | theirs)
    return len(mine & theirs) / together if together else 1.0


def select(
    items: Sequence[Item],
    count: int,
    *,
    random_share: float,
    max_per_prompt: int,
    seed: int,
    diversity: float = 0.0,
    similarity: Callable[[Item, Item], float] = word_overlap,
) -> list[Item]:
    """At most `count` items: a share at random, the rest where it is uncertain and new, at most so many of a prompt.

    Args:
        items: the candidates; where one has no uncertainty, all are taken at random.
        count: how many are wanted.
        random_share: share of `count` drawn at random first, so that the labels also say what is common.
        max_per_prompt: most items of a prompt, both kinds together.
        seed: of the draw.
        diversity: how much it counts that an item is unlike those taken before; 0 looks at uncertainty alone.
        similarity: of two items, in [0, 1].
    """
    shuffled = random.Random(seed).sample(list(items), len(items))
    known = [(item.uncertainty, item) for item in shuffled if item.uncertainty is not None]
    share = math.ceil(random_share * count) if len(known) == len(shuffled) else count
    taken: Counter[str] = Counter()
    chosen = _capped(shuffled, share, max_per_prompt, taken)
    drawn = {item.id for item in chosen}
    ranked = [item for _, item in sorted(known, key=lambda pair: -pair[0]) if item.id not in drawn]
    left = count - len(chosen) if share < count else 0

    def distance(one: Item, other: Item) -> float:
        return (1.0 - similarity(one, other)) ** diversity

    if diversity:
        unsure = _spread(ranked, chosen, left, max_per_prompt, taken, distance)
    else:
        unsure = _capped(ranked, left, max_per_prompt, taken)
    return [replace(item, why="random") for item in chosen] + [replace(item, why="uncertainty") for item in unsure]


def _capped(items: Iterable[Item], count: int, most: int, taken: Counter[str]) -> list[Item]:
    """The first `count` items whose prompts have not had `most` yet; `taken` counts on."""
    found: list[Item] = []
    for item in items:
        if len(found) == count:
            break
        if taken[item.prompt.id] < most:
            taken[item.prompt.id] += 1
            found.append(item)
    return found


def _spread(
    items: Sequence[Item],
    before: Sequence[Item],
    count: int,
    most: int,
    taken: Counter[str],
    distance: Callable[[Item, Item], float],
) -> list[Item]:
    """`count` items one by one, each the largest in uncertainty times distance to the nearest one taken; capped."""
    found: list[Item] = []
    gaps = {item.id: min((distance(item, one) for one in before), default=1.0) for item in items}
    while len(found) < count:
        free = [item for item in items if item.id in gaps and taken[item.prompt.id] < most]
        if not free:
            break
        best = max(free, key=lambda item: (item.uncertainty or 0.0) * gaps[item.id])
        taken[best.prompt.id] += 1
        found.append(best)
        del gaps[best.id]
        for item in items:
            if item.id in gaps:
                gaps[item.id] = min(gaps[item.id], distance(item, best))
    return found


@lru_cache(maxsize=1 << 16)
def _words(*texts: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", " ".join(texts).lower()))


def uncertainty(gains: Sequence[float]) -> float:
    """Uncertainty in nats about a pair, of the score differences that the members see; see the module.

    In [0, log 2].
    """
    chances = [1.0 / (1.0 + math.exp(-max(-700.0, min(700.0, gain)))) for gain in gains]
    total = _entropy(fmean(chances))
    return total if len(chances) == 1 else max(0.0, total - fmean(map(_entropy, chances)))


def model_uncertainty(model: RewardScorer, items: Sequence[Item]) -> list[float]:
    """Uncertainty of a reward model about every item."""
    prompts = [item.prompt for item in items for _ in range(2)]
    sides = [side for item in items for side in (item.first, item.second)]
    judged = model.judge(prompts, sides)
    pairs = zip(judged[::2], judged[1::2], strict=True)
    return [uncertainty([a - b for a, b in zip(one.scores, other.scores, strict=True)]) for one, other in pairs]


def selection_figures(found: Candidates, chosen: Sequence[Item]) -> dict[str, float]:
    """How many pairs there were, how many were chosen for which reason, and their mean uncertainties in nats."""
    figures: dict[str, float] = {"candidates": len(found.items), "identical": found.identical, "asked": found.asked}
    for why, count in Counter(item.why for item in chosen).items():
        name = why.replace(" ", "_")
        known = [item.uncertainty for item in chosen if item.why == why and item.uncertainty is not None]
        figures |= {f"chosen/{name}": count} | ({f"uncertainty/{name}": fmean(known)} if known else {})
    return figures


def _entropy(p: float) -> float:
    return sum(-q * math.log(q) for q in (p, 1.0 - p) if 0.0 < q < 1.0)
