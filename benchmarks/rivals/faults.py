"""What goes wrong in labelling apps, tried on each of them in the same way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page

from rivals.pairs import ARABIC, NEEDLES, Pair, fifty
from rivals.tools import Tool

_LOOK = """(asked) => {
  const plain = (text) => text.replaceAll("`", "").replace(/\\s+/g, " ");
  const text = plain(document.body.textContent);
  const box = asked.button.getBoundingClientRect();
  const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  const arabic = [...document.querySelectorAll("body *")].filter((e) => e.textContent.includes(asked.arabic)).pop();
  return {
    formulas: document.querySelectorAll("math, .katex, mjx-container").length,
    code: [...document.querySelectorAll("pre")].some((e) => e.textContent.includes("def double")),
    list: [...document.querySelectorAll("li")].some((e) => e.textContent.includes("first thought")),
    missing: asked.needles.filter((needle) => !text.includes(plain(needle))),
    covered: !top || !asked.button.contains(top),
    direction: arabic ? getComputedStyle(arabic).direction : "",
  };
}"""


@dataclass(frozen=True)
class Finding:
    """What an app does, and whether that is right; None where there is nothing to compare."""

    words: str
    good: bool | None


def look(tool: Tool, page: Page, elsewhere: list[str]) -> dict[str, Finding]:
    """How the label page shows the showcase."""
    page.wait_for_timeout(1500)  # pictures are asked for after the text is there
    button = page.locator(tool.button).last.element_handle()
    seen = page.evaluate(_LOOK, {"button": button, "needles": NEEDLES, "arabic": ARABIC})
    formulas, missing = seen["formulas"], ", ".join(seen["missing"])
    marked = [name for name in ("code", "list") if seen[name]]
    return {
        "Markdown: code, list": Finding(" and ".join(marked) or "shown as typed", len(marked) == 2),
        "Formulas drawn, of 4": Finding(str(formulas), formulas == 4),
        "Text that is missing": Finding(missing or "none", not missing),
        "Requests to elsewhere made by a text": Finding(str(len(elsewhere)), not elsewhere),
        "Buttons covered by a text": Finding("yes" if seen["covered"] else "no", not seen["covered"]),
        "Direction of Arabic": Finding(seen["direction"], seen["direction"] == "rtl"),
    }


def skip_then_result(tool: Tool, folder: Path) -> Finding:
    """A pair is skipped by everybody there is; a program then asks what was said of it."""
    ann = tool.person("ann")
    seen = ann.next()
    assert seen is not None
    ann.say(seen, "skip")
    told = tool.result(seen.pair)
    chosen = seen.pair.second in told and "chosen" in told and "null" not in told
    return Finding("told that the second was chosen" if chosen else "told that it was skipped", not chosen)


def vote_again(tool: Tool, folder: Path) -> Finding:
    """Another vote of one person, from a page that does not know of the first one."""
    ann = tool.person("cleo")
    seen = ann.next()
    assert seen is not None
    ann.say(seen, "first")
    status = ann.say(seen, "second")
    rows = _rows(tool, seen.pair, folder)
    kept = {(): "nothing is exported", (seen.pair.first,): "the first one stays", (seen.pair.second,): "overwritten"}
    return Finding(f"{status}, {kept.get(tuple(rows), f'{len(rows)} rows exported')}", rows == [seen.pair.first])


def three_times(tool: Tool, folder: Path) -> Finding:
    """One person sends three labels of one item, which one person should label."""
    ann = tool.person("dora")
    seen = ann.next()
    assert seen is not None
    said = [ann.say(seen, "first") for _ in range(3)]
    rows = len(_rows(tool, seen.pair, folder))
    return Finding(f"{'/'.join(map(str, said))}, {rows} exported", rows == 1)


def late_skip(tool: Tool, folder: Path) -> Finding:
    """A label, then a skip from a page that was open all the time."""
    ann = tool.person("eve")
    seen = ann.next()
    assert seen is not None
    ann.say(seen, "first")
    status = ann.say(seen, "skip")
    rows = _rows(tool, seen.pair, folder)
    return Finding(f"{status}, the label {'stays' if rows else 'is gone'}", rows == [seen.pair.first])


def two_people(tool: Tool, folder: Path) -> Finding:
    """Two people ask for an item that one person should label."""
    one, other = tool.person("finn").next(), tool.person("gus").next()
    assert one is not None and other is not None
    same = one.pair == other.pair
    return Finding("both get the same one" if same else "different ones", not same)


def neither(tool: Tool, folder: Path) -> Finding:
    """That neither is better, and that both are bad."""
    ann = tool.person("hal")
    said = {}
    for wish in ("tie", "both_bad"):
        seen = ann.next()
        assert seen is not None
        said[wish] = ann.say(seen, wish)  # type: ignore[arg-type]
        if said[wish] != 200:
            ann.say(seen, "skip")
    if said["tie"] is None:
        return Finding("not in its template", False)
    good = set(said.values()) == {200}
    return Finding("two answers of their own" if good else f"refused with {said['tie']}", good)


def unknown_id(tool: Tool, folder: Path) -> Finding:
    """A label of an item that there is not."""
    status = tool.person("iris").forge()
    return Finding(str(status), status == 404)


def elsewhere(tool: Tool, folder: Path) -> Finding:
    """A label that a page of another origin sends with the person's cookie."""
    ann = tool.person("jan")
    seen = ann.next()
    assert seen is not None
    status = ann.from_elsewhere(seen)
    return Finding(f"{status}, {'refused' if status >= 400 else 'stored'}", status >= 400)


