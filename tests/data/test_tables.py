from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefrl.data.tables import Table, load_table
from prefrl.errors import ConfigError, DataError

ROWS = [{"prompt": "2+2", "answer": "4"}, {"prompt": "3+3", "answer": "6", "level": 1}]


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_list_of_dicts_is_taken_as_it_is() -> None:
    table = load_table(ROWS)
    assert table.rows == ROWS
    assert table.columns == ("prompt", "answer", "level")


def test_all_file_types_hold_the_same_rows(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    rows = [{"prompt": "a, b", "answer": "1"}, {"prompt": "提示", "answer": "2"}]
    jsonl = write(tmp_path, "d.jsonl", "\n".join(json.dumps(r, ensure_ascii=False) for r in rows) + "\n\n")
    listed = write(tmp_path, "d.json", json.dumps(rows))
    commas = write(tmp_path, "d.csv", '\ufeffprompt,answer\n"a, b",1\n提示,2\n')
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "d.parquet")
    for path in (jsonl, listed, commas, tmp_path / "d.parquet"):
        table = load_table(path)
        assert table.rows == rows, path
        assert table.columns == ("prompt", "answer"), path
        assert table.origin == str(path)


def test_limit_reads_from_the_top_and_stops_before_what_follows(tmp_path: Path) -> None:
    path = write(tmp_path, "d.jsonl", '{"prompt": "a"}\n{"prompt": "b"}\nbroken\n')
    assert load_table(path, limit=2).rows == [{"prompt": "a"}, {"prompt": "b"}]
    with pytest.raises(ConfigError, match="limit is 0"):
        load_table(path, limit=0)


def test_missing_file_names_the_nearest_or_lists_the_neighbours(tmp_path: Path) -> None:
    write(tmp_path, "prompts.jsonl", "{}")
    with pytest.raises(DataError, match=r"does not exist\. Did you mean 'prompts\.jsonl'\?"):
        load_table(tmp_path / "promts.jsonl")
    with pytest.raises(DataError, match=r"does not exist\. There is prompts\.jsonl\."):
        load_table(tmp_path / "zzz.parquet")
    with pytest.raises(DataError, match=r"Its folder .* does not exist either"):
        load_table(tmp_path / "nowhere" / "a.jsonl")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("d.jsonl", "", "is empty"),
        ("d.jsonl", "\n\n", "no rows"),
        ("d.json", "[]", "no rows"),
        ("d.jsonl", '{"a": 1}\n{"a": oops}\n', r"line 2 is not JSON .*oops"),
        ("d.jsonl", '{"a": 1}\n\n["b"]\n', r"line 3 is list \['b'\], expected an object"),
        ("d.json", '{"a": 1}', "expected a list of objects"),
        ("d.json", '{"a": 1}\n{"a": 2}', r"one object a line is \.jsonl"),
        ("d.json", '[{"a": 1}, 5]', "row 2 is int 5"),
        ("d.csv", "What is 2+2?,4\nWhat is 3+3?,6\n", r"no header: its first line has 'What is 2\+2\?'"),
        ("d.csv", "prompt,prompt\na,b\n", "no header: its first line has 'prompt'"),
        ("d.csv", "prompt,answer\na,b,c\n", "line 2 has 3 cells, the header has 2"),
        ("d.csv", 'prompt,answer\n"a,b\n', "is not CSV"),
        ("d", "hello", r"d has no suffix; files that can be read: \.jsonl"),
        (
            "d.txt",
            "hello",
            r"has the suffix '\.txt'; files that can be read: \.jsonl, \.json, \.parquet, \.csv",
        ),
        ("d.parquet", "not parquet at all", "cannot be read as parquet"),
    ],
)
def test_malformed_files_say_where_and_what(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = write(tmp_path, name, text)
    with pytest.raises(DataError, match=message):
        load_table(path)


def test_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_bytes('{"a": "é"}'.encode("latin-1"))
    with pytest.raises(DataError, match="Save it as UTF-8"):
        load_table(tmp_path / "d.jsonl")


def test_folder_lists_its_files(tmp_path: Path) -> None:
    write(tmp_path, "prompts.jsonl", "{}")
    with pytest.raises(DataError, match=r"is a folder.*prompts\.jsonl"):
        load_table(tmp_path)


def test_rows_that_are_no_objects_and_empty_lists_are_refused() -> None:
    with pytest.raises(DataError, match="row 2 is str 'b', expected an object"):
        load_table([{"a": 1}, "b"])
    with pytest.raises(DataError, match="no rows"):
        load_table([])
    with pytest.raises(DataError, match="Got int"):
        load_table(7)


def test_split_of_a_source_without_splits_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "d.jsonl", '{"a": 1}')
    with pytest.raises(DataError, match="has no splits"):
        load_table(path, split="test")
    with pytest.raises(DataError, match="has no splits"):
        load_table([{"a": 1}], split="test")


