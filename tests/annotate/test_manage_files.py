"""The tabs Import and Export, by their handlers: who may, what is read, what comes out."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest
from annotating import pair, place, steps

from annotate.manage import exports, imports
from prefrl.data.tables import load_table

ROWS = [{"prompt": f"Question {n}?", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(6)]
ROWS.append({"prompt": "again", "chosen": "same", "rejected": "same"})


@pytest.fixture
def project(tmp_path, monkeypatch):
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(uploads))
    with place(tmp_path / "project", scale=4) as opened:
        opened.uploads = uploads
        yield opened


def request(project, name="boss", role="manager"):
    login = project.enter(name, role).login
    return SimpleNamespace(cookies={project.studio.cookie: login.token})


def upload(project, rows=ROWS, name="pairs.jsonl"):
    path = project.uploads / name
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def form(file=None, hub="", shape="Pairs of answers", near="Keep and mark", leaks="Leave out", labels=True, roles=None):
    roles = roles or {"prompt": "prompt", "first": "chosen", "second": "rejected"}
    return [file, hub, shape, near, leaks, labels, 2, *(roles.get(role, "") for role in imports.ROLES)]


def test_a_file_is_read_previewed_and_imported(project):
    page, boss, file = imports.Imports(project.studio), request(project), upload(project)
    told, shape, *roles = page.read(boss, file, "")
    assert "7 rows with the columns prompt, chosen, rejected" in told and shape == "Pairs of answers"
    assert {r: u["value"] for r, u in zip(imports.ROLES, roles, strict=True) if u["value"]} == {
        "prompt": "prompt",
        "first": "chosen",
        "second": "rejected",
    }
    told, counted, first = page.preview(boss, *form(file))
    assert "6 items with 6 labels of 7 rows" in told
    assert counted == [["answers that are the same", 1, 7, "left out"]]
    assert first[0] == ["Question 0?", "good 0", "bad 0"] and len(first) == 5
    assert project.store.count_items() == 0
    told = list(page.carry_out(boss, *form(file)))
    assert "Imported 6 items" in told[-1]
    assert [task.overlap for task in project.store.tasks()] == [2] * 6
    assert [label.outcome for label in project.store.labels()] == ["first"] * 6
    (event,) = project.store.events(kind="import", person="boss")
    assert event.body["left_out"] == {"answers that are the same": 1}
    with pytest.raises(gr.Error, match="nothing to import"):
        list(page.carry_out(boss, *form(file)))


def test_another_shape_asks_for_other_columns(project):
    page, boss = imports.Imports(project.studio), request(project)
    file = upload(project, [{"text": "q", "parts": ["a", "b"]}])
    told, _, *roles = page.read(boss, file, "")
    assert "columns text, parts" in told and not any(role["value"] for role in roles)
    roles = dict(zip(imports.ROLES, page.columns(boss, file, "", "Solutions in steps"), strict=True))
    assert [role for role, update in roles.items() if update["visible"]] == [
        *("prompt", "round", "source", "item_id", "steps", "answer", "policy"),
    ]
    chosen = {"prompt": "text", "steps": "parts"}
    _, _, first = page.preview(boss, *form(file, shape="Solutions in steps", roles=chosen))
    assert first == [["q", "a\nb", ""]]


def test_an_exported_project_is_taken_as_it_is(project, tmp_path):
    boss = request(project)
    with place(tmp_path / "other") as other:
        other.store.add_tasks([pair(), steps()])
        other.store.export(project.uploads / "other.jsonl")
    page, file = imports.Imports(project.studio), str(project.uploads / "other.jsonl")
    assert "lines of an exported project" in page.read(boss, file, "")[0]
    assert "Imported 2 items" in list(page.carry_out(boss, *form(file)))[-1]
    with pytest.raises(gr.Error, match="Press Import"):
        page.preview(boss, *form(file))


def test_only_who_manages_may(project):
    page, out = imports.Imports(project.studio), exports.Exports(project.studio)
    file = upload(project)
    calls = {
        "read": lambda who: page.read(who, file, ""),
        "columns": lambda who: page.columns(who, file, "", "Pairs of answers"),
        "preview": lambda who: page.preview(who, *form(file)),
        "import": lambda who: list(page.carry_out(who, *form(file))),
        "export": lambda who: out.make(who, *choices()),
        "everything": out.everything,
        "backup": out.backup,
    }
    for call in calls.values():
        for name, role in (("ann", "annotator"), ("rev", "reviewer")):
            with pytest.raises(gr.Error, match="Nothing was changed"):
                call(request(project, name, role))
        with pytest.raises(gr.Error, match="signed out"):
            call(SimpleNamespace(cookies={}))
    assert project.store.count_items() == 0 and not project.store.events(kind="export")


@pytest.mark.parametrize("name", ["/etc/passwd", "../project/preferences.db", "no.jsonl"])
def test_nothing_but_an_upload_is_read(project, name):
    page, boss = imports.Imports(project.studio), request(project)
    with pytest.raises(gr.Error, match="was not uploaded here"):
        page.read(boss, str(project.uploads / name), "")
    with pytest.raises(gr.Error, match="one of the two"):
        page.read(boss, None, "")
    with pytest.raises(gr.Error, match="names no dataset"):
        page.read(boss, None, str(project.uploads))


def choices(what="Preferences (prompt, chosen, rejected)", kind="JSON lines", margins=False, weigh=False, held_out=0.0):
    return [
        kind,
        what,
        "What most people say",
        "Leave out",
        "Leave out",
        True,
        False,
        True,
        margins,
        weigh,
        held_out,
        0,
    ]


@pytest.fixture
def labelled(project):
    items = [pair(n, overlap=3) for n in range(8)]
    project.store.add_tasks([*items, steps()])
    for n, item in enumerate(items[:7]):
        for person in ("ann", "bob", "cy"):
            outcome = "tie" if n == 6 else "second" if person == "cy" and n == 0 else "first"
            project.store.submit(item.id, person, outcome, strength="clearly")
    project.store.submit(steps().id, "ann", "steps", details={"ratings": [1, 0, -1]})
    return project


@pytest.mark.parametrize("kind", ["JSON lines", "Parquet"])
def test_an_export_is_a_file_and_its_counts(labelled, kind):
    out, boss = exports.Exports(labelled.studio), request(labelled)
    told, counted, files = out.make(boss, *choices(kind=kind, margins=True, weigh=True))
    assert "6 rows; left out: 1 called a tie, 1 without a label, 1 without a pair of answers" in told
    assert dict(counted) == {"called a tie": 1, "without a label": 1, "without a pair of answers": 1}
    rows = load_table(files[0]).rows
    assert [(row["chosen"], row["margin"]) for row in rows] == [(f"Left {n}", 2.0) for n in range(6)]
    assert 0.0 < rows[0]["weight"] < rows[1]["weight"] <= 1.0
    assert not any(secret in json.dumps(rows) for secret in ('"ann"', "bob", "known-note"))
    assert labelled.store.events(kind="export", person="boss")[0].body["rows"] == 6


def test_every_format_of_the_page_is_written(labelled):
    out, boss = exports.Exports(labelled.studio), request(labelled)
    names = []
    for what in exports._FORMATS:
        try:
            names += [file.rpartition("/")[2] for file in out.make(boss, *choices(what))[2]]
        except gr.Error as error:
            assert what.startswith("Better answers") and "8 without a better answer" in str(error)
    assert names == [
        "preferences.jsonl",
        "single_answers.jsonl",
        "steps.jsonl",
        "steps_as_prm800k_has_them.jsonl",
        "all_labels_every_version.jsonl",
    ]


def test_splits_are_two_files(labelled):
    out, boss = exports.Exports(labelled.studio), request(labelled)
    _, _, files = out.make(boss, *choices(held_out=0.3))
    assert [file.rpartition("/")[2] for file in files] == ["preferences.train.jsonl", "preferences.test.jsonl"]


def test_weights_and_margins_that_cannot_be_known_are_errors(project):
    out, boss = exports.Exports(project.studio), request(project)
    project.store.add_tasks([pair()])
    project.store.submit(pair().id, "ann", "first", strength="clearly")
    with pytest.raises(gr.Error, match="reliability is known"):
        out.make(boss, *choices(weigh=True))
    with pytest.raises(gr.Error, match="expected preference"):
        out.make(boss, *choices(what="Everything"))


def test_all_data_and_backups(labelled):
    out, boss = exports.Exports(labelled.studio), request(labelled)
    told, (file,) = out.everything(boss)
    text = Path(file).read_text()
    assert "neither accounts nor the audit log" in told and "password" not in text
    assert "boss" not in text and '"annotator": "ann"' in text
    told = out.backup(boss)
    (backup,) = (labelled.studio.folder / "backups").iterdir()
    assert backup.name in told and "read through" in told
