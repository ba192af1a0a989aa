"""Filters of system calls, written as classic BPF by hand: no library is needed.

Two filters lie on top of each other. `server_filter` is installed once, before anything untrusted runs, and lists
what may be called at all. `child_filter` is added in each child: no processes but threads, no signals to others.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prefrl.sandbox.inside.syscalls import ALLOWED, AUDIT_ARCH, DENIED, numbers

KILL, ALLOW, ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
EPERM, ENOSYS = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS
LOAD, EQUAL, GREATER_EQUAL, ANY_BIT, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
NUMBER, ARCH = 0, 4  # offsets in struct seccomp_data; arguments are 64 bits each from 16
X32 = 0x40000000  # bit of the calls of x86_64's second ABI, which a filter of numbers would miss

CLONE_THREAD, CLONE_NEW = 0x00010000, 0x7E020000  # the latter: all flags that make namespaces
O_TRUNC, O_ACCMODE = 0x200, 0x3
IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
FCNTLS = (8, 10, 15)  # F_SETOWN F_SETSIG F_SETOWN_EX: signals to whom one likes
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER_MODE = 38, 22, 2

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand


@dataclass(frozen=True, slots=True)
class When:
    """Something that must hold of one argument: one of `equal`, any of `bits`, or `masked`: (mask, value)."""

    argument: int
    equal: Sequence[int] = ()
    bits: int = 0
    masked: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """`action` for a call where `when` holds (always without one), `otherwise` where it does not.

    An `otherwise` of None leaves the call to what follows.
    """

    call: str
    action: int
    when: When | None = None
    otherwise: int | None = None


def server_filter(machine: str) -> bytes:
    """The calls that exist inside; everything else is EPERM, or ENOSYS where a libc may have an older way."""
    conditions = [
        Rule("clone", EPERM, When(0, bits=CLONE_NEW), ALLOW),
        Rule("socketpair", ALLOW, When(0, equal=(1,)), EPERM),
        Rule("ioctl", ALLOW, When(1, equal=IOCTLS), EPERM),
        Rule("fcntl", EPERM, When(1, equal=FCNTLS), ALLOW),
        # Landlock before ABI 3 lets a file that was opened for reading be cut.
        Rule("open", EPERM, When(1, masked=(O_TRUNC | O_ACCMODE, O_TRUNC)), ALLOW),
        Rule("openat", EPERM, When(2, masked=(O_TRUNC | O_ACCMODE, O_TRUNC)), ALLOW),
    ]
    special = {rule.call for rule in conditions}
    allowed, denied = numbers(ALLOWED, machine), numbers(DENIED, machine)
    rules = [
        Rule("socketpair", EPERM, When(1, masked=(0xF, 2))),  # a datagram socket could send anywhere
        Rule("socketpair", EPERM, When(1, masked=(0xF, 5))),
        *conditions,
        *(Rule(name, ALLOW) for name in allowed if name not in special),
        *(Rule(name, EPERM) for name in denied),
    ]
    return program(machine, allowed | denied, rules, ENOSYS)


def child_filter(machine: str, own: int, server: int, *, processes: bool) -> bytes:
    """What one untrusted process may do less than its server.

    Without `processes` it can start threads only, and signal itself only. With them it may signal any process that its
    user or its namespace lets it reach, but for its server.
    """
    allowed = numbers(ALLOWED, machine)
    signals = ("kill", "tgkill", "tkill", "prlimit64")
    rules = [Rule("pidfd_open", EPERM)]
    if processes:
        rules += [Rule(call, EPERM, When(0, bits=0x80000000)) for call in signals]
        rules += [Rule(call, EPERM, When(0, equal=(server,)), ALLOW) for call in signals]
    else:
        rules += [Rule(call, EPERM) for call in ("fork", "vfork", "execve", "tkill")]
        rules += [Rule("clone", ALLOW, When(0, bits=CLONE_THREAD), EPERM)]
        rules += [Rule(call, ALLOW, When(0, equal=(own,)), EPERM) for call in ("kill", "tgkill")]
        rules += [Rule("prlimit64", ALLOW, When(0, equal=(0, own)), EPERM)]
    return program(machine, allowed, rules, ALLOW)


def program(machine: str, known: Mapping[str, int], rules: Sequence[Rule], default: int) -> bytes:
    """The rules, tried in order, as BPF; calls of another architecture or of x32 kill the process."""
    code: list[Instruction] = [(LOAD, 0, 0, ARCH), (EQUAL, 1, 0, AUDIT_ARCH[machine]), (RETURN, 0, 0, KILL)]
    code += [(LOAD, 0, 0, NUMBER)]
    if machine == "x86_64":
        code += [(GREATER_EQUAL, 0, 1, X32), (RETURN, 0, 0, KILL)]
    for rule in rules:
        if rule.call in known:
            body = _body(rule)
            code += [(EQUAL, 0, len(body), known[rule.call]), *body]
    code += [(RETURN, 0, 0, default)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _body(rule: Rule) -> list[Instruction]:
    """Instructions for a call whose number has been matched; the number is loaded again where it goes on."""
    if rule.when is None:
        return [(RETURN, 0, 0, rule.action)]
    after: list[Instruction] = [(LOAD, 0, 0, NUMBER)] if rule.otherwise is None else [(RETURN, 0, 0, rule.otherwise)]
    when = rule.when
    test: list[Instruction] = [(LOAD, 0, 0, 16 + 8 * when.argument)]  # the lower half: all of these are 32 bits
    if when.bits:
        test += [(ANY_BIT, 0, 1, when.bits)]
    elif when.masked is not None:
        test += [(AND, 0, 0, when.masked[0]), (EQUAL, 0, 1, when.masked[1])]
    else:
        last = len(when.equal) - 1
        test += [(EQUAL, last - i, int(i == last), value) for i, value in enumerate(when.equal)]
    return [*test, (RETURN, 0, 0, rule.action), *after]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install(bpf: bytes) -> None:
    """Put a filter on this process for good; raises OSError when the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    filters = _Program(len(bpf) // 8, bpf)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        PR_SET_SECCOMP, FILTER_MODE, ctypes.byref(filters), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "the kernel refused a seccomp filter")
