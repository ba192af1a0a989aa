"""A file into a project and labels out of it, in a browser."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from annotate import serve
from annotate.manage import shell
from prefrl.data.formats import to_pairs
from prefrl.data.tables import load_table

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of the libraries of a whole server, which runs in this process
]
TABS = (("Import", "annotate.manage.imports"), ("Export", "annotate.manage.exports"))


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setattr(shell, "MANAGE_TABS", TABS)
    with serve.Running(tmp_path / "project") as server:
        yield server


@pytest.fixture
def page(server, browser):
    """The Manage page of a manager."""
    people, name = server.studio.store.people, "boss"
    people.add(name, "manager")
    cookie = {"name": server.studio.cookie, "value": people.open_session(name, 1.0).token, "url": server.url}
    with browser.new_context(viewport={"width": 1280, "height": 1400}) as context:
        context.add_cookies([cookie])
        page = context.new_page()
        page.goto(f"{server.url}/manage")
        yield page


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def test_a_file_becomes_items_and_labels_become_a_file(server, page, tmp_path):
    rows = [{"prompt": f"Topic {n}?", "response_a": f"one {n}", "response_b": f"two {n}", "seed": n} for n in range(20)]
    rows += [rows[3], {"prompt": "same", "response_a": "x", "response_b": "x", "seed": 0}]
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    page.set_input_files("input[type=file]", tmp_path / "pairs.jsonl", timeout=60_000)
    expect(page.get_by_text("22 rows with the columns prompt, response_a, response_b, seed.")).to_be_visible()
    press(page, "Preview")
    told = "20 items of 22 rows; left out: 1 asked twice (first: row 21), 1 answers that are the same (first: row 22)"
    expect(page.get_by_text(told, exact=True)).to_be_visible(timeout=15_000)
    expect(page.get_by_role("gridcell", name="Topic 0?").last).to_be_visible()
    store = server.studio.store
    assert store.count_items() == 0
    press(page, "Import")
    expect(page.get_by_text(f"Imported {told}")).to_be_visible(timeout=15_000)
    assert store.count_items() == 20

    for n, item in enumerate(store.items()[:9]):
        store.submit(item.id, "ann", ("first", "second", "tie")[n % 3])
    page.get_by_role("tab", name="Export").click()
    page.get_by_text("Keep with the label 0.5").first.click()
    press(page, "Export")
    expect(page.get_by_text("9 rows; left out: 11 without a label")).to_be_visible(timeout=15_000)
    with page.expect_download() as download:
        page.locator("a[download='preferences.jsonl']").click()
    download.value.save_as(tmp_path / "out.jsonl")
    pairs = to_pairs(load_table(tmp_path / "out.jsonl")).items
    assert [(pair.chosen.text, pair.tie) for pair in pairs[:3]] == [("one 0", 0.0), ("two 1", 0.0), ("one 2", 1.0)]

    press(page, "Make a backup")
    expect(page.get_by_text("it was read through")).to_be_visible(timeout=15_000)
    assert len(list((tmp_path / "project" / "backups").iterdir())) == 1
