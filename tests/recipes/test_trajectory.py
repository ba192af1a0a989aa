from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from prefrl.config import FragmentLabelsConfig, TrajectoryConfig
from prefrl.data.preferences import PreferenceStore
from prefrl.errors import ConfigError, DataError, RunError
from prefrl.evaluate.run_folder import read
from prefrl.parsing import parse
from prefrl.recipes import trajectory
from prefrl.recipes.trajectory_clips import clip_of, pictures, view_of
from prefrl.recipes.trajectory_policy import Actor
from prefrl.rewards.specs import build
from prefrl.rewards.trajectory.storage import load_fragments

ROOT = Path(__file__).parents[2]
TINY = ROOT / "configs" / "tiny" / "fragments.yaml"


def config(folder: Path, *flags: str) -> TrajectoryConfig:
    found, _ = parse(TrajectoryConfig, [str(TINY), "--output", str(folder), "--threads", "1", *flags], prog="fragments")
    return found


def weights(folder: Path) -> dict[str, torch.Tensor]:
    files = sorted((folder / "checkpoints").rglob("*.safetensors"))
    return {f"{f.relative_to(folder)}/{k}": v for f in files for k, v in load_file(f).items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def answer(store: PreferenceStore, outcome: str = "first") -> int:
    """Label all that is open; how many that were."""
    done = 0
    states = store.item_states()
    for item in store.items():
        if states[item.id].labels + states[item.id].skips == 0:
            store.submit(item.id, "ann", outcome)
            done += 1
    return done


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("fragments") / "run"
    trajectory.run(config(folder))
    return folder


def test_a_run_leaves_reward_policy_and_report(finished):
    data = read(finished)
    assert data.state == "finished"
    summary = data.status["summary"]
    assert [summary[f"round {n}"]["labels"] for n in (1, 2)] == [1, 11]
    assert summary["round 2"]["comparisons"] == 12
    assert summary["round 2"]["disagreement/asked"] > summary["round 2"]["disagreement/candidates"]
    assert len(data.series("return/mean", "eval")[1]) == 3, "the start, and both rounds"
    assert data.series("reward/mean")[0] == [1, 2, 3, 4]
    report = (finished / "report.html").read_text()
    assert "with 12 comparisons" in report
    assert "correlation with the true reward" in report
    fragments = load_fragments(finished / "rounds" / "2" / "fragments.safetensors")
    assert len(fragments) == 22
    assert {len(piece.completion_ids) for piece in fragments} == {10}


def test_the_policy_is_where_the_configuration_says(finished, tmp_path):
    """No device meta computes anything, but every machine has it."""
    actor = Actor(config(tmp_path / "run", "--policy.device", "meta"), finished / "checkpoints")
    assert {next(actor.at(number).net.parameters()).device.type for number in (0, 1)} == {"meta"}
    with pytest.raises(ConfigError, match=r"device 'nowhere' cannot be used.*Set policy\.device to cpu"):
        Actor(config(tmp_path / "run", "--policy.device", "nowhere"), finished / "checkpoints")


def test_its_reward_is_a_source_by_the_name_of_the_folder(finished):
    source = build({"kind": "trajectory_reward", "path": str(finished)})
    piece = load_fragments(finished / "rounds" / "1" / "fragments.safetensors")[0]
    score = source.score([piece])[0]
    assert len(score.steps) == 10
    assert torch.tensor(score.total).isfinite()


def test_the_seed_says_all(finished, tmp_path):
    trajectory.run(config(tmp_path / "again"))
    assert same(weights(finished), weights(tmp_path / "again"))
    trajectory.run(config(tmp_path / "other", "--seed", "1"))
    assert not same(weights(finished), weights(tmp_path / "other"))


def test_an_interrupted_run_ends_as_one_that_was_not(finished, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(trajectory.Rounds, "label", _only_first(_LABEL))
        with pytest.raises(KeyboardInterrupt):
            trajectory.run(config(tmp_path / "run"))
    assert read(tmp_path / "run").state == "failed"
    trajectory.run(config(tmp_path / "run"))
    assert same(weights(finished), weights(tmp_path / "run"))
    steps, whole = ([line["step"] for line in read(folder).metrics] for folder in (tmp_path / "run", finished))
    assert steps == whole
    with pytest.raises(RunError, match="already holds a run of kind 'fragments'"):
        trajectory.run(config(tmp_path / "run"))


_LABEL = trajectory.Rounds.label


def _only_first(label):
    def labelled(self, number):
        if number == 2:
            raise KeyboardInterrupt
        label(self, number)

    return labelled


def test_a_changed_configuration_does_not_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(trajectory.Rounds, "label", _only_first(_LABEL))
    with pytest.raises(KeyboardInterrupt):
        trajectory.run(config(tmp_path / "run"))
    with pytest.raises(RunError, match=r"length was 10 and is 5.*prefrl fragments .*config.yaml"):
        trajectory.run(config(tmp_path / "run", "--length", "5"))


def test_people_label_clips_and_the_run_goes_on(tmp_path):
    folder = tmp_path / "run"
    asked = config(folder, "--labels.kind", "people", "--labels.question", "Which stands up better?")
    trajectory.run(asked)
    data = read(folder)
    assert data.state == "waiting"
    assert "prefrl annotate" in data.status["why"]
    with PreferenceStore(folder / "preferences.db", create=False) as store:
        (item,) = store.items()
        assert item.prompt.text == "Which stands up better?"
        assert item.id in data.status["items"]
        for clip in item.clips:
            assert len(clip.frames) == len(clip.states) == 10
            assert clip.names == ("cosine", "sine", "speed")
            kind, body = store.media.get(clip.frames[0])
            assert (kind, body[:4]) == ("image/png", b"\x89PNG")
        assert answer(store, "second") == 1
    trajectory.run(asked)
    assert json.loads((folder / "rounds" / "1" / "labels.json").read_text()) == [0.0]
    with PreferenceStore(folder / "preferences.db", create=False) as store:
        assert answer(store, "tie") == 11
    trajectory.run(asked)
    summary = read(folder).status["summary"]
    assert read(folder).state == "finished"
    assert summary["round 2"]["ties"] == 11


def test_skipped_comparisons_are_counted_and_left_out(tmp_path):
    folder = tmp_path / "run"
    asked = config(folder, "--labels.kind", "people", "--rounds", "1", "--comparisons", "3")
    trajectory.run(asked)
    with PreferenceStore(folder / "preferences.db", create=False) as store:
        first, *others = store.items()
        store.submit(first.id, "ann", "first")
        for item in others:
            store.submit(item.id, "ann", "skip")
    trajectory.run(asked)
    found = read(folder).status["summary"]["round 1"]
    assert (found["labels"], found["skipped"], found["comparisons"]) == (1, 2, 1)


def test_when_all_are_skipped_nothing_is_learnt(tmp_path):
    folder = tmp_path / "run"
    asked = config(folder, "--labels.kind", "people", "--rounds", "1", "--comparisons", "2")
    trajectory.run(asked)
    with PreferenceStore(folder / "preferences.db", create=False) as store:
        assert answer(store, "skip") == 2
    with pytest.raises(DataError, match="All 2 comparisons of round 1 were skipped"):
        trajectory.run(asked)


def test_two_people_share_a_label(tmp_path):
    folder = tmp_path / "run"
    flags = ("--labels.kind", "people", "--rounds", "1", "--comparisons", "1", "--labels.overlap", "2")
    trajectory.run(config(folder, *flags))
    with PreferenceStore(folder / "preferences.db", create=False) as store:
        (item,) = store.items()
        store.submit(item.id, "ann", "first")
    trajectory.run(config(folder, *flags))
    assert read(folder).state == "waiting"
    with PreferenceStore(folder / "preferences.db", create=False) as store:
        store.submit(item.id, "bob", "second")
    trajectory.run(config(folder, *flags))
    assert json.loads((folder / "rounds" / "1" / "labels.json").read_text()) == [0.5]


def test_clips_without_pictures_have_their_numbers(finished):
    piece = load_fragments(finished / "rounds" / "1" / "fragments.safetensors")[0]
    clip = clip_of(piece, view_of("Pendulum-v1"))
    assert clip.frames == ()
    assert clip.states[0] == pytest.approx(piece.observations[0].tolist(), rel=1e-3)
    other = clip_of(piece, view_of("Acrobot-v1"), keep=lambda *_: "never")
    assert (other.frames, other.names) == ((), ())
    assert other.seconds == pytest.approx(1 / 15)


def test_pictures_show_the_state():
    view = view_of("CartPole-v1")
    left, right, again = pictures([[-1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0]], view)
    assert left != right
    assert left == again


def test_episodes_that_end_early_are_warned_of(tmp_path, capsys):
    flags = ("--environment", "CartPole-v1", "--horizon", "0", "--rounds", "1", "--comparisons", "2", "--length", "4")
    trajectory.run(config(tmp_path / "run", *flags))
    assert "do not say what a further step is worth" in capsys.readouterr().out


def test_what_cannot_work_is_refused_at_once(tmp_path):
    with pytest.raises(ConfigError, match=r"select is disagreement and net\.members 1; expected 2 or more"):
        config(tmp_path, "--net.members", "1")
    with pytest.raises(ConfigError, match="horizon is 40 and length 41"):
        config(tmp_path, "--length", "41")
    with pytest.raises(ConfigError, match="comparisons is 1 and rounds 2"):
        config(tmp_path, "--comparisons", "1")
    with pytest.raises(ConfigError, match="at most 200 steps"):
        trajectory.run(replace(config(tmp_path / "run"), length=201, horizon=0))
    with pytest.raises(ConfigError, match="a share in"):
        FragmentLabelsConfig(flip=0.5)


@pytest.mark.parametrize("name", ["preferences_pendulum", "preferences_cartpole"])
def test_the_full_configurations_are_whole(name):
    found, _ = parse(TrajectoryConfig, [str(ROOT / "configs" / "irl" / f"{name}.yaml")], prog="fragments")
    assert found.comparisons == 200
