"""What a reward is made of, as a record and as a short code: two runs with equal codes were paid alike."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SAMPLED = 1024  # numbers of every tensor that enter the code of a model
_DEEPEST = 12  # of nested rewards
_SECRET = re.compile(r"api_?key|secret|passw|credential|(access|auth|hf)_token|^token$", re.IGNORECASE)


def fingerprint(source: Any) -> dict[str, Any]:
    """The kinds, names, arguments and weights of a reward and of all its parts.

    Code is recorded with a hash of its source file, a model with one of its weights: a thousand evenly spaced numbers
    of every tensor, so that any training shows. What a source learns between rollouts (running means, multipliers) is
    state, not part of what it is, and is left out. So are texts under names such as `api_key` or `password`.

    Returns:
        `id`, 16 hexadecimal digits, and `reward`, the record that they are made from.
    """
    record = _record(source, 0)
    said = json.dumps(record, sort_keys=True, default=str)
    return {"id": _digest(said.encode("utf-8", "backslashreplace")), "reward": record}


def _record(obj: Any, depth: int) -> Any:
    if obj is None or isinstance(obj, bool | int | float | str):
        return obj
    if depth > _DEEPEST:
        return {"type": _type_name(obj)}
    if isinstance(obj, Mapping):
        return {str(key): _named_record(str(key), value, depth) for key, value in obj.items()}
    if isinstance(obj, list | tuple | set | frozenset):
        found = [_record(value, depth + 1) for value in obj]
        return sorted(found, key=repr) if isinstance(obj, set | frozenset) else found
    if isinstance(obj, functools.partial):
        return {"function": _record(obj.func, depth + 1), "arguments": _record([obj.args, obj.keywords], depth + 1)}
    if inspect.isroutine(obj) or isinstance(obj, type):
        return _code_record(obj, depth)
    if isinstance(obj, re.Pattern):
        return {"pattern": obj.pattern, "flags": obj.flags}
    module = getattr(obj, "module", obj)
    if hasattr(module, "named_parameters"):
        about = _arguments(obj, depth) if module is not obj else {}
        about = {name: value for name, value in about.items() if name not in ("model", "tokenizer")}
        return {"type": _type_name(obj), **about, "weights": _weights(module.state_dict())}
    return {"type": _type_name(obj), **_source_hash(type(obj)), **_arguments(obj, depth)}


def _arguments(obj: Any, depth: int) -> dict[str, Any]:
    """What an object was made with, as it keeps it under the same name (or with an underscore), and its own name.

    Where it does not keep all of it, its plain attributes and its children stand in for the rest.
    """
    try:
        names = [name for name in inspect.signature(type(obj)).parameters if not name.startswith("_")]
    except (TypeError, ValueError):
        names = []
    kept = {name: _kept(obj, name) for name in names}
    if not names or None in kept.values():
        plain = {n: v for n, v in getattr(obj, "__dict__", {}).items() if not n.startswith("_") and _is_plain(v)}
        kept |= {**plain, "children": getattr(obj, "children", None)}
    kept["name"] = getattr(obj, "name", None)
    return {name: _named_record(name, value, depth) for name, value in kept.items() if value is not None}


def _named_record(name: str, value: Any, depth: int) -> Any:
    """The record of what has a name; a text whose name says that it is a secret is not recorded."""
    hidden = isinstance(value, str) and _SECRET.search(name) and not name.endswith("_env")
    return "(not recorded)" if hidden else _record(value, depth + 1)


def _kept(obj: Any, name: str) -> Any:
    """The attribute that holds an argument; a method of the same name is none."""
    value = getattr(obj, f"_{name}", getattr(obj, name, None))
    return None if getattr(value, "__self__", None) is obj else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _code_record(code: Any, depth: int) -> dict[str, Any]:
    record = {"function": f"{getattr(code, '__module__', '')}:{getattr(code, '__qualname__', code)}"}
    inside = inspect.unwrap(code) if callable(code) else code
    cells = getattr(inside, "__closure__", None) or ()
    names = getattr(getattr(inside, "__code__", None), "co_freevars", ())
    held = {name: _named_record(name, _contents(cell), depth) for name, cell in zip(names, cells, strict=True)}
    defaults = _record(getattr(inside, "__defaults__", None), depth + 1)
    more = {"holds": held, "defaults": defaults}
    return record | _source_hash(inside) | {key: value for key, value in more.items() if value}


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that was never bound
        return None


def _source_hash(code: Any) -> dict[str, str]:
    """A hash of the file that holds some code; of its bytecode where there is no file."""
    try:
        path = inspect.getsourcefile(code)
        return {"code": _digest(Path(path).read_bytes())} if path else {}
    except (OSError, TypeError):
        bytecode = getattr(getattr(code, "__code__", None), "co_code", None)
        return {"code": _digest(bytecode)} if bytecode else {}


def _weights(state: Mapping[str, Any]) -> str:
    """A code of a model's weights."""
    sha = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        if not hasattr(tensor, "shape"):
            continue
        flat = tensor.detach().reshape(-1)
        sample = flat[:: max(1, len(flat) // _SAMPLED)]
        sha.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {sample.double().cpu().tolist()}".encode())
    return sha.hexdigest()[:16]


def _type_name(obj: Any) -> str:
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
