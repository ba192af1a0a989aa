r"""LaTeX in Markdown: where it starts and ends, and what a browser draws of it.

Read are `\( \)`, `\[ \]`, `$ $`, `$$ $$` and `\begin{align}` alone, and prices are left alone: in "costs $5 and $6" no
dollar opens mathematics. What cannot be drawn whole is shown as it was written.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

MOST_CHARACTERS = 4_000  # of one formula; a longer one is shown as it was written

_MOST_LINES = 50  # of a formula that has its lines to itself
_CLOSED_BY = {r"\(": r"\)", r"\[": r"\]", "$$": "$$", "$": "$"}
_ENVIRONMENT = re.compile(r"\\begin\{(align|aligned|alignat|equation|gather|gathered|multline|split|eqnarray)(\*?)\}")
_WORD = re.compile(r"(?<![\\{A-Za-z])[A-Za-z]{3,}(?![A-Za-z}])")
_QUOTED = re.compile(r"\\(?:text\w*|mathrm|operatorname)\s*\{[^{}]*\}")
_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)%")
_UNKNOWN = re.compile(r">\s*\\[A-Za-z]+")
_LAYOUT = re.compile(
    r"\\(?:[hv]space\*?|(?:text)?color)\s*\{[^{}]*\}"
    r"|\\(?:begin|end)\s*\{\w+\*?\}(?:\{[lcr|:\s]*\})?|\\\\\s*\[[^\]]*\]|\\[A-Za-z]+|\\."
)
_TAG = re.compile(r"<[^>]*>")


def read_maths(md: MarkdownIt) -> None:
    """Make a Markdown parser read mathematics, as tokens `maths` whose `info` is inline or block."""
    md.inline.ruler.before("escape", "maths", _inline)
    md.block.ruler.before(
        "fence", "maths_block", _block, {"alt": ["paragraph", "blockquote", "list", "table", "heading"]}
    )


@lru_cache(maxsize=4096)
def to_mathml(source: str, *, display: bool) -> str | None:
    r"""MathML of a formula, or None where it cannot be drawn whole.

    That is: a syntax error, an unknown command, more than `MOST_CHARACTERS`, or letters or digits that would be lost.
    A `%` is a percent sign and not a comment, and equations are not numbered, since nobody wrote the numbers.
    """
    from latex2mathml.converter import convert

    if len(source) > MOST_CHARACTERS:
        return None
    text = _ENVIRONMENT.sub(r"\\begin{\1*}", _COMMENT.sub(r"\1\%", source))
    text = re.sub(r"\\end\{(align|alignat|equation|gather|multline|eqnarray)\}", r"\\end{\1*}", text)
    for name in ("aligned", "gathered", "split"):  # these are never numbered and have no other form
        text = text.replace(f"\\begin{{{name}*}}", f"\\begin{{{name}}}")
    try:
        drawn: str = convert(text, display="block" if display else "inline")
    except Exception:  # the library raises its own errors, and IndexError, KeyError and RecursionError on odd input
        return None
    if _UNKNOWN.search(drawn) or _letters(_LAYOUT.sub(" ", source)) - _letters(html.unescape(_TAG.sub(" ", drawn))):
        return None
    return drawn.replace("<math ", f'<math alttext="{html.escape(source)}" ', 1)


def is_maths(inside: str) -> bool:
    """Whether what stands between two single dollars is mathematics and not what lies between two prices."""
    if not inside or inside[0].isspace() or inside[-1].isspace() or "`" in inside or "\n\n" in inside:
        return False
    bare = _QUOTED.sub(" ", inside)
    words = len(_WORD.findall(bare))
    return words == 0 or (words == 1 and ("\\" in inside or not inside[0].isdigit()))


def _inline(state: StateInline, silent: bool) -> bool:
    r"""One formula at this place. A `\(` that opens none stays as it is written, for it is no Markdown escape here."""
    text, start = state.src, state.pos
    opened = next((mark for mark in _CLOSED_BY if text.startswith(mark, start)), None)
    if opened is None:
        return _kept(state, silent) if text.startswith((r"\)", r"\]"), start) else False
    end = _end_of(text, start, state.posMax, opened)
    if end is None:
        return _kept(state, silent) if opened[0] == "\\" else False
    if not silent:
        inside = text[start + len(opened) : end - len(_CLOSED_BY[opened])]
        _put(state, text[start:end], inside.strip(), display=opened in (r"\[", "$$"))
    state.pos = end
    return True


def _kept(state: StateInline, silent: bool) -> bool:
    if not silent:
        state.pending += state.src[state.pos : state.pos + 2]
    state.pos += 2
    return True


def _end_of(text: str, start: int, limit: int, opened: str) -> int | None:
    """Index behind the formula that opens at `start`; None where it does not close, or is none."""
    closed = _CLOSED_BY[opened]
    begin = start + len(opened)
    if opened == "$" and start and (text[start - 1].isalnum() or text[start - 1] in "$\\"):
        return None
    at = _find(text, closed, begin, min(limit, begin + MOST_CHARACTERS))
    if at is None or not text[begin:at].strip() or "\n\n" in text[begin:at]:
        return None
    if opened == "$":
        after = text[at + 1 : at + 2]
        if after.isdigit() or after.isupper() or after == "$" or not is_maths(text[begin:at]):
            return None
    return at + len(closed)


def _find(text: str, closed: str, begin: int, limit: int) -> int | None:
    """Where a closing mark stands that no backslash escapes."""
    at = text.find(closed, begin, limit)
    while at > 0 and _escaped(text, at):
        at = text.find(closed, at + 1, limit)
    return at if at >= 0 else None


def _escaped(text: str, at: int) -> bool:
    before = at
    while before and text[before - 1] == "\\":
        before -= 1
    return bool((at - before) % 2)


def _block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """A formula that has its lines to itself; marks of lists and headings inside it are mathematics."""
    if state.is_code_block(first):
        return False
    text = state.src[state.bMarks[first] + state.tShift[first] : state.eMarks[first]]
    environment = _ENVIRONMENT.match(text)
    opened = next((mark for mark in (r"\[", "$$") if text.startswith(mark)), None)
    if environment is None and opened is None:
        return False
    closed = f"\\end{{{environment[1]}{environment[2]}}}" if environment else _CLOSED_BY[opened or ""]
    found = _last_line(state, first, last, closed, len(opened or ""))
    if found is None:
        return False
    if not silent:
        source = state.getLines(first, found + 1, state.blkIndent, False).strip()
        inside = source if environment else source[len(closed) : -len(closed)].strip()
        _put(state, source, inside, display=True)
        state.line = found + 1
    return True


def _last_line(state: StateBlock, first: int, last: int, closed: str, skip: int) -> int | None:
    """The line that ends with the closing mark; None where another line, a blank one or a fence comes before."""
    for line in range(first, min(last, first + _MOST_LINES)):
        text = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]].rstrip()
        begin = skip if line == first else 0
        at = text.find(closed, begin)
        if at >= 0:
            whole = at == len(text) - len(closed) and (at > begin or line > first)
            return line if whole else None
        if line > first and (not text or text.startswith("```") or state.sCount[line] < state.blkIndent):
            return None
    return None


def _put(state: Any, source: str, inside: str, *, display: bool) -> None:
    token = state.push("maths", "math", 0)
    token.content, token.markup, token.info = inside, source, "block" if display else "inline"
    token.block = isinstance(state, StateBlock)


def _letters(text: str) -> Counter[str]:
    return Counter(c for c in unicodedata.normalize("NFKC", text) if c.isalnum())
