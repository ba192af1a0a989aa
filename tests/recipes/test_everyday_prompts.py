"""The everyday prompts: varied, short, free of near-duplicates, and every one with usable keywords."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import prefrl
from prefrl.recipes.annotator import ENOUGH_KEYWORDS

PATH = Path(prefrl.__file__).parent / "recipes" / "assets" / "everyday_prompts.jsonl"
LINES = PATH.read_text(encoding="utf-8").splitlines()
ROWS: list[dict[str, Any]] = [json.loads(line) for line in LINES]


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def question(row: dict[str, Any]) -> str:
    return str(row["prompt"][0]["content"])


def of_the_question(row: dict[str, Any]) -> list[str]:
    """The keywords that the question itself contains."""
    return [k for k in row["keywords"] if any(word.startswith(k) for word in words(question(row)))]


def test_every_line_is_compact_json_with_the_same_columns() -> None:
    for line, row in zip(LINES, ROWS, strict=True):
        assert line == json.dumps(row, separators=(",", ":"))
        assert list(row) == ["id", "prompt", "topic", "split", "keywords"]


def test_ids_count_up_from_ep_001_to_ep_330() -> None:
    assert [row["id"] for row in ROWS] == [f"ep-{number:03d}" for number in range(1, 331)]


def test_fifteen_topics_have_22_prompts_each_and_both_splits_hold_all_of_them() -> None:
    assert Counter(row["split"] for row in ROWS) == {"train": 250, "held_out": 80}
    topics = Counter(row["topic"] for row in ROWS)
    assert len(topics) == 15 and set(topics.values()) == {22}
    held_out = Counter(row["topic"] for row in ROWS if row["split"] == "held_out")
    assert set(held_out) == set(topics) and set(held_out.values()) == {5, 6}


def test_any_15_prompts_in_a_row_hold_every_topic_once() -> None:
    for start in range(0, len(ROWS), 15):
        assert len({row["topic"] for row in ROWS[start : start + 15]}) == 15


def test_a_prompt_is_one_user_message_of_4_to_16_words() -> None:
    for row in ROWS:
        assert [set(message) for message in row["prompt"]] == [{"role", "content"}]
        assert row["prompt"][0]["role"] == "user"
        assert 4 <= len(question(row).split()) <= 16, question(row)
        assert question(row)[-1] in ".?" and question(row)[0].isupper(), question(row)
        assert not re.search(r"\d", question(row)), question(row)


def test_no_two_prompts_share_60_percent_of_their_words() -> None:
    sets = [(question(row), frozenset(words(question(row)))) for row in ROWS]
    near = [(a, b) for (a, x), (b, y) in combinations(sets, 2) if len(x & y) >= 0.6 * len(x | y)]
    assert near == []


def test_keywords_are_3_to_8_lower_case_stems_and_no_stem_starts_another() -> None:
    for row in ROWS:
        keywords = row["keywords"]
        assert 3 <= len(keywords) <= 8, row["id"]
        assert all(re.fullmatch(r"[a-z]{3,}", keyword) for keyword in keywords), row["id"]
        assert not any(b.startswith(a) for a, b in permutations(keywords, 2)), row["id"]


def test_repeating_the_question_is_not_enough_to_be_on_topic() -> None:
    for row in ROWS:
        own = of_the_question(row)
        assert 1 <= len(own) < ENOUGH_KEYWORDS, row["id"]
        assert len(row["keywords"]) - len(own) >= 2, row["id"]
