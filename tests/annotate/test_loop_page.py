"""The Loop page without a browser: what it reads of a loop, what it draws, what its forms say, and who may press."""

from __future__ import annotations

import asyncio
import inspect
import json
from types import SimpleNamespace

import gradio as gr
import pytest
from annotating import Browser, place

from annotate.jobs import Step
from annotate.loop import charts, draw, forms
from annotate.loop.asking import allowed, sent
from annotate.loop.results import compared, result
from annotate.loop.rounds import read_loop
from annotate.loop.runs import Run, Runs, runs_of, watched
from annotate.loop.sources import named
from annotate.manage import shell
from prefrl.data.comparisons import Item
from prefrl.data.store import Job
from prefrl.data.waiting import unanswered
from prefrl.errors import ConfigError, DataError
from prefrl.types import Completion, Prompt

CONFIG = {"rounds": 2, "labeller": {"kind": "people"}, "judge": [], "policy": {"name": "<b>policy</b>"}}
FIT = {"accuracy": 0.75, "accuracy_low": 0.5, "accuracy_high": 0.9, "pairs": 12}
WON = {"win_rate": 0.8, "win_low": 0.6, "win_high": 0.9, "won": 8, "tied": 0, "lost": 2, "kl": 1.25, "tokens": 7.0}


def item(number, **more):
    sides = Completion(text=f"a{number}"), Completion(text=f"b{number}")
    return Item(id=f"i{number}", prompt=Prompt(id=f"p{number}", text="?"), first=sides[0], second=sides[1], **more)


@pytest.fixture
def loop(tmp_path):
    """Writes the folder of a loop whose complete phases are these, with their figures; the folder."""

    def write(phases, asked=(), state="waiting", config=CONFIG, **status):
        folder = tmp_path / "runs" / "one" / "run"
        (folder / "rounds" / "1").mkdir(parents=True, exist_ok=True)
        entries = [{"name": name, "figures": figures} for name, figures in phases.items()]
        (folder / "loop.json").write_text(json.dumps({"config": config, "phases": entries}))
        (folder / "status.json").write_text(json.dumps({"state": state, **status}))
        lines = "".join(json.dumps(one.to_dict()) + "\n" for one in asked)
        (folder / "rounds" / "1" / "items.jsonl").write_text(lines)
        return folder

    return write


def phases(*names):
    return {name: {} for name in ("prompts", "0/answer", *names)}


def test_people_compare_a_round_along_with_the_next_pairs(loop):
    first = [f"1/{name}" for name in ("sample", "select", "label", "fit", "optimize", "answer")]
    state = read_loop(loop(phases(*first, "2/sample", "2/select", "2/label")))
    assert (state.now.number, state.now.phase) == (1, "evaluate")
    assert state.rounds[0].checkpoints == ["round_1/reward", "round_1/policy"]
    state = read_loop(loop(phases(*first, "2/sample", "2/select", "2/label", "1/evaluate")))
    assert (state.now.number, state.now.phase) == (2, "fit")
    judged = {**CONFIG, "judge": [{"kind": "numeric"}]}
    state = read_loop(loop(phases(*first), config=judged))
    assert (state.now.number, state.now.phase) == (1, "evaluate")
    everything = [f"{n}/{name}" for n in (1, 2) for name in draw.TITLES]
    assert read_loop(loop(phases(*everything), state="finished")).now is None


def test_pairs_that_were_asked_for_later_count_once_their_phase_is_complete(loop):
    folder = loop(phases("1/sample", "1/select"), [item(1), item(2)])
    (folder / "rounds" / "1" / "more_1.jsonl").write_text(json.dumps(item(3).to_dict()) + "\n")
    assert [one.id for one in read_loop(folder).rounds[0].asked] == ["i1", "i2"]
    loop(phases("1/sample", "1/select", "1/more_1"), [item(1), item(2)])
    assert [one.id for one in read_loop(folder).rounds[0].asked] == ["i1", "i2", "i3"]


def test_there_is_no_loop_before_it_has_begun(tmp_path):
    assert read_loop(tmp_path) is None


