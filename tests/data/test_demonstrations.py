"""Demonstrations from files of several layouts: the same numbers, ends and time limits apart, nothing unpickled."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from prefrl.config import SamplingConfig
from prefrl.data.demonstrations import load_demonstrations, save_demonstrations
from prefrl.errors import DataError
from prefrl.model.control import control_policy
from prefrl.types import Prompt, StopReason

ENDED, CUT = StopReason.ENVIRONMENT, StopReason.LENGTH


def npz(folder, lengths=(2, 3, 3), acts=None, **more):
    """Episodes of these lengths; observations count up from 0, rewards are 1."""
    n = sum(lengths)
    arrays = {
        "obs": np.arange(n + len(lengths), dtype=np.float64)[:, None],
        "acts": np.arange(n) % 2 if acts is None else acts,
        "rews": np.ones(n),
        "terminal": np.ones(len(lengths), dtype=bool),
        "indices": np.cumsum(lengths)[:-1],
    }
    path = folder / "expert.npz"
    np.savez(path, **{name: value for name, value in {**arrays, **more}.items() if value is not None})
    return path


def test_episodes_are_cut_where_the_file_says(tmp_path):
    first, second, third = load_demonstrations(npz(tmp_path))
    assert first.observations.tolist() == [[0.0], [1.0], [2.0]]
    assert second.observations[:, 0].tolist() == [3.0, 4.0, 5.0, 6.0]
    assert (first.completion_ids, second.completion_ids, third.completion_ids) == ((0, 1), (0, 1, 0), (1, 0, 1))
    assert first.info == {"return": 2.0, "rewards": [1.0, 1.0]}
    assert first.logps == (0.0, 0.0)
    assert first.actions is None
    assert len({r.group for r in (first, second, third)}) == 3


def test_ends_and_time_limits(tmp_path):
    assert [r.stop for r in load_demonstrations(npz(tmp_path))] == [ENDED, CUT, CUT]  # the longest, and not alone
    assert [r.stop for r in load_demonstrations(npz(tmp_path, (2, 2, 3)))] == [ENDED] * 3
    assert [r.stop for r in load_demonstrations(npz(tmp_path, (2, 2, 3)), limit=2)] == [CUT, CUT, CUT]
    said = npz(tmp_path, terminated=np.array([False, True, False]))
    assert [r.stop for r in load_demonstrations(said)] == [CUT, ENDED, CUT]
    cut = npz(tmp_path, (2, 3, 4), terminal=np.array([True, False, True]))
    assert [r.stop for r in load_demonstrations(cut)] == [ENDED, CUT, ENDED]


def test_continuous_actions_and_images(tmp_path):
    acts, images = np.linspace(-2, 2, 8)[:, None], np.arange(11 * 12).reshape(11, 2, 3, 2)
    path = npz(tmp_path, acts=acts, obs=images)
    first = load_demonstrations(path)[0]
    torch.testing.assert_close(first.actions, torch.tensor(acts[:2], dtype=torch.float32))
    assert first.completion_ids == (0, 0)
    assert first.observations[1].tolist() == images[1].reshape(-1).tolist()


@pytest.mark.parametrize("suffix", ["npz", "jsonl"])
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_what_was_recorded_comes_back(tmp_path, suffix, name):
    policy = control_policy(name, seed=0)
    rollouts = policy.sample([Prompt(id="a", text="")], 3, SamplingConfig(max_new_tokens=15), seed=0)
    found = load_demonstrations(save_demonstrations(tmp_path / "new" / f"mine.{suffix}", rollouts))
    for one, other in zip(found, rollouts, strict=True):
        assert torch.equal(one.observations, other.observations)
        assert (one.completion_ids, one.stop) == (other.completion_ids, other.stop)
        assert one.info["rewards"] == other.info["rewards"]
        assert one.info["return"] == pytest.approx(other.info["return"])
        assert (one.actions is None) == (other.actions is None)
        assert other.actions is None or torch.equal(one.actions, other.actions)
    assert {r.stop for r in found} == ({CUT} if name == "Pendulum-v1" else {r.stop for r in rollouts})


def test_minari_where_it_is_installed(tmp_path, monkeypatch):
    space = spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Box(-1, 1, (1,))})
    episode = SimpleNamespace(
        observations={"b": np.array([1, 0, 1]), "a": np.array([[0.1], [0.2], [0.3]])},
        actions=np.array([[0.5], [0.6]]),
        rewards=np.array([1.0, 2.0]),
        terminations=np.array([False, True]),
    )
    data = SimpleNamespace(observation_space=space, iterate_episodes=lambda: iter([episode]))
    monkeypatch.setitem(sys.modules, "minari", SimpleNamespace(load_dataset=lambda name: {"a/b-v0": data}[name]))
    (found,) = load_demonstrations("minari:a/b-v0")
    assert found.observations.tolist() == [
        pytest.approx([0.1, 0, 1]),
        pytest.approx([0.2, 1, 0]),
        pytest.approx([0.3, 0, 1]),
    ]
    assert (found.stop, found.info["return"]) == (ENDED, 3.0)
    with pytest.raises(DataError, match="minari cannot load 'nothing'"):
        load_demonstrations("minari:nothing")
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(DataError, match="Type: pip install minari"):
        load_demonstrations("minari:a/b-v0")


def line(**more):
    return json.dumps({"observations": [[0], [1]], "actions": [0], "terminated": True, **more}) + "\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", "{", "line 1 is no JSON"),
        ("a.jsonl", '{"actions": [0]}', "line 1 has actions; expected an object with observations, actions and"),
        (
            "a.jsonl",
            line() + line(observations=[[0]]),
            r"episode 1 has 1 observations, 1 actions and no rewards; expect",
        ),
        ("a.jsonl", line(observations=[[0], [float("nan")]]), "1 of its observations are not finite"),
        ("a.jsonl", line(actions=["left"]), "actions are <U4; expected whole numbers"),
        ("a.jsonl", line(rewards=[1, 2]), "1 actions and 2 rewards"),
        ("a.jsonl", "", "holds no episodes"),
        ("a.csv", "", "is no file of demonstrations; expected one of .npz, .jsonl, minari:NAME"),
        ("a.npz", "not zipped", "cannot be read as NPZ without unpickling"),
    ],
)
def test_files_that_are_none_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        load_demonstrations(tmp_path / name)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"indices": None}, "has no indices, but obs, acts, rews, terminal"),
        ({"obs": np.zeros((8, 1))}, "8 observations and 8 actions in 3 episodes; expected one observation more"),
        ({"terminal": np.ones(2, dtype=bool)}, "says of 2 episodes whether they ended, but has 3"),
        ({"acts": np.array([{}] * 8)}, "cannot be read as NPZ without unpickling"),
        (
            {"indices": np.array([2.0, 5.0])},
            "has indices of float64 with 1 dimensions; expected a list of whole numbers",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, more, message):
    with pytest.raises(DataError, match=message):
        load_demonstrations(npz(tmp_path, **more))


def test_a_damaged_file_is_refused(tmp_path):
    path = npz(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cannot be read as NPZ"):
        load_demonstrations(path)
    path.write_bytes(whole.replace(np.ones(8).tobytes(), np.zeros(8).tobytes(), 1))
    with pytest.raises(DataError, match=r"cannot be read as NPZ.*CRC"):
        load_demonstrations(path)
    (tmp_path / "text.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(DataError, match="cannot be read as UTF-8 text"):
        load_demonstrations(tmp_path / "text.jsonl")


def test_a_missing_file_is_told_from_its_neighbour(tmp_path):
    npz(tmp_path)
    with pytest.raises(DataError, match=r"no file .*export.npz. Did you mean '.*expert.npz'"):
        load_demonstrations(tmp_path / "export.npz")
