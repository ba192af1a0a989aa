"""The declared annotator: every part has a literal value, and the order is the one a reader would choose."""

from __future__ import annotations

import random
from typing import Any

import pytest

from prefrl.errors import ConfigError, DataError
from prefrl.recipes.annotator import DESCRIPTION, WEIGHTS, SimulatedAnnotator
from prefrl.types import Completion, Prompt, Rollout, StopReason

RICE = Prompt(
    id="rice",
    messages=({"role": "user", "content": "What should I cook with leftover rice?"},),
    columns={"keywords": ["rice", "fried", "fry", "egg", "vegetable", "soup", "pudding", "leftover"]},
)
GOOD = "Make fried rice with an egg and some vegetables."
ANNOTATOR = SimulatedAnnotator(noise=0.0)


def answer(text: str, *, finished: bool = True) -> Rollout:
    return Rollout(
        prompt=RICE,
        completion_ids=(5, 6),
        mask=(True, True),
        logps=(-0.5, -0.25),
        text=text,
        stop=StopReason.EOS if finished else StopReason.LENGTH,
        group="rice",
    )


def parts(text: str, *, finished: bool = True) -> dict[str, float]:
    return ANNOTATOR.parts(RICE, text, finished=finished)


def utility(text: str, *, finished: bool = True) -> float:
    return ANNOTATOR.utility(RICE, text, finished=finished)


@pytest.mark.parametrize(
    ("text", "finished", "expected"),
    [
        (GOOD, True, 1.0),
        (GOOD, False, 0.85),
        (GOOD[:-1], True, 0.925),  # no full stop
        ("Try a walk in the park with a good friend.", True, 0.6),  # off topic
        ("Fried rice and an egg.", True, 0.9085938),  # 5 words: length (5/8)^2
        ("I can help with that.", True, 0.3585938),
        ("rice rice rice", True, 0.2294271),  # echo, no sentence, no full stop: topic 1/3, length (3/8)^2
        ("What should I cook with rice?", True, 0.5177083),  # asks back: direct 0, topic 1/3, length (6/8)^2
        ("", True, 0.15),  # plain, and nothing else
    ],
)
def test_utility_has_these_values(text: str, finished: bool, expected: float) -> None:
    assert utility(text, finished=finished) == pytest.approx(expected, abs=1e-6)


def test_utility_is_the_weighted_sum_of_its_parts_and_the_weights_add_up_to_one() -> None:
    found = parts("I can help with that.")
    assert found == {"direct": 0.0, "topic": 0.0, "finished": 1.0, "length": 0.390625, "plain": 1.0}
    assert dict(WEIGHTS) == {"direct": 0.15, "topic": 0.4, "finished": 0.15, "length": 0.15, "plain": 0.15}
    assert sum(WEIGHTS.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "worse",
    [
        f"{GOOD} {GOOD}",
        f"{GOOD} Make fried rice with an egg, and make fried rice with an egg again.",
        f"Sure! {GOOD}",
        f"{GOOD} Do you like eggs?",
        f"1. {GOOD}",
        f"{GOOD}\n\n- Fry the rice.\n- Add an egg.",
        f"Dear [Name], {GOOD}",
        f"{GOOD} \U0001f35a",
        f"{GOOD} " + " ".join(f"word{i} and" for i in range(25)) + " more.",  # longer than 30 words
        "rice rice rice",
        "Rice, egg, vegetable, soup, pudding, leftover, fried, fry.",  # the keywords, not a sentence
        "Fried rice.",
        "Rice.",
        "I can help with that.",
        "You should cook what you like with your rice.",
    ],
)
def test_a_good_sentence_beats(worse: str) -> None:
    assert ANNOTATOR.prefer(RICE, answer(GOOD), answer(worse)) == 1.0
    assert ANNOTATOR.prefer(RICE, answer(worse), answer(GOOD)) == 0.0


def test_padding_with_repetition_lowers_the_utility_each_time_by_half_of_plain() -> None:
    assert parts(GOOD)["plain"] == 1.0
    assert parts(f"{GOOD} {GOOD}")["plain"] == 0.5
    assert utility(GOOD) - utility(f"{GOOD} {GOOD}") == pytest.approx(0.075)


def test_a_generic_answer_loses_against_one_on_topic_even_if_that_one_is_cut_off() -> None:
    cut = answer("Fried rice with an egg is an easy dinner, and you can", finished=False)
    assert ANNOTATOR.prefer(RICE, cut, answer("I can help with that.")) == 1.0
    assert ANNOTATOR.prefer(RICE, cut, answer("That is a matter of taste and of the day.")) == 1.0


def test_of_two_equal_answers_the_cut_off_one_loses() -> None:
    assert ANNOTATOR.prefer(RICE, answer(GOOD), answer(GOOD, finished=False)) == 1.0


@pytest.mark.parametrize(
    ("words", "expected"),
    [(0, 0.0), (1, 0.015625), (4, 0.25), (7, 0.765625), (8, 1.0), (30, 1.0), (40, 0.75), (60, 0.5)],
)
def test_length_is_best_from_8_to_30_words_and_falls_on_both_sides(words: int, expected: float) -> None:
    assert parts(" ".join(["word"] * words))["length"] == expected


