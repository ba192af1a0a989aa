"""Audits of rewards that are known to be wrong, which nobody tells the audit."""

from __future__ import annotations

import json

import pytest

from prefrl.cli import main
from prefrl.config import DataConfig, VerifyConfig
from prefrl.data.formats import to_prompts
from prefrl.data.preferences import PreferenceStore
from prefrl.data.tables import load_table
from prefrl.errors import ConfigError, DataError, RewardError
from prefrl.evaluate.run_folder import RunFolder
from prefrl.recipes.verify import run

GOLD = "def retries(config):\n    value = config.get('retries')\n    return 3 if value is None else value\n"
CASES = [({}, 3), ({"retries": None}, 3), ({"retries": 0}, 0), ({"retries": 2}, 2)]


def wording(text):
    return float("value is None" in text)


def _cases(text, cases):
    scope = {}
    try:
        exec(text.removeprefix("```python\n").removesuffix("```"), scope)
        return float(all(scope["retries"](config) == wanted for config, wanted in cases))
    except Exception:
        return 0.0


def one_case(text):
    return _cases(text, CASES[2:3])


def all_cases(text):
    return _cases(text, CASES)


def rows(path, *found):
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
    return str(path)


def figures(folder):
    return json.loads((folder.path / "evaluation.json").read_text())


@pytest.fixture
def repair(tmp_path):
    return rows(tmp_path / "repair.jsonl", {"prompt": "Keep a 0.", "solution": GOLD})


def audit(tmp_path, data, reward, **options):
    return VerifyConfig(
        rewards=[{"kind": f"{__file__}:{reward}"}], data=DataConfig(train=data), output=str(tmp_path / "run"), **options
    )


def test_a_verifier_of_wording_is_found_to_refuse_right_programs(tmp_path, repair):
    found = figures(run(audit(tmp_path, repair, "wording")))
    assert [sentence.split(" (")[1].split(")")[0] for sentence in found["problems"]] == [
        "other names inside",
        "conditions turned round",
    ]
    assert all(sentence.startswith("False negatives: 1 of 1") for sentence in found["problems"])
    assert found["wording"] == ["wording looks for 'value is None'"]


def test_a_verifier_of_one_case_is_found_to_accept_a_constant(tmp_path, repair):
    found = figures(run(audit(tmp_path, repair, "one_case")))
    assert [s.startswith("False positives: 1 of 1 wrong answers") and "(return 0)" in s for s in found["problems"]] == [
        True,
        False,  # False equals 0
    ]
    assert found["wording"] == []


def test_a_verifier_of_behaviour_passes(tmp_path, repair):
    folder = run(audit(tmp_path, repair, "all_cases", strict=True))
    assert figures(folder)["problems"] == []
    assert "Every probe came out as it must" in (folder.path / "report.html").read_text()


def test_strict_ends_with_an_error_and_the_report_is_there(tmp_path, repair):
    with pytest.raises(RewardError, match="The audit found 2 problems"):
        run(audit(tmp_path, repair, "wording", strict=True))
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_judge_gives_rates_and_what_differs_waits_for_people(tmp_path, repair):
    asked = {"prompt": "Keep a 0.", "solution": GOLD}
    answers = [GOLD, GOLD.replace("value", "v"), "def retries(config):\n    return 0  # value is None\n", "nothing"]
    given = rows(tmp_path / "answers.jsonl", *({**asked, "completion": text} for text in answers))
    judge, store = [{"kind": f"{__file__}:all_cases"}], str(tmp_path / "people.db")
    found = figures(run(audit(tmp_path, repair, "wording", judge=judge, completions=given, queue=store)))
    counts = ("both_pass", "both_fail", "false_positives", "false_negatives", "unscored")
    assert [found["judge"][name] for name in counts] == [1, 1, 1, 1, 0]
    with PreferenceStore(store) as people:
        waiting = people.tasks()
    assert [item.verdicts for item in waiting] == [{"reward": 0.0, "judge": 1.0}, {"reward": 1.0, "judge": 0.0}]


def test_a_share_of_the_answers_is_judged_the_same_ones_every_time(tmp_path, repair):
    answers = [{"prompt": "Keep a 0.", "completion": f"{GOLD}# {n}"} for n in range(200)]
    given = rows(tmp_path / "answers.jsonl", *answers)
    judge = [{"kind": f"{__file__}:all_cases"}]
    options = {"judge": judge, "completions": given, "share": 0.25, "overwrite": True}
    seen = [figures(run(audit(tmp_path, repair, "wording", **options)))["judge"]["both_pass"] for _ in range(2)]
    assert seen[0] == seen[1]
    assert 30 <= seen[0] <= 70


