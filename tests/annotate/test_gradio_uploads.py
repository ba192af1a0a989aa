"""Files of strangers by the real upload route, to the real handlers: refused in words, and the server goes on."""

from __future__ import annotations

import json

import httpx
import pyarrow as pa
import pytest
from pyarrow import parquet

from annotate import serve


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with serve.Running(tmp_path_factory.mktemp("project")) as server:
        server.studio.store.people.add("mona", "manager")
        yield server


@pytest.fixture(scope="module")
def mona(running):
    login = running.studio.store.people.open_session("mona", 1.0)
    cookies = {running.studio.cookie: login.token}
    with httpx.Client(base_url=running.url, headers={"origin": running.url}, cookies=cookies, timeout=120) as client:
        assert client.get("/manage/").status_code == 200
        yield client


def upload(mona, name, content):
    answer = mona.post("/manage/gradio_api/upload", files={"files": (name, content)})
    assert answer.status_code == 200, answer.text
    return answer.json()[0]


def read(mona, path):
    """What the Import tab says of a file: its error, or what it would show."""
    config = mona.get("/manage/config").json()
    number = next(d["id"] for d in config["dependencies"] if d["api_name"] == "read")
    data = [{"path": path, "meta": {"_type": "gradio.FileData"}}, ""]
    body = {"data": data, "fn_index": number, "session_hash": "upload"}
    joined = mona.post("/manage/gradio_api/queue/join", json=body)
    assert joined.status_code == 200, joined.text
    with mona.stream("GET", "/manage/gradio_api/queue/data", params={"session_hash": "upload"}) as stream:
        for line in stream.iter_lines():
            message = json.loads(line.removeprefix("data:")) if line else {}
            if message.get("msg") == "process_completed":
                output = message["output"]
                return str(output.get("error") or output["data"][0])
    raise AssertionError("it never ended")


def bomb():
    """Some kilobytes that unpack to gigabytes."""
    sink = pa.BufferOutputStream()
    table = pa.table({"prompt": pa.array(["x" * 1000] * 1000).dictionary_encode()})
    with parquet.ParquetWriter(sink, table.schema, compression="zstd") as writer:
        for _ in range(500):
            writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("rows.csv", b"prompt,chosen,rejected\nq,a,b\n", "1 rows with the columns"),
        ("../../../../etc/evil.csv", b"prompt,chosen,rejected\nq,a,b\n", "1 rows with the columns"),
        ("bomb.parquet", bomb, "at most 100000 rows"),
        ("rows.csv", b"a\n" + b"x\n" * 100_001, "more than 100000 rows"),
        ("deep.json", b"[" * 200_000 + b"]" * 200_000, "too deeply"),
        ("deep.jsonl", b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "too deeply"),
        ("zeros.csv", b"\0" * 100_000, "zeros.csv has no header"),
        ("page.html", b"<script>alert(1)</script>", "Invalid file type"),
        ("rows.csv.gz", b"\x1f\x8b", "Invalid file type"),
        ("pairs.zip", b"PK\x03\x04", "Invalid file type"),
        ("broken.parquet", b"PAR1" + b"\xff" * 1000 + b"PAR1", "cannot be read as parquet"),
        ("empty.jsonl", b"", "empty.jsonl is empty"),
        ("nan.jsonl", b'{"prompt": NaN, "chosen": 1e999, "rejected": []}\n', "1 rows with the columns"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_uploaded_is_read_or_refused_in_words(running, mona, name, content, says):
    path = upload(mona, name, content() if callable(content) else content)
    assert "/etc/" not in path and ".." not in path.split("/")[:-1]
    said = read(mona, path)
    assert says in said and "Traceback" not in said and path.rpartition("/")[0] not in said
    assert mona.get("/health").status_code == 200 and running.studio.store.count_items() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["/etc/passwd", "preferences.db", "/proc/self/environ", "../../etc/passwd", "http://127.0.0.1:1/a.csv"]
)
def test_a_file_that_was_not_uploaded_is_not_read(running, mona, path):
    path = str(running.studio.store.path) if path == "preferences.db" else path
    said = read(mona, path)
    assert "rows with the columns" not in said and "root:" not in said
    assert mona.get(f"/manage/gradio_api/file={path}").status_code in (403, 404)


@pytest.mark.slow
def test_an_annotator_neither_uploads_nor_reads_uploads(running, mona):
    path = upload(mona, "secret.csv", b"prompt\ntop secret\n")
    running.studio.store.people.add("ann", "annotator")
    login = running.studio.store.people.open_session("ann", 1.0)
    cookies = {running.studio.cookie: login.token}
    with httpx.Client(base_url=running.url, headers={"origin": running.url}, cookies=cookies) as ann:
        assert ann.post("/label/gradio_api/upload", files={"files": ("a.csv", b"x")}).status_code == 404
        for page in ("label", "manage", "loop"):
            answer = ann.get(f"/{page}/gradio_api/file={path}")
            assert answer.status_code == (404 if page == "label" else 403) and "top secret" not in answer.text
    assert mona.get(f"/manage/gradio_api/file={path}").text == "prompt\ntop secret\n"
