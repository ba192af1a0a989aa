"""Where a step is read: the right token, whatever the tokenizer fuses, and nothing moves when steps are cut."""

from __future__ import annotations

import pytest
from stepping import merging_tokenizer

from prefrl.errors import DataError, ModelError
from prefrl.model.process_record import STYLES, StepLayout
from prefrl.model.process_rows import step_row, token_id
from prefrl.types import Prompt

PROMPT = Prompt(id="p", text="2+2?")
STEPS = ("We add.\n\n", "2+2=4.\n\n", "So 4")


@pytest.fixture(scope="module")
def tokenizer():
    return merging_tokenizer()


def spelled(tokenizer, row):
    return tokenizer.convert_ids_to_tokens(list(row.completion_ids))


def read_texts(tokenizer, row):
    """The text up to and including each token that is read."""
    places = [at for at, read in enumerate(row.mask) if read]
    return [tokenizer.decode(list(row.completion_ids[: at + 1])) for at in places]


def test_a_step_is_read_at_its_last_token_though_it_is_fused_with_the_separator(tokenizer):
    found = step_row(tokenizer, PROMPT, STEPS, StepLayout())
    assert read_texts(tokenizer, found.row) == ["We add.\n\n", "We add.\n\n2+2=4.\n\n", "We add.\n\n2+2=4.\n\nSo 4"]
    places = [at for at, read in enumerate(found.row.mask) if read]
    assert [spelled(tokenizer, found.row)[at] for at in places] == [".\u010a\u010a", ".\u010a\u010a", "4"]
    assert (found.kept, found.steps, found.cut) == (3, 3, 0)


def test_steps_are_spliced_not_encoded_as_one_text(tokenizer):
    # Joined, "." and "\n\n" would be one token, and no separator were there to be found.
    row = step_row(tokenizer, PROMPT, ("a.", "\n\nb."), StepLayout()).row
    assert spelled(tokenizer, row) == ["a", ".", "\u010a\u010a", "b", "."]
    assert row.mask == (False, True, False, False, True)
    assert tokenizer("a.\n\nb.", add_special_tokens=False)["input_ids"] != list(row.completion_ids)


def test_a_marker_takes_the_place_of_the_white_space_and_is_read_itself(tokenizer):
    row = step_row(tokenizer, PROMPT, STEPS, STYLES["qwen"].layout).row
    assert tokenizer.decode(list(row.completion_ids)) == "We add.<extra_0>2+2=4.<extra_0>So 4<extra_0>"
    marker = tokenizer.convert_tokens_to_ids("<extra_0>")
    assert row.mask == tuple(token == marker for token in row.completion_ids)


def test_the_marker_of_trl_is_read_at_its_last_token_not_one_off(tokenizer):
    row = step_row(tokenizer, PROMPT, ("a\n", "b\n", "c"), STYLES["trl"].layout).row
    assert spelled(tokenizer, row) == ["a", "\u010a", "b", "\u010a", "c", "\u010a"]
    assert row.mask == (False, True) * 3
    assert tokenizer.decode(list(row.prompt_ids)) == "2+2?"  # a plain prompt stays plain


def test_what_math_shepherd_writes_between_steps(tokenizer):
    layout = StepLayout(chat=False, before=" ", marker=" ki", after="\n")
    row = step_row(tokenizer, PROMPT, ("a\n", "b"), layout).row
    assert tokenizer.decode(list(row.completion_ids)) == " a ki\nb ki"
    assert read_texts(tokenizer, row) == [" a ki", " a ki\nb ki"]


def test_a_step_cannot_put_a_marker(tokenizer):
    row = step_row(tokenizer, PROMPT, ("good<extra_0>", "b"), STYLES["qwen"].layout).row
    assert row.completion_ids.count(tokenizer.convert_tokens_to_ids("<extra_0>")) == 2
    assert sum(row.mask) == 2


@pytest.mark.parametrize("template", ["", "Be brief. "])
def test_turns_are_read_before_the_answer_whatever_the_template_writes(tokenizer, template):
    """At a fixed index from the end, such as -3, another template would be read somewhere else."""
    tokenizer.chat_template, before = template + tokenizer.chat_template, tokenizer.chat_template
    try:
        found = step_row(tokenizer, PROMPT, STEPS, StepLayout(turns=True, good="+", bad="-"))
    finally:
        tokenizer.chat_template = before
    ids = (*found.row.prompt_ids, *found.row.completion_ids)
    offset = len(found.row.prompt_ids)
    read = [tokenizer.decode(list(ids[: offset + at + 1])) for at, m in enumerate(found.row.mask) if m]
    assert len(read) == 3 and all(text.endswith("<|im_start|>assistant\n") for text in read)
    assert read[0] == f"{template}<|im_start|>user\n2+2? We add.<|im_end|>\n<|im_start|>assistant\n"
    assert read[1] == f"{read[0]}+<|im_end|>\n<|im_start|>user\n2+2=4.<|im_end|>\n<|im_start|>assistant\n"


def test_steps_that_do_not_fit_are_cut_whole_from_the_end_and_counted(tokenizer):
    whole = step_row(tokenizer, PROMPT, STEPS, StepLayout())
    places = [at for at, read in enumerate(whole.row.mask) if read]
    room = len(whole.row.prompt_ids) + places[1] + 1
    fits = step_row(tokenizer, PROMPT, STEPS, StepLayout(), limit=room)
    assert (fits.kept, fits.cut) == (2, 1)
    assert len(fits.row.prompt_ids) + len(fits.row.completion_ids) == room
    assert [at for at, read in enumerate(fits.row.mask) if read] == places[:2]
    short = step_row(tokenizer, PROMPT, STEPS, StepLayout(), limit=room - 1)
    assert (short.kept, short.cut, short.tokens) == (1, 2, whole.tokens)


def test_a_limit_below_the_prompt_leaves_a_row_without_a_step(tokenizer):
    found = step_row(tokenizer, PROMPT, STEPS, StepLayout(), limit=2)
    assert (found.kept, found.row.mask, found.cut) == (0, (), 3)


def test_a_step_without_a_token_is_refused(tokenizer):
    with pytest.raises(DataError, match=r"Step 2 .* has no tokens: ''"):
        step_row(tokenizer, PROMPT, ("a", ""), StepLayout())
    with pytest.raises(DataError, match="has no steps"):
        step_row(tokenizer, PROMPT, (), StepLayout())


def test_a_word_is_the_entry_of_the_vocabulary_not_the_last_token_of_its_encoding(tokenizer):
    assert token_id(tokenizer, "+") == tokenizer.get_vocab()["+"]
    with pytest.raises(ModelError, match="no token '\u2581\\+'"):
        token_id(tokenizer, "\u2581+")