def not_signed_in(tool: Tool, folder: Path) -> Finding:
    """The queue for somebody who is not signed in."""
    status = tool.stranger()
    return Finding(f"{status}, {'refused' if status >= 400 else 'served'}", status >= 400)


def progress(tool: Tool, folder: Path) -> Finding:
    """Two of five are skipped: what the person is told."""
    tool.open(folder / "five", fifty()[1:6])
    try:
        ann = tool.person("kim")
        for _ in range(2):
            seen = ann.next()
            assert seen is not None
            ann.say(seen, "skip")
        words = ann.progress()
    finally:
        tool.close()
    return Finding(words, "2 skipped" in words)


FAULTS: dict[str, Callable[[Tool, Path], Finding]] = {
    "A skipped pair, asked for afterwards": skip_then_result,
    "A second vote from a stale page": vote_again,
    "A skip from a stale page, after a label": late_skip,
    "Three labels by one person, overlap 1": three_times,
    "Two people, overlap 1": two_people,
    "A tie, and both bad": neither,
    "A label of an unknown item": unknown_id,
    "A label from a page of another origin": elsewhere,
    "The queue without signing in": not_signed_in,
}


def _rows(tool: Tool, pair: Pair, folder: Path) -> list[str]:
    """The better answers that are exported of a pair."""
    files = tool.export(folder)
    return [chosen for prompt, chosen in tool.chosen(files[0]) if prompt == pair.prompt] if files else []


@dataclass(frozen=True)
class Filled:
    """A project of which every pair was labelled.

    first_left  how many pairs had the first answer on the left
    unsaid      pairs of which the person could not say what they think
    rows, right rows of the export, and how many of them name the answer that the person preferred
    wanted      pairs of which one answer was preferred
    """

    first_left: int
    unsaid: int
    rows: int
    right: int
    wanted: int
    files: list[Path]


def fill(tool: Tool, folder: Path) -> Filled:
    """Label all pairs, then export them."""
    pairs = fifty()
    tool.open(folder / "all", pairs)
    try:
        ann, first_left, said = tool.person("liv"), 0, Counter[bool]()
        while seen := ann.next():
            first_left += seen.first_left
            done = ann.say(seen, seen.pair.wish)
            said[done is not None and done < 300] += 1
            if done is None or done >= 300:
                ann.say(seen, "skip")
            if sum(said.values()) > len(pairs):
                raise RuntimeError(f"{tool.name} gives more items than there are")
        files = tool.export(folder)
        rows = tool.chosen(files[0])
    finally:
        tool.close()
    better = {p.prompt: {"first": p.first, "second": p.second}.get(p.wish, "") for p in pairs}
    right = sum(better[prompt] == text for prompt, text in rows)
    wanted = sum(text != "" for text in better.values())
    return Filled(first_left, said[False], len(rows), right, wanted, files)
