"""Jobs beside the server: how they end, who knows them again, and that nothing is left of a cancelled one."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import pytest
import yaml

from annotate.jobs import Jobs
from annotate.processes import birth
from prefrl.data.preferences import PreferenceStore
from prefrl.errors import DataError

# Stands in for prefrl: does what its configuration says under `does`, in Python.
PROGRAM = """
import json, os, pathlib, signal, subprocess, sys, time, yaml
config = yaml.safe_load(open(sys.argv[2]))
run = pathlib.Path(config["output"])
run.mkdir(exist_ok=True)
def status(**values):
    (run / "status.json").write_text(json.dumps(values))
def until(name):
    while not (run / name).exists():
        time.sleep(0.02)
exec(config["does"])
"""
LONG = "status(state='running'); (run / 'up').touch(); until('end'); status(state='finished')"


@pytest.fixture
def store(tmp_path):
    with PreferenceStore(tmp_path / "preferences.db") as store:
        yield store


@pytest.fixture
def make(store, tmp_path):
    """Makes the jobs of a server; called again, those of the server after a restart."""
    (tmp_path / "program.py").write_text(PROGRAM)
    program = (sys.executable, str(tmp_path / "program.py"))
    made = []

    def one():
        made.append(Jobs(store, tmp_path / "runs", grace=1.0, program=program))
        return made[-1]

    yield one
    for job in store.jobs.list("running"):
        saved = json.loads((tmp_path / "runs" / job.folder / "process.json").read_text())
        if birth(saved["pid"]) == saved["born"]:
            os.killpg(saved["pid"], signal.SIGKILL)
    for child in (child for jobs in made for child in jobs._children.values()):
        child.wait(timeout=20)


def start(jobs, does, name="one", kind="loop"):
    return jobs.start(kind, name, {"does": does}, by="boss")


def eventually(look, wanted, seconds=20.0):
    until = time.monotonic() + seconds
    while (found := look()) != wanted and time.monotonic() < until:
        time.sleep(0.02)
    assert found == wanted


def state(jobs, name="one"):
    return lambda: jobs.last(name).state


def up(jobs, name="one"):
    eventually((jobs.folder / name / "run" / "up").exists, True)


@pytest.mark.parametrize(
    ("does", "ended", "error"),
    [
        ("status(state='finished')", "done", ""),
        ("status(state='waiting')", "waiting", ""),
        ("status(state='failed', error='RunError: no room'); sys.exit(1)", "failed", "no room"),
        (
            "print('prefrl: rounds is 0; expected 1 or more.'); sys.exit(2)",
            "failed",
            "rounds is 0; expected 1 or more.",
        ),
        ("status(state='running'); os.kill(os.getpid(), 9)", "failed", "it ended with status -9, without a word"),
    ],
)
def test_how_a_job_ends(make, does, ended, error):
    jobs = make()
    start(jobs, does)
    eventually(state(jobs), ended)
    job = jobs.last("one")
    assert (job.error, job.kind, job.folder) == (error, "loop", "one") and job.ended >= job.started


def test_a_job_is_apart_from_the_server_and_gives_way_to_it(make, tmp_path):
    jobs = make()
    start(jobs, "print(os.getsid(0), os.getpid(), os.nice(0)); status(state='finished')")
    eventually(state(jobs), "done")
    session, pid, nice = map(int, jobs.log("one").split("\n")[1].split())
    assert session == pid != os.getsid(0) and nice == min(19, os.nice(0) + 10)
    config = yaml.safe_load((tmp_path / "runs" / "one" / "config.yaml").read_text())
    assert config["output"] == str(tmp_path / "runs" / "one" / "run")


def test_what_a_job_has_to_know_beside_its_configuration_is_written_nowhere(make, store, tmp_path):
    jobs = make()
    jobs = Jobs(store, jobs.folder, program=jobs._program, environment={"PGPASSWORD": "pass word"})
    start(jobs, "print(len(os.environ['PGPASSWORD'])); status(state='finished')")
    eventually(state(jobs), "done")
    assert jobs.log("one").split("\n")[1] == "9"
    files = [path for path in jobs.folder.rglob("*") if path.is_file()]
    assert len(files) >= 3 and not [path for path in files if b"pass word" in path.read_bytes()]
    assert "pass word" not in repr(store.jobs.list())


def test_a_log_is_that_of_a_run(make, tmp_path):
    jobs = make()
    start(jobs, "print('mine'); status(state='finished')")
    eventually(state(jobs), "done")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "log.txt").write_text("secret\n")
    assert "mine" in jobs.log("one")
    for name in ("../elsewhere", str(tmp_path / "elsewhere"), "one/../../elsewhere", "a\0b", ""):
        assert jobs.log(name) == ""


def test_progress_is_the_last_line_that_counts(make):
    jobs = make()
    start(jobs, "print('round 1: samples 3/20  completions 12\\nLoading'); " + LONG)
    up(jobs)
    step = jobs.step("one")
    assert (step.title, step.done, step.total) == ("round 1: samples", 3, 20)
    (jobs.folder / "one" / "run" / "end").touch()
    eventually(state(jobs), "done")


def test_going_on_forgets_the_progress_of_before(make):
    jobs = make()
    start(
        jobs, "print('fit 1/2') if not (run / 'up').exists() else None; (run / 'up').touch(); status(state='waiting')"
    )
    eventually(state(jobs), "waiting")
    assert jobs.step("one") is not None
    jobs.again("one", by="boss")
    eventually(state(jobs), "waiting")
    assert jobs.step("one") is None
    assert [job.state for job in jobs.refresh()] == ["waiting", "done"]


@pytest.mark.parametrize("after", ["SIG_IGN", "SIG_DFL"], ids=["stubborn", "obedient"])
def test_a_cancelled_job_is_gone_with_all_it_started(after, make):
    jobs = make()
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); "  # what it starts inherits that
    child = "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid, flush=True); "
    start(jobs, f"{deaf}{child}signal.signal(signal.SIGTERM, signal.{after}); {LONG}")
    up(jobs)
    mine, theirs = jobs.last("one").pid, int(jobs.log("one").split("\n")[1])
    assert birth(mine) and birth(theirs)
    began = time.monotonic()
    jobs.cancel("one", by="boss")
    assert time.monotonic() - began < 0.5  # nobody waits for it
    eventually(state(jobs), "cancelled")
    eventually(lambda: birth(mine) + birth(theirs), "")


def test_a_waiting_job_can_be_cancelled_and_gone_on_with(make):
    jobs = make()
    start(jobs, "status(state='waiting')")
    eventually(state(jobs), "waiting")
    jobs.cancel("one", by="boss")
    assert jobs.last("one").state == "cancelled"
    jobs.again("one", by="boss")
    eventually(state(jobs), "waiting")


def test_a_restarted_server_knows_its_jobs(make):
    start(make(), LONG)
    again = make()
    up(again)
    assert again.last("one").state == "running"
    (again.folder / "one" / "run" / "end").touch()
    eventually(state(again), "done")


def test_a_restarted_server_can_cancel_them(make):
    start(make(), LONG)
    again = make()
    up(again)
    again.cancel("one", by="boss")
    eventually(state(again), "cancelled")
    eventually(lambda: birth(again.last("one").pid), "")


def test_another_process_of_the_same_number_is_not_the_job(make, store):
    first = make()
    job = start(first, LONG)
    up(first)
    place = first.folder / "one" / "process.json"
    saved = json.loads(place.read_text())
    place.write_text(json.dumps({**saved, "pid": os.getpid(), "born": "long ago"}))
    assert make().last("one").state == "failed"  # this very process runs, but it is not the job
    os.killpg(saved["pid"], signal.SIGKILL)
    assert store.jobs.get(job.id).error


def test_one_at_a_time_and_under_its_own_name(make):
    jobs = make()
    start(jobs, LONG)
    with pytest.raises(DataError, match="one is running; wait for it, or cancel it first"):
        start(jobs, LONG, name="two")
    (jobs.folder / "one" / "run").mkdir(exist_ok=True)
    (jobs.folder / "one" / "run" / "end").touch()
    eventually(state(jobs), "done")
    with pytest.raises(DataError, match="a run called 'one' already"):
        start(jobs, LONG)
    for name in ("", "../out", "a/b", ".hidden", "dot."):
        with pytest.raises(DataError, match="expected letters"):
            start(jobs, LONG, name=name)
    with pytest.raises(DataError, match="finished"):
        jobs.again("one", by="boss")
    with pytest.raises(DataError, match="no run called 'none'"):
        jobs.again("none", by="boss")
    with pytest.raises(DataError, match="does not run"):
        jobs.cancel("one", by="boss")


def test_who_did_what_is_in_the_audit_log(make, store):
    jobs = make()
    start(jobs, LONG)
    jobs.cancel("one", by="mia")
    eventually(state(jobs), "cancelled")
    events = [(e.person, e.kind, e.body["name"]) for e in store.events() if e.kind.startswith("job")]
    assert events == [("boss", "job started", "one"), ("mia", "job cancelled", "one")]
