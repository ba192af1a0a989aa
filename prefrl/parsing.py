"""YAML files and dotted flags -> one of the dataclasses of `config.py`, strictly.

    prefrl rl configs/rl/grpo.yaml --policy.lr 2e-6 --algorithm.clip.high 0.28

Later flags win over the file. `--print-config` shows the result and stops.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import inspect
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import yaml

from prefrl.errors import ConfigError, did_you_mean

T = TypeVar("T")

_EXPECTED = {
    "float": "a number",
    "int": "an integer",
    "bool": "true or false",
    "str": "text",
    "list": "a list, such as '[{kind: numeric, column: answer}]'",
    "tuple": "a list, such as '[a, b]'",
}
_OWN_FLAGS = ("config", "print-config", "help")


def parse(
    config_type: type[T], arguments: Sequence[str], *, prog: str, defaults: Mapping[str, Any] | None = None
) -> tuple[T, bool]:
    """The configuration that the arguments describe, and whether only to print it.

    Args:
        config_type: the dataclass to fill.
        arguments: an optional YAML file first, then dotted flags.
        prog: name shown in help.
        defaults: values of fields that stand in for the dataclass's own.

    Raises:
        ConfigError: a file that cannot be read, an unknown key (with the nearest valid one), or a wrong value.
    """
    defaults = dict(defaults or {})
    algorithm = defaults.get("algorithm", getattr(config_type, "algorithm", ""))
    arguments, parts = _algorithm_parts(_spelled(config_type, arguments))
    if arguments and not arguments[0].startswith("-"):
        arguments = ["--config", *arguments]
    for flag, value in itertools.pairwise(arguments):
        if flag == "--config":
            content = read_yaml(value)
            if not content:
                raise ConfigError(f"{value} holds no keys; expected some of {', '.join(get_type_hints(config_type))}.")
            check_keys(config_type, content, value)
            algorithm = content.get("algorithm", algorithm)
    if parts:
        arguments = [*arguments, "--algorithm", _algorithm_flag(algorithm, parts)]
    _check_flags(config_type, arguments)
    parser = _parser(config_type, prog)
    parser.set_defaults(defaults)
    try:
        namespace = parser.parse_args(arguments)
        built = parser.instantiate(namespace)
    except (argparse.ArgumentError, ValueError, TypeError) as error:
        raise ConfigError(_plain(str(error))) from error
    values = {f.name: getattr(built, f.name) for f in dataclasses.fields(config_type)}  # type: ignore[arg-type]
    return _with_free_values(config_type(**values), _given(arguments)), bool(namespace.print_config)


def _given(arguments: Sequence[str]) -> dict[str, Any]:
    """What files and flags say, as nested mappings."""
    found: dict[str, Any] = {}
    for argument, following in itertools.zip_longest(arguments, arguments[1:], fillvalue=""):
        flag, joined, text = argument.partition("=")
        text = text if joined else following
        if flag == "--config":
            found = _merged(found, read_yaml(text))
        elif flag.startswith("--") and flag[2:] not in _OWN_FLAGS:
            # A text that is no YAML is no list or mapping either, and only those matter here.
            nested: Any = _yaml_or_none(text)
            keys = flag[2:].rstrip("+").split(".")
            if flag.endswith("+"):
                below = functools.reduce(lambda at, key: at.get(key) or {}, keys, found)
                nested = [*below, *(nested if isinstance(nested, list) else [nested])]
            for key in reversed(keys):
                nested = {key: nested}
            found = _merged(found, nested)
    return found


def _with_free_values(config: Any, given: Mapping[str, Any]) -> Any:
    """Lists and mappings of anything at all as YAML has them: jsonargparse reads the strings in them as YAML once more.

    To it the pattern "[0-9]" of a reward would be a list.
    """
    changed: dict[str, Any] = {}
    for name, hint in get_type_hints(type(config)).items():
        value = given.get(name)
        if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
            changed[name] = _with_free_values(getattr(config, name), value)
        elif hint == list[dict[str, Any]] and isinstance(value, list):
            changed[name] = value
    return dataclasses.replace(config, **changed) if changed else config


def _yaml_or_none(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return None


def read_yaml(path: str) -> dict[str, Any]:
    """The mapping in a YAML file; `{}` for an empty file."""
    file = Path(path)
    if not file.is_file():
        near = did_you_mean(file.name, [p.name for p in file.parent.iterdir()]) if file.parent.is_dir() else ""
        raise ConfigError(f"The configuration file {path} does not exist.{near}")
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid YAML: {_one_line(str(error))}") from error
    if not isinstance(content, dict | None):
        raise ConfigError(f"{path} holds a {type(content).__name__}; expected keys and values.")
    return content or {}


def check_keys(config_type: Any, content: Mapping[str, Any], where: str, prefix: str = "") -> None:
    """Refuse unknown keys, naming the nearest valid one."""
    hints = get_type_hints(config_type)
    for key, value in content.items():
        if key not in hints:
            valid = f"valid here: {', '.join(hints)}.{did_you_mean(str(key), hints)}"
            raise ConfigError(f"{where}: unknown key {prefix + str(key)!r}; {valid}")
        if dataclasses.is_dataclass(hints[key]) and isinstance(value, Mapping):
            check_keys(hints[key], value, where, f"{prefix}{key}.")


def flags(config_type: Any, prefix: str = "") -> list[str]:
    """All dotted names reachable from a configuration."""
    names = []
    for name, hint in get_type_hints(config_type).items():
        nested = dataclasses.is_dataclass(hint)
        names += flags(hint, f"{prefix}{name}.") if nested else [prefix + name]
    return names


def descriptions(config_type: Any, prefix: str = "") -> dict[str, str]:
    """What the docstrings of a configuration and of its parts say of every dotted name."""
    said: dict[str, str] = {}
    for owner in reversed(config_type.__mro__):
        told = inspect.cleandoc(owner.__doc__ or "")
        for name, text in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", told, re.MULTILINE):
            said[prefix + name] = " ".join(text.split())
    for name, hint in get_type_hints(config_type).items():
        if dataclasses.is_dataclass(hint):
            said |= descriptions(hint, f"{prefix}{name}.")
    return said


def to_dict(config: Any) -> dict[str, Any]:
    """A configuration as plain values, as it is saved beside a run and read back."""
    values: dict[str, Any] = dataclasses.asdict(config)
    return {key: _plain_value(value) for key, value in values.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain_value(item) for key, item in value.items()}
    return [_plain_value(item) for item in value] if isinstance(value, list | tuple) else value


def _parser(config_type: Any, prog: str) -> Any:
    from jsonargparse import ArgumentParser

    usage = f"{prog} [CONFIG.yaml] [--flag value ...]"
    parser = ArgumentParser(prog=prog, usage=usage, exit_on_error=False, default_env=False, print_config=None)
    parser.description = (config_type.__doc__ or "").partition("\n")[0]
    parser.add_argument("--config", action="config", help="YAML file; may also come first without this flag")
    parser.add_argument("--print-config", action="store_true", help="show the resolved configuration and stop")
    parser.add_class_arguments(config_type, as_group=False)
    said = descriptions(config_type)
    for action in parser._actions:
        action.help = said.get(action.dest, action.help)
    for name, group in (parser.groups or {}).items():
        group.title, group.description = name, (_part(config_type, name).__doc__ or "").partition("\n")[0]
    return parser


def _part(config_type: Any, name: str) -> Any:
    """The dataclass of a part, such as `reward.model`."""
    for key in name.split("."):
        config_type = get_type_hints(config_type)[key]
    return config_type


def _check_flags(config_type: Any, arguments: Sequence[str]) -> None:
    valid = [*flags(config_type), *_OWN_FLAGS]
    groups = {name.rsplit(".", 1)[0] for name in valid if "." in name}
    for argument in arguments:
        name = argument[2:].split("=", 1)[0]
        if argument.startswith("--") and name not in valid and name.rstrip("+") not in {*valid, *groups}:
            near = did_you_mean(f"--{name}", [f"--{known}" for known in valid])
            raise ConfigError(f"Unknown flag --{name}.{near} See --help.")


def _spelled(config_type: Any, arguments: Sequence[str]) -> list[str]:
    """Let `--overwrite` alone mean `--overwrite true`, and `--config=FILE` mean `--config FILE`."""
    switches = {f"--{name}" for name, hint in get_type_hints(config_type).items() if hint is bool}
    spelled: list[str] = []
    for argument, following in itertools.zip_longest(arguments, arguments[1:], fillvalue="--"):
        if argument in switches and following.startswith("--"):
            spelled += [argument, "true"]
        elif argument.startswith("--config="):
            spelled += argument.split("=", 1)
        else:
            spelled.append(argument)
    return spelled


def _algorithm_parts(arguments: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """The other arguments, and `--algorithm grpo --algorithm.clip.high 0.28` as one mapping."""
    rest: list[str] = []
    parts: dict[str, Any] = {}
    pending = iter(arguments)
    for argument in pending:
        match = re.fullmatch(r"(--algorithm((?:\.\w+)*))(?:=(.*))?", argument)
        if match is None:
            rest.append(argument)
            continue
        value = _yaml_value(match[1], match[3] if match[3] is not None else next(pending, ""))
        if not match[2] and not isinstance(value, dict):
            value = {"name": value}
        for key in reversed(match[2].split(".")[1:]):
            value = {key: value}
        _check_agree(parts, value, "--algorithm")
        parts = _merged(parts, value)
    return rest, parts


def _algorithm_flag(given: str | dict[str, Any], parts: dict[str, Any]) -> str:
    """The value of `--algorithm`; parts without a name change the algorithm that would be taken without them."""
    if "name" not in parts:
        parts = _merged(given if isinstance(given, dict) else {"name": given}, parts)
    return yaml.safe_dump(parts, default_flow_style=True)


def _yaml_value(flag: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        raise ConfigError(
            f"{flag} is {text!r}; expected a value in YAML, such as 0.2 or '{{low: 0.2}}': {_one_line(str(error))}"
        ) from error


def _check_agree(below: Mapping[str, Any], above: Mapping[str, Any], flag: str) -> None:
    """Refuse flags that give the same part as a plain value and as a mapping: one of them would be dropped."""
    for key in filter(below.__contains__, above):
        first, second, name = below[key], above[key], f"{flag}.{key}"
        if isinstance(first, dict) and isinstance(second, dict):
            _check_agree(first, second, name)
        elif isinstance(first, dict) or isinstance(second, dict):
            raise ConfigError(f"{name} is both {first!r} and {second!r}; give it once, or only parts of it.")


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings merged key by key; `above` wins."""
    both = {k: _merged(below[k], v) for k, v in above.items() if isinstance(v, dict) and isinstance(below.get(k), dict)}
    return {**below, **above, **both}


def _plain(message: str) -> str:
    """jsonargparse's message as one line in the words of this project."""
    message = _one_line(message)
    if found := re.fullmatch(r'.*Parser key "([^"]+)": Expected a (.+?)\. Got value: (.*)', message):
        key, kind, value = found.groups()
        choices = re.findall(r"'([^']*)'", kind) if "Literal" in kind else []
        if choices:
            return f"{key} is {value!r}; valid: {', '.join(choices)}.{did_you_mean(value, choices)}"
        name = kind.removeprefix("<class '").removesuffix("'>")
        quotes = " YAML reads a bare yes or no as true or false: put it in quotes." if name == "str" else ""
        quotes = quotes if value in ("True", "False") else ""
        return f"{key} is {value!r}; expected {_EXPECTED.get(name, name)}.{quotes}"
    if found := re.fullmatch(r"argument (--\S+): expected one argument", message):
        return f"{found[1]} needs a value. See --help."
    if found := re.fullmatch(r"unrecognized arguments: (.*)", message):
        return f"Cannot read {found[1]!r}: a YAML file comes first, and every flag is --name value. See --help."
    return message


def _one_line(message: str) -> str:
    return re.sub(r"\s+", " ", message).strip()
