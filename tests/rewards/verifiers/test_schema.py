from __future__ import annotations

import json
import time

import pytest

from prefrl.errors import ConfigError
from prefrl.recipes.golds import gold_figures
from prefrl.rewards.verifiers.schema import json_schema
from prefrl.types import Prompt

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}, "tags": {"type": "array"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "fields", "strict"),
    [
        ('{"name": "Moss", "age": 3, "tags": []}', 1.0, 1.0),
        ('{"name": "Moss", "age": 3}', 1.0, 1.0),  # tags may be left out
        ('```json\n{"name": "Moss", "age": 3}\n```', 1.0, 1.0),
        ('{"name": "Moss", "age": "3"}', 2 / 3, 0.0),
        ('{"name": "Moss"}', 2 / 3, 0.0),
        ('{"name": 1, "age": -1, "tags": 2}', 0.0, 0.0),
        ('{"name": "Moss", "age": 3, "more": 1}', 3 / 4, 0.0),  # what is wrong with the whole counts as a field
        ("{}", 1 / 3, 0.0),
    ],
)
def test_credit_field_by_field(rollout, text, fields, strict):
    (verdict,) = json_schema(PERSON).verdicts([rollout(text)])
    assert verdict.score == pytest.approx(fields)
    assert verdict.parts == {"parsed": 1.0, "fields": pytest.approx(fields), "strict": strict}
    assert json_schema(PERSON, credit="all").score([rollout(text)])[0].value == strict


@pytest.mark.parametrize("text", ["", "Moss", "[1]", '{"name": NaN, "age": 3}', 'Here: {"name": "Moss", "age": 3}'])
def test_no_object_and_nothing_else_is_unreadable(rollout, text):
    (verdict,) = json_schema(PERSON).verdicts([rollout(text)])
    assert (str(verdict.status), verdict.score) == ("invalid", 0.0)
    assert verdict.parts == {"parsed": 0.0, "fields": 0.0, "strict": 0.0}  # as of an object, so that means are over all


def test_schemas_come_from_a_file_or_a_column(rollout, tmp_path):
    (tmp_path / "person.json").write_text(json.dumps(PERSON))
    good = '{"name": "Moss", "age": 3}'
    assert json_schema(str(tmp_path / "person.json")).score([rollout(good)])[0].value == 1.0
    assert json_schema(column="schema").score([rollout(good, schema=json.dumps(PERSON))])[0].value == 1.0
    assert json_schema(PERSON, strict=False).score([rollout(f"Here: {good}")])[0].value == 1.0


def test_references_are_never_fetched(rollout):
    (score,) = json_schema({"$ref": "http://127.0.0.1:9/none.json"}).score([rollout("{}")])
    assert score.value is None
    assert "Unresolvable" in score.error


def test_wrong_schemas(tmp_path):
    with pytest.raises(ConfigError, match=r"the schema is not valid at \$\.type"):
        json_schema({"type": "thing"})
    with pytest.raises(ConfigError, match="is no schema"):
        json_schema(str(tmp_path / "none.json"))
    with pytest.raises(ConfigError, match="exactly one of schema and column"):
        json_schema()
    with pytest.raises(ConfigError, match="credit='some'"):
        json_schema(PERSON, credit="some")


def test_a_wrong_schema_of_a_prompt_is_told_before_anything_is_learnt():
    rows = [Prompt(id="p", text="q", columns={"schema": json.dumps(schema)}) for schema in (PERSON, {"type": "thing"})]
    assert gold_figures(json_schema(column="schema"), rows[:1]) == {}
    with pytest.raises(ConfigError, match="the schema is not valid"):
        gold_figures(json_schema(column="schema"), rows)


def test_what_takes_for_ever_is_a_timeout_and_costs_itself_alone(rollout):
    slow = json_schema({"properties": {"a": {"pattern": "^(a+)+$"}}}, strict=False)
    texts = ['{"a": "aa"}', json.dumps({"a": "a" * 40 + "!"}), "```\n" + " " * 300_000 + "x", '{"a": "b"}']
    start = time.monotonic()
    verdicts = slow.verdicts([rollout(text) for text in texts])
    assert [str(verdict.status) for verdict in verdicts] == ["ok", "timeout", "invalid", "ok"]
    assert [verdict.score for verdict in verdicts] == [1.0, None, 0.0, 0.0]
    assert time.monotonic() - start < 60  # each has a second of work; the machine may be busy


@pytest.mark.parametrize(("nest", "score"), [(50, 1.0), (400, 0.0), (100_000, 0.0)])
def test_deep_nesting_is_the_policys_own_failure(rollout, nest, score):
    tree = {"properties": {"a": {"$ref": "#"}}, "type": "object"}
    (verdict,) = json_schema(tree).verdicts([rollout('{"a": ' * nest + "{}" + "}" * nest)])
    assert (verdict.score, verdict.parts["parsed"]) == (score, score)