def run_of(folder, job_state, missing=0, **job):
    made = Job(id="j", kind="loop", state=job_state, folder="one", command=(), **job)
    return Run(name="one", job=made, folder=folder, status={}, loop=read_loop(folder), missing=missing)


def test_what_is_drawn(loop):
    items = [
        item(1, why="random", uncertainty=0.1),
        item(2, why="uncertainty", uncertainty=0.4),
        item(3, why="held out"),
    ]
    done = phases("1/sample", "1/select") | {"1/label": {"labels_now": 2, "ties": 1, "skips": 1}, "1/fit": FIT}
    folder = loop(done | {"1/optimize": {}, "1/answer": {}, "1/evaluate": WON}, items, waiting=["i1"])
    page = draw.overview(run_of(folder, "waiting", missing=1), {"i1": True, "i2": True, "i3": False}, None)
    assert "&lt;b&gt;policy&lt;/b&gt;" in page and "<b>policy" not in page
    for words in (
        "75%",
        "[50%, 90%]",
        "80%",
        "8 won, 0 tied, 2 lost [60%, 90%]",
        "1.25<small> nats",
        "1 tie, 1 skipped",
    ):
        assert words in page, words
    assert "1 chosen for it, 1 at random" in page  # the histogram in words
    assert 'aria-label="pairs labelled: 3 of 3"' in page  # its phase is complete, whatever was said since


def test_states_in_words(loop):
    folder = loop(phases("1/sample", "1/select"), [item(1)], items=["i1"])
    say = lambda *given, step=None: draw.overview(run_of(folder, *given), {}, step)  # noqa: E731
    assert "1 of 1 pairs still need a label" in say("waiting", 1)
    assert "All labels are in" in say("waiting", 0)
    assert "Round 1: label." in say("running") and "grpo, 2 of 5" in say("running", step=Step("grpo", 2, 5, ""))
    page = draw.overview(run_of(folder, "failed", error="<i>no room</i>"), {}, None)
    assert "&lt;i&gt;no room&lt;/i&gt;" in page
    assert "was cancelled" in say("cancelled")


def test_drawings_count_and_place():
    drawn = charts.histogram({"one": [0.0, 0.5, 0.999], "other": [0.5]}, most=1.0, bins=2)
    assert drawn.count("<rect") == 3  # one in the left bin, two and one in the right one
    assert 'class="kind-1" x="161.0" y="0.0"' in drawn  # the other stands on top of the highest column
    assert charts.histogram({"one": []}, most=1.0) == ""
    bar = charts.interval_bar(0.75, 0.5, 1.0, label="wins")
    assert 'cx="240.0"' in bar and 'x="160.0" y="8" width="160.0"' in bar
    assert charts.curve([(0.5, 0.4, 0.6)], total=3, label="x").count("<circle") == 1


def test_forms_say_what_the_commands_take():
    form = forms.LoopForm(policy=" m ", prompts="p.jsonl", members=2, more="policy: {lr: 1.0e-4}\nsteps: 3")
    config = form.config("store.db", "loop-1")
    assert config["policy"] == {"name": "m", "lr": 1.0e-4} and config["steps"] == 3
    assert config["labeller"] == {"kind": "people", "store": "store.db", "name": "loop-1", "overlap": 1}
    assert config["reward"] == {"model": {"name": "m"}, "ensemble": {"members": 2}} and "algorithm" not in config
    data = forms.RewardForm(base="m").config("store.db")["data"]
    assert data == {"train": "store.db", "eval_fraction": 0.2, "max_dropped_fraction": 0.5}
    pairs = forms.PairsForm(policy="a", against="b", compare=True, samples=1, prompts="p").config("store.db")
    assert (pairs["model"], pairs["against"], pairs["compare"], pairs["store"]) == ("a", "b", True, "store.db")


def test_a_run_folder_stands_for_its_final_checkpoint(tmp_path):
    final = tmp_path / "loop-1" / "run" / "checkpoints" / "final"
    final.mkdir(parents=True)
    for given in (tmp_path / "loop-1", tmp_path / "loop-1" / "run", final):
        config = forms.LoopForm(policy=str(given), prompts="p").config("store.db", "loop-2")
        assert config["policy"]["name"] == config["reward"]["model"]["name"] == str(final)
    assert forms.RewardForm(base="org/model").config("store.db")["model"]["name"] == "org/model"


