"""The state of a run in files: what went in comes out, bit for bit."""

from __future__ import annotations

import math

import pytest
import torch

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.errors import RunError
from prefrl.model.control import control_policy
from prefrl.model.engine import Engine
from prefrl.model.state import load_state, save_state
from prefrl.policy.optimizer import learn_completions
from prefrl.types import Prompt, Row


def test_nested_state_comes_back_with_its_types(tmp_path):
    shared = torch.arange(3.0)
    state = {
        "tensors": {0: shared, 1: shared[:2], "bytes": torch.Generator().manual_seed(3).get_state()},
        "plain": {"a": 1, "b": 0.1, "c": None, "d": True, "e": "text", "nan": math.nan},
        "sequences": [(1, 2), [], [torch.tensor(2, dtype=torch.float64)]],
    }
    save_state(tmp_path / "state", state)
    found = load_state(tmp_path / "state")
    assert found["tensors"].keys() == {0, 1, "bytes"}
    assert all(torch.equal(found["tensors"][key], tensor) for key, tensor in state["tensors"].items())
    assert math.isnan(found["plain"].pop("nan"))
    assert found["plain"] == {"a": 1, "b": 0.1, "c": None, "d": True, "e": "text"}
    assert found["sequences"][:2] == [(1, 2), []]
    assert found["sequences"][2][0].dtype == torch.float64
    assert sorted(path.suffix for path in (tmp_path / "state").iterdir()) == [".json", ".safetensors"]


def test_a_folder_without_a_state_is_refused(tmp_path):
    with pytest.raises(RunError, match="No state to go on from"):
        load_state(tmp_path / "none")


def test_an_engine_goes_on_as_if_it_had_never_stopped(tmp_path):
    def fresh():
        policy = control_policy("CartPole-v1", horizon=5, hidden=(4,), seed=1)
        return Engine(policy, ModelConfig(lr=0.01, schedule="linear"), total_steps=4, reference=True)

    whole, first, rest = fresh(), fresh(), fresh()
    played = whole.actor.sample([Prompt(id="p", text="p")], 2, SamplingConfig(max_new_tokens=5), seed=0)

    def learn(engine):
        rows = [
            Row(prompt_ids=(), completion_ids=r.completion_ids, mask=r.mask, observations=r.observations)
            for r in played
        ]
        return learn_completions(engine, rows)

    for engine in (whole, whole, first, first):
        learn(engine)
    save_state(tmp_path / "state", first.state_dict())
    rest.load_state_dict(load_state(tmp_path / "state"))
    assert (rest.version, learn(rest)) == (2, learn(whole))
    assert all(torch.equal(a, b) for a, b in zip(rest.snapshot(), whole.snapshot(), strict=True))
    rest.reset()
    assert all(torch.equal(a, b) for a, b in zip(rest.snapshot(), fresh().snapshot(), strict=True))
