"""The report: safe, self-contained, complete, and in the order a person reads it."""

from __future__ import annotations

import base64
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from prefrl.errors import RunError
from prefrl.evaluate import figures
from prefrl.evaluate.blocks import show, show_number, show_seconds
from prefrl.evaluate.report import (
    Answer,
    Definitions,
    Details,
    Figure,
    Headline,
    Report,
    Sample,
    SamplesSideBySide,
    Section,
    Table,
    Text,
    Warnings,
    curve_sections,
    quality_section,
    sample_sections,
    standard_sections,
    write_report,
    write_run_report,
)
from prefrl.evaluate.reward_quality import evaluate_scores
from prefrl.evaluate.run_folder import RunData, RunFolder, read

EVIL = "<script>alert('x')</script><img src=https://evil.example/a.png onerror=alert(1)>"


class Page(HTMLParser):
    """Tags, visible text and every address that a browser would load."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [v or "" for k, v in attrs if k in ("src", "srcset", "href", "action", "data", "poster")]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def rl_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = RunFolder.create(tmp_path_factory.mktemp("runs") / "rl", "rl", {"policy": {"lr": 1.23456e-5}, "seed": 123456})
    for step in range(8):
        run.log(step, _rl_metrics(step))
    for step, accuracy in ((0, 0.4), (7, 0.6)):
        run.log(step, {"accuracy": accuracy, "parse_rate": 0.9}, phase="eval")
    run.samples(
        7,
        [
            {"prompt": EVIL, "policy": "before", "completion": "", "reward": None, "error": EVIL},
            {
                "prompt": EVIL,
                "policy": "after",
                "completion": EVIL,
                "reward": 0.5,
                "tokens": 9,
                "kl": 1.5,
                "won": True,
            },
        ],
    )
    run.finish({"win_rate": 0.71828})
    return run


@pytest.fixture(scope="module")
def html(rl_run: RunFolder) -> str:
    return write_report(rl_run).read_text()


def _rl_metrics(step: int) -> dict[str, float]:
    return {
        "reward/mean": 0.2 + 0.1 * step,
        "reward/std": 0.1,
        "reward/part/format": 0.5,
        "kl/ref": 0.3 * step,
        "length/mean": 20.0,
        "groups/all_fail": 0.25,
        "groups/all_pass": 0.25,
        "groups/mixed": 0.5,
        "stop/eos": 1.0,
        "loss": math.nan if step == 3 else 0.1,
        "grad_norm": 1.0,
        "clip/low": 0.01,
        "clip/high": 0.02,
        "tokens_per_second": 100.0,
        "invented": 4.0,
    }


def test_the_page_loads_nothing_and_runs_nothing(html: str) -> None:
    page = Page(html)
    assert {tag for tag in page.tags if tag in ("script", "link", "iframe", "object", "form")} == set()
    assert page.addresses and all(a.startswith(("data:image/svg+xml;base64,", "#")) for a in page.addresses)
    assert "@import" not in html and "url(" not in html
    assert "default-src 'none'; img-src data:" in html
    for address in page.addresses:
        if address.startswith("data:"):
            svg = base64.b64decode(address.split(",", 1)[1]).decode()
            assert not re.search(r"(href|src)=\"https?:|<script|@import", svg)


def test_texts_are_escaped_but_shown(rl_run: RunFolder, html: str) -> None:
    assert "<script>alert" not in html and "<img src=https" not in html
    assert Page(html).text.count(EVIL) == 3
    blocks = [
        Headline([(EVIL, EVIL, EVIL)]), Text(EVIL), Warnings([EVIL]), Table([EVIL], [[EVIL]], EVIL),
        Definitions({EVIL: EVIL}), Details(EVIL, [Text(EVIL)]), Section(EVIL, [Text(EVIL)], EVIL),
        Figure(figures.curves({EVIL: ([0], [1.0])}, title=EVIL), EVIL, EVIL),
        SamplesSideBySide([Sample(EVIL, [Answer(policy=EVIL, text=EVIL, stop=EVIL, badge=EVIL)])]),
    ]  # fmt: skip
    page = Page(write_report(rl_run.path, Report(title=EVIL, lead=EVIL, blocks=blocks)).read_text())
    assert "script" not in page.tags and page.tags.count("img") == 1
    assert page.text.count(EVIL) >= 20


def test_sections_come_in_reading_order(rl_run: RunFolder) -> None:
    quality = evaluate_scores([1.0, 2.0], [0.0, 3.0], chosen_lengths=[1, 2], rejected_lengths=[2, 1])
    data = read(rl_run.path)
    report = standard_sections(data, headline=[("win rate", "72 %", "note")], extra=[quality_section(quality)])
    text = Page(write_report(rl_run, report).read_text()).text
    order = [
        "Mean reward rose from 0.20 to 0.90 in 8 steps",
        "72 %",
        "Worth a look",
        "Curves",
        "Inside the optimizer",
    ]
    order += ["preferred", "Accuracy on held-out pairs", "Configuration", "Environment"]
    places = [text.rindex(words) if words in ("Curves",) else text.index(words) for words in order]
    assert places == sorted(places)


def test_every_known_metric_has_a_curve_and_every_metric_a_row(rl_run: RunFolder, html: str) -> None:
    titles = {block.title for block in _figures(standard_sections(read(rl_run.path)))}
    assert titles == {
        "Reward", "On prompts never trained on", "Reward by part", "Signal in the groups", "Loss",
        "Reward against distance", "Distance from the start", "Answer length", "Why answers ended",
        "Clipped tokens", "Gradient norm", "Speed",
    }  # fmt: skip
    assert "invented" in Page(html).text
    assert (rl_run.figures / "signal-in-the-groups.svg").read_text().startswith("<svg")


def test_the_reward_band_is_one_standard_deviation(rl_run: RunFolder) -> None:
    figure = next(f for f in _figures(standard_sections(read(rl_run.path))) if f.title == "Reward")
    heights = [y for _, y in figure.figure.axes[0].collections[0].get_paths()[0].vertices]
    assert min(heights) == pytest.approx(0.1) and max(heights) == pytest.approx(1.0)


def test_configuration_is_exact_and_summary_is_rounded(html: str) -> None:
    text = Page(html).text
    assert "1.23456e-05" in text and "123456" in text
    assert "0.718" in text and "0.71828" not in text


def test_a_supervised_run_gets_its_own_curves(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "a", "dpo", {})
    for step in range(3):
        run.log(step, {"loss": 0.7, "accuracy": 0.5, "margin": 0.1, "chosen_logp": -9.0, "rejected_logp": -9.5})
        run.log(step, {"loss": 0.8, "accuracy": 0.625}, phase="eval")
    report = standard_sections(read(run.path))
    drawn = {f.title: f for f in _figures(report)}
    assert list(drawn) == [
        "On prompts never trained on", "Accuracy on training pairs", "Margin",
        "Log-probability of both answers", "Loss",
    ]  # fmt: skip
    assert [line.get_label() for line in drawn["Loss"].figure.axes[0].lines] == ["loss", "loss (held out)"]
    assert report.title == "Held-out accuracy ended at 62.5%"


@pytest.mark.parametrize(
    ("metrics", "caption"),
    [
        ({"loss": 0.1, "length/mean": 9.0}, "policy gradient hovers around 0"),
        ({"loss": 0.6, "nll": 0.6 + 1e-7}, "In nats, of what is to be predicted"),
        ({"loss": 0.6, "nll": 0.6, "steps/accuracy": 0.7}, "In nats, of the labels of steps, each .69 when guessed"),
        ({"loss": 0.6}, ""),
    ],
)
def test_a_loss_is_captioned_as_what_it_is_and_drawn_once(
    metrics: dict[str, float], caption: str, tmp_path: Path
) -> None:
    run = RunFolder.create(tmp_path / "run", "some", {})
    for step in (1, 2):
        run.log(step, metrics)
    run.log(2, {"nll": 0.5, "nll/calibrated": 0.4}, phase="eval")
    section = next(b for b in curve_sections(read(run.path)) if isinstance(b, Section))
    (figure,) = (b for b in section.blocks if isinstance(b, Figure) and b.title == "Loss")
    assert caption in figure.caption and bool(figure.caption) == bool(caption)
    held_out = ["negative log-likelihood (held out)", "at the best temperature (held out)"]
    first = "negative log-likelihood" if "nll" in metrics else "loss"
    assert [line.get_label() for line in figure.figure.axes[0].lines] == [first, *held_out]


def test_an_empty_run_still_has_a_report(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "a", "rl", {})
    text = Page(write_run_report(run, evaluate_scores([1.0], [0.0])).read_text()).text
    assert "100.0% of 1 pairs ranked right" in text and "Accuracy on held-out pairs" in text
    with pytest.raises(RunError, match="There is no run"):
        write_report(tmp_path / "b")


def test_samples_stand_by_policy_or_by_first_and_last_step() -> None:
    rows = [{"step": s, "prompt": "p", "completion": f"t{s}"} for s in (0, 5, 9)]
    (section,) = sample_sections(_data(samples=rows))
    (sample,) = section.blocks[0].samples
    assert [(a.policy, a.text) for a in sample.answers] == [("step 0", "t0"), ("step 9", "t9")]

    rows = [{"step": 0, "prompt": "p", "policy": p, "completion": p} for p in ("before", "after", "after", "best of 8")]
    (section,) = sample_sections(_data(samples=rows))
    policies = [a.policy for a in section.blocks[0].samples[0].answers]
    assert policies == ["before", "after (1 of 2 answers)", "best of 8"]


def test_comparisons_come_first_and_show_the_first_and_last_step() -> None:
    rows = [{"step": 1, "prompt": "other", "policy": "training", "completion": "t"}]
    rows += [{"step": s, "prompt": "p", "policy": f"step {s}", "completion": "t"} for s in (0, 5, 9)]
    (section,) = sample_sections(_data(samples=rows))
    shown = [[answer.policy for answer in sample.answers] for sample in section.blocks[0].samples]
    assert shown == [["step 0", "step 9"], ["training"]]


def test_figures_of_one_title_do_not_overwrite_each_other(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "a", "rl", {})
    blocks = [Figure(figures.curves({"a": ([0], [i])}), "Loss") for i in range(2)]
    write_report(run, Report(title="t", blocks=[Section("s", blocks)]))
    assert sorted(path.name for path in run.figures.iterdir()) == ["loss-2.svg", "loss.svg"]


def test_samples_left_out_are_counted() -> None:
    rows = [{"step": 0, "prompt": f"p{i}", "completion": "t"} for i in range(11)]
    rows += [{"step": 0, "prompt": "p0", "completion": f"t{i}"} for i in range(5)]
    (section,) = sample_sections(_data(samples=rows))
    assert len(section.blocks[0].samples) == 8
    assert section.lead == "The first 8 of 11 prompts; all are in samples.jsonl."
    assert section.blocks[0].samples[0].answers[0].policy == "step 0 (4 of 6 answers)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.123456, "0.123"), (12.3456, "12.35"), (123456.0, "123,456"), (123456, "123,456"), (2.0, "2"),
        (1e-7, "1e-07"), (math.nan, "NaN"), (-math.inf, "-infinity"), (None, "none"), (True, "yes"),
        ([1, {"a": 2}], "1, {a: 2}"),
    ],
)  # fmt: skip
def test_values_as_people_read_them(value: object, text: str) -> None:
    assert show(value) == text


def test_numbers_and_durations() -> None:
    assert show_number(0.0) == "0" and show_number(-0.5) == "-0.5"
    assert [show_seconds(s) for s in (4.21, 59.0, 61.0, 3700.0, 200_000.0, math.inf)] == [
        "4.2 s", "59 s", "1 min 1 s", "1 h 1 min", "2 d 7 h", "unknown",
    ]  # fmt: skip


def _figures(report: Report) -> list[Figure]:
    found: list[Figure] = []
    stack = list(report.blocks)
    while stack:
        block = stack.pop(0)
        if isinstance(block, Figure):
            found.append(block)
        elif isinstance(block, Section | Details):
            stack = [*block.blocks, *stack]
    return found


def _data(**fields: object) -> RunData:
    return RunData(path=Path("runs/a"), status={"kind": "rl", "state": "finished"}, **fields)