@pytest.mark.parametrize(
    ("form", "says"),
    [
        (forms.LoopForm(policy=" ", prompts="p"), "No policy is named"),
        (forms.LoopForm(policy="m", prompts=""), "No file of prompts is named"),
        (forms.LoopForm(policy="m", prompts="p", more="a: [1"), "no YAML in line 1"),
        (forms.LoopForm(policy="m", prompts="p", more="- a"), r"are \['a'\]; expected lines"),
    ],
)
def test_forms_say_what_is_missing(form, says):
    with pytest.raises(ConfigError, match=says):
        form.config("store.db", "loop-1")


@pytest.mark.parametrize(
    "value",
    [
        *(
            "/etc/passwd",
            "~/secrets.jsonl",
            "../other/preferences.db",
            "./model",
            "C:\\data\\x.csv",
            "file:///etc/passwd",
        ),
        *("postgresql://me@host/db", "runs/../../secret.jsonl", "tests", "a\0b", "~nobody-at-all/x", "task:a/b"),
    ],
)
def test_files_of_the_server_are_for_admins_to_name(tmp_path, value):
    runs = tmp_path / "runs"
    for field in ("policy", "reward", "base", "against", "prompts"):
        with pytest.raises(ConfigError, match="Only admins may name files"):
            named({field: value}, runs, files=False)
        assert named({field: value}, runs, files=True) == {field: value}


def test_what_leads_to_no_file_and_runs_of_the_page_are_for_all(tmp_path):
    runs = tmp_path / "runs"
    (runs / "loop 1" / "run").mkdir(parents=True)
    inside = str(runs / "loop 1" / "prompts.jsonl")
    free = {"policy": "smollm2-135m", "reward": "", "base": "org/model", "more": "", "rounds": 3}
    for prompts in ("org/data:train", "org/data:main:test", "task:products:held_out", inside):
        given = {**free, "prompts": prompts}
        assert named(given, runs, files=False) == given
    assert named({"policy": " loop 1 "}, runs, files=False) == {"policy": str(runs / "loop 1" / "run")}


def test_who_may_say_what_in_a_form(tmp_path):
    with place(tmp_path) as there:

        def request(name, role):
            there.enter(name, role)
            token = there.store.people.open_session(name, 1.0).token
            return SimpleNamespace(cookies={there.studio.cookie: token})

        runs, boss, mona = tmp_path / "runs", request("boss", "admin"), request("mona", "manager")
        free, file = {"policy": "org/model", "more": " "}, {"policy": str(tmp_path), "more": ""}
        code = {"policy": "org/model", "more": "reward: {kind: here.py:reward}"}
        assert allowed(there.studio, mona, free, runs) == free
        for given, says in ((file, "files of the server"), (code, "settings are for admins")):
            assert allowed(there.studio, boss, given, runs) == given
            with pytest.raises(ConfigError, match=says):
                allowed(there.studio, mona, given, runs)
        with pytest.raises(DataError, match="was not uploaded"):
            sent(str(there.store.path))


def test_names_are_free(tmp_path):
    assert forms.default_name("loop", tmp_path / "runs") == "loop-1"
    (tmp_path / "loop-1").mkdir()
    assert forms.default_name("loop", tmp_path) == "loop-2"


def test_a_skip_and_a_closed_item_are_answers(tmp_path):
    with place(tmp_path) as there:
        there.store.add_tasks([item(n, overlap=2) for n in range(4)])
        for who in ("ann", "bob"):
            there.store.submit("i0", who, "first")
        there.store.submit("i1", "ann", "skip")
        there.store.submit("i1", "bob", "both_bad")
        there.store.submit("i2", "ann", "tie")
        assert unanswered(there.store, ["i0", "i1", "i2", "i3", "unknown"]) == ["i2", "i3", "unknown"]
        there.store.set_state(["i3"], "closed")
        assert unanswered(there.store, ["i2", "i3"]) == ["i2"]


