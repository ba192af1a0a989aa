"""The labelling server under load, with the accidents that happen: what was acknowledged must be there, once.

    python benchmarks/annotate_load.py                     # 50 people x 200 labels, 5 times killed with SIGKILL
    python benchmarks/annotate_load.py --people 8 --labels 25 --kills 1 --seconds 5

Simulated annotators label over HTTP. Some requests are sent twice, some answers are never read and the request is
repeated, some items are taken and left alone, and the server is killed and started again. Afterwards the store is
compared with what the annotators were told. Then labels come at a steady rate and the time to store one is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefrl.data.comparisons import Item
from prefrl.data.preferences import PreferenceStore
from prefrl.data.project import ProjectSettings
from prefrl.types import Completion, Prompt

OUTCOMES = ("a", "b", "tie", "both_bad")


@dataclass(frozen=True)
class Load:
    """How much is done, and how much goes wrong."""

    people: int = 50
    labels: int = 200
    overlap: int = 3
    duplicates: float = 0.10
    dropped: float = 0.05
    abandoned: float = 0.05
    kills: int = 5
    lease_seconds: float = 20.0
    rate: float = 20.0
    seconds: float = 30.0
    seed: int = 0


@dataclass(frozen=True)
class Account:
    """What an annotator sends along."""

    name: str
    headers: dict[str, str]


class Server:
    """The server of a project in a process of its own, which can be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.start_seconds: list[float] = []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        began = time.monotonic()
        command = [sys.executable, "-m", "prefrl", "annotate", str(self.folder), "--port", str(self.port)]
        self._process = subprocess.Popen([*command, "--browser", "false"], stdout=subprocess.DEVNULL)
        while not self._answers():
            if self._process.poll() is not None:
                raise SystemExit(f"the server ended with status {self._process.returncode}")
            time.sleep(0.02)
        self.start_seconds.append(time.monotonic() - began)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it: SIGKILL leaves it no time for anything."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait()

    def wait_for_pages(self, account: Account) -> None:
        """Wait until everything is loaded."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            connection.request("GET", "/label/", headers=account.headers)
            connection.getresponse().read()

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
            connection.request("GET", "/health")
            return connection.getresponse().read() != b""
        return False


@dataclass
class Annotator:
    """Somebody who labels until enough labels are acknowledged."""

    account: Account
    port: int
    load: Load
    random: random.Random
    acked: dict[str, dict[str, Any]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    problem: str = ""
    _connection: http.client.HTTPConnection | None = None

    def work(self) -> None:
        """Label; what goes wrong other than as planned is kept in `problem`."""
        try:
            while len(self.acked) < self.load.labels:
                items = self.next_items()
                if not items:
                    self.counts["waits"] += 1
                    time.sleep(0.2)
                for item in items[: self.load.labels - len(self.acked)]:
                    self._label(item)
        except Exception as error:
            self.problem = f"{self.account.name}: {type(error).__name__}: {error}"
        finally:
            self.close()

    def next_items(self, count: int = 2) -> list[dict[str, Any]]:
        """The next items."""
        status, body = self.call("/api/next", {"count": count, "held": []})
        if status != 200:
            raise RuntimeError(f"/api/next: {status} {body}")
        return list(body["items"])

    def label_of(self, item: dict[str, Any]) -> dict[str, Any]:
        """A label of an item, with an id of its own."""
        outcome = self.random.choice(OUTCOMES)
        return {"id": uuid.uuid4().hex, "assignment": item["assignment"], "outcome": outcome, "active_ms": 900}

    def _label(self, item: dict[str, Any]) -> None:
        if self.random.random() < self.load.abandoned:
            self.counts["items left alone"] += 1
            return
        label = self.label_of(item)
        if self.random.random() < self.load.dropped:
            self.counts["answers not read"] += 1
            self._send_and_leave(label)
        status, body = self.call("/api/labels", label)
        if self.random.random() < self.load.duplicates:
            self.counts["sent twice"] += 1
            again = self.call("/api/labels", label)
            if (again[0], again[1].get("version")) != (status, body.get("version")):
                raise RuntimeError(f"sent twice: first {status} {body}, then {again}")
        if status == 200:
            self.acked[label["id"]] = {**label, "version": body["version"]}
        elif status == 409:  # the lease ended while the server was down, and somebody else has the place
            self.counts["places lost"] += 1
        else:
            raise RuntimeError(f"/api/labels: {status} {body}")

    def call(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """POST until there is an answer: a server that is down or busy is asked again."""
        while True:
            try:
                response = self._post(path, body).getresponse()
                answer = response.read()
            except (OSError, http.client.HTTPException):
                self.counts["retries"] += 1
                self.close()
                time.sleep(0.05)
                continue
            if response.status == 429:
                self.counts["slowed"] += 1
                time.sleep(float(response.headers.get("Retry-After", "1")))
            elif response.status < 500:
                return response.status, json.loads(answer)
            else:
                raise RuntimeError(f"{path}: {response.status} {answer[:200]!r}")

    def _send_and_leave(self, label: dict[str, Any]) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            self._post("/api/labels", label)
        self.close()

    def _post(self, path: str, body: dict[str, Any]) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        self._connection.request("POST", path, json.dumps(body), self.account.headers)
        return self._connection

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def prepare(folder: Path, load: Load, port: int) -> list[Account]:
    """Fill a new project: items enough for all labels, and people who are signed in."""
    with PreferenceStore(folder / "preferences.db") as store:
        settings = ProjectSettings(name="Load", lease_minutes=load.lease_seconds / 60, gold_share=0.0)
        store.save_settings(settings)
        needed = int(load.people * (load.labels + load.rate * load.seconds / load.people) / load.overlap * 1.2) + 50
        store.add_tasks([_pair(number, load.overlap) for number in range(needed)])
        accounts = []
        for number in range(load.people):
            name = f"annotator-{number}"
            store.people.add(name, "annotator")
            login = store.people.open_session(name, 24.0)
            headers = {"Cookie": f"prefrl_{store.project_id}={login.token}", "X-CSRF-Token": login.csrf}
            headers |= {"Origin": f"http://127.0.0.1:{port}", "Content-Type": "application/json"}
            accounts.append(Account(name, headers))
        return accounts


def storm(server: Server, accounts: Sequence[Account], load: Load) -> list[Annotator]:
    """Everybody labels at once while the server is killed again and again."""
    people = [
        Annotator(account, server.port, load, random.Random(f"{load.seed}|{account.name}")) for account in accounts
    ]
    threads = [threading.Thread(target=one.work, daemon=True) for one in people]
    for thread in threads:
        thread.start()
    total = load.people * load.labels
    for kill in range(load.kills):
        due = total * (kill + 1) / (load.kills + 1)
        while sum(len(one.acked) for one in people) < due and any(t.is_alive() for t in threads):
            time.sleep(0.005)
        server.stop(signal.SIGKILL)
        server.start()
    for thread in threads:
        thread.join()
    return people


def audit(folder: Path, people: Sequence[Annotator], load: Load) -> dict[str, int]:
    """What is wrong with the store, by what it is; all of it should be 0."""
    with PreferenceStore(folder / "preferences.db", create=False) as store:
        labels = store.labels(all_versions=True)
        problems = store.check()
        exported = folder / "export.jsonl"
        store.export(exported)
        with PreferenceStore(folder / "copy.db") as copy:
            copy.import_(exported)
            differs = copy.labels(all_versions=True) != labels
    acked = {id: label for one in people for id, label in one.acked.items()}
    stored = {label.id: label for label in labels}
    places = Counter((label.item, label.annotator) for label in labels)
    given = Counter(label.item for label in labels if label.outcome != "skip")
    names = {id: one.account.name for one in people for id in one.acked}
    same = ("tie", "both_bad")  # outcomes that do not depend on the side they were shown on
    return {
        "lost acknowledged labels": len(acked.keys() - stored.keys()),
        "labels nobody was told of": len(stored.keys() - acked.keys()),
        "labels of another person": sum(stored[id].annotator != names[id] for id in acked.keys() & stored.keys()),
        "labels that say something else": sum(
            (stored[id].outcome in same or label["outcome"] in same) and stored[id].outcome != label["outcome"]
            for id, label in acked.items()
            if id in stored
        ),
        "duplicates": len(labels) - len(stored) + sum(label.version != 1 for label in labels),
        "items over their overlap": sum(number > load.overlap for number in given.values()),
        "items twice to one person": sum(number > 1 for number in places.values()),
        "problems of integrity": len(problems),
        "export differs from the store": int(differs),
        "unplanned errors": sum(bool(one.problem) for one in people),
    }


def pace(server: Server, accounts: Sequence[Account], load: Load) -> list[float]:
    """Seconds that each label took from when it was due, at a steady rate, once the server has loaded its pages."""
    times: list[float] = []
    server.wait_for_pages(accounts[0])
    people = [Annotator(a, server.port, load, random.Random(f"{load.seed}|pace|{a.name}")) for a in accounts]
    start, each = time.monotonic() + 1.0, load.people / load.rate

    def work(one: Annotator, number: int) -> None:
        due = start + number / load.rate
        items = one.next_items()
        while due < start + load.seconds:
            item = items.pop(0) if items else one.next_items()[0]
            label = one.label_of(item)
            time.sleep(max(0.0, due - time.monotonic()))
            status, body = one.call("/api/labels", label)
            times.append(time.monotonic() - due)
            assert status == 200, body
            items = items or one.next_items()
            due += each
        one.close()

    threads = [threading.Thread(target=work, args=(one, n), daemon=True) for n, one in enumerate(people)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(times)


def run(folder: Path, load: Load) -> tuple[dict[str, int], dict[str, float]]:
    """The whole test: what is wrong afterwards, and what was measured."""
    server = Server(folder)
    accounts = prepare(folder, load, server.port)
    server.start()
    try:
        began = time.monotonic()
        people = storm(server, accounts, load)
        seconds = time.monotonic() - began
        wrong = audit(folder, people, load)
        for one in people:
            if one.problem:
                print(one.problem, file=sys.stderr)
        times = pace(server, accounts, load) if load.seconds else []
    finally:
        server.stop()
    counts: Counter[str] = sum((one.counts for one in people), Counter())
    measured = {"labels": load.people * load.labels, "labels a second": load.people * load.labels / seconds}
    measured |= dict(counts) | {"slowest start, s": max(server.start_seconds)}
    for share in (50, 99) if times else ():
        measured[f"p{share} at {load.rate:g} labels/s, ms"] = 1000 * times[int(len(times) * share / 100)]
    return wrong, measured


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it as the flags say; 1 where anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in vars(Load()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    load = Load(**vars(parser.parse_args(arguments)))
    with tempfile.TemporaryDirectory() as folder:
        wrong, measured = run(Path(folder), load)
    print(f"{os.cpu_count()} cores, {load}")
    for name, value in {**measured, **wrong}.items():
        print(f"{name:<36} {value:>10.1f}" if isinstance(value, float) else f"{name:<36} {value:>10}")
    return int(any(wrong.values()))


def _pair(number: int, overlap: int) -> Item:
    prompt = Prompt(id=f"p{number}", text=f"Question {number}: which of these is *better*?")
    texts = (f"Answer {number}, short.", f"Answer {number}, with **more** words and `code`.")
    return Item(prompt=prompt, first=Completion(text=texts[0]), second=Completion(text=texts[1]), overlap=overlap)


if __name__ == "__main__":
    sys.exit(main())
