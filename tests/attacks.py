"""What hostile code tries, one attack each, and the levels of the sandbox that promise to stop it.

Each source defines `attack`, which returns something true when it got what it wanted; an exception means that it was
stopped. All are bounded, so that one that succeeds does no harm. `World` is what they aim at.
"""

from __future__ import annotations

from dataclasses import dataclass

CONFINED = ("C", "D")
NAMESPACED = ("D",)


@dataclass(frozen=True)
class Attack:
    """A source, and the levels that stop it."""

    name: str
    source: str
    stopped_by: tuple[str, ...] = CONFINED


FILES = [
    Attack("read_hidden_tests", "def attack(w): return open(w['folder'] + '/secret.txt').read()"),
    Attack("list_hidden_tests", "import os\ndef attack(w): return os.listdir(w['folder'])"),
    Attack("read_accounts", "def attack(w): return open('/etc/passwd').read()"),
    Attack("write_outside", "def attack(w): return open(w['folder'] + '/made', 'w').write('x')"),
    Attack("append_outside", "def attack(w): return open(w['folder'] + '/open.txt', 'a').write('x')"),
    Attack(
        "cut_while_reading",
        "import os\ndef attack(w): return os.open(w['folder'] + '/open.txt', os.O_RDONLY | os.O_TRUNC) > 0",
    ),
    Attack("truncate", "import os\ndef attack(w): return os.truncate(w['folder'] + '/open.txt', 0) is None"),
    Attack("delete_outside", "import os\ndef attack(w): return os.unlink(w['folder'] + '/victim.txt') is None"),
    Attack(
        "rename_outside",
        "import os\ndef attack(w):\n os.rename(w['folder'] + '/moved', w['folder'] + '/m2')\n return 1",
    ),
    Attack("chmod_outside", "import os\ndef attack(w): return os.chmod(w['folder'] + '/open.txt', 0o600) is None"),
    Attack("utime_outside", "import os\ndef attack(w): return os.utime(w['folder'] + '/open.txt', (1, 1)) is None"),
    Attack("symlink", "import os\ndef attack(w): return os.symlink('/etc/passwd', w['folder'] + '/link') is None"),
    Attack(
        "hardlink", "import os\ndef attack(w): return os.link(w['folder'] + '/open.txt', w['folder'] + '/hard') is None"
    ),
    Attack("make_folder", "import os\ndef attack(w): return os.mkdir(w['folder'] + '/dir') is None"),
    Attack("make_fifo", "import os\ndef attack(w): return os.mkfifo(w['folder'] + '/fifo') is None"),
    Attack(
        "temporary_files",
        "import tempfile\ndef attack(w):\n f = tempfile.NamedTemporaryFile(delete=True)\n return f.write(b'x')",
        CONFINED,
    ),
    Attack(
        "fill_disk",
        "def attack(w):\n for i in range(20):\n  open(f\"{w['folder']}/f{i}\", 'wb').write(b'x' * 65536)\n return 1",
        ("B", "C", "D"),
    ),
    Attack(
        "inodes", "import os\ndef attack(w):\n for i in range(50):\n  open(f\"{w['folder']}/i{i}\", 'w')\n return 1"
    ),
    Attack("shared_memory_file", "def attack(w):\n open(w['shm'], 'w')\n return 1"),
    Attack("memfd", "import os\ndef attack(w): return os.memfd_create('x') > 0"),
    Attack("find_history", "import os\ndef attack(w): return os.listdir(w['repository'])"),
    Attack(
        "see_that_a_file_exists",
        "import os\ndef attack(w): return os.path.exists(w['folder'] + '/open.txt')",
        NAMESPACED,
    ),
]
PROCESSES = [
    Attack("environment_of_parent", "def attack(w): return open(f\"/proc/{w['pid']}/environ\").read()"),
    Attack("command_line_of_parent", "def attack(w): return open(f\"/proc/{w['pid']}/cmdline\").read()"),
    Attack("memory_of_server", "import os\ndef attack(w): return open(f'/proc/{os.getppid()}/mem', 'rb') is not None"),
    Attack("own_proc", "def attack(w): return open('/proc/self/environ').read() is not None"),
    Attack("signal_parent", "import os\ndef attack(w): return os.kill(w['pid'], 0) is None"),
    Attack("signal_server", "import os\ndef attack(w): return os.kill(os.getppid(), 0) is None"),
    Attack("signal_group_of_server", "import os\ndef attack(w): return os.killpg(os.getpgid(os.getppid()), 0) is None"),
    Attack(
        "fork", "import os\ndef attack(w):\n p = os.fork()\n if p == 0: os._exit(0)\n return os.waitpid(p, 0)[0] > 0"
    ),
    Attack("spawn", "import subprocess\ndef attack(w): return subprocess.run(['/bin/true']).returncode == 0"),
    Attack("shell", "import os\ndef attack(w): return os.system('true') == 0"),
    Attack("exec", "import os\ndef attack(w): os.execv('/bin/true', ['true'])\n", ()),
    Attack("multiprocessing", "import os\ndef attack(w): return os.posix_spawn('/bin/true', ['true'], {}) > 0"),
    Attack("affinity", "import os\ndef attack(w): return os.sched_setaffinity(0, {0}) is None"),
    Attack("priority", "import os\ndef attack(w): return os.setpriority(os.PRIO_PROCESS, 0, 5) is None"),
    Attack(
        "scheduler",
        "import os\ndef attack(w): return os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)) is None",
    ),
    Attack(
        "limits_of_server",
        "import os, resource\ndef attack(w):\n l = resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)\n "
        "return resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, l)",
    ),
    Attack("pidfd_of_server", "import os\ndef attack(w): return os.pidfd_open(os.getppid()) > 0"),
]
NETWORK = [
    Attack(
        "tcp", "import socket\ndef attack(w): return socket.create_connection(('127.0.0.1', w['port']), 1) is not None"
    ),
    Attack(
        "udp",
        "import socket\ndef attack(w): return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', "
        "('127.0.0.1', 9))",
    ),
    Attack(
        "listen",
        "import socket\ndef attack(w):\n s = socket.socket()\n s.bind(('127.0.0.1', 0))\n s.listen()\n return 1",
    ),
    Attack(
        "unix",
        "import socket\ndef attack(w):\n s = socket.socket(socket.AF_UNIX)\n s.connect(w['folder'] + "
        "'/unix')\n return 1",
    ),
    Attack(
        "abstract",
        "import socket\ndef attack(w):\n s = socket.socket(socket.AF_UNIX)\n s.connect(chr(0) + "
        "w['abstract'])\n return 1",
    ),
    Attack(
        "datagram_pair",
        "import socket\ndef attack(w):\n a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n "
        "return a is not None",
    ),
    Attack("names", "import socket\ndef attack(w): return socket.gethostbyname('localhost')"),
    Attack(
        "netlink", "import socket\ndef attack(w): return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) is not None"
    ),
]
# By number on x86_64 and aarch64; a call that is refused says EPERM (1) or does not exist (ENOSYS, 38).
_CALL = """
import ctypes, platform
def attack(w):
    libc = ctypes.CDLL(None, use_errno=True)
    number = {number}[platform.machine()]
    libc.syscall(number, {arguments})
    return ctypes.get_errno() not in (1, 38)
"""
CALLS = [
    Attack(name, _CALL.format(number={"x86_64": x86, "aarch64": arm}, arguments=arguments))
    for name, x86, arm, arguments in (
        ("user_namespace", 272, 97, "0x10000000"),
        ("ptrace", 101, 117, "99, 0, 0, 0"),
        ("mount", 165, 40, "b'none', b'/nowhere', b'tmpfs', 0, None"),
        ("keyring", 248, 217, "b'user', b'x', b'x', 1, -9"),
        ("bpf", 321, 280, "99, None, 0"),
        ("perf", 298, 241, "None, 0, -1, -1, 0"),
        ("io_uring", 425, 425, "1, None"),
        ("userfaultfd", 323, 282, "0xffff"),
        ("process_memory", 310, 270, "0, None, 0, None, 0, 1"),
        ("shared_memory", 29, 194, "0, 0, 0"),
        ("message_queue", 68, 186, "0x7fff1234, 0"),
        ("personality", 135, 92, "0xffffffff"),
        ("clone3", 435, 435, "None, 0"),
        ("memory_files", 319, 279, "None, 0xffff"),
        ("handles", 304, 265, "-1, None, 0"),
    )
]
BECOME_ROOT = Attack("become_root", "import os\ndef attack(w): return os.setuid(0) is None")
SECRETS = [
    Attack(
        "secrets_in_environment",
        "import os\ndef attack(w): return any('KEY' in name for name in os.environ)",
        ("B", "C", "D"),
    ),
    Attack(
        "open_descriptors",
        "import os\ndef attack(w):\n found = []\n for n in range(4, 64):\n  try: os.read(n, 1); "
        "found.append(n)\n  except OSError: pass\n return found",
        ("B", "C", "D"),
    ),
]
ATTACKS = [*FILES, *PROCESSES, *NETWORK, *CALLS, *SECRETS]
