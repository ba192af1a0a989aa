"""The repair environment: its tools, what counts as success, and what goes wrong."""

from __future__ import annotations

import pytest

from prefrl import rewards
from prefrl.config import SamplingConfig
from prefrl.data.repairs import REPAIRS
from prefrl.data.tasks import task_rows
from prefrl.errors import DataError
from prefrl.rollout import repair
from prefrl.rollout.local import Drawn
from prefrl.rollout.repair import Call, Repair, read_call
from prefrl.rollout.turns import MultiTurn
from prefrl.sandbox import SandboxError
from prefrl.types import Prompt, StopReason

BOX = {"floor": "B"}
ROWS = {row["id"].removeprefix("repair-"): row for row in task_rows("task:repair") + task_rows("task:repair:held_out")}
RETRY = ROWS["retry_bug"]
TURN = SamplingConfig(max_new_tokens=5)


def prompt(row, **columns):
    kept = {name: value for name, value in row.items() if name not in ("id", "prompt")}
    return Prompt(id=row["id"], messages=tuple(row["prompt"]), columns={**kept, **columns})


def opened(row=RETRY, **columns):
    game = Repair(sandbox=BOX)
    assert game.reset(prompt(row, **columns)) == ""
    return game


def edit(file):
    return f"<edit>{file}</edit>"


