"""Choosing again, undoing, editing: one label counts, and every version is kept."""

from __future__ import annotations

from browsing import current, pair, pairs, press, saved, solution

from prefrl.data.project import Criterion


def test_the_last_choice_counts(site):
    place = site(pairs(2), scale=4)
    page = place.open()
    press(page, "1", "4", "t", "3", "Enter")
    saved(page)
    (label,) = place.labels()
    assert (place.shown(label), label.strength, label.version) == ("b", "slightly", 1)


def test_a_label_is_of_the_text_whatever_side_it_was_on(site):
    place = site(pairs(12))
    page = place.open()
    sides = set()
    for _ in range(12):
        page.wait_for_selector(".bar")
        side = page.locator(".answer", has_text="First of").get_attribute("data-side")
        sides.add(side)
        page.locator(f"[data-outcome={side}]").click()
        page.locator(".send").click()
        page.wait_for_timeout(20)
    page.wait_for_selector(".ending")
    assert [label.outcome for label in place.labels()] == ["first"] * 12
    assert sides == {"a", "b"}


def test_two_clicks_on_send_send_once(site):
    place = site(pairs(4))
    page = place.open()
    page.locator("[data-outcome=a]").click()
    page.locator(".send").dblclick()
    saved(page)
    assert len(place.labels()) == 1


def test_undo_at_once_makes_a_second_version(site):
    place = site(pairs(3), criteria=(Criterion(name="Clear"),))
    page = place.open()
    first = current(page)
    press(page, "1", "n")
    page.keyboard.type("because")
    press(page, "Control+Enter")
    second = current(page)
    press(page, "2", "z")  # the other item's choice is kept meanwhile
    page.wait_for_selector(".banner")
    assert current(page) == first
    assert page.locator("#rationale").input_value() == "because"
    assert page.locator("[data-outcome=a]").get_attribute("aria-pressed") == "true"
    press(page, "t", "Enter")
    page.wait_for_selector(".banner", state="detached")
    assert current(page) == second
    assert page.locator("[data-outcome=b]").get_attribute("aria-pressed") == "true"
    saved(page)
    (label,) = place.labels()
    assert (label.outcome, label.version, label.note) == ("tie", 2, "because")
    assert [place.shown(version) for version in place.store.labels(all_versions=True)] == ["a", "tie"]


def test_back_and_forth_by_the_list_and_the_back_button(site):
    place = site(pairs(3))
    page = place.open()
    press(page, "1", "Enter")
    saved(page)
    page.reload()
    page.wait_for_selector(".bar")
    here = current(page)
    press(page, "h")
    page.locator(".mine button").first.click()
    page.wait_for_selector(".banner")
    there = current(page)
    page.go_back()
    page.wait_for_selector(".banner", state="detached")
    assert current(page) == here != there
    page.go_forward()
    page.wait_for_selector(".banner")
    press(page, "2")
    page.locator(".send").click()
    page.wait_for_selector(".banner", state="detached")
    saved(page)
    (label,) = place.labels()
    assert (place.shown(label), label.version) == ("b", 2)


def test_undo_goes_further_back_each_time_and_escape_returns(site):
    place = site(pairs(4))
    page = place.open()
    shown = []
    for _ in range(3):
        shown.append(current(page))
        press(page, "1", "Enter")
    here = current(page)
    for expected in reversed(shown):
        press(page, "z")
        page.wait_for_function("id => document.querySelector('#item').dataset.assignment === id", arg=expected)
    press(page, "Escape")
    page.wait_for_selector(".banner", state="detached")
    assert current(page) == here


def test_steps_can_be_corrected_and_the_first_error_ends_them(site):
    place = site([solution(0, count=5)], step_mode="first_error")
    page = place.open()
    press(page, "1", "3")
    assert page.locator(".step.after").count() == 3
    assert page.locator(".caption").inner_text() == "First error at step 2"
    press(page, "1")  # it was right after all: the later steps are to be rated again
    assert page.locator(".step.after").count() == 0
    press(page, "Enter")
    assert page.locator(".warning").inner_text() == "Rate the other steps first: nothing was sent."
    press(page, "1", "1", "3", "Enter")
    page.wait_for_selector(".ending")
    saved(page)
    (label,) = place.labels()
    assert label.details["ratings"] == [1, 1, 1, 1, -1]


def test_an_unchanged_answer_is_no_better_one_and_a_changed_one_says_where_it_is_from(site):
    place = site([pair(number, first="one", second="two") for number in range(2)])
    page = place.open()
    for text in ("", " and more"):
        press(page, "1", "e")
        page.get_by_role("button", name="Start from B").click()
        page.locator("#answer").press("End")
        page.keyboard.type(text)
        press(page, "Control+Enter")
    saved(page)
    unchanged, changed = place.labels()
    assert "answer" not in unchanged.details
    side = "first" if changed.details["exchanged"] else "second"
    assert changed.details["answer"] == {"text": {"first": "one", "second": "two"}[side] + " and more", "from": side}


def test_a_rationale_can_be_required(site):
    place = site(pairs(2), rationale="required")
    page = place.open()
    press(page, "1", "Enter")
    assert page.locator(".warning").inner_text() == "Say why first: nothing was sent."
    page.keyboard.type("It is shorter.")  # the field is ready
    press(page, "Control+Enter")
    saved(page)
    assert [label.note for label in place.labels()] == ["It is shorter."]
