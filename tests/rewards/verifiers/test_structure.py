from __future__ import annotations

import time

import pytest

from prefrl.errors import ConfigError
from prefrl.rewards.verifiers.structure import elements, think_format, xml_format


@pytest.mark.parametrize(
    ("text", "score", "parsed"),
    [
        ("<a>1</a>\n<b>2</b>", 1.0, 1.0),
        ("<a>1</a>", 0.5, 1.0),
        ("<b>2</b><a>1</a>", 2 / 3, 1.0),  # all there, in the wrong order
        ("<a>1</a><b>2</b> and more", 2 / 3, 1.0),
        ("<a>1</a><b> </b>", 0.5, 1.0),
        ("<a>1</a><a>1</a><b>2</b>", 0.5, 1.0),
        ("<a></a><a>1</a><b>2</b>", 0.5, 1.0),  # a stands twice, once with nothing in it
        ("<a>1</a><b>2<a>3</a></b>", 0.5, 1.0),
        ("<A>1</A><b>2</b>", 0.5, 1.0),
        ("<a >1</a><b>2</b>", 0.0, 0.0),  # `<a >` is text, so that </a> was never opened
        ("```\n<a>1</a>\n```<b>好</b>", 2 / 3, 1.0),
        ("<a>1<b>2</b></a>", 0.5, 1.0),
        ("<a>1<b></a>2</b>", 0.0, 0.0),
        ("<a>1", 0.0, 0.0),
        ("1</a>", 0.0, 0.0),
        ("no tag", 0.0, 1.0),
        ("", 0.0, 1.0),
    ],
)
def test_tags_stand_once_in_order_and_truly_nested(rollout, text, score, parsed):
    (verdict,) = xml_format(["a", "b"]).verdicts([rollout(text)])
    assert verdict.score == pytest.approx(score)
    assert verdict.parts["parsed"] == parsed
    assert set(verdict.parts) == {"parsed", "tags", "strict"}  # of every answer, so that means are over all
    assert verdict.parts["strict"] == float(score == 1.0)


def test_tags_may_be_empty_and_stand_among_words_where_that_is_allowed(rollout):
    loose = xml_format(["a", "b"], only=False, filled=False)
    assert loose.score([rollout("First <a></a> then <b>2</b>.")])[0].value == 1.0
    text = "x <c> y <a>1</a>"
    assert text[elements(text, ["a"])[0].inside] == "1"


@pytest.mark.parametrize("tags", [[], ["a", "a"], ["a b"], ["<a>"]])
def test_wrong_tags(tags):
    with pytest.raises(ConfigError, match="expected different names"):
        xml_format(tags)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<think>Two and two.</think>4", 1.0),
        ("\n<think>Two and two.</think>\n4", 1.0),
        ("<think></think>4", 0.0),
        ("<think>Two.</think>", 0.0),
        ("4", 0.0),
        ("4 <think>Two.</think> 4", 0.0),
        ("<think>a</think><think>b</think>4", 0.0),
        ("<think>a<think>b</think></think>4", 0.0),
        ("<think>Two and two. 4", 0.0),
    ],
)
def test_one_block_of_thought_and_then_an_answer(rollout, text, value):
    assert think_format().score([rollout(text)])[0].value == value


def test_a_prompt_that_opens_the_block(rollout):
    opened = think_format(opened=True)
    assert opened.score([rollout("Two and two.</think>4")])[0].value == 1.0
    assert opened.score([rollout("<think>Two.</think>4")])[0].value == 0.0
    with pytest.raises(ConfigError, match="expected a name"):
        think_format("<think>")


@pytest.mark.parametrize("text", ["<a>" * 100_000, "<a>" * 50_000 + "</a>" * 50_000, "<a><b>" * 50_000, "<" * 300_000])
def test_no_text_takes_long_or_much_memory(rollout, text):
    start = time.thread_time()  # other tests leave threads that work
    assert xml_format(["a", "b"]).score([rollout(text)])[0].value == 0.0
    assert think_format("a").score([rollout(text)])[0].value == 0.0
    assert time.thread_time() - start < 5.0  # a tenth of a second on an idle machine; quadratic would be minutes
