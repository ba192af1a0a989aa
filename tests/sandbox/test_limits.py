"""What a submission can use up: processes, threads, memory, time, output; and nothing of it outlives its run."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from prefrl.sandbox import Limits, Sandbox, SandboxError, Setup, check, processes

SHORT = Limits(seconds=0.4, memory=300 << 20)
# At most 400 at a time, and none for longer than two seconds.
FORKS = """
import os, time
def attack():
    made = 0
    try:
        while made < 400:
            if os.fork() == 0:
                time.sleep(2)
                os._exit(0)
            made += 1
    except OSError:
        pass
    return made
"""
THREADS = """
import threading
def attack():
    made, end = 0, threading.Event()
    try:
        while made < 400:
            threading.Thread(target=end.wait, args=(2,), daemon=True).start()
            made += 1
    except (RuntimeError, MemoryError):
        pass
    return made
"""
ALLOCATIONS = {
    "one_block": "def attack(): return len(bytearray(1500 << 20))",
    "many_blocks": "def attack():\n kept = []\n while len(kept) < 150: kept.append(bytearray(10 << 20))\n "
    "return len(kept)",
    "mmap": "import mmap\ndef attack(): return len(mmap.mmap(-1, 1500 << 20))",
    "text": "def attack(): return len('x' * (1500 << 20))",
}
SPINS = {
    "spin": "def attack():\n while True: pass",
    "sleep": "import time\ndef attack(): time.sleep(60)",
    "ignored_signals": "import signal\nfor s in set(signal.Signals) - {9, 19}: signal.signal(s, signal.SIG_IGN)\n"
    "def attack():\n while True: pass",
    "caught_exceptions": "def attack():\n while True:\n  try:\n   while True: pass\n  except BaseException: pass",
    "backtracking": "import re\ndef attack(): return re.match(r'(a+)+$', 'a' * 40 + 'b')",
    "power": "def attack(): return len(str(9 ** 9 ** 8))",
    "while_loading": "while True: pass",
    "lock": "import threading\ndef attack():\n lock = threading.Lock()\n lock.acquire()\n lock.acquire()",
}
DEATHS = {
    "exit": "import sys\ndef attack(): sys.exit(0)",
    "_exit": "import os\ndef attack(): os._exit(0)",
    "exit_while_loading": "import os\nos._exit(0)",
    "kill_self": "import os\ndef attack(): os.kill(os.getpid(), 9)",
    "abort": "import os\ndef attack(): os.abort()",
    "segfault": "import ctypes\ndef attack(): return ctypes.string_at(1)",
    "c_stack": "import sys\nsys.setrecursionlimit(10**8)\ndef attack(n=0):\n l = []\n for _ in "
    "range(10**5): l = [l]\n return repr(l)",
    "recursion": "def attack(): return attack()",
    "atexit": "import atexit\natexit.register(print, 'passed')\ndef attack(): raise SystemExit(0)",
    "excepthook": "import sys\nsys.excepthook = lambda *a: None\ndef attack(): raise ValueError",
    "close_streams": "import os\ndef attack():\n os.closerange(0, 64)\n return 1",
    "close_channel": "import os\nos.close(3)\ndef attack(): return 1",
    "system_exit_in_thread": "import threading, os\ndef attack():\n t = threading.Thread(target=os._exit, args=(0,))\n"
    " t.start()\n t.join()",
}


def ask(box: Sandbox, source: str, limits: Limits = SHORT) -> tuple[bool, object, str]:
    """Whether `attack()` answered, what, and why it stopped."""
    with box.session(limits) as session:
        submission = session.submission(source)
        answer = submission.call("attack")
    return answer.ok, answer.value, submission.stopped


def test_fork_bomb(box: Sandbox) -> None:
    ok, made, _ = ask(box, FORKS, Limits(seconds=5.0))
    assert ok
    assert made == (400 if box.level == "B" else 0)


def test_thread_bomb_is_bounded_by_memory_and_tasks(box: Sandbox) -> None:
    ok, made, _ = ask(box, THREADS, Limits(seconds=5.0, memory=300 << 20))
    assert not ok or 0 < int(str(made)) < 60


@pytest.mark.parametrize("name", ALLOCATIONS)
def test_memory(box: Sandbox, name: str) -> None:
    assert ask(box, ALLOCATIONS[name], Limits(seconds=5.0, memory=300 << 20))[:2] == (False, None)


@pytest.mark.parametrize("name", SPINS)
def test_time(box: Sandbox, name: str) -> None:
    begun = time.monotonic()
    ok, _, stopped = ask(box, SPINS[name])
    assert not ok and stopped in ("time", "starved")
    assert time.monotonic() - begun < 5.0


@pytest.mark.parametrize("name", DEATHS)
def test_death_is_no_answer(box: Sandbox, name: str) -> None:
    ok, value, _ = ask(box, DEATHS[name], Limits(seconds=5.0))
    assert not ok and value is None


def test_flood_of_answers(box: Sandbox) -> None:
    flood = "import os\ndef attack():\n while True: os.write(3, b'x' * 65536)"
    assert ask(box, flood)[2] == "output"
    assert ask(box, "def attack(): return 'x' * (5 << 20)", Limits(seconds=5.0))[2] == "output"
    assert ask(box, "def attack(): return 1 << (32 << 20)", Limits(seconds=5.0))[2] == "output"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_flood_of_a_stream(box: Sandbox, stream: str) -> None:
    with box.session(Limits(seconds=5.0)) as session:
        run = session.program(f"import sys\nwhile True: sys.{stream}.write('x' * 65536)", "")
    assert run.stopped == "output"
    assert len(run.output) + len(run.errors) <= 1 << 20


def test_the_processor_has_a_limit_of_its_own(box: Sandbox) -> None:
    source = "import resource\ndef attack(): return list(resource.getrlimit(resource.RLIMIT_CPU))"
    assert ask(box, source, Limits(seconds=3.5))[1] == [5, 6]


def test_processes_that_are_allowed_end_with_the_run(box: Sandbox) -> None:
    """A daemon that left its session and closed its streams; its process id is looked up from outside."""
    mark = f"prefrl-daemon-{os.getpid()}"
    source = (
        "import os, time\ndef attack(mark):\n if os.fork() == 0:\n  os.setsid()\n  if os.fork():\n   os._exit(0)\n"
        "  os.closerange(0, 64)\n  os.execv(PYTHON, [PYTHON, '-S', '-c', 'import time; time.sleep(30)', mark])\n"
        " time.sleep(0.3)\n return 1"
    )
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    before = _pids()
    if box.level == "C" and os.getuid() != 0:
        with pytest.raises(SandboxError, match="processes=8"), box.session(Limits(processes=8)) as session:
            session.submission(source)
        return
    with box.session(Limits(seconds=5.0, processes=8)) as session:
        submission = session.submission(f"PYTHON = {python!r}\n" + source)
        assert submission.call("attack", [mark]).ok
        assert len(_pids() - before) >= 1  # it lives while the run does
    assert [pid for pid in _pids() - before if mark in _command(pid)] == []


def test_fork_bomb_where_processes_are_allowed(box: Sandbox) -> None:
    if box.level == "B":
        assert ask(box, FORKS, Limits(seconds=10.0))[1] == 400
        return
    if box.level == "C" and os.getuid() != 0:
        with pytest.raises(SandboxError, match="cannot end"):
            ask(box, FORKS, Limits(processes=8))
        return
    before = _pids()
    made = ask(box, FORKS, Limits(seconds=10.0, processes=8))[1]
    assert isinstance(made, int) and 8 <= made <= 32 + 8
    time.sleep(0.1)
    assert [
        pid for pid in _pids() - before if processes._state(pid) not in ("Z", "") and "attack" in _command(pid)
    ] == []


def test_memory_of_many_processes_counts_together(box: Sandbox) -> None:
    """Six children of 120 MB each, of which every one alone would be allowed."""
    source = (
        "import os, time\ndef attack():\n for _ in range(6):\n  if os.fork() == 0:\n   kept = bytearray(120 << 20)\n"
        "   time.sleep(5)\n   os._exit(0)\n time.sleep(3)\n return 1"
    )
    if box.level == "C" and os.getuid() != 0:
        with pytest.raises(SandboxError, match="cannot end"):
            ask(box, source, Limits(processes=8))
        return
    ok, _, stopped = ask(box, source, Limits(seconds=10.0, memory=400 << 20, processes=8))
    assert not ok and stopped == "memory"


def test_nothing_outlives_a_run(box: Sandbox) -> None:
    ask(box, "def attack(): return 1")  # the slot's own server
    before, mark = _pids(), f"prefrl-mark-{os.getpid()}"
    places = [Path(folder) / mark for folder in ("/tmp", "/dev/shm", "/var/tmp")]
    write = f"def attack():\n for p in {list(map(str, places))}:\n  try: open(p, 'w')\n  except OSError: pass"
    for source in (write, SPINS["ignored_signals"], DEATHS["_exit"], FORKS, DEATHS["close_streams"]):
        ask(box, source)
    own = {pid for pid in processes.descendants(os.getpid()) if processes._state(pid) != "Z"}
    assert own <= before
    assert [path.exists() for path in places] == [box.level == "B"] * 3
    for path in places:
        path.unlink(missing_ok=True)


def test_closing_ends_every_process() -> None:
    before = set(processes.descendants(os.getpid()))
    sandbox = Sandbox(floor="B", slots=2)
    with sandbox.session() as one, sandbox.session() as two:
        assert one.slot.process.pid != two.slot.process.pid
    assert len(processes.descendants(os.getpid())) > len(before)
    sandbox.close()
    assert set(processes.descendants(os.getpid())) <= before


def test_disk_is_bounded_and_emptied() -> None:
    if check(Setup(level="D")):
        with pytest.raises(SandboxError, match="level D"):
            Sandbox(disk=1 << 20)
        return
    sandbox = Sandbox(disk=4 << 20, slots=1)
    write = (
        "def attack():\n n = 0\n try:\n  while n < 200: n += open(f'f{n}', 'wb').write(b'x' * 65536) // 65536\n"
        " except OSError: pass\n return n"
    )
    with sandbox.session() as session:
        made = session.submission(write).call("attack").value
    assert 30 <= made <= 64
    with sandbox.session() as session:
        left = session.submission("import os\ndef attack(): return [os.listdir('.'), os.getcwd()]").call("attack").value
    assert left == [[], "/scratch"]
    sandbox.close()


def test_state_is_fresh_for_every_submission(box: Sandbox) -> None:
    first = (
        "import json, math, builtins, random\njson.dump = None\nmath.pi = 3\nbuiltins.sorted = None\n"
        "def attack(): return random.random()"
    )
    second = (
        "import json, math, random\ndef attack(): return [json.dump is not None, math.pi > 3.1, "
        "sorted('ba')[1] > 'a', random.random()]"
    )
    drawn = ask(box, first)[1]
    assert ask(box, second)[1] == [True, True, True, drawn]
    assert drawn is not None


def test_many_threads_share_the_slots() -> None:
    sandbox, results = Sandbox(floor="B", slots=2), {}

    def work(n: int) -> None:
        with sandbox.session() as session:
            results[n] = session.submission("def f(x): return x * x").call("f", [n]).value

    threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: n * n for n in range(12)}
    assert len(sandbox._idle) <= 2
    sandbox.close()


def test_a_slot_whose_server_died_is_replaced(box: Sandbox) -> None:
    with pytest.raises(SandboxError), box.session() as session:
        processes.end(session.slot.process.pid, session.slot.uid)
        session.slot.process.kill()
        session.slot.process.wait()
        session.submission("x = 1")
    assert ask(box, "def attack(): return 7")[1] == 7


def test_a_server_ends_with_its_owner() -> None:
    pid = os.fork() if hasattr(os, "fork") else 0
    if pid == 0:
        try:
            sandbox = Sandbox(floor="B", slots=1)
            with sandbox.session() as session:
                session.submission("x = 1")
            Path(f"/tmp/prefrl-owner-{os.getpid()}").write_text(" ".join(map(str, processes.descendants(os.getpid()))))
        finally:
            os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)
    noted = Path(f"/tmp/prefrl-owner-{pid}")
    servers = [int(word) for word in noted.read_text().split()]
    noted.unlink()
    deadline = time.monotonic() + 10
    while any(processes._state(server) not in ("", "Z") for server in servers) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert servers and all(processes._state(server) in ("", "Z") for server in servers)


def _pids() -> set[int]:
    return set(processes._pids())


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
