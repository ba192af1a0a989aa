"""Networks, servers, sessions and tabs come and go: nothing said is lost, and nothing is stored twice."""

from __future__ import annotations

from typing import Any

import pytest
from browsing import PASSWORD, current, pair, pairs, press, saved


def test_five_labels_in_a_minute_offline_arrive_once(site):
    place = site(pairs(8))
    context = place.context()
    context.clock.install()
    page = place.open(context)
    page.wait_for_function("document.querySelectorAll('.status.saved').length === 1")
    context.set_offline(True)
    for number in range(5):
        page.wait_for_selector(".bar")
        press(page, "n")
        page.keyboard.type(f"offline {number}")
        press(page, "Escape", "1", "Enter")
    page.wait_for_selector(".ending")
    assert "5 labels are kept in this browser" in page.locator(".ending").inner_text()
    page.clock.run_for(60_000)
    assert page.locator(".status").inner_text() == "Offline: 5 kept here"
    assert place.labels() == []
    context.set_offline(False)
    page.clock.run_for(16_000)
    saved(page)
    labels = place.store.labels(all_versions=True)
    assert sorted(label.note for label in labels) == [f"offline {number}" for number in range(5)]
    assert {label.version for label in labels} == {1}
    page.wait_for_selector(".bar")  # and it goes on with the sixth


def test_labels_survive_the_tab_they_were_given_in(site):
    place = site(pairs(4))
    context = place.context()
    page = place.open(context)
    context.set_offline(True)
    press(page, "1", "Enter", "2", "Enter")
    page.close()
    context.set_offline(False)
    saved(place.open(context))
    assert sorted(place.shown(label) for label in place.labels()) == ["a", "b"]


def test_an_answer_that_is_lost_on_its_way_back_makes_no_second_label(site):
    place = site(pairs(3))
    context = place.context()
    page = place.open(context)
    sent: list[dict[str, Any]] = []

    def lose(route: Any) -> None:
        sent.append(route.request.post_data_json)
        route.fetch()
        if len(sent) == 1:
            route.abort("connectionreset")
        else:
            route.continue_()

    context.route("**/api/labels", lose)
    press(page, "1", "Enter")
    page.wait_for_selector(".status.offline")
    saved(page)
    assert len(sent) == 2 and sent[0] == sent[1]
    assert [label.version for label in place.store.labels(all_versions=True)] == [1]


def test_a_session_that_ends_while_somebody_writes_takes_nothing_with_it(site):
    place = site(pairs(3))
    page = place.open()
    press(page, "1", "n")
    page.keyboard.type("half a sentence")
    place.store.people.close_sessions("ana")
    page.keyboard.type(", and the rest")
    press(page, "Control+Enter")
    page.wait_for_selector("dialog .login")
    assert place.labels() == []
    page.locator("#password").fill("not the password")
    press(page, "Enter")
    page.wait_for_function("document.querySelector('dialog .warning').textContent.startsWith('That is not')")
    page.locator("#password").fill(PASSWORD)
    press(page, "Enter")
    page.wait_for_selector("dialog", state="detached")
    saved(page)
    assert [label.note for label in place.labels()] == ["half a sentence, and the rest"]
    press(page, "2", "Enter")
    saved(page)
    assert len(place.labels()) == 2


def test_labels_are_never_sent_as_somebody_else(site):
    place = site(pairs(3))
    context = place.context("ana")
    page = place.open(context)
    place.context("eve").close()
    token = place.store.people.open_session("eve", 1.0).token
    context.add_cookies([{"name": place.running.studio.cookie, "value": token, "url": place.url}])
    press(page, "1", "Enter")
    page.wait_for_selector("dialog .login")
    assert place.labels() == []
    press(page, "Escape")
    assert page.locator(".status").inner_text() == "Sending 1"
    press(page, "2", "Enter")
    page.wait_for_selector("dialog .login")
    ana = place.store.people.open_session("ana", 1.0).token
    context.add_cookies([{"name": place.running.studio.cookie, "value": ana, "url": place.url}])
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # she comes back from another tab
    page.wait_for_selector("dialog", state="detached")
    saved(page)
    assert [label.annotator for label in place.labels()] == ["ana", "ana"]


def test_items_that_were_given_to_others_meanwhile_go_and_drafts_of_them_stay(site):
    place = site(pairs(6))
    context = place.context()
    context.clock.install()
    page = place.open(context)
    first = current(page)
    places = [assignment for assignment in place.store.work.next("ana", count=5)]
    assert len(places) == 5
    for assignment in places:
        place.store.work.release(assignment.id, "ana")
    assert len(place.store.work.next("ben", count=5)) == 5
    page.clock.run_for(1_000)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # nothing is due yet
    assert current(page) == first
    press(page, "1")
    page.clock.fast_forward(29 * 60_000)
    page.mouse.move(5, 5)
    page.clock.run_for(61_000)
    page.wait_for_timeout(500)
    assert current(page) == first  # something was said of it
    press(page, "Enter")
    page.wait_for_selector(".status.refused")
    page.wait_for_function("id => document.querySelector('#item').dataset.assignment !== id", arg=first)
    assert place.labels() == []


