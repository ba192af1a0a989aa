"""Texts cut into steps: nothing is lost, and code and displayed mathematics stay whole."""

from __future__ import annotations

import pytest

from prefrl.data.steps import split_steps
from prefrl.errors import DataError

FENCED = "First.\n\n```python\na = 1\n\nb = 2\n```\n\nLast."
ALIGNED = "So\n\n\\begin{align}\nx &= 1\n\ny &= 2\n\\end{align}\n\nDone."
NESTED = "\\begin{itemize}\na\n\n\\begin{itemize}\nb\n\\end{itemize}\n\nc\n\\end{itemize}\n\nEnd"


@pytest.mark.parametrize(
    ("text", "separator", "steps"),
    [
        ("a\n\nb\n\nc", "\n\n", ("a\n\n", "b\n\n", "c")),
        ("a\n\n\n\nb\n\n", "\n\n", ("a\n\n\n\n", "b\n\n")),  # a blank piece ends the step before it
        ("a\n\nb", "\n", ("a\n\n", "b")),
        ("\n\na\n\nb", "\n\n", ("\n\na\n\n", "b")),
        ("one", "\n\n", ("one",)),
        ("", "\n\n", ()),
        (" \n\n ", "\n\n", ()),
        ("a ки b ки", "ки", ("a ки", " b ки")),
        (FENCED, "\n\n", ("First.\n\n", "```python\na = 1\n\nb = 2\n```\n\n", "Last.")),
        ("~~~\na\n```\n\nb\n~~~\n\nc", "\n\n", ("~~~\na\n```\n\nb\n~~~\n\n", "c")),
        ("a\n\n```\nnever\n\nclosed", "\n\n", ("a\n\n", "```\nnever\n\nclosed")),
        ("`a`\n\n```b``` c\n\nd", "\n\n", ("`a`\n\n", "```b``` c\n\n", "d")),  # code in a line is no fence
        (ALIGNED, "\n\n", ("So\n\n", "\\begin{align}\nx &= 1\n\ny &= 2\n\\end{align}\n\n", "Done.")),
        (NESTED, "\n\n", (NESTED[:-3], "End")),
        ("$$a\n\nb$$\n\nc", "\n\n", ("$$a\n\nb$$\n\n", "c")),
        ("\\[a\n\nb\\]\n\nc", "\n\n", ("\\[a\n\nb\\]\n\n", "c")),
        ("costs $$ 5\n\nb", "\n\n", ("costs $$ 5\n\n", "b")),  # never closed: not mathematics
        ("\\begin{x}\n\nb", "\n\n", ("\\begin{x}\n\n", "b")),
        ("a \\\\[2pt]\n\nb \\]", "\n\n", ("a \\\\[2pt]\n\n", "b \\]")),  # a line break with its height
    ],
)
def test_steps(text, separator, steps):
    assert split_steps(text, separator) == steps
    assert "".join(steps) in (text, "")


def test_many_openers_take_no_time():
    text = "\\begin{a} \\[ \\( " * 20_000 + "\n\nend"
    assert len(split_steps(text)) == 2


def test_an_empty_separator_is_refused():
    with pytest.raises(DataError, match="separator is empty"):
        split_steps("a", "")
