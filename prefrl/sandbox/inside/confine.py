"""How a process takes rights away from itself. Each function is called once, in the order of the file."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from prefrl.sandbox.inside import landlock, seccomp

CLONE_NEWNS, MS_NOSUID_NODEV, MS_BIND, MS_REC_PRIVATE = 0x20000, 0x6, 0x1000, 0x44000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SIGKILL = 9
TASKS = 32  # processes and threads of one user, the server among them
STAGING = "/tmp"  # covered by a file system of the launcher's own, in a mount namespace of its own
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
HANDLE = "/proc/self/fd/{}"


def stage(paths: Sequence[str]) -> dict[str, str]:
    """Where an unprivileged user finds each path, though its folders be closed to it; needs to be root.

    A mount namespace of this process's own gets bindings in a fresh temporary file system. Where that is not allowed
    the paths stay as they are.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC_PRIVATE), None):
        return {path: path for path in paths}
    handles = {path: os.open(path, os.O_PATH) for path in paths if os.path.exists(path)}
    nosuid = ctypes.c_ulong(MS_NOSUID_NODEV)
    if libc.mount(b"tmpfs", STAGING.encode(), b"tmpfs", nosuid, b"mode=0755,size=64k"):
        return {path: path for path in paths}
    places: dict[str, str] = {}
    for path, handle in handles.items():
        place = f"{STAGING}/{len(places)}"
        os.mkdir(place) if os.path.isdir(HANDLE.format(handle)) else open(place, "x").close()
        if libc.mount(HANDLE.format(handle).encode(), place.encode(), None, ctypes.c_ulong(MS_BIND), None):
            raise OSError(ctypes.get_errno(), f"cannot bind {path}")
        places[path] = place
        os.close(handle)
    return places


def keep_reachable(folders: Sequence[str]) -> dict[str, str]:
    """For folders that only root reaches: the name of a handle on each, which stays good after `become`."""
    handles: dict[str, str] = {}
    for folder in folders:
        if os.path.isdir(folder):
            low = os.open(folder, os.O_PATH)
            handles[folder] = HANDLE.format(fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 40))  # a child uses the low numbers
            os.close(low)
    return handles


def become(uid: int) -> None:
    """Turn from root into a user without any rights, for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    if os.getuid() != uid or os.geteuid() != uid or os.getgroups() not in ([], [uid]):
        raise PermissionError(f"could not become user {uid}")


def find_modules_at(places: Mapping[str, str]) -> None:
    """Let imports go on where folders are now known by another name."""

    def moved(path: str) -> str:
        old = next((folder for folder in places if path == folder or path.startswith(folder + os.sep)), None)
        return path if old is None else places[old] + path[len(old) :]

    sys.path[:] = [moved(path) for path in sys.path]
    for module in list(sys.modules.values()):
        if isinstance(getattr(module, "__path__", None), list):
            module.__path__ = [moved(path) for path in module.__path__]
    sys.path_importer_cache.clear()


def guard_files(paths: Sequence[str], disk: str | None) -> int:
    """Landlock: read `paths`, use the harmless devices, change what is in the folder `disk`; returns the ABI."""
    _no_new_privileges()
    rules = [(path, landlock.READ | landlock.EXECUTE) for path in paths]
    rules += [(device, landlock.DEVICE) for device in DEVICES]
    rules += [(disk, landlock.CHANGE)] if disk else []
    return landlock.restrict(rules)


def guard_calls() -> None:
    """The server's filter of system calls."""
    seccomp.install(seccomp.server_filter(platform.machine()))


def guard_child(server: int, *, processes: bool) -> None:
    """The filter for one untrusted process."""
    seccomp.install(seccomp.child_filter(platform.machine(), os.getpid(), server, processes=processes))


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of grandchildren whose parent ends, so that they can be found and ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def limit(limits: Mapping[str, Any], *, own_user: bool) -> None:
    """Resource limits of one untrusted process: `memory`, `cpu`, `disk`, `files`, `processes`."""
    import resource

    def at_most(name: str, soft: int, hard: int | None = None) -> None:
        kind = getattr(resource, name, None)
        if kind is not None:
            with contextlib.suppress(ValueError):  # macOS refuses some, others are lower already
                resource.setrlimit(kind, (soft, soft if hard is None else hard))

    at_most("RLIMIT_AS", limits["memory"])
    at_most("RLIMIT_CPU", limits["cpu"], limits["cpu"] + 1)
    at_most("RLIMIT_FSIZE", limits["disk"])
    at_most("RLIMIT_NOFILE", limits["files"])
    if own_user:
        at_most("RLIMIT_NPROC", TASKS + limits["processes"])
    for name in ("RLIMIT_CORE", "RLIMIT_MEMLOCK", "RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_RTPRIO"):
        at_most(name, 0)


def _no_new_privileges() -> None:
    if ctypes.CDLL(None).prctl(seccomp.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError("the kernel refused PR_SET_NO_NEW_PRIVS")
