from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from time import process_time

import pytest
from math_pairs import FOLDER, judged, pairs

from prefrl.rewards.verifiers.math import Case, judge_all


@pytest.fixture(scope="module")
def corpus():
    rows = pairs("math_corpus")
    return rows, judged(rows)


def wrong(rows, verdicts):
    """Rows with a score that is not the right one, and rows without one where the answer is right."""
    return [row["id"] for row, v in zip(rows, verdicts, strict=True) if (v.score == 1.0) != row["right"]]


def test_the_corpus_is_large_and_has_both_sides(corpus):
    rows, _ = corpus
    counts = Counter((row["group"], row["right"]) for row in rows)
    assert len(rows) >= 320
    assert len({(row["gold"], row["text"], str(row.get("options"))) for row in rows}) == len(rows)
    groups = {group for group, _ in counts} - {"hostile"}
    assert [g for g in groups if not (counts[g, True] and counts[g, False])] == []


def test_every_pair_is_judged_right(corpus):
    assert wrong(*corpus) == []


def test_the_held_back_pairs_are_judged_right():
    rows = pairs("math_heldback")
    assert len(rows) >= 80
    assert wrong(rows, judged(rows)) == []


def test_only_hostile_answers_have_no_verdict(corpus):
    """And no hostile one takes the limit of 0.6 s of work by more than the busy machine makes of it."""
    rows, verdicts = corpus
    unscored = [row["group"] for row, v in zip(rows, verdicts, strict=True) if not v.scored]
    assert set(unscored) <= {"hostile"}
    assert len(unscored) <= 2
    assert max(v.cost for v in verdicts) < 5


def test_a_thread_says_the_same(corpus):
    rows, verdicts = corpus
    found = []
    thread = threading.Thread(target=lambda: found.extend(judged(rows)))
    thread.start()
    thread.join()
    scores = [[v.score for v in each if v.scored] for each in (found, verdicts)]
    assert scores[0] == scores[1]


def test_a_second_process_says_the_same_of_each_alone():
    """No verdict depends on what was asked before."""
    script = (
        "import json; from math_pairs import judged, pairs\n"
        "print(json.dumps([judged([row])[0].score for row in reversed(pairs('math_heldback'))]))"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)[::-1] == [v.score for v in judged(pairs("math_heldback"))]


def environment():
    root = FOLDER.parents[2]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (root, root / "tests")))}


@pytest.mark.parametrize(
    "write", ["#### {}", "The answer is {}.", "so it is \\boxed{{{}}}", "{}.0"], ids=["hashes", "words", "box", "bare"]
)
def test_plain_numbers_take_a_fifth_of_a_millisecond(write):
    cases = [Case((str(i),), "First 2 + 3 = 5.\n" + write.format(i + i % 2)) for i in range(3000)]
    start = process_time()
    verdicts = judge_all(cases)
    assert len(cases) / (process_time() - start) > 5000
    assert sum(v.score for v in verdicts) == 1500