class Saying:
    """A policy that says given texts, a token each; `texts` may differ from episode to episode."""

    def __init__(self, *episodes):
        self.episodes, self.turn = episodes, -1

    def encode(self, prompt):
        return (0,)

    def encode_reply(self, prompt, text, *, closed, role):
        return (-1, -1)

    def draw(self, requests, params):
        self.turn += 1
        drawn = [(i, texts[self.turn]) for i, texts in enumerate(self.episodes) if self.turn < len(texts)]
        assert len(drawn) == len(requests)
        return [Drawn((100 * i + self.turn,), (-1.0,), StopReason.EOS) for i, _ in drawn]

    def decode(self, ids):
        return "\n".join(self.episodes[i // 100][i % 100] for i in ids if i >= 0)


def test_an_episode_that_repairs_the_bug():
    game = opened()
    assert game.step("Let me look. <read/>") == (RETRY["file"], False, "user")
    failed = game.step("<test/>").text
    assert failed == "1 of 2 visible tests failed:\n- retries({'retries': 0}): expected 0, got 3"
    assert game.step(edit(RETRY["solution"])).text == "The file has 3 lines now."
    assert game.step("<test/>").text == "All 2 visible tests pass."
    assert game.step("<read/>").text == RETRY["solution"]
    assert game.step("<done/>") == ("", True, "user")
    assert game.report() == {
        **{"success": 1.0, "fraction": 1.0, "tampered": 0.0},
        **{"turns": 6, "edits": 1, "tests": 2, "malformed": 0},
    }


def test_the_hidden_tests_decide_whenever_the_episode_ends():
    assert opened().report()["success"] == 0.0  # nobody touched the file
    assert opened().report()["fraction"] == 0.75  # {}, None and 2 were right all along
    game = opened()
    game.step(edit("def retries(config):\n    return 0 if config else 3"))  # passes all that is visible
    assert game.step("<test/>").text == "All 2 visible tests pass."
    assert (game.report()["success"], game.report()["fraction"]) == (0.0, 0.5)
    game.step(edit(RETRY["solution"]))
    assert game.report()["success"] == 1.0  # without <done/>
    game.step(edit("def retries(config"))
    assert game.report()["fraction"] == 0.0


@pytest.mark.parametrize("name", ROWS)
def test_every_task_can_be_repaired_and_is_broken(name):
    game = opened(ROWS[name])
    assert game.report()["success"] == 0.0
    assert "failed" in game.step("<test/>").text  # what is visible shows that something is wrong
    game.step(edit(ROWS[name]["solution"]))
    assert game.report()["success"] == 1.0
    known = [case for case in ROWS[name]["visible"] if "expected" in case]
    answers = "".join(
        f"    if args == {tuple(case['args'])!r}:\n        return {case['expected']!r}\n" for case in known
    )
    game.step(edit(f"def {ROWS[name]['entry_point']}(*args):\n{answers}    raise ValueError\n"))
    assert game.report()["success"] == 0.0  # knowing the visible answers is not enough


def test_the_tasks():
    assert len(REPAIRS) == len(ROWS) == 16
    assert sorted(row["id"] for row in task_rows("task:repair:held_out")) == [
        "repair-early_return",
        "repair-late_binding",
        "repair-off_by_one",
        "repair-wrong_boundary",
    ]
    for row in ROWS.values():
        assert row["visible"] == row["cases"][: len(row["visible"])]
        assert len(row["cases"]) >= len(row["visible"]) + 2
        (message,) = row["prompt"]
        assert row["solution"] not in message["content"] and row["file"] not in message["content"]


@pytest.mark.parametrize(
    ("action", "call"),
    [
        ("<read/>", Call("read")),
        ("Well.\n<test />", Call("test")),
        ("<done/>", Call("done")),
        ("<edit>\n\na = 1\n\n</edit>", Call("edit", "a = 1\n")),
        ("<edit>```python\na = 1\n```</edit>", Call("edit", "a = 1\n")),
        ("<edit>a = '<test/>'</edit>", Call("edit", "a = '<test/>'\n")),
        ("<edit></edit>", Call("edit", "\n")),
        ("<think>I could <test/> it, or <read/> it.</think><read/>", Call("read")),
        ("it is best to <test/> it</think>\n<read/>", Call("read")),  # where the template began the thought
    ],
)
def test_what_a_turn_asks_for(action, call):
    assert read_call(action) == call


@pytest.mark.parametrize(
    ("action", "says"),
    [
        ("", "There is no tool in this turn. Use one tool: <read/>"),
        ("return 3", "There is no tool in this turn."),
        ("<read>", "There is no tool in this turn."),
        ("<think>I could <test/> it", "There is no tool in this turn."),
        ("<run/>", "There is no tool <run/>."),
        ("<edit/>", "There is no tool <edit/>."),
        ("<edit>a</edit> <test/>", "There are 2 tools in this turn (edit, test); none was used."),
        ("<read/><read/>", "There are 2 tools in this turn (read, read); none was used."),
        ("<test/> <run/>", "There are 2 tools in this turn (test, run); none was used."),
        ("<edit>def f():\n    <test/>", "An edit begins with <edit> and ends with </edit>; one of them is missing."),
        ("a = 1</edit>", "An edit begins with <edit> and ends with </edit>; one of them is missing."),
    ],
)
def test_what_is_no_use_of_a_tool_changes_nothing(action, says):
    game = opened()
    reply = game.step(action)
    assert reply.text.startswith(says)
    assert not reply.ended
    assert game.step("<read/>").text == RETRY["file"]
    assert {k: v for k, v in game.report().items() if k in ("turns", "edits", "tests", "malformed")} == {
        **{"turns": 2, "edits": 0, "tests": 0, "malformed": 1},
    }


def test_a_plain_text_is_answered_on_a_line_of_its_own():
    game = Repair(sandbox=BOX)
    columns = {name: RETRY[name] for name in ("file", "visible", "cases", "entry_point")}
    game.reset(Prompt(id="p", text="Repair it.", columns=columns))
    assert game.step("<read/>").text == f"\n{RETRY['file']}\n"


def test_failures_that_are_not_shown_are_counted():
    cases = [{"args": [i], "expected": i} for i in range(5)]
    game = opened(file="def f(n):\n    return -1\n", entry_point="f", visible=cases, cases=cases)
    lines = game.step("<test/>").text.splitlines()
    assert lines[0] == "5 of 5 visible tests failed:"
    assert lines[1:4] == [f"- f({i}): expected {i}, got -1" for i in range(3)]
    assert lines[4:] == ["- and 2 more"]


def test_code_that_does_not_end_fails_its_tests():
    game = Repair(seconds=0.3, sandbox=BOX)
    game.reset(prompt(RETRY))
    game.step(edit("def retries(config):\n    while True:\n        pass\n"))
    assert "not done after 0.3 s" in game.step("<test/>").text
    assert game.report()["fraction"] == 0.0


TWICE = """
import os, sys
def f(n):
    frame = sys._getframe(1)
    while "request" not in frame.f_locals:
        frame = frame.f_back
    os.write(3, f'["{frame.f_locals["request"][0]}",true,{n},[{n}]]\\n'.encode())
    return n
"""


def test_a_file_that_writes_into_the_answers_passes_nothing():
    game = opened(
        file=TWICE, entry_point="f", visible=[{"args": [7], "expected": 7}], cases=[{"args": [8], "expected": 8}]
    )
    assert "it wrote answers to questions that nobody asked" in game.step("<test/>").text
    report = game.report()
    assert (report["success"], report["fraction"], report["tampered"]) == (0.0, 0.0, 1.0)
    game.step(edit("def f(n):\n    return n\n"))
    assert game.report()["success"] == 1.0


class Failing:
    """A sandbox whose servers fail from a given session on."""

    def __init__(self, sandbox, after):
        self.sandbox, self.left = sandbox, after

    def session(self, limits):
        self.left -= 1
        if self.left < 0:
            raise SandboxError("the server is gone")
        return self.sandbox.session(limits)


def test_an_error_of_the_sandbox_fails_its_episode_only():
    def make():
        game = Repair(sandbox=BOX)
        game.sandbox = Failing(game.sandbox, left.pop())
        return game

    left = [1, 0, 99]  # the last episode fails at its report, the second at its test, the first does not
    done = [edit(RETRY["solution"]), "<test/>", "<done/>"]
    policy = Saying(done, done[:2], done)
    first, second, third = MultiTurn(policy, make, max_turns=5).sample([prompt(RETRY)], 3, TURN, seed=0)
    assert first.info["success"] == 1.0
    for broken in (second, third):
        assert broken.info["error"] == "environment: RuntimeError: the sandbox failed: the server is gone"
        assert "success" not in broken.info
    assert [score.ok for score in rewards.environment().score([first, second, third])] == [True, False, False]


def test_a_machine_that_is_too_busy_has_no_result(monkeypatch):
    game = opened()

    def starved(*args):
        tally, look = judge_calls(*args)
        tally.stopped = "starved"
        return tally, look

    judge_calls = repair.judge_calls
    monkeypatch.setattr(repair, "judge_calls", starved)
    with pytest.raises(RuntimeError, match="too busy"):
        game.report()


def test_turns_that_are_used_up_leave_a_repaired_file():
    policy = Saying(["<read/>", edit(RETRY["solution"])], ["<read/>", "<read/>"])
    rollouts = MultiTurn(policy, lambda: Repair(sandbox=BOX), max_turns=2).sample([prompt(RETRY)], 2, TURN, seed=0)
    assert [(r.stop, r.info["success"]) for r in rollouts] == [(StopReason.LENGTH, 1.0), (StopReason.LENGTH, 0.0)]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"visible": []}, "column 'visible': no cases: without any"),
        ({"cases": [{"args": [1]}]}, "column 'cases': the case .* expects nothing"),
        ({"cases": 3}, "column 'cases': the cases are a int"),
    ],
)
def test_tests_that_cannot_be_read_are_the_datas_fault(columns, says):
    with pytest.raises(DataError, match=says):
        Repair(sandbox=BOX).reset(prompt(RETRY, **columns))


@pytest.mark.parametrize("name", ["file", "visible", "cases", "entry_point"])
def test_a_column_that_is_missing(name):
    whole = prompt(RETRY)
    bare = Prompt(id="p", text="q", columns={k: v for k, v in whole.columns.items() if k != name})
    with pytest.raises(DataError, match=f"Prompt 'p' has no column '{name}'; the environment 'repair' needs file, vis"):
        Repair(sandbox=BOX).reset(bare)
