"""The names of the algorithms, as the command line knows them."""

from __future__ import annotations

import subprocess
import sys
from functools import cache


@cache
def algorithms() -> tuple[str, ...]:
    """All names, in the order of the table; none where the command cannot be run. Takes some seconds once."""
    command = [sys.executable, "-m", "prefrl", "algorithms", "--names"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return tuple(asked.stdout.split()) if asked.returncode == 0 else ()
