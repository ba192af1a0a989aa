"""The loop in a browser, with a simulated person: labels, a reward model, the next pairs, a better policy."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect
from tiny import digit_tokenizer, llama

from prefrl.data.preferences import PreferenceStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SETTINGS = """
policy: {lr: 4.0e-4}
data: {eval_fraction: 0.5}
reward: {model: {lr: 3.0e-3}, epochs: 4}
algorithm: {name: grpo, group_size: 8, kl: {coef: 0.0}}
"""
PATIENCE = 240_000  # milliseconds for what a process does


@dataclass(frozen=True)
class Server:
    """A running server: its address, the link of who runs it, and its project."""

    url: str
    link: str
    project: Path


@pytest.fixture
def server(tmp_path):
    """A project that is served, beside a tiny model of random weights and its prompts."""
    tokenizer = digit_tokenizer()
    llama(len(tokenizer), hidden=64, seed=0).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    numbers = random.Random(0).sample(range(1000), 160)
    rows = [{"prompt": f"{number:03d}="} for number in numbers]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    project = tmp_path / "project"
    command = [sys.executable, "-m", "prefrl", "annotate", str(project), "--browser", "false"]
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | {"PYTHONUNBUFFERED": "1"}
        )
    while not (found := re.search(r"(http://\S+)/join/\S+", (tmp_path / "server.log").read_text())):
        assert process.poll() is None, (tmp_path / "server.log").read_text()
        time.sleep(0.1)
    yield Server(found[1], found[0], project)
    process.terminate()
    process.wait(timeout=30)


@pytest.fixture
def page(server, browser):
    """The Loop page, opened by who runs the project."""
    page = browser.new_page(viewport={"width": 1360, "height": 1000})
    page.set_default_timeout(90_000)  # a machine that is busy with other tests is slow, and not wrong
    page.goto(server.link)
    page.fill("input[name=name]", "boss")
    page.get_by_role("button").click()
    page.wait_for_url("**/label**")
    page.goto(f"{server.url}/loop")
    yield page
    page.close()


class Person:
    """Somebody who labels through the same routes as the label page, and likes large digits."""

    def __init__(self, client):
        self.client = client

    def label_all(self):
        """Label until there is nothing left; how many that were."""
        done = 0
        while items := self.post("/api/next", {"count": 2, "held": []})["items"]:
            for item in items:
                a, b = (sum(map(int, filter(str.isdigit, item[side]["raw"][:3]))) for side in "ab")
                outcome = "tie" if a == b else "a" if a > b else "b"
                self.post("/api/labels", {"id": uuid.uuid4().hex, "assignment": item["assignment"], "outcome": outcome})
                done += 1
        return done

    def post(self, path, body):
        return self.client.post(path, json=body).raise_for_status().json()


@pytest.fixture
def ann(server):
    """A person who is signed in."""
    with PreferenceStore(server.project / "preferences.db") as store:
        store.people.add("ann", "annotator")
        login, cookie = store.people.open_session("ann", 1.0), f"prefrl_{store.project_id}"
    headers = {"x-csrf-token": login.csrf, "origin": server.url}
    with httpx.Client(base_url=server.url, cookies={cookie: login.token}, headers=headers) as client:
        yield Person(client)


def start(page, tmp_path):
    page.get_by_role("tab", name="Start a loop").click()
    refused(page, "No policy is named; fill it in.")
    fields = {"name": "digits", "policy": str(tmp_path / "model"), "prompts": str(tmp_path / "prompts.jsonl")}
    fields |= {
        "max_new_tokens": "3",
        "rounds": "2",
        "pairs": "48",
        "held_out_pairs": "12",
        "comparisons": "40",
        "steps": "5",
    }
    for name, value in fields.items():
        page.locator(f"#start-{name} input, #start-{name} textarea").fill(value)
    page.locator("#start-more").get_by_role("button", name="Further settings").click()
    page.locator("#start-more .cm-content").fill(SETTINGS)
    page.locator("#start-begin").click()
    page.get_by_role("tab", name="Rounds").click()
    expect(page.locator("#loop-view h1")).to_have_text("digits", timeout=20_000)


def refused(page, words):
    """Press Start, and read why not."""
    page.locator("#start-begin").click()
    expect(page.locator(".toast-body")).to_contain_text(words, timeout=20_000)
    page.locator(".toast-close").click()


def waits(page, words):
    expect(page.locator("#loop-view .loop-note")).to_contain_text(words, timeout=PATIENCE)


def is_in_state(page, words):
    expect(page.locator("#loop-view .loop-state")).to_have_text(words, timeout=PATIENCE)


def test_a_loop_from_labels_to_a_better_policy(server, page, ann, tmp_path):
    start(page, tmp_path)
    waits(page, "60 of 60 pairs still need a label")
    page.locator("#loop-automatic input").uncheck()
    assert ann.label_all() == 60
    waits(page, "All labels are in")
    page.locator("#loop-go-on").click()  # the reward model learns, the policy is optimized, and answers again
    is_in_state(page, "running")
    waits(page, "60 of 60 pairs still need a label")
    page.screenshot(path=tmp_path / "waiting.png", full_page=True)
    page.locator("#loop-automatic input").check()
    assert 80 < ann.label_all() <= 100  # with the comparisons of round 1, but for answers that are the same
    is_in_state(page, "running")
    waits(page, "pairs still need a label")
    assert 20 < ann.label_all() <= 40  # the comparisons of round 2
    is_in_state(page, "finished")
    page.reload()
    is_in_state(page, "finished")
    page.screenshot(path=tmp_path / "finished.png", full_page=True)

    folder = server.project / "runs" / "digits" / "run"
    one, two = json.loads((folder / "status.json").read_text())["summary"].values()
    assert one["win_rate"] < two["win_rate"] and two["win_low"] > 0.5, (one, two)
    items = [json.loads(line) for line in (folder / "rounds" / "2" / "items.jsonl").read_text().splitlines()]
    chosen = [item for item in items if item["why"] == "uncertainty"]
    assert len(chosen) == 36 and all(item["judge"] == "round_1/reward" for item in chosen)  # 3/4 of 48
    with PreferenceStore(server.project / "preferences.db") as store:
        (stored,) = store.tasks(ids=[chosen[0]["id"]])
    assert stored.checkpoints == ("digits/round_1/policy", "digits/round_1/policy")
    card = page.locator(".loop-round").first
    expect(card).to_contain_text(f"{two['win_rate']:.0%}")
    expect(card).to_contain_text("round_2/policy")
    with page.expect_popup() as popup:
        page.get_by_role("link", name="Open the report").click()
    expect(popup.value.locator("h1")).to_contain_text("wins")
