"""Whether a completion has the tags it was asked for, truly nested."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from prefrl.errors import ConfigError
from prefrl.rewards.verifiers.common import Verifier
from prefrl.rewards.verifiers.verdict import Status, Verdict, graded, unreadable
from prefrl.types import Rollout

_NAME = re.compile(r"[A-Za-z_][\w.-]*")


class Element(NamedTuple):
    """A tag of a text: its name, how deep it stands (0 is outermost), where it begins and ends, and its inside."""

    name: str
    depth: int
    start: int
    end: int
    inside: slice


def elements(text: str, tags: Sequence[str]) -> list[Element] | None:
    """The elements of the named tags in the order of their starts; None where they are not well nested.

    Other tags are text, and so are `<A>`, `<a >` and `<a id="1">` where `a` is meant. `<a><b></a></b>`, a tag that is
    not closed and one that was never opened are not well nested.
    """
    found: list[Element] = []
    open_: list[re.Match[str]] = []
    for tag in re.finditer(rf"<(?P<close>/?)(?P<name>{'|'.join(map(re.escape, tags))})>", text):
        if not tag["close"]:
            open_.append(tag)
        elif not open_ or open_[-1]["name"] != tag["name"]:
            return None
        else:
            start = open_.pop()
            inside = slice(start.end(), tag.start())
            found.append(Element(tag["name"], len(open_), start.start(), tag.end(), inside))
    return None if open_ else sorted(found, key=lambda element: element.start)


def xml_format(tags: Sequence[str], *, only: bool = True, filled: bool = True) -> Verifier:
    """1 when every tag stands once, in this order, none inside another; else the share that does, if well nested.

    Args:
        tags: names, such as `[reasoning, answer]`.
        only: nothing but white space may stand outside of them.
        filled: every one must hold something.

    Parts: `parsed` (well nested), `tags` (share of the tags that stand exactly once, in none of the others), `strict`.

    Raises:
        ConfigError: no tag, or something that is no name of one.
    """
    names = (tags,) if isinstance(tags, str) else tuple(tags)
    if not names or len(set(names)) < len(names) or not all(_NAME.fullmatch(name) for name in names):
        raise ConfigError(f"xml_format: tags={list(names)}; expected different names, such as [think, answer]")

    def check(rollout: Rollout) -> Verdict:
        found = elements(rollout.text, names)
        if found is None:
            return unreadable("the tags are not well nested", "tags", "strict")
        all_ = [element.name for element in found]
        said = [e.name for e in found if e.depth == 0 and (rollout.text[e.inside].strip() or not filled)]
        share = sum(said.count(name) == all_.count(name) == 1 for name in names) / len(names)
        strict = all_ == list(names) == said and not (only and _outside(rollout.text, found).strip())
        score = 1.0 if strict else min(share, 1.0 - 1.0 / (len(names) + 1))
        parts = {"parsed": 1.0, "tags": share, "strict": float(strict)}
        return Verdict(status=Status.OK, score=score, parts=parts, evidence=f"found {said[:20]}")

    return Verifier("xml_format", check)


def think_format(tag: str = "think", *, opened: bool = False) -> Verifier:
    """1 when the completion is one filled block of thought and then an answer; else 0.

    Args:
        tag: name of the tag around the thought.
        opened: the prompt ends with the opening tag already, so the completion starts inside the block.

    Raises:
        ConfigError: something that is no name of a tag.
    """
    if not _NAME.fullmatch(tag):
        raise ConfigError(f"think_format: tag={tag!r}; expected a name, such as think")

    def check(rollout: Rollout) -> Verdict:
        text = f"<{tag}>{rollout.text}" if opened else rollout.text.lstrip()
        found = elements(text, [tag])
        if found is None or not found:
            return graded(parsed=False, correct=False, evidence="no block of thought that is opened and closed")
        thought = found[0]
        good = len(found) == 1 and thought.start == 0 and text[thought.inside].strip() and text[thought.end :].strip()
        return graded(parsed=True, correct=bool(good), evidence=f"{len(found)} blocks, the first at {thought.start}")

    return Verifier("think_format", check)


def _outside(text: str, found: Sequence[Element]) -> str:
    outer = [element for element in found if element.depth == 0]
    edges = [0, *(edge for element in outer for edge in (element.start, element.end)), len(text)]
    return "".join(text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
