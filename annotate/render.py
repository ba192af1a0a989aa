"""What a model wrote, as HTML that a person can judge it by: all of it, safe, and nothing that reaches out.

    html = render("Use `List<int>`, since $a^2 > 0$.")

Markdown without HTML of its own, tables, code with the name of its language, mathematics, reasoning in `<think>` folded
and never left out. No picture, style, form or identifier of the text's gets through, links show their address, and
characters that nobody can see are made visible. The result is checked against the text: where a letter or digit would
be missing, and where a text is too long or too entangled, it is shown as it was written, with a note.
"""

from __future__ import annotations

import hashlib
import html
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token

from annotate.maths import read_maths, to_mathml

MOST_CHARACTERS = 100_000  # of a text that is read as Markdown: a second or two at worst; a longer one is plain text
MOST_MATHS = 30_000  # characters of different formulas that are drawn
CACHE_CHARACTERS = 32_000_000

_THINK = re.compile(r"^[ \t]*<(think|thinking)>(.*?)(?:</\1>|\Z)", re.DOTALL | re.MULTILINE)
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069\u2060-\u2064\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_NOTES = {
    "long": "Shown as plain text, since it is very long.",
    "unreadable": "Shown as plain text, since its Markdown cannot be read.",
    "incomplete": "Shown as plain text, since Markdown would leave some of it out.",
}
_MATHML = {
    *("math", "mrow", "mi", "mn", "mo", "ms", "mtext", "mspace", "mfrac", "msqrt", "mroot", "msup", "msub", "msubsup"),
    *("mover", "munder", "munderover", "mtable", "mtr", "mtd", "mstyle", "mpadded", "menclose"),
}
_BLOCKS = {"p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "td", "th", "details", "summary"}
_OTHERS = {"a", "br", "hr", "em", "strong", "s", "code", "pre", "table", "thead", "tbody", "tr", "div", "span"}
_SIZE = re.compile(r"\+?(?:[0-2]?\.\d+|[0-2])(?:em|ex|pt|px)?")
_SIZES = {"width", "height", "depth", "minsize", "maxsize", "linethickness"}
_ATTRIBUTES = {
    "a": {"href"},
    "li": {"value"},
    "math": {"display", "alttext"},
    "mi": {"mathvariant"},
    "mo": {"stretchy", "fence", "form", "minsize", "maxsize", "accent"},
    "mspace": {"width", "height", "depth"},
    "mfrac": {"linethickness"},
    "mover": {"accent"},
    "munder": {"accentunder"},
    "mstyle": {"displaystyle", "scriptlevel"},
    "mtable": {"displaystyle", "columnalign", "columnlines", "rowlines"},
    "mtd": {"columnalign"},
    "menclose": {"notation"},
}
_CLASSES = {
    "div": {"code", "table", "maths"},
    "span": {"language", "address", "picture", "maths-source"},
    "details": {"think"},
    "p": {"note"},
    "pre": {"plain"},
}
_FIXED = {
    **{tag: {"dir": "auto"} for tag in _BLOCKS},
    "a": {"target": "_blank"},
    "code": {"dir": "ltr"},
    "pre": {"tabindex": "0"},
    "table": {"dir": "auto"},
}


class _Cache:
    """Results by the hash of their text, the least used forgotten first; for all threads."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._known: OrderedDict[bytes, str] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, text: str, make: Callable[[str], str]) -> str:
        """The result for a text, made where it is not known."""
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        made = make(text)
        with self._lock:
            if key not in self._known and len(made) <= self._most:
                self._known[key] = made
                self._held += len(made)
            while self._held > self._most:
                self._held -= len(self._known.popitem(last=False)[1])
        return made


def render(text: str) -> str:
    """Safe HTML of a text, from the cache where it was drawn before."""
    return _CACHE.get(text, _render)


def plain(text: str, note: str = "") -> str:
    """A text as it was written, with a note above it where there is one."""
    above = f'<p class="note" dir="auto">{html.escape(note)}</p>' if note else ""
    return f'{above}<pre class="plain" dir="auto" tabindex="0">{html.escape(visible(text))}</pre>'


def visible(text: str) -> str:
    """The text with what nobody can see spelt out: controls, marks that turn the direction of others, half surrogates.

    Marks that Arabic, Hebrew or emoji need (U+200C to U+200F) and tabs and line ends stay as they are.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _HIDDEN.sub(lambda found: f"\u27e8U+{ord(found[0]):04X}\u27e9", lines)


def _render(text: str) -> str:
    if len(text) > MOST_CHARACTERS:
        return plain(text, _NOTES["long"])
    shown = visible(text)
    try:
        made = _clean(_folded(shown))
    except Exception:  # a defect of the parser must not keep anybody from reading the answer
        return plain(text, _NOTES["unreadable"])
    return plain(text, _NOTES["incomplete"]) if _missing(shown, made) else made


def _folded(text: str) -> str:
    """HTML of a text in which reasoning, where it starts a line outside of code, is folded under its tag."""
    env: dict[str, Any] = {"links": [], "maths": MOST_MATHS, "formulas": set()}
    parts, begin = [], 0
    for found in _THINK.finditer(text):
        if found.start() < begin or len(_FENCE.findall(text, begin, found.start())) % 2:
            continue
        parts.append(_markdown().render(text[begin : found.start()], env))
        inside = _markdown().render(found[2], env)
        parts.append(f'<details class="think"><summary>&lt;{found[1]}&gt;</summary>{inside}</details>')
        begin = found.end()
    return "".join([*parts, _markdown().render(text[begin:], env)])


@cache
def _markdown() -> MarkdownIt:
    """The parser. Definitions of links and entities stay as they are written, so that nothing disappears."""
    md = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": 30})
    md.enable(["table", "strikethrough"]).disable(["reference", "entity", "html_block", "html_inline"])
    md.normalizeLink = _as_written  # type: ignore[method-assign]
    md.normalizeLinkText = _as_written  # type: ignore[method-assign, assignment]
    read_maths(md)
    for name, rule in _RULES.items():
        md.add_render_rule(name, rule)
    return md


def _as_written(url: str) -> str:
    return url


def _maths(renderer: Any, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    token = tokens[at]
    display = token.info == "block"
    if token.content not in env["formulas"]:
        env["formulas"].add(token.content)
        env["maths"] -= len(token.content)
    drawn = to_mathml(token.content, display=display) if env["maths"] >= 0 else None
    if drawn is None:
        drawn = f'<span class="maths-source">{html.escape(token.markup)}</span>'
    return f'<div class="maths">{drawn}</div>' if token.block else drawn


def _code(renderer: Any, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    token = tokens[at]
    language = f'<span class="language">{html.escape(token.info.strip())}</span>' if token.info.strip() else ""
    return f'<div class="code">{language}<pre><code>{html.escape(token.content)}</code></pre></div>'


def _link_open(renderer: Any, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    link = tokens[at]
    address, title = str(link.attrGet("href") or ""), str(link.attrGet("title") or "")
    env["links"].append("" if link.info == "auto" else f"{address} {title}".strip())
    return f'<a href="{html.escape(address)}">'


def _link_close(renderer: Any, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    address = env["links"].pop()
    return f"</a>{_address(address)}" if address else "</a>"


def _picture(renderer: Any, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    token = tokens[at]
    address = f"{token.attrGet('src') or ''} {token.attrGet('title') or ''}".strip()
    return f'<span class="picture">{html.escape(token.content)}</span>{_address(address)}'


def _address(address: str) -> str:
    return f' <span class="address">({html.escape(address)})</span>'


def _list_item(renderer: Any, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    number = tokens[at].info
    return f'<li value="{int(number)}">' if number else "<li>"


_RULES: dict[str, Callable[..., str]] = {
    "maths": _maths,
    "fence": _code,
    "code_block": _code,
    "link_open": _link_open,
    "link_close": _link_close,
    "image": _picture,
    "list_item_open": _list_item,
    "softbreak": lambda *_: "<br>",
    "hardbreak": lambda *_: "<br>",
    "table_open": lambda *_: '<div class="table"><table>',
    "table_close": lambda *_: "</table></div>",
}


def _clean(made: str) -> str:
    return nh3.clean(
        made,
        tags=_BLOCKS | _OTHERS | _MATHML,
        attributes=_ATTRIBUTES,
        attribute_filter=_small,
        allowed_classes=_CLASSES,
        set_tag_attribute_values=_FIXED,
        link_rel="noopener noreferrer nofollow",
        url_schemes={"http", "https", "mailto"},
        url_relative="deny",
    )


def _small(tag: str, name: str, value: str) -> str | None:
    """Only sizes that cannot push a formula over anything else."""
    return value if name not in _SIZES or _SIZE.fullmatch(value) else None


_HIDING = re.compile(
    r'<math(?: display="\w+"| alttext="([^"]*)")*[^>]*>.*?</math>|<li[^>]* value="(\d+)"[^>]*>', re.DOTALL
)
_TAG = re.compile(r'<(?:[^<>"]|"[^"]*")*>')


def _missing(text: str, made: str) -> Counter[str]:
    """Letters and digits of the text that its HTML does not show; a formula shows its source."""
    shown = html.unescape(_TAG.sub("", _HIDING.sub(lambda m: f"{m[1] or ''}{m[2] or ''} ", made)))
    return Counter(filter(str.isalnum, re.sub(r"</think(?:ing)?>", "", text))) - Counter(filter(str.isalnum, shown))


_CACHE = _Cache(CACHE_CHARACTERS)
