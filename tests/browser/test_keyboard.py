"""Everything by keyboard: each kind of item, every scale, and keys of one's own."""

from __future__ import annotations

import pytest
from browsing import check, current, kind, pair, pairs, press, saved, solution, swing

from prefrl.data.project import SCALES, Criterion


def test_a_whole_task_without_a_mouse(site):
    place = site(
        [pair(0), pair(1), pair(2), solution(3), check(4), swing(5), pair(6)],
        scale=4,
        criteria=(Criterion(name="Clear"), Criterion(name="Right", points=1)),
    )
    page = place.open()
    # clearly better, with a criterion, a reason and a better answer
    press(page, "1", "c", "1", "Escape", "n")
    page.keyboard.type("A is 2 times better")
    press(page, "Escape", "e")
    page.keyboard.type("The best answer")
    press(page, "Control+Enter")
    press(page, "b", "Enter")
    press(page, "f", "2", "Enter")  # reported, and still to be labelled
    assert page.locator(".caption").inner_text() == "Reported. You can still label or skip it."
    press(page, "t", "Enter")
    assert kind(page) == "steps"
    press(page, "1", "2", "u", "ArrowDown", "3", "a")
    page.keyboard.type("The right step")
    press(page, "Escape", "Enter")
    assert kind(page) == "check"
    press(page, "2", "Enter")
    assert kind(page) == "clips"
    press(page, " ", "4", "Enter")
    press(page, "s", "2", "Tab")
    press(page, "Control+Enter")
    page.wait_for_selector(".ending")
    saved(page)

    labels = {place.asked(label.item): label for label in place.labels()}
    first = labels["Question 000?"]
    assert (place.shown(first), first.strength, first.note) == ("a", "clearly", "A is 2 times better")
    sign = 1 if first.details["exchanged"] else -1
    assert first.details["criteria"] == {"Clear": 2 * sign}
    assert first.details["answer"] == {"text": "The best answer", "from": ""}
    assert first.details["active_ms"] > 0
    assert [labels[f"Question 00{i}?"].outcome for i in (1, 2, 6)] == ["both_bad", "tie", "skip"]
    assert labels["Question 006?"].details["reasons"] == ["The question makes no sense"]
    steps = labels["Solve 003."].details
    assert (steps["ratings"], steps["unsure"]) == ([1, 0, None, -1], [2])
    assert steps["alternatives"] == {"3": "The right step"}
    assert labels["Verify 004."].outcome == "wrong"
    swung = labels["Swing 005."]
    assert (place.shown(swung), swung.strength) == ("b", "clearly")
    (flag,) = place.store.flags()
    assert (place.asked(flag.item), flag.reason) == ("Question 002?", "Personal data")


@pytest.mark.parametrize("scale", sorted(SCALES))
def test_each_point_of_a_scale_has_its_key(site, scale):
    place = site(pairs(scale + 1), scale=scale)
    page = place.open()
    strengths = SCALES[scale]
    middle = [("tie", "")] if scale % 2 else []
    expected = [("a", word) for word in reversed(strengths)] + middle + [("b", word) for word in strengths]
    assert page.locator(".scale .choice").count() == len(expected) == max(scale, 2)
    for number in range(scale):
        page.wait_for_selector(".bar")  # nobody labels five items faster than the next can be fetched
        press(page, str(number + 1), "Enter")
    page.wait_for_selector(".bar")
    press(page, "9", "Enter")  # no such point: nothing is chosen, and nothing sent
    assert page.locator(".warning").inner_text() == "Choose first: nothing was sent."
    saved(page)
    assert [(place.shown(label), label.strength) for label in place.labels()] == expected


def test_keys_are_left_alone_where_they_mean_something_else(site):
    place = site(pairs(3))
    page = place.open()
    before = current(page)
    press(page, "n")
    page.keyboard.type("1 is better than 2, t b s z?")
    press(page, "Escape")
    for combined in ("Control+1", "Alt+1", "Meta+1", "Shift+T", "Control+b"):
        press(page, combined)
    page.evaluate("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '1', repeat: true, bubbles: true}))")
    assert page.locator("[aria-pressed=true]").count() == 0
    press(page, "Control+Enter", "Enter")
    assert page.locator(".warning").inner_text() == "Choose first: nothing was sent."
    assert (current(page), place.labels()) == (before, [])
    assert page.locator("#rationale").input_value() == "1 is better than 2, t b s z?"


def test_a_key_held_down_labels_one_item(site):
    place = site(pairs(6))
    page = place.open()
    press(page, "1")
    page.keyboard.down("Enter")
    page.keyboard.down("Enter")  # the browser's repetition
    page.keyboard.up("Enter")
    press(page, "Enter")
    saved(page)
    assert len(place.labels()) == 1


def test_keys_go_by_what_they_write_and_can_be_changed(site):
    place = site(pairs(4))
    page = place.open()
    # on a French keyboard a digit needs Shift
    french = "{ key: '2', code: 'Digit2', shiftKey: true, bubbles: true }"
    page.evaluate(f"document.body.dispatchEvent(new KeyboardEvent('keydown', {french}))")
    assert page.locator("[data-outcome=b]").get_attribute("aria-pressed") == "true"
    press(page, "?")
    both_bad = page.get_by_role("button", name="Both are bad: B. Change the key")
    for key, said in (("F5", "F5 belongs to the browser; choose another key."), ("t", "T is taken: They are as good.")):
        both_bad.click()
        press(page, key)
        assert page.locator("dialog [role=status]").inner_text() == said
    both_bad.click()
    press(page, "x", "Escape")
    press(page, "b")
    assert page.locator("[data-outcome=both_bad]").get_attribute("aria-pressed") == "false"
    page.reload()
    page.wait_for_selector(".bar")
    assert page.locator("[data-outcome=both_bad] kbd").inner_text() == "X"
    press(page, "x", "Enter")
    saved(page)
    assert [label.outcome for label in place.labels()] == ["both_bad"]
    press(page, "?")
    page.get_by_role("button", name="Keys as they were at first").click()
    assert page.get_by_role("button", name="Both are bad: B. Change the key").count() == 1


def test_no_key_is_the_browsers_and_none_has_two_meanings(site):
    place = site(pairs(1))
    page = place.open()
    found = page.evaluate(
        """async () => {
            const { ACTIONS, GROUPS, normal } = await import("/assets/keys.js");
            const used = (groups) => groups.flatMap((group) => Object.values(ACTIONS[group]));
            const keys = Object.values(GROUPS).map(used);
            const refused = keys.flat().filter((key) => normal({ key }) !== key);
            const twice = keys.map((list) => list.filter((key, place) => list.indexOf(key) !== place));
            return { count: keys.flat().length, refused, twice: twice.flat() };
        }"""
    )
    assert (found["refused"], found["twice"]) == ([], [])
    assert found["count"] > 60


def test_sending_at_once_is_a_choice_of_ones_own(site):
    place = site(pairs(4))
    page = place.open()
    page.locator("#person").click()
    page.get_by_role("switch", name="Send at once").click()
    press(page, "Escape")
    shown = [current(page)]
    for key in ("1", "t"):
        press(page, key)
        shown.append(current(page))
    saved(page)
    assert len(set(shown)) == 3
    page.locator("[data-outcome=both_bad]").dblclick()
    saved(page)
    assert [place.shown(label) for label in place.labels()] == ["a", "tie", "both_bad"]
