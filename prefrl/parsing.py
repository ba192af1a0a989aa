"""YAML files and dotted flags -> one of the dataclasses of `config.py`, strictly.

    prefrl rl configs/rl/grpo.yaml --policy.lr 2e-6 --algorithm.clip.high 0.28

Later flags win over the file. `--print-config` shows the result and stops.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import yaml

from prefrl.errors import ConfigError, did_you_mean

T = TypeVar("T")


def parse(config_type: type[T], arguments: Sequence[str], *, prog: str) -> tuple[T, bool]:
    """The configuration that the arguments describe, and whether only to print it.

    Args:
        config_type: the dataclass to fill.
        arguments: an optional YAML file first, then dotted flags.
        prog: name shown in help.

    Raises:
        ConfigError: a file that cannot be read, an unknown key (with the nearest valid one), or a wrong value.
    """
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(prog=prog, exit_on_error=False, default_env=False)
    parser.add_argument("--config", action="config", help="YAML file; may also come first without this flag")
    parser.add_argument("--print-config", action="store_true", help="show the resolved configuration and stop")
    parser.add_class_arguments(config_type, as_group=False)
    arguments = _algorithm_parts(list(arguments))
    if arguments and not arguments[0].startswith("-"):
        arguments = ["--config", *arguments]
    for flag, value in zip(arguments, arguments[1:], strict=False):
        if flag == "--config":
            check_keys(config_type, read_yaml(value), value)
    _check_flags(config_type, arguments)
    try:
        namespace = parser.parse_args(arguments)
        built = parser.instantiate(namespace)
    except (argparse.ArgumentError, ValueError, TypeError) as error:
        raise ConfigError(_plain(str(error))) from error
    values = {f.name: getattr(built, f.name) for f in dataclasses.fields(config_type)}  # type: ignore[arg-type]
    return config_type(**values), bool(namespace.print_config)


def read_yaml(path: str) -> dict[str, Any]:
    """The mapping in a YAML file; `{}` for an empty file."""
    file = Path(path)
    if not file.is_file():
        near = did_you_mean(file.name, [p.name for p in file.parent.iterdir()]) if file.parent.is_dir() else ""
        raise ConfigError(f"The configuration file {path} does not exist.{near}")
    try:
        content = yaml.safe_load(file.read_text())
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(content, dict | None):
        raise ConfigError(f"{path} holds a {type(content).__name__}; expected keys and values.")
    return content or {}


def check_keys(config_type: Any, content: Mapping[str, Any], where: str, prefix: str = "") -> None:
    """Refuse unknown keys, naming the nearest valid one."""
    hints = get_type_hints(config_type)
    for key, value in content.items():
        if key not in hints:
            raise ConfigError(
                f"{where}: unknown key {prefix + str(key)!r}; valid here: {', '.join(hints)}.{did_you_mean(str(key), hints)}"
            )
        if dataclasses.is_dataclass(hints[key]) and isinstance(value, Mapping):
            check_keys(hints[key], value, where, f"{prefix}{key}.")


def flags(config_type: Any, prefix: str = "") -> list[str]:
    """All dotted names reachable from a configuration."""
    names = []
    for name, hint in get_type_hints(config_type).items():
        nested = dataclasses.is_dataclass(hint)
        names += flags(hint, f"{prefix}{name}.") if nested else [prefix + name]
    return names


def to_dict(config: Any) -> dict[str, Any]:
    """A configuration as plain values, as it is saved beside a run and read back."""
    values: dict[str, Any] = dataclasses.asdict(config)
    return {key: _plain_value(value) for key, value in values.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain_value(item) for key, item in value.items()}
    return [_plain_value(item) for item in value] if isinstance(value, list | tuple) else value


def _check_flags(config_type: Any, arguments: Sequence[str]) -> None:
    valid = [*flags(config_type), "config", "print-config", "help"]
    groups = {name.rsplit(".", 1)[0] for name in valid if "." in name}
    for argument in arguments:
        name = argument[2:].split("=", 1)[0]
        if argument.startswith("--") and name not in valid and name.rstrip("+") not in {*valid, *groups}:
            raise ConfigError(f"Unknown flag --{name}.{did_you_mean(name, valid).replace(chr(39), '')} See --help.")


def _algorithm_parts(arguments: list[str]) -> list[str]:
    """Turn `--algorithm grpo --algorithm.clip.high 0.28` into one mapping for the field `algorithm`."""
    rest: list[str] = []
    parts: dict[str, Any] = {}
    pending = iter(arguments)
    for argument in pending:
        match = re.fullmatch(r"--algorithm((?:\.\w+)*)(?:=(.*))?", argument)
        if match is None:
            rest.append(argument)
            continue
        value = yaml.safe_load(match[2] if match[2] is not None else next(pending, ""))
        path = [p for p in match[1].split(".") if p]
        if not path:
            parts |= value if isinstance(value, dict) else {"name": value}
            continue
        at = parts
        for key in path[:-1]:
            at = at.setdefault(key, {})
        at[path[-1]] = value
    return _with_algorithm(rest, parts)


def _with_algorithm(arguments: list[str], parts: dict[str, Any]) -> list[str]:
    if not parts:
        return arguments
    if "name" not in parts:
        parts = {**_algorithm_of_file(arguments), **parts}
    return [*arguments, "--algorithm", yaml.safe_dump(parts, default_flow_style=True)]


def _algorithm_of_file(arguments: list[str]) -> dict[str, Any]:
    """The algorithm the YAML file names, so that flags may change a part of it."""
    files = [a for a in arguments if a.endswith((".yaml", ".yml"))]
    value = read_yaml(files[0]).get("algorithm", "grpo") if files else "grpo"
    return value if isinstance(value, dict) else {"name": value}


def _plain(message: str) -> str:
    """jsonargparse's message in one line."""
    return re.sub(r"\s+", " ", message).strip()
