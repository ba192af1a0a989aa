"""Landlock: what of the file system and the network a process can reach, by rules that no later code can widen.

Landlock guards opening, making and deleting; looking up names and attributes stays possible, and modes, owners and
times are guarded by the filter of system calls. ABI 1 (Linux 5.13) to 7 are known; a newer one is used as 7.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on all architectures
VERSION, PATH_BENEATH = 1, 1
READ, WRITE, DEVICE = 1 << 2 | 1 << 3, 1 << 1, 1 << 1 | 1 << 2
EXECUTE = 1 << 0
# Write, remove, make folders, files, FIFOs and symbolic links, truncate; no sockets and no devices.
CHANGE = READ | WRITE | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 12 | 1 << 14
FILES_ONLY = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # the rights that a rule on a file can have


def handled(abi: int) -> tuple[int, int, int]:
    """The rights (file system, network, scope) that a kernel of this ABI can take away; all of them are."""
    files = (1 << 13) - 1
    if abi >= 2:
        files |= 1 << 13  # linking and moving to another folder
    if abi >= 3:
        files |= 1 << 14  # truncating
    if abi >= 5:
        files |= 1 << 15  # ioctl of devices
    return files, 0b11 if abi >= 4 else 0, 0b11 if abi >= 6 else 0


def attributes(abi: int) -> bytes:
    """struct landlock_ruleset_attr as long as the ABI knows it: 8, 16 or 24 bytes."""
    size = 1 if abi < 4 else 2 if abi < 6 else 3
    return struct.pack(f"={size}Q", *handled(abi)[:size])


def version() -> int:
    """The ABI of this kernel; 0 where there is no Landlock."""
    return max(0, _libc().syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION)))


def restrict(rules: Iterable[tuple[str, int]]) -> int:
    """Allow the given rights beneath the given paths and nothing else; returns the ABI.

    Paths that do not exist are left out. `NO_NEW_PRIVS` must be set.

    Raises:
        OSError: no Landlock, or the kernel refuses.
    """
    libc, abi = _libc(), version()
    if abi == 0:
        raise OSError("this kernel has no Landlock")
    attribute = attributes(abi)
    ruleset = _checked(
        libc.syscall(CREATE_RULESET, attribute, ctypes.c_size_t(len(attribute)), ctypes.c_uint32(0)),
        "landlock_create_ruleset",
    )
    for path, rights in rules:
        _allow(libc, ruleset, path, rights & handled(abi)[0])
    _checked(libc.syscall(RESTRICT_SELF, ruleset, ctypes.c_uint32(0)), "landlock_restrict_self")
    os.close(ruleset)
    return abi


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return  # what cannot be reached needs no rule
    if not stat.S_ISDIR(os.fstat(beneath).st_mode):
        rights &= FILES_ONLY
    rule = struct.pack("=Qi", rights, beneath)
    result = libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, rule, ctypes.c_uint32(0))
    os.close(beneath)
    _checked(result, f"landlock_add_rule for {path}")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
