"""Submissions that do not solve the task but try to be believed: judged outside, all of them fail."""

from __future__ import annotations

import pytest

from prefrl.sandbox import Limits, Sandbox
from prefrl.sandbox.cases import read_tests
from prefrl.sandbox.compare import Same
from prefrl.sandbox.judging import judge_calls

CASES = [{"args": [n], "expected": n * n + 1} for n in (3, 11, 12)]
ASSERTS = (
    "def check(candidate):\n    for n in (3, 11, 12):\n        assert candidate(n) == n * n + 1\n"
    "    assert candidate(2) in [5]\n"
)
HONEST = "def f(n): return n * n + 1"
EQUAL = "def __eq__(self, other): return True\n def __ne__(self, other): return False\n def __hash__(self): return 0"
CHEATS = {
    "return_zero": "def f(n): return 0",
    "equal_to_all": f"class Yes:\n {EQUAL}\ndef f(n): return Yes()",
    "int_that_is_equal_to_all": f"class Yes(int):\n {EQUAL}\ndef f(n): return Yes(0)",
    "list_in_list": f"class Yes(list):\n {EQUAL}\ndef f(n): return Yes()",
    "class_of_int": f"class Yes:\n {EQUAL}\n @property\n def __class__(self): return int\ndef f(n): return Yes()",
    "exit": "import sys\ndef f(n): sys.exit(0)",
    "exit_while_loading": "import os\nos._exit(0)",
    "patched_builtins": "import builtins\nbuiltins.all = builtins.any = lambda *a: True\ndef f(n): return 1",
    "patched_json": "import json\njson.dumps = lambda *a, **k: '[\"x\", true, 10, [3]]'\ndef f(n): return 1",
    "patched_modules": "import sys\nsys.modules['unittest'] = sys.modules['pytest'] = sys\ndef f(n): return 1",
    "frames": "import sys\ndef f(n):\n frame = sys._getframe(1)\n while frame:\n  for name in ('expected', 'result'):\n"
    "   if name in frame.f_locals: return frame.f_locals[name]\n  frame = frame.f_back\n return 1",
    "constants_of_callers": "import sys\ndef f(n):\n frame = sys._getframe(1)\n found = [c for c in "
    "frame.f_code.co_consts if"
    " type(c) is int and c > 9]\n return found[0] if found else 1",
    "all_objects": "import gc\ndef f(n):\n for o in gc.get_objects():\n  if isinstance(o, dict) and "
    "'expected' in o: return o['expected']\n"
    " return 1",
    "answers_in_advance": "import os\nos.write(3, b'[\"0000000000000000\",true,10,[3]]\\n')\ndef f(n): "
    "return n * n + 1",
    "answers_twice": "import os, sys\ndef f(n):\n frame = sys._getframe(1)\n while 'request' not in "
    "frame.f_locals: frame = frame.f_back\n"
    " ident = frame.f_locals['request'][0]\n os.write(3, f'[\"{ident}\",true,{n * n + 1},[{n}]]\\n"
    "'.encode())\n return n * n + 1",
    "answers_under_another_id": "import os\ndef f(n):\n os.write(3, f'[\"x\",true,{n * n + 1},[{n}]]\\n'.encode())\n"
    " os._exit(0)",
    "deep_answer": "import os\ndef f(n):\n os.write(3, b'[' * 100000 + b'\\n')\n return 1",
    "unknown_object": 'import os, sys\ndef f(n):\n os.write(3, b\'["x",true,{"object":["a"]},[]]\\n\')\n return 1',
    "claims_the_tests_passed": 'import os\nos.write(3, b\'["tested",[{"ran":true,"failed":false}],""]\\n'
    "')\ndef f(n): return 1",
    "collision": "def f(n): return {k * (2**61 - 1) for k in range(3000)}",
    "giant": "def f(n): return 1 << 100000",
    "infinite": "def f(n): return float('inf')",
    "not_a_number": "def f(n): return float('nan')",
}


@pytest.mark.parametrize("tests", [CASES, ASSERTS], ids=["cases", "asserts"])
@pytest.mark.parametrize("name", CHEATS)
def test_is_not_believed(box: Sandbox, name: str, tests: object) -> None:
    with box.session(Limits(seconds=5.0)) as session:
        tally, _ = judge_calls(session, CHEATS[name], read_tests(tests, "f"), "", Same())
    right_answers_wrong_manners = "n * n + 1" in CHEATS[name]
    assert tally.tampered if right_answers_wrong_manners else not any(tally.passed)


@pytest.mark.parametrize("tests", [CASES, ASSERTS], ids=["cases", "asserts"])
def test_the_honest_one_passes(box: Sandbox, tests: object) -> None:
    with box.session(Limits(seconds=20.0)) as session:
        tally, _ = judge_calls(session, HONEST, read_tests(tests, "f"), "", Same())
    assert all(tally.passed) and not tally.tampered and tally.notes == []


def test_expected_values_never_enter(box: Sandbox) -> None:
    """The submission returns everything it can find; the expected text is nowhere."""
    source = (
        "import gc, sys\ndef f(n):\n found = [o for o in gc.get_objects() if isinstance(o, (dict, list, tuple))]\n"
        " return any(''.join(reversed('1174_ELDEEN')) in v for o in found for v in (o.values() if "
        "isinstance(o, dict) else o)"
        " if isinstance(v, str))"
    )
    cases = read_tests([{"args": [1], "expected": "NEEDLE_4711"}], "f")
    with box.session(Limits(seconds=10.0)) as session:
        tally, _ = judge_calls(session, source, cases, "", Same())
    assert tally.notes == ["f(1): expected 'NEEDLE_4711', got False"]


def test_more_than_the_last_answer_is_noticed(box: Sandbox) -> None:
    """After the last case nobody asks again, and still what comes is read."""
    with box.session(Limits(seconds=5.0)) as session:
        tally, _ = judge_calls(session, CHEATS["answers_twice"], read_tests(CASES[:1], "f"), "", Same())
    assert tally.tampered
