"""Rewards from settings: `[{kind: numeric, column: answer, weight: 0.3}, {kind: my_pkg.mod:fn}]`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from prefrl import plugins
from prefrl.errors import ConfigError, did_you_mean
from prefrl.rewards.base import RewardSource
from prefrl.rewards.compose import Audit, Clip, WeightedSum
from prefrl.rewards.functions import function
from prefrl.rewards.normalise import NORMALISERS

GROUP = "prefrl.rewards"

# kind -> module:factory; imported when used, for some need torch.
KINDS: dict[str, str] = {
    "exact": "prefrl.rewards.verifiers:exact",
    "numeric": "prefrl.rewards.verifiers:numeric",
    "choice": "prefrl.rewards.verifiers:choice",
    "regex": "prefrl.rewards.verifiers:regex",
    "json": "prefrl.rewards.verifiers:json_object",
    "length_band": "prefrl.rewards.verifiers:length_band",
    "math": "prefrl.rewards.verifiers.math:math",
    "code": "prefrl.rewards.verifiers.code:code",
    "stdio": "prefrl.rewards.verifiers.code:stdio",
    "constraints": "prefrl.rewards.verifiers:constraints",
    "http": "prefrl.rewards.verifiers:http",
    "json_schema": "prefrl.rewards.verifiers:json_schema",
    "language": "prefrl.rewards.verifiers:language",
    "reasoning_gym": "prefrl.rewards.verifiers.reasoning_gym:reasoning_gym",
    "repetition": "prefrl.rewards.verifiers:repetition",
    "rubric": "prefrl.rewards.verifiers:rubric",
    "shell": "prefrl.rewards.verifiers:shell",
    "think_format": "prefrl.rewards.verifiers:think_format",
    "units": "prefrl.rewards.verifiers:units",
    "xml_format": "prefrl.rewards.verifiers:xml_format",
    "environment": "prefrl.rewards.environment_reward:environment",
    "process": "prefrl.rewards.process:ProcessReward.load",
    "implicit_process": "prefrl.rewards.implicit:ImplicitProcess.load",
    "bradley_terry": "prefrl.rewards.bradley_terry:BradleyTerry.load",
    "airl": "prefrl.rewards.inverse.kinds:airl",
    "gail": "prefrl.rewards.inverse.kinds:gail",
    "gcl": "prefrl.rewards.inverse.kinds:gcl",
    "reward_net": "prefrl.rewards.inverse.exported:NetReward.load",
    "text_airl": "prefrl.rewards.inverse.text_kinds:text_airl",
    "text_gail": "prefrl.rewards.inverse.text_kinds:text_gail",
    "text_gcl": "prefrl.rewards.inverse.text_kinds:text_gcl",
    "text_reward": "prefrl.rewards.inverse.text_reward:TextReward.load",
    "ensemble": "prefrl.rewards.ensemble_reward:ensemble",
    "judge": "prefrl.rewards.judge:Judge.load",
    "yes": "prefrl.rewards.yes:YesReward.load",
    "tournament": "prefrl.rewards.tournament:Tournament",
    "gate": "prefrl.rewards.compose:Gate",
    "min": "prefrl.rewards.compose:minimum",
    "product": "prefrl.rewards.compose:product",
    "constraint": "prefrl.rewards.constraint:Constraint",
    "trajectory_reward": "prefrl.rewards.trajectory.reward:TrajectoryReward.load",
}
# kind -> arguments that are rewards themselves: a spec, or a list of specs, which is their weighted sum.
NESTED: dict[str, tuple[str, ...]] = {
    "tournament": ("by",),
    "gate": ("source", "by"),
    "constraint": ("main", "cost"),
    "implicit_process": ("outcome",),
}
LISTS = ("ensemble", "min", "product")  # kinds of several rewards, their argument `sources`
_NUMBERS: dict[str, type] = {"float": Real, "int": Integral}  # by annotation
OPTIONS = ("weight", "clip", "normalise", "name", "audit")

Spec = str | Mapping[str, Any]


def build(specs: Spec | Sequence[Spec]) -> RewardSource:
    """Make one reward source of settings.

    Each spec is a kind, or a mapping with `kind`, the arguments of that kind, and the options `weight`
    (default 1), `normalise` (true or a kind of `NORMALISERS`, or a mapping with `kind` and its arguments),
    `clip: [low, high]` (after normalising), `name` and `audit: true`, or `audit: 0.1` for a share of the answers
    (measured, never learnt from). Kinds are those in `KINDS`, some of which take further specs; `function`
    with a `path`; a path itself, `package.module:attribute` or `path/to/file.py:attribute`, naming a reward
    function, a source, or a class that is called with the arguments; and plug-ins.

    Returns:
        The source itself for a single spec of weight 1, a `WeightedSum` otherwise.

    Raises:
        ConfigError: unknown kind, argument or option, a wrong value, or something that cannot be imported.
    """
    listed: list[Any] = list(specs) if isinstance(specs, list | tuple) else [specs]
    if not listed:
        raise ConfigError(f"no rewards given; expected at least one, of the kinds {', '.join(_kinds())}")
    terms = [_term(spec) for spec in listed]
    source, weight = terms[0]
    alone = len(terms) == 1 and weight == 1.0 and not isinstance(source, Audit)
    return source if alone else WeightedSum(terms)


def _term(spec: Spec) -> tuple[RewardSource, float]:
    if not isinstance(spec, str | Mapping) or (isinstance(spec, Mapping) and "kind" not in spec):
        raise ConfigError(f"got the reward {spec!r}; expected a kind, or a mapping with 'kind': {{kind: numeric}}")
    arguments = {"kind": spec} if isinstance(spec, str) else dict(spec)
    kind = arguments.pop("kind")
    kind = "yes" if kind is True else str(kind)  # YAML reads the bare word as a boolean
    options = {name: arguments.pop(name) for name in OPTIONS if name in arguments}
    if kind == "function":
        if "path" not in arguments:
            raise ConfigError("reward kind 'function' needs a path: {kind: function, path: my_pkg.mod:fn}")
        kind = str(arguments.pop("path"))
    arguments = _built(kind, arguments)
    source = _from_path(kind, arguments) if ":" in kind else _from_kind(kind, arguments)
    return _with_options(kind, source, options)


def _with_options(kind: str, source: Any, options: Mapping[str, Any]) -> tuple[RewardSource, float]:
    audit, bounds = options.get("audit", False), options.get("clip")
    weight = options.get("weight", 0.0 if audit else 1.0)
    if not _is_number(weight):
        raise ConfigError(f"reward {kind!r}: weight={weight!r}; expected a number")
    if not (isinstance(audit, bool) or (_is_number(audit) and 0.0 < audit <= 1.0)):
        raise ConfigError(f"reward {kind!r}: audit={audit!r}; expected true, false, or a share of the answers: 0.1")
    if "name" in options:
        source.name = str(options["name"])
    source = _normalised(kind, source, options.get("normalise", False))
    if bounds is not None:
        if not isinstance(bounds, list | tuple) or len(bounds) != 2 or not all(map(_is_number, bounds)):
            raise ConfigError(f"reward {kind!r}: clip={bounds!r}; expected two numbers: clip: [-1, 1]")
        source = Clip(source, *bounds)
    return (Audit(source, float(audit)) if audit else source), float(weight)


def _normalised(kind: str, source: Any, how: Any) -> Any:
    """The source on another scale: true, a kind, or a mapping with the kind and its arguments."""
    if how is False or how == "none":
        return source
    settings = {"kind": "running" if how is True else how} if not isinstance(how, Mapping) else dict(how)
    chosen = settings.pop("kind", None)
    if chosen not in NORMALISERS:
        raise ConfigError(
            f"reward {kind!r}: normalise={how!r}; expected true or false, one of none, {', '.join(NORMALISERS)}, or "
            f"{{kind: fixed, mean: 0.5, std: 2}}.{did_you_mean(str(chosen), NORMALISERS)}"
        )
    return _call(f"normalise: {chosen}", functools.partial(NORMALISERS[chosen], source), settings)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _kinds() -> list[str]:
    return [*KINDS, "function", *plugins.names(GROUP)]


def _built(kind: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with those that are specs made into rewards."""
    made: dict[str, Any] = {name: _inner(kind, arguments[name]) for name in NESTED.get(kind, ()) if name in arguments}
    if kind in LISTS and "sources" in arguments:
        specs = arguments["sources"]
        if not isinstance(specs, list | tuple):
            raise ConfigError(f"reward {kind!r}: sources={specs!r}; expected a list of rewards: [{{kind: ...}}, ...]")
        made = {"sources": [_inner(kind, spec) for spec in specs]}
    return {**arguments, **made}


def _inner(kind: str, specs: Any) -> RewardSource:
    """A reward within another one, where an audit would be paid as a constant 0 and measured by nobody."""
    made = build(specs)
    if isinstance(made, WeightedSum) and any(isinstance(child, Audit) for child in made.children):
        raise ConfigError(f"reward {kind!r} has an audit inside; move it to the list of rewards, beside {kind!r}")
    return made


def _from_kind(kind: str, arguments: Mapping[str, Any]) -> Any:
    plugged = kind in plugins.names(GROUP)
    if plugged and kind in KINDS:
        raise ConfigError(f"{plugins.owner(GROUP, kind)} has a plug-in named like the built-in reward {kind!r}")
    if kind in KINDS:
        return _call(kind, plugins.import_path(KINDS[kind], "reward"), arguments)
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
    target = plugins.import_path(path, "reward")
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
    for name, value in arguments.items():
        wanted = _NUMBERS.get(str(named[name].annotation)) if name in named else None
        if wanted and not (_is_number(value) and isinstance(value, wanted)):
            word = "a whole number" if wanted is Integral else "a number"
            raise ConfigError(f"reward kind {kind!r}: {name}={value!r}; expected {word}")
    return factory(**arguments)
