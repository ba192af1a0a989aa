"""The labelling app beside feedloop and Label Studio: the same fifty pairs, the same faults, one after the other.

    python -m venv /tmp/feedloop && /tmp/feedloop/bin/pip install feedloop==1.5.3
    python -m venv /tmp/label-studio && /tmp/label-studio/bin/pip install label-studio==1.23.2
    python benchmarks/annotate_rivals.py --feedloop /tmp/feedloop --label-studio /tmp/label-studio

Without an environment of theirs only this project's app is tried. Needs Chromium and the packages of the extra `dev`.
Prints a table in Markdown. Servers run one at a time and at low priority, and everything stays on this machine: a
request of a page to elsewhere is counted and goes nowhere. Takes some three minutes, more where others use the machine,
and ends after half an hour at the latest.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, Route, sync_playwright
from rivals import faults
from rivals.faults import Filled, Finding
from rivals.label_studio import LabelStudio
from rivals.pairs import fifty
from rivals.tools import Annotate, Feedloop, Tool, version_of
from rivals.trainer import accepts

LOCAL = ("127.0.0.1", "localhost")
MOST_SECONDS = 1800


@dataclass(frozen=True)
class Result:
    """What was found of one app."""

    tool: Tool
    seconds: float
    work: float
    findings: dict[str, Finding]
    filled: Filled


def compared(tool: Tool, browser: Browser, folder: Path) -> Result:
    """Try an app: the first label, its page, the faults, and all pairs."""
    print(f"{tool.name} ...", file=sys.stderr, flush=True)
    began = time.monotonic()
    tool.open(folder / "newcomer", fifty())
    try:
        with opened(browser) as (page, elsewhere):
            tool.enter(page)
            entered = time.monotonic()
            findings = faults.look(tool, page, elsewhere)
            looked = time.monotonic() - entered
            tool.vote(page)
            seconds, work = time.monotonic() - began - looked, tool.work()
    finally:
        tool.close()
    findings |= tried(tool, folder)
    return Result(tool, seconds, work, findings, faults.fill(tool, folder))


def tried(tool: Tool, folder: Path) -> dict[str, Finding]:
    """All faults that need no browser."""
    tool.open(folder / "faults", fifty())
    try:
        found = {name: fault(tool, folder) for name, fault in faults.FAULTS.items()}
    finally:
        tool.close()
    return {**found, "Progress after 2 skips of 5": faults.progress(tool, folder)}


@contextlib.contextmanager
def opened(browser: Browser) -> Iterator[tuple[Page, list[str]]]:
    """A page from which nothing leaves this machine, and what it asked for elsewhere."""
    elsewhere: list[str] = []

    def stay(route: Route) -> None:
        url = urlsplit(route.request.url)
        if url.scheme in ("data", "blob") or url.hostname in LOCAL:
            route.continue_()
        else:
            elsewhere.append(route.request.url)
            route.abort()

    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(120_000)
    context.route("**/*", stay)
    try:
        yield context.new_page(), elsewhere
    finally:
        context.close()


def table(results: Sequence[Result], folder: Path) -> str:
    """All findings, a column an app; a cross marks what should be otherwise."""
    rows = [("", *(result.tool.name for result in results))]
    rows.append(("Actions until the first label", *(str(len(result.tool.actions)) for result in results)))
    rows.append(("Seconds until the first label, without the person's", *(f"{r.seconds:.0f}" for r in results)))
    rows.append(("Seconds of a processor that the server used until then", *(f"{r.work:.1f}" for r in results)))
    for name in results[0].findings:
        rows.append((name, *(_cell(result.findings[name]) for result in results)))
    filled = [result.filled for result in results]
    rows.append(("First answer on the left, of 50", *(_cell(_balance(one)) for one in filled)))
    rows.append(("Judgements that could not be said", *(str(one.unsaid) for one in filled)))
    rows.append(("Preferences exported right", *(f"{f.right} of {f.wanted}, {f.rows} rows" for f in filled)))
    rows.append(("TRL's DPOTrainer takes the export", *(_trained(one, folder) for one in filled)))
    lines = [f"| {' | '.join(row)} |" for row in rows]
    actions = [f"- {result.tool.name}: {'; '.join(result.tool.actions)}." for result in results]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:], "", *actions])


def _cell(finding: Finding) -> str:
    return finding.words if finding.good is not False else f"{finding.words} ✗"


def _balance(filled: Filled) -> Finding:
    return Finding(str(filled.first_left), 15 <= filled.first_left <= 35)  # 25 and less than three deviations


def _trained(filled: Filled, folder: Path) -> str:
    found = {file.name.partition("-")[0]: accepts(file, folder) for file in filled.files}
    if "" in found.values():
        return "yes"
    return "no: " + "; ".join(f"{name}: {why}" for name, why in found.items())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it as the flags say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--feedloop", type=Path, help="virtual environment with feedloop")
    parser.add_argument("--label-studio", type=Path, help="virtual environment with label-studio")
    given = parser.parse_args(arguments)
    os.nice(5)
    bound = threading.Timer(MOST_SECONDS, os._exit, [1])
    bound.daemon = True
    bound.start()
    tools: list[Tool] = [Annotate(sys.executable, "prefrl annotate")]
    if given.feedloop:
        python = str(given.feedloop / "bin" / "python")
        tools.append(Feedloop(python, f"feedloop {version_of(python, 'feedloop')}"))
    studio = None
    if given.label_studio:
        folder = given.label_studio / "bin"
        studio = LabelStudio(
            str(folder / "label-studio"), f"Label Studio {version_of(str(folder / 'python'), 'label-studio')}"
        )
        tools.append(studio)
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        if studio is not None:
            stack.callback(studio.stop)
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"), args=["--no-sandbox"]
        )
        results = [compared(tool, browser, Path(place) / str(number)) for number, tool in enumerate(tools)]
        browser.close()
        print(f"{date.today()}, {os.cpu_count()} cores\n\n{table(results, Path(place))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
