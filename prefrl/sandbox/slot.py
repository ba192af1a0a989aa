"""One slot: a warm, confined server process, and the children that it forks."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from prefrl.errors import PrefrlError
from prefrl.sandbox import processes
from prefrl.sandbox.inside.values import ValueFault, read_line, write_line

FOLDER = str(Path(__file__).parent)
# The package `inside` under its own name, but without the packages above it: nothing else of prefrl is there or loaded.
BOOT = """
import sys, types
for name in ("prefrl", "prefrl.sandbox"):
    sys.modules[name] = types.ModuleType(name)
sys.modules[name].__path__ = [sys.argv[1]]
from prefrl.sandbox.inside.server import main
main()
"""
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/lib32", "/etc/ld.so.cache")
ZONES = ("/usr/share/zoneinfo", "/etc/localtime")
PRELOAD = (
    "abc", "array", "bisect", "cmath", "collections", "collections.abc", "copy", "dataclasses", "datetime", "decimal",
    "enum", "fractions", "functools", "hashlib", "heapq", "io", "itertools", "json", "math", "numbers", "operator",
    "queue", "random", "re", "statistics", "string", "textwrap", "threading", "time", "traceback", "typing",
    "encodings.idna", "encodings.latin_1", "encodings.ascii", "socket", "inspect", "ast",
)  # fmt: skip
START = 60.0  # seconds a server may take to start, on a machine that is busy
PATIENCE = 20.0  # seconds a server may take for what it does at once
BUSY = 10.0  # times its seconds: when the machine is so busy that this is not enough, there is no verdict
TICK = 0.02  # seconds between two looks at the memory of a family of processes


class SandboxError(PrefrlError):
    """The sandbox cannot work here, or one of its own processes failed: never the fault of a submission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one submission may use.

    seconds    of real time, for all its calls together, or for one run of a program; not counted is time in which it
               could have run and the machine had no processor for it
    memory     bytes of address space of a process; with `processes`, of memory that all of them hold together as well
    output     bytes it may write, on any channel
    processes  it may start; 0 allows threads only
    files      it may have open
    """

    seconds: float = 5.0
    memory: int = 512 << 20
    output: int = 1 << 20
    processes: int = 0
    files: int = 64

    def plan(self, disk: int) -> dict[str, int]:
        """As the inside takes them; the processor's time is a second line behind the clock."""
        numbers = asdict(self)
        return {**numbers, "seconds": 0, "cpu": int(self.seconds) + 2, "disk": disk}


class Stopped(Exception):
    """A child that will give no further answer: `why` is ended, time, starved, output, memory or garbled."""

    def __init__(self, why: str, detail: str = "") -> None:
        super().__init__(f"{why}: {detail}" if detail else why)
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How the servers of a sandbox are made: see `Sandbox`."""

    level: str
    python: str = sys.executable
    packages: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    disk: int = 0

    def plan(self, control: int, uid: int | None) -> dict[str, Any]:
        """The plan that `inside/server.py` reads."""
        python, modules, libraries = _interpreter(self.python)
        read = [python, *modules, *libraries, *LIBRARIES, *ZONES, *self.packages, f"{FOLDER}/inside"]
        return {
            "level": self.level,
            "uid": uid,
            "control": control,
            "disk": self.disk,
            "bwrap": shutil.which("bwrap") or "bwrap",
            "python": [python, "-s", "-S", "-P", "-B", "-c", BOOT],
            "read": [path for path in dict.fromkeys(read) if os.path.exists(path)],
            "modules": [*modules, *self.packages],
            "packages": list(self.packages),
            "preload": [*PRELOAD, *self.preload],
        }


def _interpreter(python: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The real interpreter, its standard library, and the folder of its shared library where it has one."""
    if python != sys.executable:
        script = (
            "import json, sys, sysconfig as s; v = s.get_config_var; "
            "print(json.dumps([s.get_path('stdlib'), s.get_path('platstdlib'), "
            "v('LIBDIR') if v('Py_ENABLE_SHARED') else None, getattr(sys, '_base_executable', sys.executable)]))"
        )
        said = subprocess.run([python, "-I", "-c", script], capture_output=True, check=True, text=True).stdout
        library, platform_library, shared, executable = json.loads(said)
    else:
        library, platform_library = sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")
        shared = sysconfig.get_config_var("LIBDIR") if sysconfig.get_config_var("Py_ENABLE_SHARED") else None
        executable = getattr(sys, "_base_executable", sys.executable)
    return os.path.realpath(executable), tuple(dict.fromkeys([library, platform_library])), (shared,) if shared else ()


