"""Starting and stopping the server."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from annotating import without_gradio

from annotate import gradio_pages, serve
from annotate.demo import tasks
from annotate.loop import runs
from prefrl.cli import main
from prefrl.data.preferences import PreferenceStore
from prefrl.errors import ConfigError


def test_the_first_free_port_is_taken_and_a_taken_one_is_refused():
    with serve.bound("127.0.0.1", 0) as first, serve.bound("127.0.0.1", 0) as second:
        ports = [place.getsockname()[1] for place in (first, second)]
        assert ports[0] != ports[1] and set(ports) <= set(serve.PORTS)
        taken = rf"port {ports[0]}: .* Name another one: --port"
        with pytest.raises(ConfigError, match=taken), serve.bound("127.0.0.1", ports[0]):
            pass


def test_addresses_that_people_can_type():
    with socket.create_server(("127.0.0.1", 0)) as place:
        port = place.getsockname()[1]
        assert serve.address_of(place, "127.0.0.1") == f"http://127.0.0.1:{port}"
        assert serve.address_of(place, "::1") == f"http://[::1]:{port}"
        assert serve.address_of(place, "0.0.0.0") == f"http://{socket.gethostname()}:{port}"
        assert serve.address_of(place, "0.0.0.0", "https://a.example/") == "https://a.example"


def test_a_project_is_a_folder_or_the_file_of_a_store(tmp_path):
    with serve.opened(tmp_path / "new" / "project") as studio:
        assert studio.store.path == tmp_path / "new" / "project" / "preferences.db"
    with serve.opened(tmp_path / "other.db") as studio:
        assert (studio.store.path, studio.folder) == (tmp_path / "other.db", tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="Cannot make the project"), serve.opened(tmp_path / "file" / "project"):
        pass


def test_wrong_configurations_say_what_to_type(capsys):
    assert main(["annotate"]) == 2
    assert "Type: prefrl annotate FOLDER" in capsys.readouterr().err
    assert main(["annotate", "x", "--url", "label.example"]) == 2
    assert "one that starts with http:// or https://" in capsys.readouterr().err
    assert main(["annotate", "x", "--port", "70000"]) == 2
    assert "0 to 65535" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_starts_at_once_prints_one_link_and_ends_on_a_signal(tmp_path):
    command = [sys.executable, "-m", "prefrl", "annotate", str(tmp_path), "--demo", "--browser", "false"]
    began = time.monotonic()
    # What starts the tests in the background may have them ignore the signal, and processes inherit that.
    heeding = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **heeding) as process:
        lines = [process.stdout.readline().strip() for _ in range(3)]
        assert lines[0] == f"Demo: {len(tasks()[0])} items in {tmp_path}"
        assert lines[2].startswith("Works once, within 24 hours:") and f"{lines[1]}/join/" in lines[2]
        with urllib.request.urlopen(lines[2].split()[-1], timeout=30) as page:
            assert page.status == 200 and b"You will run this project" in page.read()
        assert time.monotonic() - began < 15
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    with PreferenceStore(tmp_path / "preferences.db", create=False) as store:
        assert store.check() == [] and store.count_items() == len(tasks()[0])


def test_nothing_of_a_server_goes_on_when_it_was_stopped(tmp_path, monkeypatch):
    without_gradio(monkeypatch)
    looked = threading.Event()
    monkeypatch.setattr(runs, "INTERVAL", 0.01)
    monkeypatch.setattr(runs.Runs, "go_on_where_labelled", lambda self: looked.set())
    server = serve.Running(tmp_path)
    assert looked.wait(10) and [t for t in threading.enumerate() if t.name == "runs"]
    server._server.force_exit = True  # what a second Ctrl+C asks for
    server.stop()
    assert [t.name for t in threading.enumerate() if t.name in ("runs", "annotate")] == []
    assert not [found for found in runs._runs if found.studio is server.studio]


def test_stopping_twice_is_stopping(tmp_path, monkeypatch):
    without_gradio(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with contextlib.closing(socket.socket()) as probe:
        server = serve.Running(tmp_path, port=port)
        assert server.url == f"http://127.0.0.1:{port}"
        probe.connect(("127.0.0.1", port))
        server.stop()
        server.stop()
    with contextlib.closing(socket.socket()) as probe, pytest.raises(OSError):
        probe.connect(("127.0.0.1", port))


def test_stopping_does_not_wait_for_pages_that_are_loading(tmp_path, monkeypatch):
    without_gradio(monkeypatch)
    begun, end = threading.Event(), threading.Event()
    monkeypatch.setattr(gradio_pages, "_import", lambda: begun.set() or end.wait(60))
    server = serve.Running(tmp_path)
    assert begun.wait(10)
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 20 and not end.is_set()  # a second; what is loading ends by itself
    end.set()
    loading = [thread for thread in threading.enumerate() if thread.name == "pages"]
    assert [thread.join(10) for thread in loading] == [None] * len(loading)


def test_pages_that_cannot_be_imported_are_said_so(tmp_path, monkeypatch, caplog):
    without_gradio(monkeypatch)

    def broken():
        raise ImportError("no gradio here")

    monkeypatch.setattr(gradio_pages, "_import", broken)
    with serve.Running(tmp_path) as server:
        who = server.studio.store.people.add("ann", "annotator")
        token = server.studio.store.people.open_session(who.name, 1.0).token
        cookie = {"Cookie": f"{server.studio.cookie}={token}"}
        with pytest.raises(urllib.error.HTTPError, match="500"):
            urllib.request.urlopen(urllib.request.Request(f"{server.url}/label", headers=cookie), timeout=30)
    assert "no gradio here" in caplog.text