def test_datasets_and_their_splits() -> None:
    datasets = pytest.importorskip("datasets")
    one, two = datasets.Dataset.from_list([{"a": 1}]), datasets.Dataset.from_list([{"a": 2}, {"a": 3}])
    assert load_table(two, limit=1).rows == [{"a": 2}]
    both = datasets.DatasetDict({"train": one, "test": two})
    assert load_table(both).rows == [{"a": 1}]
    assert load_table(both, split="test").rows == [{"a": 2}, {"a": 3}]
    assert load_table(datasets.DatasetDict({"test": two})).rows == [{"a": 2}, {"a": 3}]
    with pytest.raises(DataError, match=r"no split 'tets'; it has train, test\. Did you mean 'test'\?"):
        load_table(both, split="tets")


@pytest.mark.parametrize(
    ("source", "split", "asked"),
    [
        ("org/name", None, ("org/name", None, "train")),
        ("org/name", "test", ("org/name", None, "test")),
        ("org/name:test", None, ("org/name", None, "test")),
        ("org/na.me:main:test", None, ("org/na.me", "main", "test")),
    ],
)
def test_hub_ids(
    monkeypatch: pytest.MonkeyPatch, source: str, split: str | None, asked: tuple[str, str | None, str]
) -> None:
    datasets = pytest.importorskip("datasets")
    calls = []

    def load(name: str, config: str | None, *, split: str) -> list[dict[str, Any]]:
        calls.append((name, config, split))
        return [{"prompt": "a"}]

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert load_table(source, split=split).rows == [{"prompt": "a"}]
    assert calls == [asked]


def test_hub_out_of_reach_names_local_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")

    def load(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(DataError, match=r"the hub gave no dataset.*\.jsonl.*\(ConnectionError: no route\)"):
        load_table("org/name")
    with pytest.raises(DataError, match="names a split, and split='test' was given too"):
        load_table("org/name:train", split="test")


def test_names_with_a_known_suffix_never_go_to_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name in ("nowhere/prompts.jsonl", "data/prompts.txt", "../prompts"):
        with pytest.raises(DataError, match=r"The file .* does not exist"):
            load_table(name)


def test_a_file_that_exists_is_never_taken_for_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org").mkdir()
    write(tmp_path, "org/name", "{}")
    with pytest.raises(DataError, match="has no suffix"):
        load_table("org/name")


def test_rename() -> None:
    table = Table([{"question": "a", "x": 1}, {"x": 2}], ("question", "x"), "here")
    renamed = table.rename({"question": "prompt"})
    assert renamed.rows == [{"prompt": "a", "x": 1}, {"x": 2}]
    assert renamed.columns == ("prompt", "x")
    assert table.rename({"question": "x", "x": "question"}).rows[0] == {"x": "a", "question": 1}
    with pytest.raises(DataError, match=r"no column 'qestion' to rename.*Did you mean 'question'"):
        table.rename({"qestion": "prompt"})
    with pytest.raises(DataError, match="has a column 'x' already"):
        table.rename({"question": "x"})
