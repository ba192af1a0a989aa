from __future__ import annotations

import random

import pytest

from prefrl.data.splits import check_disjoint, episode_key, prompt_key, split_by_prompt
from prefrl.errors import ConfigError, DataError
from prefrl.types import Completion, Pair, Prompt

PROMPTS = [Prompt(id=str(i), text=f"question {i}") for i in range(1000)]


def test_the_share_is_about_right_and_nothing_is_lost() -> None:
    train, held_out = split_by_prompt(PROMPTS, 0.2, seed=0)
    assert len(held_out) == 220  # 200 expected, standard deviation 12.6
    assert sorted(p.id for p in train + held_out) == sorted(p.id for p in PROMPTS)
    assert train == [p for p in PROMPTS if p not in held_out]


def test_the_side_of_a_prompt_depends_on_seed_and_content_only() -> None:
    held = {p.text for p in split_by_prompt(PROMPTS, 0.2, seed=0)[1]}
    shuffled = random.Random(1).sample(PROMPTS, len(PROMPTS))
    assert {p.text for p in split_by_prompt(shuffled, 0.2, seed=0)[1]} == held
    part = PROMPTS[:500]
    assert {p.text for p in split_by_prompt(part, 0.2, seed=0)[1]} == held & {p.text for p in part}
    renamed = [Prompt(id="same", text=p.text, columns={"x": 1}) for p in PROMPTS]
    assert {p.text for p in split_by_prompt(renamed, 0.2, seed=0)[1]} == held
    assert held <= {p.text for p in split_by_prompt(PROMPTS, 0.4, seed=0)[1]}
    assert {p.text for p in split_by_prompt(PROMPTS, 0.2, seed=1)[1]} != held


def test_rows_of_one_prompt_stay_together() -> None:
    pairs = [
        Pair(prompt=PROMPTS[i % 50], chosen=Completion(text=f"a{i}"), rejected=Completion(text="b")) for i in range(500)
    ]
    train, held_out = split_by_prompt(pairs, 0.3, seed=3)
    assert {p.prompt.id for p in train}.isdisjoint(p.prompt.id for p in held_out)
    assert {len([p for p in held_out if p.prompt.id == i]) for i in {p.prompt.id for p in held_out}} == {10}
    check_disjoint(train, held_out)
    tuples = [(pair.prompt, pair.chosen) for pair in pairs]
    assert [t[1] for t in split_by_prompt(tuples, 0.3, seed=3)[1]] == [p.chosen for p in held_out]


@pytest.mark.parametrize("fraction", [1e-9, 1 - 1e-9])
def test_no_side_is_left_empty(fraction: float) -> None:
    train, held_out = split_by_prompt(PROMPTS[:5], fraction, seed=0)
    assert sorted((len(train), len(held_out))) == [1, 4]


def test_zero_holds_out_nothing() -> None:
    assert split_by_prompt(PROMPTS[:1], 0.0, seed=0) == (PROMPTS[:1], [])


def test_what_cannot_be_split_is_refused() -> None:
    with pytest.raises(DataError, match="Distinct prompts in 3 rows: 1"):
        split_by_prompt([PROMPTS[0]] * 3, 0.5, seed=0)
    with pytest.raises(DataError, match="Distinct prompts in 0 rows: 0"):
        split_by_prompt([], 0.5, seed=0)
    for fraction in (-0.1, 1.0, float("nan")):
        with pytest.raises(ConfigError, match="at least 0 and below 1"):
            split_by_prompt(PROMPTS, fraction, seed=0)
    with pytest.raises(TypeError, match="no prompt in a str"):
        split_by_prompt(["a", "b"], 0.5, seed=0)


def test_another_key() -> None:
    train, held_out = split_by_prompt(["a1", "a2", "b1", "b2"], 0.5, seed=0, key=lambda item: item[0])
    assert {item[0] for item in train}.isdisjoint({item[0] for item in held_out})
    assert len(train) == len(held_out) == 2


def test_prompt_key_reads_content() -> None:
    chat = Prompt(id="1", messages=({"role": "user", "content": "hi"},))
    assert prompt_key(chat) == prompt_key((chat, "x")) != prompt_key(Prompt(id="1", text="hi"))


def test_check_disjoint_names_the_first_shared_rows() -> None:
    check_disjoint(PROMPTS[:5], PROMPTS[5:9])
    with pytest.raises(DataError, match=r"2 of 3 .*\(held-out row 2 is training row 4\)"):
        check_disjoint(PROMPTS[:5] + PROMPTS[:5], [PROMPTS[8], PROMPTS[3], PROMPTS[1]])


def test_episodes_differ_by_what_the_environment_is_told():
    one, other = (Prompt(id=str(n), text="Guess.", columns={"target": n}) for n in (1, 2))
    assert episode_key(one) != episode_key(other)
    assert prompt_key(one) == prompt_key(other)
    assert episode_key(one) == episode_key(Prompt(id="again", text="Guess.", columns={"target": 1}))
