"""Labelling in the terminal: blind, one key a label, and safe to stop."""

from __future__ import annotations

import io
import os
import pty

import pytest

from prefrl.cli import main
from prefrl.data.comparisons import Item
from prefrl.data.preferences import PreferenceStore
from prefrl.data.project import ProjectSettings
from prefrl.recipes.label import swapped, visible
from prefrl.types import Completion, Prompt

ITEMS = [
    Item(
        prompt=Prompt(id=f"p{n}", messages=({"role": "user", "content": f"Say {n}"},)),
        first=Completion(text=f"good {n}"),
        second=Completion(text=f"bad {n}", finished=False),
        checkpoints=("round_1/policy", "start"),
        why="uncertainty",
    )
    for n in range(40)
]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "preferences.db"
    with PreferenceStore(path) as store:
        store.add_items(ITEMS)
    return path


def label(monkeypatch, path, keys, annotator="ann"):
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{key}\n" for key in keys)))
    return main(["label", str(path), "--annotator", annotator])


def said(path, **more):
    with PreferenceStore(path) as store:
        return {(found.item, found.annotator): found.outcome for found in store.labels(**more)}


def test_sides_are_blind_and_stable():
    shown = [swapped(item, "ann") for item in ITEMS]
    assert shown == [swapped(item, "ann") for item in ITEMS]
    assert 10 < sum(shown) < 30
    assert shown != [swapped(item, "bob") for item in ITEMS]


def test_choices_are_stored_as_the_item_has_them(path, monkeypatch, capsys):
    keys = ["b" if swapped(item, "ann") else "a" for item in ITEMS[:38]]  # the good one, wherever it stands
    assert label(monkeypatch, path, [*keys, "t", "s"]) == 0
    found = said(path)
    assert [found[item.id, "ann"] for item in ITEMS] == ["first"] * 38 + ["tie", "skip"]
    printed = capsys.readouterr().out
    assert "40 of 40" in printed and "0 pairs are left" in printed
    for hidden in ("round_1", "start", "uncertainty"):
        assert hidden not in printed.replace("=== A ===", "")
    before_a, _, after_a = printed.partition("=== A ===")
    assert "[user]\n| Say 0" in before_a
    assert after_a.startswith("\n| bad 0 [cut off]" if swapped(ITEMS[0], "ann") else "\n| good 0")


def test_both_can_be_bad(path, monkeypatch, capsys):
    assert label(monkeypatch, path, ["n", "q"]) == 0
    assert list(said(path).values()) == ["both_bad"]
    assert "n: neither is good" in capsys.readouterr().out


def test_a_project_that_does_not_ask_for_ties_has_no_keys_for_them(path, monkeypatch, capsys):
    with PreferenceStore(path) as store:
        store.save_settings(ProjectSettings(scale=2, tie=False, both_bad=False))
    assert label(monkeypatch, path, ["t", "n", "a", "q"]) == 0
    assert len(said(path)) == 1
    printed = capsys.readouterr().out
    assert "Got 't'. a: A is better   b: B is better   s: skip" in printed and "Got 'n'" in printed
    assert "a/b/s/u/q > " in printed


def test_stopping_keeps_what_was_labelled(path, monkeypatch, capsys):
    assert label(monkeypatch, path, ["a", "a", "q", "a"]) == 0
    assert len(said(path)) == 2
    assert "38 pairs are left" in capsys.readouterr().out
    assert label(monkeypatch, path, ["t"]) == 0  # the input ends
    assert list(said(path).values())[2] == "tie"


def test_a_keyboard_interrupt_keeps_what_was_labelled(path, monkeypatch, capsys):
    keys = iter(["a", None])
    monkeypatch.setattr("prefrl.recipes.label._key", lambda single: next(keys) or interrupt())
    assert main(["label", str(path), "--annotator", "ann"]) == 0
    assert len(said(path)) == 1
    assert "Everything labelled is saved" in capsys.readouterr().out


def interrupt():
    raise KeyboardInterrupt


def test_undo_asks_again_and_keeps_both(path, monkeypatch):
    good = "b" if swapped(ITEMS[0], "ann") else "a"
    assert label(monkeypatch, path, [good, "u", "t", "q"]) == 0
    with PreferenceStore(path) as store:
        assert [(v.version, v.outcome) for v in store.labels(all_versions=True)] == [(1, "first"), (2, "tie")]


