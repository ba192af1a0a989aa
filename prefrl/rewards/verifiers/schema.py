"""JSON that follows a schema, with credit field by field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards.verifiers.common import Verifier, gold_of
from prefrl.rewards.verifiers.json_reward import find_object
from prefrl.rewards.verifiers.verdict import Status, Verdict, graded
from prefrl.types import Rollout


def json_schema(
    schema: Mapping[str, Any] | str | None = None,
    *,
    column: str | None = None,
    credit: str = "fraction",
    strict: bool = True,
) -> Verifier:
    """How far the completion is a JSON object that follows a JSON Schema (draft 2020-12, or what its `$schema` says).

    References to other documents are never fetched: a schema that has one is an error.

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
    fixed = None if schema is None else _validator(_loaded(schema))

    def check(rollout: Rollout) -> Verdict:
        validator = fixed or _validator(_loaded(gold_of(rollout, str(column), "json_schema")))
        found = find_object(rollout.text, strict=strict)
        if found is None:
            return graded(parsed=False, correct=False, evidence="no JSON object")
        errors = list(validator.iter_errors(found))
        share = _share(found, errors, validator.schema)
        parts = {"parsed": 1.0, "fields": share, "strict": float(not errors)}
        said = "; ".join(f"{error.json_path}: {error.message[:100]}" for error in errors[:5])
        return Verdict(
            status=Status.OK, score=share if credit == "fraction" else parts["strict"], parts=parts, evidence=said
        )

    return Verifier("json_schema", check)


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


def _loaded(schema: Any) -> Any:
    if isinstance(schema, Mapping | bool):
        return schema
    text = str(schema)
    try:
        return json.loads(text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"json_schema: {text[:80]!r} is no schema ({error}); expected one, or its file") from error


def _validator(schema: Any) -> Any:
    try:
        from jsonschema import validators
        from jsonschema.exceptions import SchemaError
        from referencing import Registry
    except ImportError:
        raise RewardError("JSON Schema needs jsonschema. Type: pip install 'prefrl[verifiers]'") from None
    kind = validators.validator_for(schema, default=validators.validator_for({}))
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        why = f"{error.json_path}: {error.message[:200]}"
        raise ConfigError(f"json_schema: the schema is not valid at {why}") from error
    return kind(schema, registry=Registry())  # an empty one, so that nothing is fetched
