"""JSON that follows a schema, with credit field by field."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards.verifiers.common import Verifier, gold_of
from prefrl.rewards.verifiers.json_reward import find_object
from prefrl.rewards.verifiers.pool import Done, shared
from prefrl.rewards.verifiers.verdict import Status, Verdict, failure, unreadable
from prefrl.types import Rollout

TIMEOUT = 1.0  # seconds of work for one completion


def json_schema(
    schema: Mapping[str, Any] | str | None = None,
    *,
    column: str | None = None,
    credit: str = "fraction",
    strict: bool = True,
) -> Verifier:
    """How far the completion is a JSON object that follows a JSON Schema (draft 2020-12, or what its `$schema` says).

    References to other documents are never fetched: a schema that has one is an error. The work is done in processes
    that can be killed, for a pattern of a schema can take for ever on some texts: that is a timeout, and no score. What
    is nested too deeply to be read is no object. A run looks at the schemas of all its prompts before it learns.

    Args:
        schema: the schema, or the path of a file with it; or
        column: dataset column with the schema of each prompt, as a mapping or as JSON text.
        credit: fraction of the top-level fields (those that are named or required) that are there and valid; or all.
        strict: nothing but the object (or one fenced block of it) may be in the completion.

    Parts: `parsed`, `fields` (the fraction), `strict` (1 where the whole is valid).

    Raises:
        ConfigError: both or neither of schema and column, an unknown credit, or a schema that is none.
        RewardError: jsonschema is not installed, or a column that holds no schema.
    """
    if (schema is None) == (column is None):
        raise ConfigError("json_schema: give exactly one of schema and column: schema: person.schema.json")
    if credit not in ("fraction", "all"):
        raise ConfigError(f"json_schema: credit={credit!r}; expected fraction or all")
    fixed = None if schema is None else _loaded(schema)

    def look(columns: Mapping[str, Any]) -> None:
        if column is not None and column in columns:
            _loaded(columns[column])

    def batch(rollouts: Sequence[Rollout]) -> list[Verdict]:
        schemas = [fixed or _loaded(gold_of(rollout, str(column), "json_schema")) for rollout in rollouts]
        jobs = [[asked, rollout.text, strict] for asked, rollout in zip(schemas, rollouts, strict=True)]
        pool = shared("prefrl.rewards.verifiers.schema:errors_of", TIMEOUT)
        return [_verdict(done, credit) for done in pool.map(jobs)]

    return Verifier("json_schema", batch=batch, version="2", gold=look)


def errors_of(job: tuple[str, str, bool]) -> list[Any] | None:
    """The share of the fields that are there and valid, and what is wrong; None where there is no object.

    Args:
        job: a schema as JSON, a text, and whether nothing else may be in it.
    """
    schema, text, strict = job
    found = find_object(text, strict=strict)
    if found is None:
        return None
    validator = _validator(schema)
    try:
        errors = list(validator.iter_errors(found))
    except RecursionError:
        return None
    said = [f"{error.json_path[:200]}: {error.message[:100]}" for error in errors[:5]]
    return [_share(found, errors, validator.schema), said]


def _verdict(done: Done, credit: str) -> Verdict:
    if done.status is not Status.OK:
        return failure(done.evidence, done.status)
    if done.value is None:
        return unreadable("no JSON object", "fields", "strict")
    share, errors = done.value
    parts = {"parsed": 1.0, "fields": share, "strict": float(not errors)}
    score = share if credit == "fraction" else parts["strict"]
    return Verdict(status=Status.OK, score=score, parts=parts, evidence="; ".join(errors), cost=done.cost)


def _share(value: Mapping[str, Any], errors: list[Any], schema: Any) -> float:
    """Share of the top-level fields that are there and valid; whole or nothing where the schema names none."""
    named = {*schema.get("properties", ()), *schema.get("required", ())} if isinstance(schema, Mapping) else set()
    if not errors or not named:
        return float(not errors)
    wrong = {str(error.absolute_path[0]) for error in errors if error.absolute_path}
    missing = set(schema.get("required", ())) - set(value)
    general = any(not error.absolute_path and error.validator != "required" for error in errors)
    good = sum(name in value and name not in wrong for name in named)
    absent = sum(name not in value and name not in missing for name in named)  # optional, and left out: nothing wrong
    # What is wrong with the object as a whole, such as a field too many, counts as one field more.
    return (good + absent) / (len(named) + general)


def _loaded(schema: Any) -> str:
    """A schema, or what is in the file of one, as JSON; it is valid."""
    if isinstance(schema, Mapping | bool):
        text = json.dumps(schema)
    else:
        text = str(schema)
        try:
            text = text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8")
            json.loads(text)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"json_schema: {text[:80]!r} is no schema ({error}); expected one, or its file"
            ) from error
    _validator(text)
    return text


@functools.lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    try:
        from jsonschema import validators
        from jsonschema.exceptions import SchemaError
        from referencing import Registry
    except ImportError:
        raise RewardError("JSON Schema needs jsonschema. Type: pip install 'prefrl[verifiers]'") from None
    loaded = json.loads(schema)
    kind = validators.validator_for(loaded, default=validators.validator_for({}))
    try:
        kind.check_schema(loaded)
    except SchemaError as error:
        why = f"{error.json_path}: {error.message[:200]}"
        raise ConfigError(f"json_schema: the schema is not valid at {why}") from error
    return kind(loaded, registry=Registry())  # an empty one, so that nothing is fetched