class StandIn:
    """The jobs of a project, none of which is a process."""

    def __init__(self, folder, job):
        self.folder, self.job, self.begun = folder, job, []

    def refresh(self):
        return [self.job]

    def last(self, name):
        return self.job if name == self.job.folder else None

    def again(self, name, *, by):
        self.begun.append((name, by))


def test_a_loop_goes_on_by_itself_once_it_has_its_labels_and_only_once(loop, tmp_path):
    loop(phases("1/sample", "1/select"), [item(1)], items=["i1"])
    job = Job(id="j", kind="loop", state="waiting", folder="one", command=())
    with place(tmp_path) as there:
        there.store.add_tasks([item(1)])
        jobs = StandIn(tmp_path / "runs", job)
        runs = Runs(there.studio, jobs)
        assert runs.go_on_where_labelled() == []
        there.store.submit("i1", "ann", "first")
        runs.set_automatic("one", False)
        assert runs.go_on_where_labelled() == [] and not runs.automatic("one")
        runs.set_automatic("one", True)
        assert runs.go_on_where_labelled() == ["one"]
        assert runs.go_on_where_labelled() == []  # it waits for the same again: no endless starting
        assert jobs.begun == [("one", "the server")]


def test_runs_are_shared_while_the_server_runs(tmp_path):
    with place(tmp_path) as there:
        with watched(there.studio):
            first = runs_of(there.studio)
            assert runs_of(there.studio) is first
        assert runs_of(there.studio) is not first


def test_what_a_comparison_says(tmp_path):
    with place(tmp_path) as there:
        there.store.add_tasks([item(n) for n in range(5)])
        assert compared(there.store, {"i0"}) is None
        for n, outcome in enumerate(("first", "first", "second", "both_bad", "skip")):
            there.store.submit(f"i{n}", "ann", outcome)
        wins = compared(there.store, {f"i{n}" for n in range(5)}, identical=1)
        assert (wins.wins, wins.ties, wins.losses, wins.rate) == (2, 2, 1, 0.6)


def test_results_in_a_sentence(tmp_path):
    def found(kind, state="done", error="", **summary):
        job = Job(id="j", kind=kind, state=state, folder="one", command=(), error=error)
        return result(Run(name="one", job=job, folder=tmp_path, status={"summary": summary}), None)

    measured = {"accuracy": 0.75, "accuracy_interval": [0.5, 0.9], "accuracy_counts": [9, 12]}
    assert found("reward", **measured) == "75% of 12 held-out pairs ranked right [50.0%, 90.0%]"
    assert found("reward", loss=1.0).startswith("trained; not measured")
    assert found("loop", **{"round 1": {}, "round 2": WON}) == "wins 80% [60.0%, 90.0%] against the start"
    assert found("loop", state="failed", error="no room") == "no room"
    assert found("loop", state="running") == ""


async def build(studio):
    """The page; within a running event loop, as Gradio leaves those open that it has to make."""
    return shell.build(studio, "Loop", shell.LOOP_TABS)


def test_every_handler_asks_who_is_there(tmp_path):
    with place(tmp_path) as there:
        page = asyncio.run(build(there.studio))
        handlers = [block.fn for block in page.fns.values() if block.fn is not None]
        assert len(handlers) >= 12
        there.enter("ann")
        request = gr.Request(username="ann")
        for handler in handlers:
            wanted = list(inspect.signature(handler).parameters.values())
            assert wanted[-1].name == "request", handler
            with pytest.raises(gr.Error, match="signed out"):
                handler(*([None] * (len(wanted) - 1)), request)


def test_reports_are_for_those_who_run_the_project(tmp_path, loop):
    (loop(phases()) / "report.html").write_text("<h1>Report</h1>")
    with place(tmp_path) as there:
        there.store.jobs.add("loop", "one", ["x"], state="done")
        boss, ann = there.enter("boss", "manager"), Browser(there, there.store.people.add("ann", "annotator").name)
        answer = boss.get("/report/one")
        assert answer.text == "<h1>Report</h1>" and "sandbox" in answer.headers["content-security-policy"]
        assert ann.get("/report/one").status_code == 403
        assert there.client().get("/report/one").status_code == 401
        for name in ("two", "%2e%2e%2fone", "one%2f..%2fone"):
            assert boss.get(f"/report/{name}").status_code == 404
