from __future__ import annotations

import pytest
import torch

from prefrl.config import LabelConfig, ModelConfig
from prefrl.model.engine import Engine
from prefrl.model.features import FeatureRewardModel
from prefrl.policy.judgement import LabelModel
from prefrl.policy.objective import reward_objective
from prefrl.recipes.pairs import passes, reward_rows, weighted
from prefrl.types import Completion, Pair, Prompt, Ranking, Row

PROMPT = Prompt(id="1", text="p")
TIED = Pair(
    prompt=PROMPT,
    chosen=Completion(text="a"),
    rejected=Completion(text="b"),
    label=0.8,
    margin=0.5,
    weight=3.0,
    tie=0.25,
    annotator="bob",
)
LIST = Ranking(
    prompt=PROMPT, completions=tuple(Completion(text=c) for c in "cab"), ranks=(2, 1, 2), weight=1.0, annotator="ann"
)


class Letters:
    """Encodes a one-letter completion; a letter is also its features, for models of features."""

    def encode(self, prompt, completion):
        letter = ord(completion.text) - ord("a")
        features = torch.tensor([[1.0, -0.5, 2.0][letter], [0.5, 1.0, -1.0][letter]])[None]
        return Row(prompt_ids=(0,), completion_ids=(letter,), mask=(True,), observations=features)


def rows():
    return reward_rows([TIED, LIST], Letters(), {"ann": 0, "bob": 1})


def test_rows_of_pairs_and_ranked_lists():
    pair, ranked = rows()
    assert [(r.completion_ids, r.side, r.rank) for r in pair] == [((0,), 1, 0), ((1,), -1, 0)]
    assert {(r.atom, r.label, r.margin, r.weight, r.tie, r.annotator) for r in pair} == {(0, 0.8, 0.5, 3.0, 0.25, 1)}
    assert [(r.completion_ids, r.side, r.rank) for r in ranked] == [((2,), 0, 2), ((0,), 0, 1), ((1,), 0, 2)]
    assert {(r.atom, r.weight, r.annotator) for r in ranked} == {(1, 1.0, 0)}
    assert all(r.together for r in (*pair, *ranked))
    assert [r.annotator for judged in reward_rows([TIED, LIST], Letters()) for r in judged] == [-1] * 5


def test_weights_of_a_batch_sum_to_one_over_its_judgements():
    before = rows()
    batch = weighted(before)
    assert [row.weight for row in batch] == [0.75, 0.75, 0.25, 0.25, 0.25]
    assert [row.weight for judged in before for row in judged] == [3.0, 3.0, 1.0, 1.0, 1.0]
    kept = ("side", "rank", "label", "margin", "tie", "annotator", "atom", "mask", "prompt_ids", "completion_ids")
    for row, original in zip(batch, (row for judged in before for row in judged), strict=True):
        assert all(getattr(row, name) == getattr(original, name) for name in kept)
    for judged in before:
        for row in judged:
            row.weight = 0.0
    assert {row.weight for row in weighted(before)} == {0.0}


def test_all_judgements_of_a_prompt_are_in_one_update():
    other = [(Row(prompt_ids=(7,), completion_ids=(1,), mask=(True,), rank=rank),) for rank in (1, 2)]
    for batches in passes([*rows(), *other], 1, 2, 0):
        assert sorted(len(batch) for batch in batches) == [2, 2]


@pytest.mark.parametrize("ranking", ["pairs", "plackett_luce"])
@pytest.mark.parametrize("ties", ["half", "davidson"])
def test_one_micro_batch_is_several(ties, ranking):
    def trained(budget):
        net = torch.nn.Linear(2, 1, bias=False)
        torch.nn.init.ones_(net.weight)
        config = ModelConfig(lr=0.1, token_budget=budget)
        labels = LabelModel(LabelConfig(ties=ties, ranking=ranking, reliability="learn"), {"ann": 1, "bob": 1})
        engine = Engine(FeatureRewardModel(net), config)
        for _ in range(3):
            metrics = engine.step(weighted(rows()), lambda batch: reward_objective(batch, labels, 0.1))
            labels.step(engine.total)
        return [*net.weight[0].tolist(), labels.tie_parameter, *labels.alphas.tolist(), *metrics.values()]

    assert trained(1) == pytest.approx(trained(1000), rel=1e-5)
