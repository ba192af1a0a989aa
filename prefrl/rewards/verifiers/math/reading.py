"""From the text of an answer to what it is."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from prefrl.rewards.verifiers.math.answers import (
    ENDLESS,
    EVERYTHING,
    NO_LIMIT,
    NOTHING,
    REALS,
    UNBOUNDED,
    Answer,
    Based,
    Many,
    Matrix,
    Raw,
    Relation,
    Scalar,
    Span,
    Union,
    Words,
)
from prefrl.rewards.verifiers.math.parser import Tree, contains, names, negated, number, parse
from prefrl.rewards.verifiers.math.splitting import closes, split
from prefrl.rewards.verifiers.math.text import clean
from prefrl.rewards.verifiers.math.tokens import Hostile, Unreadable
from prefrl.rewards.verifiers.math.units import multiplier, unit_of

_PLAIN = re.compile(r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,400})(?:\.[0-9]{1,400})?")
_SPACED = re.compile(r"[-+]?[0-9]{1,3}(?: [0-9]{3})+")
_RELATION = re.compile(r"(\\le(?![a-z])|\\ge(?![a-z])|\\ne(?![a-z])|<=|>=|!=|=|<|>)")
_MEMBER = re.compile(r"[A-Za-z]\s*\\in(?![a-z])\s*(.+)")
_BUILDER = re.compile(r"\\?\{\s*[a-zA-Z]\s*(?:\\in\s*\\R\s*)?(?:\||:)(.+?)\\?\}")
_MATRIX = re.compile(r"\\begin\{([pbvBV]?matrix|array)\}(?:\{[clr| ]*\})?(.*)\\end\{\1\}")
_BASED = re.compile(r"([0-9A-Fa-f]*[0-9][0-9A-Fa-f]*)\s*_\s*\{?\s*([0-9]{1,2})\s*\}?")
_RATIO = re.compile(r"[0-9.]+(?:\s*:\s*[0-9.]+)+")
_PERCENT = re.compile(r"(.*?)\s*(?:%|\bpercent(?:age)?(?: points?)?)")
_CURRENCY = re.compile(r"([-+]?)\s*(?:[€£¥₹]|(USD|EUR)\s)\s*(?=[0-9.])")
_UNIT_START = re.compile(r"(?<=[0-9)}!\]])\s*(?=[A-Za-z])|(?<=[a-z])\s+(?=[A-Za-z])")
_DEGREES = re.compile(r"(.*?)\s*\^\s*\{?\s*\\circ\s*\}?")
_ORDINAL = re.compile(r"([0-9]+)\s*\^?\{?\s*(?:st|nd|rd|th)\s*\}?")
_LABEL = re.compile(r"[A-Za-z][A-Za-z'() -]*")
_LETTERS = re.compile(r"[A-Za-z][A-Za-z' -]*")
_CHOICE = re.compile(r"(?:option|choice)\s+\(?([A-Z])\)?", re.IGNORECASE)
_SCALED = {"degree": "deg", "degrees": "deg"}

_NOTHING = (
    r"(?:there (?:is|are) )?(?:no|none|empty|null)(?: (?:real|integer|valid|such|possible))*"
    r"(?: (?:solutions?|set|values?|numbers?|answers?|roots?))?(?: exists?)?"
)
_SPELLINGS = [
    (re.compile(_NOTHING), NOTHING),
    (re.compile(r"\\emptyset|\\\{\s*\\\}|\{\s*\}|(?:the )?empty set"), NOTHING),
    (re.compile(r"(?:all|any|every)(?: (?:real|reals|real numbers?))|\\R"), EVERYTHING),
    (re.compile(r"(?:(?:it|(?:the|this) [a-z]+) )?does not exist|dne|undefined|(?:is )?not defined"), NO_LIMIT),
    (re.compile(r"infinitely many(?: solutions)?|infinite(?:ly many)? solutions"), ENDLESS),
    (re.compile(r"infinity|infinite|\+?\\infty"), UNBOUNDED),
]


@lru_cache(maxsize=4096)
def read(text: str) -> Answer:
    """What an answer is; `Raw` when it is not understood. Raises Hostile when it is refused unread."""
    if len(text) > 3000:
        raise Hostile(f"{len(text)} characters")
    return read_clean(clean(text))


def read_clean(text: str) -> Answer:
    """`read` of a text that `clean` has been over."""
    if _PLAIN.fullmatch(text):
        return Scalar(("num", Fraction(text.replace(",", ""))))
    if _SPACED.fullmatch(text):
        return Scalar(number(text.replace(" ", "")))
    words = _spelling(text)
    if words is not None:
        return words
    for reader in (_matrix, _member, _several, _union, _bracketed, _relation, _special, _scalar):
        try:
            found = reader(text)
        except Unreadable:
            continue
        if found is not None:
            return found
    return Words(_usual(text)) if _LETTERS.fullmatch(text) else Raw("".join(text.split()))


def _usual(text: str) -> str:
    return re.sub(r"^(?:the|a|an) (?=..)", "", " ".join(text.split()).casefold())


def _spelling(text: str) -> Answer | None:
    if not text or not (text[0].isalpha() or text[0] in "\\{+"):
        return None
    low = text.casefold() if "\\" not in text else text
    found = next((name for pattern, name in _SPELLINGS if pattern.fullmatch(low)), None)
    if found == UNBOUNDED:
        return Scalar(("const", "inf"))
    if found == EVERYTHING:
        return REALS
    return None if found is None else Words(found)


def _matrix(text: str) -> Answer | None:
    inside = text[1:-1].strip() if text[:1] + text[-1:] in ("()", "[]") and r"\begin" in text else text
    match = _MATRIX.fullmatch(inside)
    if match is None:
        return None
    rows = [row for row in re.split(r"\\\\(?:\[[^\]]*\])?", match[2]) if row.strip()]
    cells = tuple(tuple(read_clean(cell.strip()) for cell in row.replace(r"\hline", "").split("&")) for row in rows)
    return Matrix(cells) if cells and len({len(row) for row in cells}) == 1 else None


def _member(text: str) -> Answer | None:
    """`x \\in [1, 2]` and `\\{x | x > 3\\}` are what stands behind."""
    match = _MEMBER.fullmatch(text) or _BUILDER.fullmatch(text)
    return read_clean(match[1].strip()) if match else None


def _several(text: str) -> Answer | None:
    parts, said = split(text)
    if len(parts) < 2:
        return None
    items = tuple(read_clean(part) for part in parts)
    if said == "or" and all(isinstance(item, Relation | Span) and not _is_equation(item) for item in items):
        return Union(items)
    if said == "and" and len(items) == 2 and all(isinstance(i, Relation) and not _is_equation(i) for i in items):
        return Many(items, "both")
    head = items[0]
    if isinstance(head, Relation) and _is_equation(head) and all(isinstance(i, Scalar) for i in items[1:]):
        return Many((Scalar(head.sides[-1]), *items[1:]), "all")  # x = 1, 2
    return Many(items, "list" if said == "," else "all")


def _is_equation(item: Answer) -> bool:
    return isinstance(item, Relation) and set(item.signs) == {"="}


def _union(text: str) -> Answer | None:
    if r"\cup" not in text:
        return None
    parts = re.split(r"\\cup(?![a-z])", text)
    return Union(tuple(read_clean(part.strip()) for part in parts)) if all(p.strip() for p in parts) else None


def _bracketed(text: str) -> Answer | None:
    opening = next((o for o in (r"\{", "{", "(", "[", r"\langle") if text.startswith(o)), None)
    if opening is None or not closes(text):
        return None
    closing = next(c for c in (r"\}", r"\rangle", "}", ")", "]") if text.endswith(c))
    inside = text[len(opening) : -len(closing)].strip()
    is_set = opening in (r"\{", "{")
    parts, _ = split(inside, numbers=False)
    if len(parts) < 2:
        return (
            Many((read_clean(inside),), "set")
            if is_set
            else read_clean(inside)
            if opening == "(" == closing[0:1].replace(")", "(")
            else None
        )
    items = tuple(read_clean(part) for part in parts)
    if is_set:
        return Many(items, "set")
    brackets = "()" if opening == r"\langle" else opening + closing
    if brackets in ("(]", "[)"):
        return as_span(Many(items, "tuple", brackets))
    return Many(items, "tuple", brackets)


def as_span(pair: Many) -> Span | None:
    """The interval that a pair in brackets may be."""
    if pair.kind != "tuple" or len(pair.items) != 2:
        return None
    low, high = pair.items
    if not (isinstance(low, Scalar) and isinstance(high, Scalar)):
        return None
    return Span(low.tree, high.tree, (pair.brackets[0] == "[", pair.brackets[1] == "]"))


_SIGNS = {r"\le": "<=", r"\ge": ">=", r"\ne": "!=", "<=": "<=", ">=": ">="}


def _relation(text: str) -> Answer | None:
    pieces = _RELATION.split(text)
    if len(pieces) < 3:
        return None
    sides = [_side(piece.strip()) for piece in pieces[::2]]
    signs = [_SIGNS.get(sign, sign) for sign in pieces[1::2]]
    if all(sign[0] in ">" for sign in signs):
        sides, signs = sides[::-1], [sign.replace(">", "<") for sign in signs[::-1]]
    if any(sign[0] == ">" for sign in signs):
        return None
    if set(signs) == {"="}:
        sides, signs = [sides[0], sides[-1]], ["="]
    doubled = [pm for pm in sides if contains(pm, "pm")]
    if not doubled:
        return Relation(tuple(sides), tuple(signs))
    both = (Relation(tuple(resolved(side, plus) for side in sides), tuple(signs)) for plus in (True, False))
    return Many(tuple(both), "all")


def _side(text: str) -> Tree:
    try:
        found = _value(text)
    except Unreadable:
        if _LETTERS.fullmatch(text):
            return ("sym", _usual(text))
        raise
    return found.tree if found.unit is None or found.other is None else found.other


def resolved(tree: Tree, plus: bool) -> Tree:
    """The tree with every plus-minus taken as plus, or as minus."""
    if tree[0] == "pm":
        inside = resolved(tree[1], plus)
        return inside if plus else negated(inside)
    return tuple(resolved(part, plus) if isinstance(part, tuple) else part for part in tree)


def _special(text: str) -> Answer | None:
    if match := _BASED.fullmatch(text):
        return Based(match[1].upper(), int(match[2]))
    if match := _ORDINAL.fullmatch(text):
        return Scalar(number(match[1]))
    if match := _CHOICE.fullmatch(text):
        return Scalar(("sym", match[1]))
    if _RATIO.fullmatch(text):
        return Many(tuple(read_clean(part.strip()) for part in text.split(":")), "ratio")
    return None


def _scalar(text: str) -> Answer:
    found = _value(text)
    if not contains(found.tree, "pm"):
        return found
    both = (Scalar(resolved(found.tree, plus), found.percent, found.unit) for plus in (True, False))
    return Many(tuple(both), "all")


def _value(text: str) -> Scalar:
    if match := _CURRENCY.match(text):
        amount = _value(match[1] + text[match.end() :])
        return replace(amount, unit=unit_of(match[2])) if match[2] and amount.unit is None else amount
    if match := _PERCENT.fullmatch(text):
        return Scalar(parse(match[1]), percent=True)
    if (match := _DEGREES.fullmatch(text)) and match[1]:
        return Scalar(parse(match[1]), unit=unit_of("deg"))
    starts = list(_UNIT_START.finditer(text))[:6]
    for start in starts:
        if (unit := unit_of(text[start.end() :])) is not None:
            try:
                return Scalar(parse(text[: start.start()]), unit=unit, other=_tree_or_none(text))
            except Unreadable:
                continue
    try:
        return Scalar(parse(text))
    except Unreadable:
        for start in starts:
            if (labelled := _labelled(text[: start.start()], text[start.end() :])) is not None:
                return labelled
        raise


def _labelled(value: str, label: str) -> Scalar | None:
    """A number with words behind it: `5 apples`, `2 million people`."""
    if not _LABEL.fullmatch(label):
        return None
    first, _, rest = label.partition(" ")
    times = multiplier(first)
    if times is None and len(label) < 3:
        return None
    try:
        tree = parse(value)
    except Unreadable:
        return None
    if names(tree):
        return None
    if times is None:
        return Scalar(tree)
    unit = unit_of(rest) if rest else None
    return Scalar(("mul", tree, number(times)), unit=unit)


def _tree_or_none(text: str) -> Tree | None:
    try:
        return parse(text)
    except Unreadable:
        return None
