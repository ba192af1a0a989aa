"""What a machine offers: each level is tried by running hostile canaries in it, not by looking at version numbers.

| level | made of |
|---|---|
| B | own session, resource limits, an empty environment, capped output, its process tree killed |
| C | B, an unprivileged user per slot where prefrl is root, Landlock, a filter of system calls, no new processes |
| D | C, and bubblewrap: namespaces of everything, a root file system that holds the interpreter alone |

B stops accidents, no attacks: the code sees all files and the network. C and D hold against code that means harm, as
    far as the kernel holds.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
from dataclasses import dataclass, replace
from typing import Any

from prefrl.sandbox.client import Session
from prefrl.sandbox.slot import Limits, SandboxError, Setup, Slot, Stopped, supported

LEVELS = ("B", "C", "D")
NAMES = {
    "B": "limits only: no protection of files and network",
    "C": "unprivileged user, Landlock, system call filter",
    "D": "bubblewrap, unprivileged user, Landlock, system call filter",
}
# Raises unless it is stopped; an OSError is how a level says no.
CANARY = """
import os, socket, threading
def blocked(action):
    try:
        action()
    except OSError:
        return True
    return False
def files(path):
    return blocked(lambda: open(path).read()) and blocked(lambda: open(path, "a"))
def network():
    return blocked(lambda: socket.socket(socket.AF_INET)) and blocked(lambda: socket.socket(socket.AF_UNIX))
def processes():
    def fork():
        if os.fork() == 0:
            os._exit(0)
    return blocked(fork) and blocked(lambda: os.execv("/bin/true", ["true"]))
def signals(pid):
    return blocked(lambda: os.kill(pid, 0)) and blocked(lambda: os.kill(-1, 0))
def root():
    return os.getuid() != 0 and os.geteuid() != 0
def works():
    thread = threading.Thread(target=len, args=("",))
    thread.start()
    thread.join()
    return "PATH" in os.environ and len(os.environ) < 10
"""


@dataclass(frozen=True, slots=True)
class Offer:
    """The levels of this machine: `best` (empty without any), and why each of the others cannot be had."""

    best: str
    reasons: tuple[tuple[str, str], ...]

    def why(self, level: str) -> str:
        """Why a level is not offered; empty when it is."""
        return dict(self.reasons).get(level, "")


def check(setup: Setup) -> str:
    """Start a server at the setup's level and attack it; what is wrong, or an empty string."""
    if sys.platform == "win32":
        return "Windows has neither fork nor resource limits: run prefrl in WSL 2 or in a Linux container"
    reason = supported() if setup.level != "B" else ""
    if setup.level == "D" and not reason and shutil.which("bwrap") is None:
        reason = "bubblewrap (bwrap) is not installed"
    if reason:
        return reason
    try:
        slot = Slot(setup)
    except (SandboxError, OSError) as error:
        return str(error)
    try:
        return _attack(slot)
    except (SandboxError, Stopped) as error:
        return f"the trial run failed: {error}"
    finally:
        slot.end()


def _attack(slot: Slot) -> str:
    with Session(slot, Limits(seconds=30.0)) as session:
        tried = session.submission(CANARY)
        questions: list[tuple[str, tuple[Any, ...]]] = [("works", ())]
        if slot.setup.level != "B":
            questions += [("files", (__file__,)), ("network", ()), ("processes", ()), ("signals", (os.getpid(),))]
            questions += [("root", ())]
        for name, arguments in questions:
            answer = tried.call(name, arguments)
            if not answer.ok or answer.value is not True:
                said = "not stopped" if answer.ok else answer.error
                return f"the trial run failed at {name!r}: {said}"
    return ""


@functools.cache
def probe(setup: Setup) -> Offer:
    """Try the levels from the strongest down, and stop at the first that holds; remembered for the process.

    The setup's own `level` does not matter: its interpreter, packages and disk do.
    """
    reasons: list[tuple[str, str]] = []
    for level in reversed(LEVELS):
        problem = check(replace(setup, level=level))
        if not problem:
            return Offer(level, tuple(reasons))
        reasons.append((level, problem))
    return Offer("", tuple(reasons))


def choose(setup: Setup, floor: str, level: str | None) -> Setup:
    """The setup at `level`, or at the strongest level there is.

    Raises:
        SandboxError: that is below `floor`, or the level that was asked for cannot be had.
    """
    if level is not None:
        problem = check(replace(setup, level=level))
        offer = Offer("" if problem else level, ((level, problem),) if problem else ())
    else:
        offer = probe(replace(setup, level=""))
    wanted = level or floor
    if not offer.best or LEVELS.index(offer.best) < LEVELS.index(wanted):
        got = f"level {offer.best}" if offer.best else "no sandbox"
        reasons = "; ".join(f"{name}: {reason}" for name, reason in offer.reasons)
        raise SandboxError(
            f"this machine offers {got} for untrusted code, and level {wanted} is asked for ({reasons}). {_advice()}"
        )
    return replace(setup, level=offer.best)


def _advice() -> str:
    if sys.platform == "linux":
        return (
            "Install bubblewrap (apt-get install bubblewrap, dnf install bubblewrap) where user namespaces are "
            "allowed, or use Linux 5.13 or newer with Landlock. floor: B runs the code with limits only, which does "
            "not protect your files"
        )
    if sys.platform == "darwin":
        return "Run prefrl in a Linux container, or ask for floor: B, which does not protect your files"
    return "Run prefrl in WSL 2 or in a Linux container"
