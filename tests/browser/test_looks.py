"""Phones, zoom, colours, languages, screen readers, and how fast the next item is there."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import check, kind, pair, pairs, press, saved, solution, swing

import annotate
from prefrl.data.project import Criterion

ASSETS = Path(annotate.__file__).parent / "assets"
LONG = "A long paragraph about nothing in particular. " * 60
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def serious(page):
    """What axe holds against the page."""
    found = Axe().run(page).response["violations"]
    return [
        (one["id"], node["html"][:200])
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_no_serious_barriers(site, colours):
    tasks = [pair(0, first="# Title\n\n```py\nx\n```\n\n<think>y</think>z"), solution(1), check(2), swing(3)]
    place = site(tasks, scale=7, criteria=(Criterion(name="Clear"),), guidelines="# Be fair")
    page = place.open(color_scheme=colours)
    for key in ("?", "g", "h", "s", "f"):
        press(page, key)
        page.wait_for_selector("dialog")
        assert (key, serious(page)) == (key, [])
        press(page, "Escape")
    page.locator("#person").click()
    assert serious(page) == []
    press(page, "Escape", "e", "Escape")
    for expected in ("pair", "steps", "check", "clips"):
        assert (kind(page), serious(page)) == (expected, [])
        press(page, "1", "2", "3", "1")
        assert (kind(page), serious(page)) == (expected, [])
        press(page, "Enter")
    page.wait_for_selector(".ending")
    assert serious(page) == []


@pytest.mark.parametrize("language", ["en-GB", "zh-CN"])
def test_a_phone_shows_a_over_b_and_a_bar_that_stays(site, language):
    place = site([pair(0, first=LONG, second=LONG), solution(1), check(2), swing(3)], scale=8)
    page = place.open(viewport={"width": 390, "height": 800}, locale=language)
    boxes = [page.locator(f".answer[data-side={side}]").bounding_box() for side in "ab"]
    assert boxes[0]["y"] + boxes[0]["height"] < boxes[1]["y"] and boxes[0]["x"] == boxes[1]["x"]
    for _ in range(4):
        page.wait_for_selector(".bar")
        assert page.evaluate(SIDEWAYS) <= 0
        page.evaluate("scrollTo(0, document.body.scrollHeight / 2)")
        bar = page.locator(".bar").bounding_box()
        assert bar["y"] + bar["height"] == pytest.approx(800, abs=1) and bar["height"] < 220
        sizes = page.eval_on_selector_all(
            ".bar button", "(all) => all.map((one) => one.getBoundingClientRect().height)"
        )
        assert min(sizes) >= 44
        press(page, *("1" * 4), "Enter")


def test_twice_the_size_leaves_room_to_read(site):
    place = site([pair(0, first=LONG), solution(1), check(2), swing(3)], scale=7)
    page = place.open(viewport={"width": 640, "height": 400})
    for _ in range(4):
        page.wait_for_selector(".bar")
        assert page.evaluate(SIDEWAYS) <= 0
        assert page.locator(".bar").bounding_box()["height"] < 120
        press(page, *("1" * 4), "Enter")


def test_columns_are_as_high_and_scroll_together_or_apart(site):
    place = site([pair(0, first=LONG, second="short")])
    page = place.open(viewport={"width": 1280, "height": 600})
    heights = [page.locator(f".answer[data-side={side}]").bounding_box()["height"] for side in "ab"]
    assert heights[0] == heights[1] > 600
    press(page, "j")
    long = page.locator(".scroller", has_text="A long paragraph")
    long.evaluate("(box) => box.scrollTo(0, 200)")
    assert long.evaluate("(box) => box.scrollTop") == 200
    assert page.evaluate("scrollY") == 0
    press(page, "j")
    assert long.evaluate("(box) => box.scrollHeight - box.clientHeight") == 0


def test_nothing_of_gradio_is_seen(site):
    place = site(pairs(2))
    page = place.open()
    assert page.locator("gradio-app").evaluate("(app) => getComputedStyle(app).display") == "none"
    assert page.locator("footer:visible").count() == 1
    assert page.title() == "Answers"
    fonts = page.eval_on_selector_all(
        "#work *", "(all) => [...new Set(all.map((one) => getComputedStyle(one).fontFamily.split(',')[0]))]"
    )
    assert set(fonts) <= {"Inter", "ui-monospace", "math"}


@pytest.mark.parametrize(
    ("role", "leads_to"),
    [("annotator", []), ("reviewer", ["/review"]), ("manager", ["/manage"]), ("admin", ["/manage"])],
)
def test_the_menu_leads_where_one_may_go(site, role, leads_to):
    place = site(pairs(2))
    place.store.people.add("ruth", role)
    page = place.open(place.context("ruth"))
    page.click("#person")
    assert [link.get_attribute("href") for link in page.locator("dialog a").all()] == leads_to
    assert [page.request.get(f"{place.url}{path}").status for path in leads_to] == [200] * len(leads_to)


def test_the_language_can_be_changed(site):
    place = site(pairs(2))
    page = place.open()
    press(page, "1")
    page.locator("#person").click()
    page.locator("#like-language").select_option("zh")
    page.wait_for_function("document.documentElement.lang === 'zh'")
    assert page.locator(".caption").inner_text() == "A 更好"
    page.reload()
    page.wait_for_selector(".bar")
    assert page.locator(".send").inner_text().startswith("提交")
    press(page, "s")
    assert page.locator(".reason span").first.inner_text() == "我无法判断"  # a reason of ours; it is sent as it is
    press(page, "1", "Enter")
    saved(page)
    assert [label.details["reasons"] for label in place.labels()] == [["I cannot judge this"]]


def test_both_languages_have_all_texts():
    english, chinese = (json.loads((ASSETS / f"i18n/{name}.json").read_text()) for name in ("en", "zh"))
    scripts = "\n".join(path.read_text() for path in ASSETS.glob("*.js"))
    used = set(re.findall(r'\bt\(\s*"([\w.]+)"', scripts))
    plain = {re.sub(r"\.(one|other)$", "", key) for key in english}
    assert {key for key in used if not key.endswith(".") and key not in plain} == set()
    assert {re.sub(r"\.(one|other)$", "", key) for key in chinese} == plain
    holes = re.compile(r"\{(\w+)\}")
    differ = [
        key
        for key in english
        if key in chinese and set(holes.findall(english[key])) != set(holes.findall(chinese[key]))
    ]
    assert differ == []


@pytest.mark.slow
def test_the_next_item_is_painted_at_once(site):
    place = site([pair(number, first=LONG, second="```py\nx = 1\n```\n\n" + LONG) for number in range(40)])
    page = place.open()
    page.evaluate(
        """() => {
            window.painted = [];
            addEventListener('keydown', (event) => {
                if (event.key !== 'Enter') return;
                const before = document.querySelector('#item').dataset.assignment;
                requestAnimationFrame(() => setTimeout(() => {
                    const after = document.querySelector('#item').dataset.assignment;
                    if (after !== before) window.painted.push(performance.now() - event.timeStamp);
                }));
            }, true);
        }"""
    )
    for _ in range(25):
        page.wait_for_selector(".bar")
        press(page, "1", "Enter")
        page.wait_for_timeout(100)
    times = page.evaluate("window.painted")
    assert len(times) == 25
    assert statistics.median(times) < 50.0


def test_time_stands_still_while_nobody_is_there(site):
    place = site(pairs(2))
    context = place.context()
    context.clock.install()
    page = place.open(context)
    page.clock.run_for(5_000)
    page.mouse.move(10, 10)
    page.clock.fast_forward(600_000)  # ten minutes without a hand: one of them counts
    page.mouse.move(20, 20)
    page.evaluate(
        """() => {
            Object.defineProperty(document, 'hidden', { get: () => window.away, configurable: true });
            window.away = true;
            document.dispatchEvent(new Event('visibilitychange'));
        }"""
    )
    page.clock.fast_forward(30_000)
    page.evaluate("() => { window.away = false; document.dispatchEvent(new Event('visibilitychange')); }")
    page.clock.run_for(2_000)
    press(page, "1", "Enter")
    page.clock.run_for(1_000)
    page.wait_for_selector(".status.saved", state="attached")
    (label,) = place.labels()
    assert 67_000 <= label.details["active_ms"] < 70_000


def test_clips_play_alone_together_and_by_hand(site):
    place = site([swing(0, steps=21)])
    page = place.open()
    sliders = [page.get_by_role("slider", name=f"Time in clip {name}") for name in "AB"]

    def positions():
        return [slider.input_value() for slider in sliders]

    assert positions() == ["0", "0"]  # still, as this person wants less motion
    press(page, " ")
    page.wait_for_function(
        "[...document.querySelectorAll('.transport input')].every((slider) => slider.value === '20')"
    )
    sliders[0].focus()
    press(page, "Home", *["ArrowRight"] * 3)
    assert positions() == ["3", "3"]
    press(page, "Escape", ".", ".", ",")
    assert positions() == ["4", "4"]
    page.get_by_role("button", name="Linked").click()
    sliders[1].focus()
    press(page, "End")
    assert positions() == ["4", "20"]
    drawn = page.eval_on_selector_all(
        "canvas", "(all) => all.map((c) => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(Boolean))"
    )
    assert drawn == [True, True]
    names = page.eval_on_selector_all("canvas", "(all) => all.map((canvas) => canvas.getAttribute('aria-label'))")
    assert {name[8:] for name in names} == {
        "21 steps, 1 seconds. angle from 0 to 5. speed from 0.75 to 0.75.",
        "21 steps, 1 seconds. angle from 0 to 10. speed from 0.5 to 0.5.",
    }
