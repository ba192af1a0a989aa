"""Parts of a batch: together they are the batch, each estimates it, and what has no parts is refused."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from prefrl.config import ModelConfig
from prefrl.errors import ConfigError
from prefrl.model.control import control_policy
from prefrl.model.engine import Engine
from prefrl.policy.algorithms import resolve
from prefrl.policy.minibatches import Minibatches
from prefrl.policy.objective import supervised_objective
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.types import Row


def rows(lengths=(3, 5, 4), observed=True):
    made, number = [], 0
    for n in lengths:
        numbers = torch.arange(number, number + n, dtype=torch.float32)
        number += n
        made.append(
            Row(
                prompt_ids=(),
                completion_ids=tuple(int(x) % 2 for x in numbers),
                mask=tuple(int(x) % 4 != 3 for x in numbers),
                streams={"ce": 0.5 + numbers, "returns": numbers},
                observations=torch.cat([numbers, torch.tensor([99.0])])[:, None].expand(-1, 3) if observed else None,
            )
        )
    return made


@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_masked_in_action_is_in_one_part(count):
    parts = list(Minibatches(count=count, over="steps").of(rows(), seed=1))
    assert len(parts) == count
    found = [x for (row,) in parts for x in row.streams["returns"].tolist()]
    assert Counter(found) == Counter(float(i) for i in range(12) if i % 4 != 3)
    for (row,) in parts:
        assert row.observations[:, 0].tolist() == row.streams["returns"].tolist()
        assert row.completion_ids == tuple(int(x) % 2 for x in row.streams["returns"].tolist())
        assert row.streams["ce"].tolist() == [count * (0.5 + x) for x in row.streams["returns"].tolist()]


def test_whole_rows_keep_together():
    batch = rows((3, 5, 4, 2))
    parts = list(Minibatches(count=2).of(batch, seed=1))
    assert sorted(len(row.mask) for part in parts for row in part) == [2, 3, 4, 5]
    assert [len(part) for part in parts] == [2, 2]
    assert sum(float(row.streams["ce"].sum()) for part in parts for row in part) == 2 * sum(
        float(row.streams["ce"].sum()) for row in batch
    )
    assert list(Minibatches().of(batch, seed=1)) == [batch]


def test_the_order_belongs_to_the_seed():
    def order(seed):
        return [row.streams["returns"].tolist() for (row,) in Minibatches(count=3, over="steps").of(rows(), seed)]

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_the_mean_gradient_of_the_parts_is_that_of_the_batch():
    policy = control_policy("CartPole-v1", visible=(0, 1, 2), normalise=False, seed=0)

    def gradient(batch):
        policy.net.zero_grad()
        engine = Engine(policy, ModelConfig(max_grad_norm=0.0))
        supervised_objective(engine._batch(batch, ()))[0].backward()
        return torch.cat([p.grad.flatten() for p in policy.net.parameters()])

    whole = gradient(rows())
    for cut in (Minibatches(count=3, over="steps"), Minibatches(count=3)):
        parts = [gradient(part) for part in cut.of(rows(), seed=0)]
        torch.testing.assert_close(sum(parts) / 3, whole, rtol=1e-4, atol=1e-5)


def test_without_rows_there_are_as_many_parts():
    assert list(Minibatches(count=3, over="steps").of([], seed=0)) == [[], [], []]


@pytest.mark.parametrize(
    ("cut", "algorithm", "message"),
    [
        (Minibatches(count=0), "ppo", "minibatches.count is 0; expected 1 or more"),
        (Minibatches(count=2), "dpo", "learns pairs or accepted samples"),
        (Minibatches(count=2), "rejection", "Set minibatches.count to 1"),
        (Minibatches(over="steps"), "gspo", "'sequence_mean', of more than one action"),
        (Minibatches(count=2), "reinforce", "updates is 2, but algorithm 'reinforce' has no importance ratio"),
    ],
)
def test_parts_that_cannot_be_are_refused(cut, algorithm, message):
    with pytest.raises(ConfigError, match=message):
        PolicyOptimizer(None, None, resolve(algorithm), critic=object(), minibatches=cut)


def test_tokens_are_no_steps():
    with pytest.raises(ConfigError, match="tokens depend on all before them"):
        list(Minibatches(count=2, over="steps").of(rows(observed=False), seed=0))
