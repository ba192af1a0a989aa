"""Rewards from settings: `[{kind: numeric, column: answer, weight: 0.3}, {kind: my_pkg.mod:fn}]`."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any

from prefrl import plugins
from prefrl.errors import ConfigError, did_you_mean
from prefrl.rewards.base import RewardSource
from prefrl.rewards.compose import Clip, Normalise, WeightedSum
from prefrl.rewards.functions import function

GROUP = "prefrl.rewards"

# kind -> module:factory; imported when used, for some need torch.
KINDS: dict[str, str] = {
    "exact": "prefrl.rewards.verifiers:exact",
    "numeric": "prefrl.rewards.verifiers:numeric",
    "choice": "prefrl.rewards.verifiers:choice",
    "regex": "prefrl.rewards.verifiers:regex",
    "json": "prefrl.rewards.verifiers:json_object",
    "length_band": "prefrl.rewards.verifiers:length_band",
    "environment": "prefrl.rewards.environment_reward:environment",
    "bradley_terry": "prefrl.rewards.bradley_terry:BradleyTerry.load",
}
OPTIONS = ("weight", "clip", "normalise", "name")

Spec = str | Mapping[str, Any]


def build(specs: Spec | Sequence[Spec]) -> RewardSource:
    """Make one reward source of settings.

    Each spec is a kind, or a mapping with `kind`, the arguments of that kind, and the options `weight`
    (default 1), `normalise: true`, `clip: [low, high]` (after normalising) and `name`. Kinds are those in
    `KINDS`; `function` with a `path`; a path itself, `package.module:attribute` or
    `path/to/file.py:attribute`, naming a reward function, a source, or a class that is called with the
    arguments; and plug-ins.

    Returns:
        The source itself for a single spec of weight 1, a `WeightedSum` otherwise.

    Raises:
        ConfigError: unknown kind, argument or option, a wrong value, or something that cannot be imported.
    """
    listed = [specs] if isinstance(specs, str | Mapping) else list(specs)
    if not listed:
        raise ConfigError(f"no rewards given; expected at least one, of the kinds {', '.join(_kinds())}")
    terms = [_term(spec) for spec in listed]
    source, weight = terms[0]
    return source if len(terms) == 1 and weight == 1.0 else WeightedSum(terms)


def _term(spec: Spec) -> tuple[RewardSource, float]:
    if not isinstance(spec, str | Mapping) or (isinstance(spec, Mapping) and "kind" not in spec):
        raise ConfigError(f"got the reward {spec!r}; expected a kind, or a mapping with 'kind': {{kind: numeric}}")
    arguments = {"kind": spec} if isinstance(spec, str) else dict(spec)
    kind = str(arguments.pop("kind"))
    options = {name: arguments.pop(name) for name in OPTIONS if name in arguments}
    if kind == "function":
        if "path" not in arguments:
            raise ConfigError("reward kind 'function' needs a path: {kind: function, path: my_pkg.mod:fn}")
        kind = str(arguments.pop("path"))
    source = _from_path(kind, arguments) if ":" in kind else _from_kind(kind, arguments)
    return _with_options(kind, source, options)


def _with_options(kind: str, source: Any, options: Mapping[str, Any]) -> tuple[RewardSource, float]:
    weight, normalise = options.get("weight", 1.0), options.get("normalise", False)
    bounds = options.get("clip")
    if not _is_number(weight):
        raise ConfigError(f"reward {kind!r}: weight={weight!r}; expected a number")
    if not isinstance(normalise, bool):
        raise ConfigError(f"reward {kind!r}: normalise={normalise!r}; expected true or false")
    if "name" in options:
        source.name = str(options["name"])
    if normalise:
        source = Normalise(source)
    if bounds is not None:
        if not isinstance(bounds, list | tuple) or len(bounds) != 2 or not all(map(_is_number, bounds)):
            raise ConfigError(f"reward {kind!r}: clip={bounds!r}; expected two numbers: clip: [-1, 1]")
        source = Clip(source, *bounds)
    return source, float(weight)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _kinds() -> list[str]:
    return [*KINDS, "function", *plugins.names(GROUP)]


def _from_kind(kind: str, arguments: Mapping[str, Any]) -> Any:
    plugged = kind in plugins.names(GROUP)
    if plugged and kind in KINDS:
        raise ConfigError(f"{plugins.owner(GROUP, kind)} has a plug-in named like the built-in reward {kind!r}")
    if kind in KINDS:
        return _call(kind, _import(KINDS[kind]), arguments)
    if not plugged:
        kinds = _kinds()
        raise ConfigError(
            f"unknown reward kind {kind!r}; kinds: {', '.join(kinds)}; or your own function as my_pkg.mod:fn "
            f"or path/to/file.py:fn.{did_you_mean(kind, kinds)}"
        )
    made = _call(kind, plugins.load(GROUP, kind), arguments)
    if not isinstance(made, RewardSource):
        raise ConfigError(
            f"the plug-in {kind!r} from {plugins.owner(GROUP, kind)} returned {made!r}; expected an object "
            f"with `name` and `score(rollouts)`"
        )
    return made


def _from_path(path: str, arguments: Mapping[str, Any]) -> Any:
    target = _import(path)
    if isinstance(target, type):
        target, arguments = _call(path, target, arguments), {}
    if isinstance(target, RewardSource):
        if arguments:
            raise ConfigError(f"{path!r} is a ready reward source; it takes no arguments, got {sorted(arguments)}")
        return target
    if not callable(target):
        raise ConfigError(f"{path!r} is {target!r}; expected a function, a reward source, or a class of one")
    return _call(path, functools.partial(function, target), arguments)


def _call(kind: str, factory: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call a factory after checking the argument names against its signature."""
    parameters = list(inspect.signature(factory).parameters.values())
    named = {p.name: p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    unknown = [name for name in arguments if name not in named]
    shown = ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in named.values())
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        raise ConfigError(
            f"reward kind {kind!r} has no argument {unknown[0]!r}; its arguments: {shown or 'none'}; options "
            f"of every kind: {', '.join(OPTIONS)}.{did_you_mean(unknown[0], [*named, *OPTIONS])}"
        )
    missing = [name for name, p in named.items() if p.default is p.empty and name not in arguments]
    if missing:
        raise ConfigError(f"reward kind {kind!r} needs the argument {missing[0]!r}; its arguments: {shown}")
    return factory(**arguments)


def _import(path: str) -> Any:
    """The object at `package.module:attribute` or `path/to/file.py:attribute`."""
    place, _, attribute = path.rpartition(":")
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except ConfigError:
        raise
    except Exception as error:
        hint = "" if place.endswith(".py") else f"; for a file give path/to/file.py:{attribute}"
        raise ConfigError(f"cannot import {place!r}: {type(error).__name__}: {error}{hint}") from error
    found: Any = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            public = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
            raise ConfigError(
                f"{place!r} has no {attribute!r}; it has {', '.join(public) or 'no functions'}."
                f"{did_you_mean(attribute, public)}"
            )
        found = getattr(found, name)
    return found


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"no file {str(path)!r} (looked in {str(Path.cwd())!r})")
    name = f"prefrl_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "every .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module
