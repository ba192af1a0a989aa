"""The filters of both architectures, run instruction by instruction: one of them cannot be tried on this machine."""

from __future__ import annotations

import errno
import struct

import pytest

from prefrl.sandbox.inside import landlock
from prefrl.sandbox.inside.seccomp import ALLOW, ENOSYS, EPERM, KILL, child_filter, server_filter
from prefrl.sandbox.inside.syscalls import ALLOWED, AUDIT_ARCH, DENIED, numbers

MACHINES = list(AUDIT_ARCH)
OWN, SERVER = 4242, 4000


def verdict(bpf: bytes, arch: int, number: int, *arguments: int) -> int:
    """What the kernel would do with a call: an interpreter of the seven instructions that are used."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=iIQ6Q", number, arch, 0, *(value & (1 << 64) - 1 for value in padded))
    code = [struct.unpack_from("=HBBI", bpf, at) for at in range(0, len(bpf), 8)]
    at, held = 0, 0
    while True:
        kind, yes, no, operand = code[at]
        if kind == 0x06:
            return operand
        if kind == 0x20:
            held = struct.unpack_from("=I", data, operand)[0]
        elif kind == 0x54:
            held &= operand
        else:
            holds = {0x15: held == operand, 0x35: held >= operand, 0x45: bool(held & operand)}[kind]
            at += yes if holds else no
        at += 1


def call(bpf: bytes, machine: str, name: str, *arguments: int) -> int:
    return verdict(bpf, AUDIT_ARCH[machine], (numbers(ALLOWED, machine) | numbers(DENIED, machine))[name], *arguments)


# Known by heart from the kernel's tables, as a check of the whole.
KNOWN = {
    "x86_64": {"read": 0, "open": 2, "socket": 41, "clone": 56, "fork": 57, "execve": 59, "kill": 62, "ptrace": 101,
               "mount": 165, "openat": 257, "unshare": 272, "prlimit64": 302, "memfd_create": 319, "bpf": 321},
    "aarch64": {"read": 63, "socket": 198, "clone": 220, "execve": 221, "kill": 129, "ptrace": 117, "mount": 40,
                "openat": 56, "unshare": 97, "prlimit64": 261, "memfd_create": 279, "bpf": 280},
}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
def test_the_tables(machine: str) -> None:
    allowed, denied = numbers(ALLOWED, machine), numbers(DENIED, machine)
    assert {name: (allowed | denied)[name] for name in KNOWN[machine]} == KNOWN[machine]
    assert not set(allowed) & set(denied)
    assert len(set(allowed.values()) | set(denied.values())) == len(allowed) + len(denied)  # no number twice
    assert ("fork" in allowed) is (machine == "x86_64")


@pytest.mark.parametrize("machine", MACHINES)
def test_another_architecture_is_killed(machine: str) -> None:
    other = AUDIT_ARCH[next(name for name in MACHINES if name != machine)]
    for bpf in (server_filter(machine), child_filter(machine, OWN, SERVER, processes=False)):
        assert verdict(bpf, other, 0) == KILL
        assert verdict(bpf, 0x40000003, 0) == KILL  # 32-bit x86, whose numbers mean other calls
        assert verdict(bpf, AUDIT_ARCH["x86_64"], 0x40000000 | 41) == KILL  # x32's socket


@pytest.mark.parametrize("machine", MACHINES)
def test_the_server(machine: str) -> None:
    bpf = server_filter(machine)
    assert call(bpf, machine, "read") == ALLOW
    for name in numbers(DENIED, machine):
        assert call(bpf, machine, name) == EPERM
    assert verdict(bpf, AUDIT_ARCH[machine], 435) == ENOSYS  # clone3, whose flags no filter can read
    assert verdict(bpf, AUDIT_ARCH[machine], 9999) == ENOSYS
    assert call(bpf, machine, "clone", 0x00010F00) == ALLOW
    for namespace in (0x00020000, 0x10000000, 0x20000000, 0x40000000):
        assert call(bpf, machine, "clone", namespace | 0x11) == EPERM
    assert [call(bpf, machine, "socketpair", *pair) for pair in ((1, 1), (1, 0x80801), (1, 2), (1, 5), (2, 1))] == [
        ALLOW, ALLOW, EPERM, EPERM, EPERM,
    ]  # fmt: skip
    assert [call(bpf, machine, "ioctl", 0, request) for request in (0x5401, 0x541B, 0x5412)] == [ALLOW, ALLOW, EPERM]
    assert [call(bpf, machine, "fcntl", 0, command) for command in (3, 8, 10, 15)] == [ALLOW, EPERM, EPERM, EPERM]
    assert [call(bpf, machine, "openat", 0, 0, flags) for flags in (0, 0x241, 0x200)] == [ALLOW, ALLOW, EPERM]


@pytest.mark.parametrize("machine", MACHINES)
def test_a_child_without_processes(machine: str) -> None:
    bpf = child_filter(machine, OWN, SERVER, processes=False)
    assert call(bpf, machine, "clone", 0x3D0F00) == ALLOW  # a thread
    assert call(bpf, machine, "clone", 0x1200011) == EPERM  # what fork calls
    assert call(bpf, machine, "execve") == EPERM
    for name in ("kill", "tgkill"):
        assert [call(bpf, machine, name, pid) for pid in (OWN, SERVER, 1, 0, -1, -OWN)] == [ALLOW, *[EPERM] * 5]
    assert [call(bpf, machine, "prlimit64", pid) for pid in (0, OWN, SERVER)] == [ALLOW, ALLOW, EPERM]


@pytest.mark.parametrize("machine", MACHINES)
def test_a_child_with_processes_leaves_its_server_alone(machine: str) -> None:
    bpf = child_filter(machine, OWN, SERVER, processes=True)
    assert call(bpf, machine, "clone", 0x1200011) == ALLOW and call(bpf, machine, "execve") == ALLOW
    for name in ("kill", "tgkill", "tkill", "prlimit64"):
        assert [call(bpf, machine, name, pid) for pid in (OWN, 5000, SERVER, -1)] == [ALLOW, ALLOW, EPERM, EPERM]
    assert call(bpf, machine, "pidfd_open", SERVER) == EPERM


@pytest.mark.parametrize(
    ("abi", "files", "size"),
    [(1, 13, 8), (2, 14, 8), (3, 15, 8), (4, 15, 16), (5, 16, 16), (6, 16, 24), (7, 16, 24), (9, 16, 24)],
)
def test_landlock_asks_for_what_each_abi_knows(abi: int, files: int, size: int) -> None:
    attributes = landlock.attributes(abi)
    assert len(attributes) == size
    assert struct.unpack_from("=Q", attributes)[0] == (1 << files) - 1
    assert landlock.handled(abi)[1:] == (0b11 if abi >= 4 else 0, 0b11 if abi >= 6 else 0)


def test_errors_have_the_kernel_s_numbers() -> None:
    assert (EPERM & 0xFFFF, ENOSYS & 0xFFFF) == (errno.EPERM, errno.ENOSYS) == (1, 38)
