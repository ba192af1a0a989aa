"""`prefrl eval --what policy --best_of_n`, and the report of an optimization with an audit."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from prefrl.cli import main
from prefrl.evaluate.frontier_metrics import BEST_OF_N, audits_of, frontiers
from prefrl.evaluate.overoptimisation import best_of_n
from prefrl.evaluate.run_folder import read
from prefrl.rewards.compose import WeightedSum
from prefrl.rewards.functions import function

CONFIGS = Path(__file__).parents[2] / "configs"
REWARDS = """
def letters(text): return float(sum(c.isalpha() for c in text))
def digits(text): return float(sum(c.isdigit() for c in text))
def broken(text, prompt): return None if prompt == "Say 0" else 1.0
"""


@pytest.fixture
def prompts(write):
    return write("prompts.jsonl", [{"prompt": f"Say {i}"} for i in range(6)])


@pytest.fixture
def rewards(tmp_path):
    (tmp_path / "mine.py").write_text(REWARDS)
    return lambda name, **more: json.dumps([{"kind": f"{tmp_path / 'mine.py'}:{name}", **more}])


def evaluate(model, prompts, output, *flags):
    given = ("--what", "policy", "--model", model, "--data.train", prompts, "--sampling.max_new_tokens", "12")
    return main(["eval", *given, "--output", str(output), *flags])


def test_best_of_n_of_a_policy(model, prompts, rewards, tmp_path, capsys):
    flags = ("--rewards", rewards("letters"), "--gold", rewards("digits"), "--best_of_n", "16")
    assert evaluate(model, prompts, tmp_path / "out", *flags) == 0
    run = read(tmp_path / "out")
    (frontier,) = frontiers(run).values()
    assert [p.at for p in frontier.points] == [1, 2, 4, 8, 16] and frontier.gold == "digits"
    proxies = [point.proxy.mean for point in frontier.points]
    assert proxies == sorted(proxies) and proxies[0] < proxies[-1]
    assert frontier.points[2].kl == pytest.approx(math.log(4) - 0.75)
    (saved,) = json.loads((run.path / f"{BEST_OF_N}.json").read_text())
    assert saved["prompts"] == 6 and saved["points"][4]["gold"]["mean"] == pytest.approx(frontier.points[4].gold.mean)
    assert run.status["summary"][BEST_OF_N]["digits"]["at n = 16"] == pytest.approx(frontier.points[4].gold.mean)
    page = (run.path / "report.html").read_text()
    assert "Over-optimisation" in page and (run.path / "figures" / "reward-and-digits-against-distance.svg").is_file()
    assert {row["policy"] for row in run.samples} == {"one sample", "best of 16"} and len(run.samples) == 12
    picked = [row["reward"] for row in run.samples if row["policy"] == "best of 16"]
    assert sum(picked) / 6 == pytest.approx(proxies[-1])
    assert "Best of n, 6 prompts" in capsys.readouterr().out


def test_a_reward_of_weight_0_is_gold_enough(model, prompts, rewards, tmp_path):
    both = json.dumps([*json.loads(rewards("letters")), *json.loads(rewards("digits", weight=0))])
    assert evaluate(model, prompts, tmp_path / "out", "--rewards", both, "--best_of_n", "4") == 0
    assert list(frontiers(read(tmp_path / "out"))) == ["best_of_n/digits"]


def test_samples_without_gold_are_counted(model, prompts, rewards, tmp_path, capsys):
    flags = ("--rewards", rewards("letters"), "--gold", rewards("broken"), "--best_of_n", "4")
    assert evaluate(model, prompts, tmp_path / "out", *flags) == 0
    (saved,) = json.loads((tmp_path / "out" / f"{BEST_OF_N}.json").read_text())
    assert (saved["prompts"], saved["left_out"], saved["unscored"]) == (5, 1, 4)
    assert "1 prompts short of samples, 4 unscored" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--best_of_n", "4"], "needs a measure that the rewards do not contain"),
        (["--best_of_n", "1"], "best_of_n is 1; expected 0, or 2 or more"),
        (["--gold", "[{kind: exact, column: answer}]"], "set that too: --best_of_n 64"),
        (["--best_of_n", "4", "--gold", "[{kind: exact}]", "--against", "x"], "of one policy"),
        (["--best_of_n", "4", "--gold", "[{kind: exact}]", "--sampling.temperature", "0"], "all samples are alike"),
    ],
)
def test_what_cannot_be_is_refused(flags, words, model, prompts, rewards, tmp_path, capsys):
    assert evaluate(model, prompts, tmp_path / "out", "--rewards", rewards("letters"), *flags) == 2
    assert words in capsys.readouterr().err


def test_optimization_with_an_audit_reports_both_against_distance(model, prompts, rewards, tmp_path):
    both = json.dumps([*json.loads(rewards("letters")), *json.loads(rewards("digits", weight=0))])
    flags = ("--policy.name", model, "--data.train", prompts, "--data.eval_fraction", "0.5", "--rewards", both)
    flags = (*flags, "--steps", "4", "--eval_every", "1", "--policy.lr", "0.01", "--eval_samples", "2")
    flags = (*flags, "--algorithm.kl.coef", "0")  # so that nothing but the audit needs the start
    assert main(["rl", str(CONFIGS / "tiny/grpo.yaml"), "--output", str(tmp_path / "out"), *flags]) == 0
    run = read(tmp_path / "out")
    (frontier,) = frontiers(run).values()
    assert frontier.kind == "rl" and [point.at for point in frontier.points] == [0, 1, 2, 3, 4]
    assert frontier.points[0].kl == 0.0 and frontier.points[-1].kl > 0.0  # the start is the reference
    assert frontier.points[-1].proxy.mean == run.series("reward/mean", "eval")[1][-1]
    assert frontier.points[-1].gold.mean == run.series("reward/part/digits", "eval")[1][-1]
    assert "Over-optimisation" in (run.path / "report.html").read_text()


def test_without_an_audit_there_is_no_section(model, prompts, rewards, tmp_path):
    flags = ("--policy.name", model, "--data.train", prompts, "--rewards", rewards("letters"))
    assert main(["rl", str(CONFIGS / "tiny/grpo.yaml"), "--output", str(tmp_path / "out"), *flags]) == 0
    assert "Over-optimisation" not in (tmp_path / "out" / "report.html").read_text()


def test_audits_are_the_terms_of_weight_0():
    one, two, three = (function(f) for f in (lambda text: 1.0, lambda text: 2.0, lambda text: 3.0))
    one.name, two.name, three.name = "a", "b", "b"
    assert audits_of(one) == []
    assert audits_of(WeightedSum([(one, 1.0), (two, 2.0)])) == []
    assert audits_of(WeightedSum([(one, 0.0), (two, 2.0), (three, 0.0)])) == ["a", "b_2"]
    assert best_of_n([[1.0, 2.0]], [[1.0, 2.0]], name="b_2").gold == "b_2"