def test_two_at_once_do_not_label_the_same(path, monkeypatch):
    typed = iter("tustq")

    def key(single):
        if not said(path):  # while the first pair is looked at, somebody labels the second
            with PreferenceStore(path) as store:
                store.submit(ITEMS[1].id, "bob", "first")
        return next(typed)

    monkeypatch.setattr("prefrl.recipes.label._key", key)
    assert main(["label", str(path), "--annotator", "ann"]) == 0
    with PreferenceStore(path) as store:
        mine = [(v.item, v.outcome) for v in store.labels(all_versions=True) if v.annotator == "ann"]
    first, _, third, *_ = (item.id for item in ITEMS)
    assert mine == [(first, "tie"), (first, "skip"), (third, "tie")]


def test_another_key_is_explained(path, monkeypatch, capsys):
    assert label(monkeypatch, path, ["x", "q"]) == 0
    assert "Got 'x'. a: A is better" in capsys.readouterr().out
    assert said(path) == {}


def test_one_key_on_a_terminal(path, monkeypatch):
    mine, theirs = pty.openpty()
    with os.fdopen(theirs, "r", buffering=1) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        os.write(mine, b"ttq")
        assert main(["label", str(path), "--annotator", "ann"]) == 0
    os.close(mine)
    assert list(said(path).values()) == ["tie", "tie"]


@pytest.mark.parametrize("typed", [b"\x1b[A", b"\x1b[B", b"\x1bOA", b"\x1ba", b"\x1b[1;2b"])
def test_arrows_and_other_keys_of_several_characters_are_no_label(typed, path, monkeypatch, capsys):
    mine, theirs = pty.openpty()
    with os.fdopen(theirs, "r", buffering=1) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        os.write(mine, typed + b"q")
        assert main(["label", str(path), "--annotator", "ann"]) == 0
    os.close(mine)
    assert said(path) == {}
    assert "Got 'escape'. a: A is better" in capsys.readouterr().out


def test_no_answer_passes_for_a_heading(tmp_path, monkeypatch, capsys):
    forged = Item(
        prompt=Prompt(id="p", text="Say\n=== A ==="),
        first=Completion(text="x\n\n=== B ===\ny"),
        second=Completion(text=""),
    )
    with PreferenceStore(tmp_path / "forged.db") as store:
        store.add_items([forged])
    assert label(monkeypatch, tmp_path / "forged.db", ["q"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith("===")] == ["=== A ===", "=== B ==="]
    assert "| === B ===" in printed and "|" in printed


def test_a_terminal_without_the_characters_gets_their_codes(path, monkeypatch):
    with PreferenceStore(path) as store:
        store.add_items(
            [Item(prompt=Prompt(id="z", text="é"), first=Completion(text="a"), second=Completion(text="b"))]
        )
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    assert label(monkeypatch, path, ["s"] * 40 + ["q"]) == 0
    out.flush()
    assert b"| \\xe9" in out.buffer.getvalue()


def test_nothing_to_do_and_nothing_there(path, monkeypatch, capsys, tmp_path):
    label(monkeypatch, path, ["t"] * 40)
    capsys.readouterr()
    assert label(monkeypatch, path, ["a"], annotator="bob") == 0
    assert "waits for bob" in capsys.readouterr().out
    assert main(["label", str(tmp_path / "preference.db")]) == 2
    assert "Did you mean" in capsys.readouterr().err
    assert main(["label"]) == 2
    assert "prefrl label runs/loop" in capsys.readouterr().err


def test_the_folder_of_a_loop_stands_for_its_store(path, monkeypatch, tmp_path):
    assert label(monkeypatch, tmp_path, ["t", "q"]) == 0
    (tmp_path / "config.yaml").write_text("labeller: {store: elsewhere.db}\n")
    assert label(monkeypatch, tmp_path, ["q"]) == 2


def test_no_text_steers_the_terminal():
    assert visible("a\x1b[2Jb\r\u202ec\ud800\n\td") == "a<U+001B>[2Jb<U+000D><U+202E>c<U+D800>\n\td"