def test_neither_the_shorter_nor_the_longer_answer_always_wins() -> None:
    short = answer("Fried rice.")
    long = answer(f"{GOOD} " + " ".join(f"You may also try the {word}." for word in "abcdefghijklmnop"))
    assert ANNOTATOR.prefer(RICE, answer(GOOD), short) == 1.0
    assert ANNOTATOR.prefer(RICE, answer(GOOD), long) == 1.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is cold today.", 0.0),
        ("Ricey things.", 1 / 3),  # a keyword is the start of a word
        ("The price is high.", 0.0),  # and not its middle
        ("Rice, rice and more rice.", 1 / 3),  # one keyword counts once
        ("Leftover RICE.", 2 / 3),
        ("Egg soup with vegetables and fried rice.", 1.0),  # five keywords are as good as three
    ],
)
def test_topic_counts_distinct_keywords_up_to_three(text: str, expected: float) -> None:
    assert parts(text)["topic"] == pytest.approx(expected)


@pytest.mark.parametrize(
    "text",
    [
        "Sure, fry it.",
        "Certainly! Fry it.",
        "As an AI, I cannot cook.",
        "Fry it, though as a helpful AI assistant I cannot taste it.",
        "I'm happy to help you fry it.",
        "I\u2019m happy to help you fry it.",  # a curly apostrophe changes nothing
        "I'd be happy to help you fry it.",
        "Great question! Fry it.",
        "Thank you for asking, fry it.",
        "I'm sorry, but I cannot cook.",
        "Here are some tips for rice.",
        "Do you like soup? Fry it.",
        "Fry it, or do you prefer soup?",
        "You should cook with leftover rice.",  # nothing that the question did not say
        "",
    ],
)
def test_not_direct(text: str) -> None:
    assert parts(text)["direct"] == 0.0


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "Fry it.",
        "Surely fry it.",
        "Well-drained rice fries best.",
        "Hit the pan first.",
        "A fry. Or soup? Both.",
    ],
)
def test_direct(text: str) -> None:
    assert parts(text)["direct"] == 1.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD, 1.0),
        ("Fry it for 5 to 10 minutes, then rest it.", 1.0),
        ("One line.\nAnd one more.", 1.0),
        ("One line.\n\nAnd one more.", 0.5),
        ("* Fry it.", 0.5),
        ("2) Fry it with the egg.", 0.5),
        ("## The rice", 0.5),
        ("The **rice** is the answer.", 0.5),
        ("Fry it \U0001f35a.", 0.5),
        ("Dear Anna,\nfry it.", 0.5),
        ("Ask the [name of the shop] for it.", 0.5),
        ("Ask the [name of", 0.5),  # cut off inside a placeholder
        ("The rice, the rice and the rice, the rice.", 0.5),
        ("Fry it. Fry it.", 0.5),
        ("Fry it it is.", 0.5),
        ("Rice, egg, soup and fried pudding, pan, fry, vegetable.", 0.5),  # 1 small word in 9
        ("1. Fry the [rice].\n2. Add egg.\n3. Add soup.", 0.0),
    ],
)
def test_plain_loses_half_for_each_kind_of_fault(text: str, expected: float) -> None:
    assert parts(text)["plain"] == expected


def test_utilities_within_the_tolerance_are_a_tie_and_get_no_label() -> None:
    a, b = answer(GOOD), answer("Try fried rice with an egg and some vegetables.")
    assert ANNOTATOR.prefer(RICE, a, b) == 0.5
    assert ANNOTATOR.label(RICE, a, b, random.Random(0)) is None
    coarse = SimulatedAnnotator(noise=0.0, tolerance=0.2)
    assert ANNOTATOR.prefer(RICE, a, answer(GOOD, finished=False)) == 1.0
    assert coarse.prefer(RICE, a, answer(GOOD, finished=False)) == 0.5


def test_a_label_carries_the_tokens_that_were_sampled() -> None:
    pair = ANNOTATOR.label(RICE, answer("Rice.", finished=False), answer(GOOD), random.Random(0))
    assert pair is not None
    assert pair.prompt is RICE
    assert pair.chosen == Completion(text=GOOD, ids=(5, 6), logps=(-0.5, -0.25), finished=True)
    assert pair.rejected == Completion(text="Rice.", ids=(5, 6), logps=(-0.5, -0.25), finished=False)


@pytest.mark.parametrize(("noise", "flipped"), [(0.0, 0), (0.05, 50), (0.25, 257)])
def test_noise_flips_that_share_of_the_labels(noise: float, flipped: int) -> None:
    annotator, rng = SimulatedAnnotator(noise=noise), random.Random(3)
    pairs = [annotator.label(RICE, answer(GOOD), answer("Rice."), rng) for _ in range(1000)]
    assert sum(pair is not None and pair.chosen.text == "Rice." for pair in pairs) == flipped


def test_the_description_states_every_weight_the_noise_and_the_tolerance() -> None:
    text = SimulatedAnnotator(noise=0.1).description
    assert text.startswith(DESCRIPTION)
    assert "not a person" in text and "10% of the labels" in text and "within 0.03" in text
    assert text.count(".15") == 4 and ".40" in text


@pytest.mark.parametrize("keywords", [None, [], "rice"])
def test_a_prompt_without_a_list_of_keywords_is_an_error(keywords: Any) -> None:
    prompt = Prompt(id="p7", text="Hello?", columns={"keywords": keywords})
    with pytest.raises(DataError, match=r"prompt 'p7': the column 'keywords' is .* expected a list"):
        ANNOTATOR.utility(prompt, "Hi.", finished=True)


@pytest.mark.parametrize(
    "setting",
    [{"noise": -0.1}, {"noise": 0.5}, {"noise": float("nan")}, {"tolerance": -1.0}, {"tolerance": 1.0}],
)
def test_settings_out_of_range_are_an_error(setting: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        SimulatedAnnotator(**setting)