def test_a_refresh_and_the_back_button_keep_the_draft(site):
    place = site(pairs(4), scale=7)
    page = place.open()
    press(page, "1", "n", *"done first", "Control+Enter")
    item = current(page)
    sides = page.locator(".answer .text").all_inner_texts()
    press(page, "6", "n")
    page.keyboard.type("not sent yet")
    for leave in (page.reload, lambda: (page.goto(f"{place.url}/health"), page.go_back())):
        leave()
        page.wait_for_selector(".bar")
        assert current(page) == item
        assert page.locator(".answer .text").all_inner_texts() == sides
        assert page.locator("#rationale").input_value() == "not sent yet"
        assert page.locator("[aria-pressed=true]").get_attribute("data-strength") == "clearly"
    press(page, "Enter")
    saved(page)
    assert [label.note for label in place.labels()] == ["done first", "not sent yet"]


@pytest.mark.slow
def test_eight_tabs_at_once(site):
    place = site(pairs(40))
    context = place.context()
    tabs = [place.open(context) for _ in range(8)]
    assert len({current(tab) for tab in tabs}) == 8
    for _ in range(3):
        for tab in tabs:
            tab.wait_for_selector(".bar")
            press(tab, "1", "Enter")
            saved(tab)  # people do not change tabs within the time that a browser takes to tell them of each other
    labels = place.store.labels(all_versions=True)
    assert (len(labels), {label.version for label in labels}) == (24, {1})


def test_more_tabs_than_items_show_the_same_one_and_move_on_together(site):
    place = site(pairs(1))
    context = place.context()
    tabs = [place.open(context) for _ in range(2)]
    assert current(tabs[0]) == current(tabs[1]) != ""
    press(tabs[0], "1", "Enter")
    for tab in tabs:
        tab.wait_for_selector(".ending")
    assert len(place.store.labels(all_versions=True)) == 1


def test_two_devices_of_one_person_do_not_overwrite_each_other(site):
    place = site([pair(0)])
    first, second = (place.open(place.context()) for _ in range(2))
    assert current(first) == current(second) != ""
    press(first, "1", "Enter")
    saved(first)
    press(second, "2", "n")
    second.keyboard.type("second thoughts")
    press(second, "Control+Enter")
    second.wait_for_selector(".status.refused")
    (label,) = place.labels()
    assert (place.shown(label), label.version) == ("a", 1)
    second.locator(".status").click()
    assert "second thoughts" in second.locator("dialog").inner_text()
    second.get_by_role("button", name="Look at it").click()
    second.wait_for_selector(".banner")
    assert second.locator("#rationale").input_value() == "second thoughts"
    press(second, "Enter")
    second.wait_for_selector(".banner", state="detached")
    saved(second)
    (label,) = place.labels()
    assert (place.shown(label), label.version, label.note) == ("b", 2, "second thoughts")


@pytest.mark.slow
def test_new_items_appear_by_themselves(site):
    place = site(pairs(2))
    page = place.open()
    press(page, "1", "Enter", "1", "Enter")
    page.wait_for_selector(".ending")
    assert page.locator(".ending h1").inner_text() == "All done"
    place.store.add_tasks([pair(7)], by="test")
    page.wait_for_selector(".bar", timeout=20_000)
    assert page.locator(".chat").inner_text().endswith("Question 007?")
    press(page, "1", "Enter")
    page.wait_for_selector(".ending")
    place.store.add_tasks([pair(8)], by="test")
    page.reload()
    page.wait_for_selector(".bar")
    assert page.locator(".chat").inner_text().endswith("Question 008?")


def test_items_that_others_hold_and_a_quota_have_ends_of_their_own(site):
    place = site(pairs(2), quota=1)
    ana, ben = place.open(), place.open(name="ben")
    press(ana, "1", "Enter")
    ana.wait_for_selector(".ending")
    assert "as many labels as this project asks of one person" in ana.locator(".ending").inner_text()
    press(ben, "1", "Enter")
    ben.wait_for_selector(".ending")
    assert len(place.labels()) == 2


def test_full_storage_is_said_and_nothing_is_lost_meanwhile(site):
    place = site(pairs(3))
    context = place.context()
    context.add_init_script(
        "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); };"
    )
    page = place.open(context)
    context.set_offline(True)
    press(page, "1", "Enter")
    page.wait_for_selector(".status.offline")
    assert "Keep this tab open" in page.locator(".status").inner_text()
    context.set_offline(False)
    page.evaluate("dispatchEvent(new Event('online'))")
    saved(page)
    assert len(place.labels()) == 1
