"""Code from outside: plug-ins of other distributions, which are entry points in `GROUPS`, and code named by a path."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from prefrl.errors import ConfigError, did_you_mean

GROUPS = ("prefrl.rewards", "prefrl.samplers")


def names(group: str) -> list[str]:
    """Sorted names of the plug-ins of a group; none of them is imported."""
    return sorted(_found(group))


def load(group: str, name: str) -> Any:
    """Import one plug-in.

    Raises:
        ConfigError: no plug-in has that name, two distributions claim it, or its import fails.
    """
    found = _found(group)
    if name not in found:
        raise ConfigError(
            f"no plug-in {name!r} in the group {group!r}; installed: {', '.join(sorted(found)) or 'none'}."
            f"{did_you_mean(name, found)}"
        )
    claims = found[name]
    if len(claims) > 1:
        owners = " and ".join(_owner(point) for point in claims)
        raise ConfigError(f"the plug-in {name!r} of the group {group!r} comes from {owners}; uninstall one")
    try:
        return claims[0].load()
    except Exception as error:
        raise ConfigError(
            f"the plug-in {name!r} of the group {group!r} from {_owner(claims[0])} cannot be imported "
            f"({claims[0].value}): {type(error).__name__}: {error}"
        ) from error


def owner(group: str, name: str) -> str:
    """The distribution a plug-in comes from, for error messages."""
    return _owner(_found(group)[name][0])


def import_path(path: str, what: str) -> Any:
    """The object at `package.module:attribute` or `path/to/file.py:attribute`; `what` it is, for error messages.

    Modules are looked for where Python looks and then in the current folder, which an installed command does not have
    on its path.

    Raises:
        ConfigError: there is no such file or attribute, or the import fails.
    """
    place, _, attribute = path.rpartition(":")
    is_file = place.endswith(".py")
    if is_file and not Path(place).is_file():
        raise ConfigError(f"{what} {path!r}: no file {place!r} (looked in {str(Path.cwd())!r})")
    try:
        with _current_folder_on_path():
            module = _load_file(Path(place)) if is_file else importlib.import_module(place)
    except Exception as error:
        hint = "" if is_file else f"; for a file give path/to/file.py:{attribute}"
        raise ConfigError(f"{what} {path!r}: cannot import {place!r}: {type(error).__name__}: {error}{hint}") from error
    found: Any = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            public = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
            raise ConfigError(
                f"{what} {path!r}: {place!r} has no {attribute!r}; it has {', '.join(public) or 'no functions'}."
                f"{did_you_mean(attribute, public)}"
            )
        found = getattr(found, name)
    return found


@contextmanager
def _current_folder_on_path() -> Iterator[None]:
    """Last on the path, so that a file `queue.py` in it hides no module of others."""
    folder = str(Path.cwd())
    if folder in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _load_file(path: Path) -> ModuleType:
    name = f"prefrl_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "every .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def _found(group: str) -> dict[str, list[EntryPoint]]:
    if group not in GROUPS:
        raise ConfigError(f"unknown plug-in group {group!r}; the groups are {', '.join(GROUPS)}")
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        found.setdefault(point.name, []).append(point)
    return found


def _owner(point: EntryPoint) -> str:
    return repr(point.dist.name) if point.dist is not None else f"an unnamed distribution ({point.value})"
