"""Plug-ins of other distributions: entry points in the groups `prefrl.rewards` and `prefrl.samplers`."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
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


def _found(group: str) -> dict[str, list[EntryPoint]]:
    if group not in GROUPS:
        raise ConfigError(f"unknown plug-in group {group!r}; the groups are {', '.join(GROUPS)}")
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        found.setdefault(point.name, []).append(point)
    return found


def _owner(point: EntryPoint) -> str:
    return repr(point.dist.name) if point.dist is not None else f"an unnamed distribution ({point.value})"