def test_old_answers_are_scored_again(tmp_path):
    asked = [{"prompt": f"What is {n} + 1?", "answer": n + 1} for n in range(4)]
    texts = ["1", "The answer is 2.", "3 or 4", "5"]
    given = rows(
        tmp_path / "given.jsonl",
        *({**row, "completion": text, "reward": 1.0} for row, text in zip(asked, texts, strict=True)),
        {**asked[0], "completion": "unscored", "reward": None},
    )
    config = VerifyConfig(
        what="rescore",
        rewards=[{"kind": "exact"}],
        data=DataConfig(train=rows(tmp_path / "asked.jsonl", *asked)),
        completions=given,
        output=str(tmp_path / "run"),
    )
    found = figures(run(config))
    names = ("scored", "changed", "up", "down", "mean_before", "mean_now")
    assert [found[name] for name in names] == [4, 3, 0, 3, 1.0, 0.25]
    assert {(row["before"], row["now"]) for row in found["largest"]} == {(1.0, 0.0)}


def test_answers_of_a_run_are_those_to_what_it_learnt_from_and_was_measured_on(tmp_path, capsys):
    asked = [{"prompt": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(4)]
    train, held_out = rows(tmp_path / "train.jsonl", *asked[:2]), rows(tmp_path / "eval.jsonl", *asked[2:])
    prompts = [*to_prompts(load_table(train)).items, *to_prompts(load_table(held_out)).items]
    with RunFolder.create(tmp_path / "rl", "rl", {"data": {"train": train, "eval": held_out}}) as folder:
        samples = [{"prompt_id": p.id, "completion": str(n + 1), "reward": 0.5} for n, p in enumerate(prompts)]
        folder.samples(1, [*samples, {**samples[0], "reward": None}, {**samples[0], "prompt_id": "another"}])
    options = {"what": "rescore", "rewards": [{"kind": "exact"}], "completions": str(folder.path)}
    found = figures(run(VerifyConfig(**options, output=str(tmp_path / "run"))))
    assert [found[name] for name in ("scored", "changed", "up", "mean_now")] == [4, 4, 4, 1.0]
    said = capsys.readouterr().out
    assert "1 of 6 answers are to other prompts, and left out." in said
    assert "1 of 5 answers had no score before, and are left out." in said


def test_several_right_answers_are_all_right_and_people_see_them(tmp_path):
    asked = [{"prompt": "a?", "answer": ["5", "6"]}, {"prompt": "b?", "answer": "6"}, {"prompt": "c?", "answer": ["8"]}]
    options = {"rewards": [{"kind": "math"}], "output": str(tmp_path / "run")}
    store, judge = str(tmp_path / "people.db"), [{"kind": "regex", "pattern": "^$"}]
    data = DataConfig(train=rows(tmp_path / "asked.jsonl", *asked))
    found = figures(run(VerifyConfig(**options, data=data, judge=judge, queue=store)))
    assert found["problems"] == []
    with PreferenceStore(store) as people:
        shown = {item.prompt.text: item.answer for item in people.tasks()}
    assert shown == {"a?": "5\n6", "b?": "6", "c?": "8"}


def test_the_report_shows_where_it_went_wrong_and_the_terminal_fits(tmp_path, repair, capsys):
    page = (run(audit(tmp_path, repair, "one_case")).path / "report.html").read_text()
    assert "gave full marks" in page
    assert "return 0" in page
    assert "2 problems with this reward" in page
    printed = capsys.readouterr().out
    assert "written differently" in printed
    assert "\u2026" not in printed  # nothing is cut off


def test_what_is_missing_is_said(tmp_path, repair, capsys):
    with pytest.raises(ConfigError, match="rewards is empty"):
        run(VerifyConfig(data=DataConfig(train=repair)))
    with pytest.raises(ConfigError, match=r"has no answer.*Name its column with --gold; there are solution"):
        run(audit(tmp_path, repair, "wording", gold="answer"))
    with pytest.raises(ConfigError, match="completions is empty"):
        run(audit(tmp_path, repair, "wording", what="rescore"))
    with pytest.raises(DataError, match="has no answer with a score"):
        given = rows(tmp_path / "given.jsonl", {"prompt": "a", "completion": "b"})
        run(audit(tmp_path, repair, "wording", what="rescore", completions=given, overwrite=True))
    assert main(["verify", "audit", "--queue", "people.db"]) == 2
    assert "queue is set, and no judge" in capsys.readouterr().err
