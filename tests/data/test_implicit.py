from __future__ import annotations

import pytest

from prefrl.data.implicit import split_conversations, split_texts
from prefrl.data.reading import Problem


@pytest.mark.parametrize(
    ("chosen", "rejected", "expected"),
    [
        ("The sky is blue.", "The sky is green.", ("The sky is", " blue.", " green.")),
        ("Paris ", "London", ("", "Paris ", "London")),
        ("Paris ", "Palermo", ("", "Paris ", "Palermo")),
        ("Paris", "Paris ", ("", "Paris", "Paris ")),
        ("It is blue", "It is bluish", ("It is", " blue", " bluish")),
        ("The sky is", "The sky is blue", ("The sky", " is", " is blue")),
        ("2+2?\n\nYes, 4", "2+2?\n\nYellow", ("2+2?\n\n", "Yes, 4", "Yellow")),
        ("a  b", "a  c", ("a ", " b", " c")),
        ("a ", "a  b", ("", "a ", "a  b")),
        (" x", " y", ("", " x", " y")),
        ("  x", "  y", ("", "  x", "  y")),
        ("天空是蓝色", "天空是绿色", ("", "天空是蓝色", "天空是绿色")),
    ],
)
def test_texts_are_cut_between_words(chosen: str, rejected: str, expected: tuple[str, str, str]) -> None:
    assert split_texts(chosen, rejected) == expected


def test_either_side_is_whole_again() -> None:
    texts = ["a b c", "a b d", "a\nb", "a\n\nc", "ab", "a  b c", " a b", "a b c d e"]
    for chosen in texts:
        for rejected in texts:
            if chosen == rejected:
                continue
            prompt, left, right = split_texts(chosen, rejected)
            assert (prompt + left, prompt + right) == (chosen, rejected)
            assert left.strip()
            assert right.strip()
            assert prompt == "" or prompt.strip()


def test_dialogues_are_cut_after_the_last_shared_assistant_mark() -> None:
    start = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: Why is the sky blue?\n\nAssistant:"
    assert split_texts(f"{start} The light scatters.", f"{start} The sea shines.") == (
        start,
        " The light scatters.",
        " The sea shines.",
    )


@pytest.mark.parametrize(
    ("chosen", "rejected"),
    [
        ("\n\nHuman: Why?\n\nAssistant: Yes", "\n\nHuman: Who?\n\nAssistant: Yes"),
        (
            "\n\nHuman: Hi\n\nAssistant: Yes\n\nHuman: So?\n\nAssistant: A",
            "\n\nHuman: Hi\n\nAssistant: No\n\nHuman: So?\n\nAssistant: A",
        ),
        ("\n\nHuman: Hi\n\nAssistant: Yes\n\nHuman: So?\n\nAssistant: A", "\n\nHuman: Hi\n\nAssistant: No"),
    ],
)
def test_dialogues_that_part_early_are_refused(chosen: str, rejected: str) -> None:
    for sides in ((chosen, rejected), (rejected, chosen)):
        with pytest.raises(Problem, match="part before the last turn"):
            split_texts(*sides)


def say(*turns: str) -> list[dict[str, str]]:
    roles = {"u": "user", "a": "assistant"}
    return [{"role": roles[turn[0]], "content": turn} for turn in turns]


def test_conversations_share_all_but_the_last_message() -> None:
    assert split_conversations(say("u", "a1"), say("u", "a2")) == say("u")
    assert split_conversations(say("u", "a", "u2", "a1"), say("u", "a", "u2", "a2")) == say("u", "a", "u2")


@pytest.mark.parametrize(
    ("chosen", "rejected", "reason"),
    [
        (say("u", "a"), say("u", "a", "u2"), "does not end with an assistant message"),
        (say("u", "a"), say("u", "a", "u2", "a2"), "part before the last turn"),
        (say("u", "a1"), say("u2", "a2"), "part before the last turn"),
        ([], say("u", "a"), "empty completion"),
    ],
)
def test_conversations_that_share_no_prompt_are_refused(
    chosen: list[dict[str, str]], rejected: list[dict[str, str]], reason: str
) -> None:
    with pytest.raises(Problem, match=reason):
        split_conversations(chosen, rejected)
