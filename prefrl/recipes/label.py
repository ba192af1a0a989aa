"""Labelling in the terminal: two answers, one key. The sides are those of a person: nothing says which is which.

Every label is on the disk before the next pair is shown, so it is safe to stop at any time, in any way.
"""

from __future__ import annotations

import getpass
import hashlib
import io
import sys
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from prefrl.config import LabelCommandConfig
from prefrl.data.comparisons import Item, Outcome
from prefrl.data.preferences import PreferenceStore
from prefrl.data.project import ProjectSettings
from prefrl.errors import ConfigError

_WORDS = {
    "a": "A is better",
    "b": "B is better",
    "t": "tie",
    "n": "neither is good",
    "s": "skip",
    "u": "change the last",
    "q": "quit",
}
_CHOICES: dict[str, tuple[Outcome, Outcome]] = {  # as shown, and with the sides exchanged
    "a": ("first", "second"),
    "b": ("second", "first"),
    "t": ("tie", "tie"),
    "n": ("both_bad", "both_bad"),
    "s": ("skip", "skip"),
}


def run(config: LabelCommandConfig) -> None:
    """Ask for a label of every open pair in turn.

    Raises:
        ConfigError: no store was named.
        DataError: there is no store, or a damaged one.
    """
    if not config.store:
        raise ConfigError("No store was named. Type: prefrl label runs/loop, or the .db file of a preference store.")
    annotator = config.annotator.strip() or _login()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that lacks a character gets its code
        sys.stdout.reconfigure(errors="backslashreplace")
    with PreferenceStore(_store(config.store), create=False) as store:
        items = store.open_items(annotator)
        if not items:
            print(f"No pair in {store.address} waits for {annotator}.")
            return
        keys = _keys_of(store.settings())
        print(f"{len(items)} pairs wait for {annotator}. {_explained(keys)}", flush=True)
        with suppress(KeyboardInterrupt, EOFError), _keys() as single:
            _ask(store, items, annotator, keys, single)
        left = len(store.open_items(annotator))
        print(f"\nEverything labelled is saved; {left} pairs are left." + (" Type the same to go on." if left else ""))


def swapped(item: Item, annotator: str) -> bool:
    """Whether this person sees the second completion as A: the same way every time, and half of the time."""
    return hashlib.sha256(f"{annotator}|{item.id}".encode("utf-8", "backslashreplace")).digest()[0] % 2 == 1


def _keys_of(settings: ProjectSettings) -> str:
    """The keys that mean something: a project need not let people say that none is better, or that both are bad."""
    left_out = ("" if settings.has_tie else "t") + ("" if settings.both_bad else "n")
    return "".join(key for key in _WORDS if key not in left_out)


def _explained(keys: str) -> str:
    return "   ".join(f"{key}: {_WORDS[key]}" for key in keys)


def _ask(store: PreferenceStore, items: Sequence[Item], annotator: str, keys: str, single: bool) -> None:
    at, mine = 0, set[str]()
    while at < len(items):
        item = items[at]
        if item.id not in mine and not store.is_open(item.id, annotator):  # others labelled it in the meantime
            at += 1
            continue
        exchanged = swapped(item, annotator)
        _show(item, exchanged, f"{at + 1} of {len(items)}", keys)
        key = _key(single)
        if key == "q":
            return
        if key == "u":
            at = max((place for place in range(at) if items[place].id in mine), default=at)
        elif key in _CHOICES and key in keys:
            store.submit(item.id, annotator, _CHOICES[key][exchanged])
            mine.add(item.id)
            at += 1
        else:
            print(f"Got {key!r}. {_explained(keys)}", flush=True)


def _show(item: Item, exchanged: bool, place: str, keys: str) -> None:
    sides = (item.second, item.first) if exchanged else (item.first, item.second)
    messages = item.prompt.messages or ({"role": "prompt", "content": item.prompt.text},)
    print(f"\n{'-' * 30} {place} {'-' * 30}")
    for message in messages:
        print(f"[{visible(str(message.get('role', '')))}]\n{_quoted(str(message.get('content') or ''))}")
    for name, side in zip("AB", sides, strict=True):
        print(f"\n=== {name} ===\n{_quoted(side.text)}{'' if side.finished else ' [cut off]'}")
    print(f"\n{'/'.join(keys)} > ", end="", flush=True)


def visible(text: str) -> str:
    """A text that cannot steer the terminal: control characters but line ends and tabs are shown by their codes."""

    def shown(character: str) -> str:
        plain = character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn")
        return character if plain else f"<U+{ord(character):04X}>"

    return "".join(map(shown, text))


def _quoted(text: str) -> str:
    """A visible text on lines that begin with a bar, so that no line of it passes for a heading."""
    return textwrap.indent(visible(text), "| ", lambda _: True) or "|"


@contextmanager
def _keys() -> Iterator[bool]:
    """Let a terminal hand over every key at once rather than whole lines; whether it does."""
    try:
        import termios
        import tty
    except ImportError:  # Windows
        yield False
        return
    if not sys.stdin.isatty():
        yield False
        return
    saved = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin, termios.TCSADRAIN)  # keys that were typed already are kept
        yield True
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, saved)


def _key(single: bool) -> str:
    """The next key in lower case, or the next line where keys do not come one by one.

    Raises:
        EOFError: there is no more input.
        KeyboardInterrupt: control-C.
    """
    typed = sys.stdin.read(1) if single else sys.stdin.readline()
    if typed in ("", "\x04"):
        raise EOFError
    if single and typed == "\x1b":
        _skip_sequence()
        return "escape"
    if single:
        print(typed.strip(), flush=True)
    return typed.strip().lower()


def _skip_sequence() -> None:
    """Read what follows an escape: an arrow key sends `ESC [ A`, whose last letter must not become a label."""
    following = sys.stdin.read(1)
    if following == "O":
        sys.stdin.read(1)
    while following == "[" and not "@" <= (sys.stdin.read(1) or "@") <= "~":
        pass


def _store(name: str) -> str | Path:
    """The store of that name or URL, or the one of the loop in the folder of that name."""
    if "://" in name:
        return name
    path = Path(name).expanduser()
    if not path.is_dir():
        return path
    from prefrl.parsing import read_yaml

    saved = path / "config.yaml"
    named = (read_yaml(str(saved)).get("labeller") or {}).get("store") if saved.is_file() else None
    return _store(named) if named else path / "preferences.db"


def _login() -> str:
    with suppress(KeyError, OSError, ImportError):  # getpass raises either where nobody is logged in
        return getpass.getuser()
    return "me"
