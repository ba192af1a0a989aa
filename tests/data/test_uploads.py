"""Files of strangers: read where they were uploaded and nowhere else, and no more of them than the limits allow."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import parquet

from prefrl.data.importing import Limits, read_hub, read_upload, uploaded
from prefrl.errors import DataError


def test_only_uploads_are_read(tmp_path):
    home, other = tmp_path / "uploads", tmp_path / "other"
    home.mkdir()
    other.mkdir()
    good, secret = home / "a.jsonl", other / "secret.jsonl"
    for path in (good, secret):
        path.write_text('{"prompt": "q", "a": "1", "b": "2"}\n')
    (home / "link.jsonl").symlink_to(secret)
    (home / "sub.jsonl").mkdir()
    (home / "x.zip").write_bytes(b"PK")
    assert uploaded(good, home) == good
    for path in (
        secret,
        home / ".." / "other" / "secret.jsonl",
        home / "link.jsonl",
        home / "sub.jsonl",
        home / "no.jsonl",
    ):
        with pytest.raises(DataError, match="was not uploaded here"):
            uploaded(path, home)
    with pytest.raises(DataError, match="Unpack an archive"):
        uploaded(home / "x.zip", home)


def test_uploads_are_read_within_limits(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "q", "a": "1", "b": "2"}\n' * 10)
    assert len(read_upload(path).rows) == 10
    with pytest.raises(DataError, match="at most 100 are read"):
        read_upload(path, Limits(bytes=100))
    with pytest.raises(DataError, match="more than 9 rows"):
        read_upload(path, Limits(rows=9))
    assert len(read_upload(path, Limits(rows=10)).rows) == 10


def test_a_small_file_that_unpacks_to_a_large_one_is_refused(tmp_path):
    path = tmp_path / "bomb.parquet"
    parquet.write_table(pa.table({"prompt": ["x" * 100_000] * 400}), path, compression="zstd")
    assert path.stat().st_size < 1_000_000
    with pytest.raises(DataError, match="unpacks to"):
        read_upload(path, Limits(unpacked=5_000_000))
    with pytest.raises(DataError, match="unpacks to"):
        read_upload(path, Limits(rows=399))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "[" * 100_000, "not JSON|nests"),
        ("a.jsonl", '{"a":' * 100_000, "not JSON|nests"),
        ("a.jsonl", "\x00\x01", "not JSON"),
        ("a.csv", "a,b\n1\n", "cells"),
        ("a.csv", ",".join(f"c{n}" for n in range(5)) + "\n" + '"' + "x" * 300_000, "not CSV"),
        ("a.parquet", "PAR1 this is none", "parquet"),
        ("a.jsonl", "", "empty"),
    ],
)
def test_broken_files_are_one_clear_error(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read_upload(path)


def test_a_long_answer_fits_into_a_cell(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"prompt,a,b\nq,{'x' * 300_000},y\n")
    (row,) = read_upload(path).rows
    assert len(row["a"]) == 300_000


def test_the_hub_is_asked_for_names_of_datasets_only(monkeypatch, tmp_path):
    import datasets

    asked = []

    def load(name, config, *, split, streaming):
        asked.append((name, config, split, streaming))
        return iter({"prompt": f"q{n}"} for n in range(100))

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "here").write_text("secret")
    assert len(read_hub("org/name:test", Limits(rows=7)).rows) == 7
    assert asked == [("org/name", None, "test", True)]
    for name in ("/etc/passwd", "../x", "a", "org/name/more", "", "org/here", "org/here:train"):
        with pytest.raises(DataError, match="names no dataset"):
            read_hub(name)