class Slot:
    """A server process and the line to it. Used by one thread at a time.

    Raises:
        SandboxError: the server cannot start at this level; the message says why.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.uid: int | None = None
        self._lock: socket.socket | None = None
        if setup.level in "CD" and os.geteuid() == 0:
            try:
                self.uid, self._lock = processes.reserve_user()
            except OSError as error:
                raise SandboxError(str(error)) from None
        self._start()

    def _start(self) -> None:
        self.control, theirs = socket.socketpair()
        plan = self.setup.plan(theirs.fileno(), self.uid)
        environment = {
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "HOME": "/",
            "PYTHONHASHSEED": "0",
            "TMPDIR": "/scratch",
        }
        with theirs:
            self.process = subprocess.Popen(
                [*plan["python"], FOLDER, "launch", json.dumps(plan)],
                env=environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        try:
            said, _ = self._hear(START)
        except SandboxError as error:
            self._kill()
            words = self._last_words()
            self.end()
            raise SandboxError(f"{error}{words}") from None
        if "failed" in said:
            self.end()
            raise SandboxError(said["failed"])
        self.landlock: int = said["landlock"]
        # Its number in its own namespace of processes is not the one by which the trusted side knows it.
        self.servers = {self.process.pid, *processes.descendants(self.process.pid)}
        own = said["pid"] in self.servers
        self.sweep = self.setup.level in "CD" and (self.uid is not None or not own)

    def _last_words(self) -> str:
        assert self.process.stderr is not None
        words = self.process.stderr.read().decode(errors="replace").strip().splitlines()
        return f": {words[-1][:300]}" if words else ""

    def ask(self, message: dict[str, Any], descriptors: Sequence[int] = (), seconds: float = PATIENCE) -> Any:
        """One request to the server, and its answer with the descriptors that came along.

        Raises:
            SandboxError: the server is gone or silent.
        """
        try:
            socket.send_fds(self.control, [json.dumps(message).encode() + b"\n"], list(descriptors))
        except OSError as error:
            raise SandboxError(f"the sandbox's server is gone: {error}") from None
        return self._hear(seconds)

    def _hear(self, seconds: float) -> tuple[Any, list[int]]:
        self.control.settimeout(seconds)
        try:
            data, descriptors, _, _ = socket.recv_fds(self.control, 1 << 16, 2)
        except OSError as error:
            raise SandboxError(f"the sandbox's server does not answer: {error}") from None
        if not data:
            raise SandboxError("the sandbox's server ended")
        return json.loads(data), descriptors

    def fork(self, mode: str, limits: Limits, streams: Sequence[int] = ()) -> Child:
        """A new child in this mode: solve, run or test; `streams` become its standard streams.

        Raises:
            SandboxError: it may start processes, and this slot could not be sure to end them all.
        """
        if limits.processes and not self.sweep and self.setup.level != "B":
            raise SandboxError(
                f"processes={limits.processes}: level {self.setup.level} without a user of its own cannot end what a "
                "submission leaves behind; set processes: 0, install bubblewrap, or run as root"
            )
        return Child(self, mode, limits, streams)

    def clear(self) -> None:
        """End whatever is left of a run and empty the disk."""
        if self.setup.level == "B":
            processes.end(self.process.pid, None)
        self.ask({"do": "clear", "sweep": self.sweep})

    def end(self) -> None:
        """Kill the server and everything of it; needs no answer from inside."""
        self.control.close()
        self._kill()
        self._close()

    def _kill(self) -> None:
        processes.end(self.process.pid, self.uid)  # while the server lives, what it started can be told by descent
        self.process.kill()
        processes.end(self.process.pid, self.uid)
        self.process.wait()

    def forget(self) -> None:
        """Let go of a server that belongs to the process this one was forked from."""
        self.control.close()
        self.process.returncode = 0
        self._close()

    def _close(self) -> None:
        if self._lock is not None:
            self._lock.close()
        if self.process.stderr is not None:
            self.process.stderr.close()


class Child:
    """One confined process and the lines to and from it, bounded in time and size."""

    def __init__(self, slot: Slot, mode: str, limits: Limits, streams: Sequence[int]) -> None:
        self.slot, self.limits = slot, limits
        self.socket, theirs = socket.socketpair()
        message = {"do": "fork", "mode": mode, "limits": limits.plan(slot.setup.disk)}
        try:
            said, handles = slot.ask(message, [theirs.fileno(), *streams])
        except SandboxError:
            self.socket.close()
            raise
        finally:
            theirs.close()
        self.pid: int = said["pid"]
        self.handle = handles[0] if handles else None
        self.begun, self.cpu, self.code = monotonic(), 0.0, 0
        self._rest, self._read, self._finished, self._waited = b"", 0, False, 0.0

    def send(self, message: Any) -> None:
        """Write one message; raises Stopped when the child does not take it."""
        self.socket.settimeout(max(0.001, self.left()))
        try:
            self.socket.sendall(write_line(message))
        except TimeoutError:
            raise Stopped("time", "it does not read what it is asked") from None
        except OSError:
            raise Stopped("ended", "it left before it had answered") from None

    def left(self) -> float:
        """Seconds of its time that are left; time in which the machine had no processor for it does not count."""
        return self.begun + self.limits.seconds + self._waited - monotonic()

    def receive(self) -> Any:
        """The next message; raises Stopped when there is none in time, or none that is allowed."""
        while b"\n" not in self._rest:
            part = self._more()
            if not part:
                raise Stopped("ended", "it left before it had answered")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            return read_line(line)
        except ValueFault as fault:
            raise Stopped("garbled", str(fault)) from None

    def ready(self, numbers: Sequence[int]) -> list[int]:
        """Those of the descriptors that can be read or have ended, at least one.

        Raises:
            Stopped: no time left, or more memory held than allowed.
        """
        poll = select.poll()
        for number in numbers:
            poll.register(number, select.POLLIN)
        family = self.limits.processes > 0
        while True:
            left = self.left()
            if left <= 0:
                self._extend()
                continue
            found = poll.poll(1000 * (min(left, TICK) if family else left) + 1)
            if family and processes.memory(processes.descendants(self.slot.process.pid)) > self.limits.memory:
                raise Stopped("memory", f"its processes hold more than {self.limits.memory >> 20} MiB")
            if found:
                return [number for number, _ in found]

    def take(self, number: int) -> bytes:
        """What can be read of a descriptor now, b"" at its end; raises Stopped beyond the limit of output."""
        try:
            part = os.read(number, 1 << 16)
        except ConnectionResetError:  # it ended with unread input
            return b""
        self._read += len(part)
        if self._read > self.limits.output:
            raise Stopped("output", f"it wrote more than {self.limits.output} bytes")
        return part

    def _more(self) -> bytes:
        self.ready([self.socket.fileno()])
        return self.take(self.socket.fileno())

    def _extend(self) -> None:
        """More time where the kernel's own account says that the machine was too busy; raises Stopped where not."""
        waited = processes.waited(set(processes.descendants(self.slot.process.pid)) - self.slot.servers)
        if waited <= self._waited + 0.01 * self.limits.seconds:
            raise Stopped("time", f"not done after {self.limits.seconds:g} s")
        if monotonic() - self.begun > BUSY * self.limits.seconds:
            raise Stopped("starved", f"it had no processor for {waited:.1f} s")
        self._waited = waited

    def leftovers(self) -> bool:
        """End the conversation; True when the child wrote anything beyond its answers."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
        try:
            while not self._rest and (part := self._more()):
                self._rest += part
        except Stopped:
            return bool(self._rest)
        return bool(self._rest)

    def finish(self, grace: float = 0.0) -> None:
        """Kill and reap the child, after `grace` seconds in which it may end by itself; safe to call again."""
        if self._finished:
            return
        self._finished = True
        self.socket.close()
        if self.handle is not None:
            os.close(self.handle)
        said, _ = self.slot.ask({"do": "finish", "pid": self.pid, "grace": grace})
        self.cpu, self.code = said["cpu"], said["code"]


MACHINES = ("x86_64", "aarch64")


def supported() -> str:
    """Why levels C and D cannot be had on this kind of machine; empty when they can."""
    if sys.platform != "linux":
        return f"levels C and D need Linux, and this is {sys.platform}"
    if platform.machine() not in MACHINES:
        return f"the filter of system calls knows {' and '.join(MACHINES)}, and this is {platform.machine()}"
    return ""
