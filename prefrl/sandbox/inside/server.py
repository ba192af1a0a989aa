"""The warm process of one slot: confines itself, then forks a child for each submission.

It never reads a submission: the child gets a socket of its own, handed through by number. Requests are answered one by
one on the control socket: `fork` with the child's descriptors, `finish` to end and reap it, `clear` to end all the
    rest.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import shutil
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from prefrl.sandbox.inside import confine, landlock, tester, worker

MODES = {"solve": worker.solve, "run": worker.run, "test": tester.test}
DISK = "/scratch"  # at level D, where it is a file system of the sandbox's own


def launch(plan: dict[str, Any]) -> None:
    """First process of a slot: at level D it goes into bubblewrap, else it serves.

    As root it becomes the slot's own unprivileged user before bubblewrap starts: a user made by bubblewrap's own
    mapping would still be root to the kernel, without a limit of processes and with root's files open to it.
    """
    if plan["level"] != "D":
        serve(plan)
        return
    places = {path: path for path in plan["read"]}
    if plan["uid"] is not None:
        places = confine.stage(plan["read"])
        confine.become(plan["uid"])
    os.execv(plan["bwrap"], _bubblewrap(plan, places))


def _bubblewrap(plan: dict[str, Any], places: dict[str, str]) -> list[str]:
    # Not --die-with-parent: the kernel means the thread that started it, which may end long before the process.
    command = [plan["bwrap"], "--unshare-all", "--cap-drop", "ALL", "--hostname", "sandbox"]
    for path in plan["read"]:
        if os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        else:
            command += ["--ro-bind-try", places.get(path, path), path]
    for device in confine.DEVICES:
        command += ["--dev-bind", device, device]
    command += ["--size", str(plan["disk"]), "--tmpfs", DISK] if plan["disk"] else ["--dir", DISK]
    return [*command, "--chdir", DISK, "--remount-ro", "/", *plan["again"]]


def serve(plan: dict[str, Any]) -> None:
    """Confine this process as the plan says, then answer requests until the control socket closes."""
    control = socket.socket(fileno=plan["control"])
    try:
        abi = _confined(plan)
    except Exception as error:
        _say(control, {"failed": f"{type(error).__name__}: {error}"})
        return
    gc.collect()
    gc.freeze()
    _say(control, {"pid": os.getpid(), "uid": os.getuid(), "landlock": abi})
    while (request := _hear(control)) is not None:
        message, descriptors = request
        if message["do"] == "fork":
            pid = _fork(message, descriptors, plan)
            handle = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
            _say(control, {"pid": pid}, [] if handle is None else [handle])
            for descriptor in [*descriptors, *([] if handle is None else [handle])]:
                os.close(descriptor)
        elif message["do"] == "finish":
            _say(control, _finish(message["pid"], message["grace"]))
        else:
            _say(control, {"cleared": _clear(plan, message["sweep"])})


def _confined(plan: dict[str, Any]) -> int:
    """Take away what the level takes away; returns the Landlock ABI, 0 without."""
    for name in plan["preload"]:
        importlib.import_module(name)
    confine.adopt_orphans()
    if plan["level"] == "B":
        return 0
    read = list(plan["read"])
    if plan["level"] == "C" and plan["uid"] is not None:
        kept = confine.keep_reachable(plan["modules"])
        confine.become(plan["uid"])
        closed = {folder: handle for folder, handle in kept.items() if not os.access(folder, os.R_OK | os.X_OK)}
        confine.find_modules_at(closed)
        read += closed.values()
        for folder, handle in kept.items():
            if folder not in closed:
                os.close(int(handle.rpartition("/")[2]))
    os.chdir(DISK if plan["level"] == "D" else "/")
    abi = 0
    if plan["level"] == "C" or landlock.version():  # D hides files by its mounts where a kernel has no Landlock
        abi = confine.guard_files(read, DISK if plan["disk"] else None)
    confine.guard_calls()
    return abi


def _fork(message: dict[str, Any], descriptors: list[int], plan: dict[str, Any]) -> int:
    server = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _enter(message, descriptors, plan, server)
        MODES[message["mode"]](worker.Channel(3))
        status = 0
    finally:
        os._exit(status)  # no exit handlers, no destructors: nothing of the submission runs any more


def _enter(message: dict[str, Any], descriptors: list[int], plan: dict[str, Any], server: int) -> None:
    """What the child does before it reads anything: streams, limits, filter."""
    os.setsid()
    confine.die_with_parent(server)
    channel, *streams = descriptors
    high = [os.dup(number) for number in (channel, *streams)]  # out of the way of 0 to 3
    null = os.open(os.devnull, os.O_RDWR)
    for number, source in enumerate(high[1:] or [null, null, null]):
        os.dup2(source, number)
    os.dup2(high[0], 3)
    os.close(plan["control"]) if plan["control"] > 3 else None
    for number in {*high, null, *descriptors} - {0, 1, 2, 3}:
        os.close(number)
    random.seed(0)
    limits = message["limits"]
    confine.limit(limits, own_user=plan["level"] == "D" or plan["uid"] is not None)
    if plan["level"] != "B":
        confine.guard_child(server, processes=limits["processes"] > 0)


def _finish(pid: int, grace: float) -> dict[str, Any]:
    """Wait `grace` seconds for the child to end by itself, then kill it and its group; what became of it."""
    end = time.monotonic() + grace
    found, status, used = os.wait4(pid, os.WNOHANG)
    while not found and time.monotonic() < end:
        time.sleep(0.0005)
        found, status, used = os.wait4(pid, os.WNOHANG)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if not found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        found, status, used = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return {"code": code, "cpu": used.ru_utime + used.ru_stime, "killed": code == -signal.SIGKILL}


def _clear(plan: dict[str, Any], sweep: bool) -> bool:
    """End every other process of this user, or of this namespace of processes, and empty the disk."""
    if sweep and os.getuid() != 0:  # the caller has made sure that the user or the namespace is the slot's alone
        _end_all()
    with suppress(ChildProcessError):
        while os.wait4(-1, os.WNOHANG)[0]:
            pass
    if plan["disk"]:
        for name in os.listdir(DISK):
            path = os.path.join(DISK, name)
            shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    return True


def _end_all() -> None:
    while True:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        try:
            while os.wait4(-1, 0)[0]:
                pass
        except ChildProcessError:
            return


def _say(control: socket.socket, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
    socket.send_fds(control, [json.dumps(message).encode() + b"\n"], descriptors or [])


def _hear(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    data, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 8)
    return (json.loads(data), list(descriptors)) if data else None


def main() -> None:
    """Entry. Arguments: the folder of this package, `launch` or `serve`, and the plan."""
    folder, stage, text = sys.argv[-3:]
    plan = json.loads(text)
    plan["again"] = [*plan["python"], folder, "serve", text]
    sys.path += plan["packages"]
    sys.argv[:], sys.orig_argv[:] = ["submission.py"], []
    serve(plan) if stage == "serve" else launch(plan)
