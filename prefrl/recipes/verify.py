"""Try a reward before anything learns from it, and score old answers with a new one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from prefrl.config import VerifyConfig
from prefrl.data.comparisons import CheckItem
from prefrl.data.formats import to_prompts
from prefrl.data.preferences import PreferenceStore
from prefrl.errors import ConfigError, DataError, RewardError
from prefrl.evaluate.probes import Probe, probes_of
from prefrl.evaluate.run_folder import RunFolder
from prefrl.evaluate.shares import percent, percents
from prefrl.evaluate.verifier_audit import (
    Disagreement,
    ProbeCount,
    compare,
    count_probes,
    passes,
    problems,
    wording,
)
from prefrl.recipes.common import Checked, quiet, report_read, start, train_table
from prefrl.recipes.evaluation_report import leave
from prefrl.recipes.score import refuse_token_rewards, text_rollout
from prefrl.recipes.verify_answers import data_of, given_answers
from prefrl.recipes.verify_report import audit_sections, change_sections, probe_table
from prefrl.rewards.base import RewardSource
from prefrl.rewards.compose import in_share
from prefrl.rewards.specs import build
from prefrl.types import Completion, Prompt, Score

GOLD = ("solution", "canonical_solution", "answer")  # columns that may hold a right answer, the first that is there


def run(config: VerifyConfig) -> RunFolder:
    """Audit or rescore as configured.

    Raises:
        ConfigError: no rewards, no data, or no column with right answers.
        RewardError: the audit found a problem, and `strict` is set.
    """
    if not config.rewards:
        raise ConfigError("rewards is empty; name what is tried: --rewards '[{kind: math, column: answer}]'")
    if config.what == "rescore" and not config.completions:
        raise ConfigError("completions is empty; it names what was scored before. Type: --completions runs/rl")
    quiet()
    return _audit(config) if config.what == "audit" else _rescore(config)


def _audit(config: VerifyConfig) -> RunFolder:
    with start(config, "verify") as folder:
        prompts = _prompts(config)
        score = _scorer(_source(config.rewards))
        probes = probes_of(prompts, [_golds(prompt, config.gold) for prompt in prompts])
        print(f"{len(prompts)} prompts, {len(probes)} probes ...", flush=True)
        said = [passes(found, config.full) for found in score([(probe.prompt, probe.text) for probe in probes])]
        counts = count_probes(probes, said)
        found = problems(counts)
        judged = _judged(config, prompts, score, probes)
        lint = wording(build(config.rewards))
        Console().print(probe_table(counts))
        for sentence in found:
            print(sentence)
        wrong = sum(count.wrong for count in counts)
        cards = [
            ("known right answers accepted", f"{counts[0].passed} of {len(prompts)}", _unscored(counts[0])),
            ("probes judged wrongly", str(wrong), f"of {len(probes)}"),
        ]
        if judged is not None:
            cards += _cards(judged)
        title = "Every probe came out as it must" if not found else f"{_problems(found)} with this reward"
        figures = {
            "problems": found,
            "wording": lint,
            "probes": [
                {**_as_dict(count), "examples": [{"prompt": p.prompt.id, "text": p.text} for p in count.examples]}
                for count in counts
            ],
            "judge": None if judged is None else _as_dict(judged),
        }
        sections = audit_sections(counts, found, lint, judged)
        leave(folder, title, cards, sections, summary={"wrong": wrong}, figures=figures, rows=[])
    if found and config.strict:
        raise RewardError(f"The audit found {_problems(found)}; {folder.path}/report.html says where.")
    return folder


def _rescore(config: VerifyConfig) -> RunFolder:
    with start(config, "verify") as folder:
        given = given_answers(config.completions, _prompts(config))
        answers = [one for one in given if one.before is not None]
        if not answers:
            raise DataError(f"{config.completions} has no answer with a score; expected score or reward beside each.")
        if len(answers) < len(given):
            print(f"{len(given) - len(answers)} of {len(given)} answers had no score before, and are left out.")
        scores = _scorer(_source(config.rewards))([(given.prompt, given.text) for given in answers])
        sections, figures = change_sections(answers, scores)
        changed, scored = figures["changed"], figures["scored"]
        cards = [
            ("scores that changed", f"{changed} of {scored}", percent(changed / max(1, scored))),
            ("mean before", f"{figures['mean_before']:.3f}", "of the answers that both could score"),
            ("mean now", f"{figures['mean_now']:.3f}", f"{figures['unscored']} could not be scored now"),
        ]
        table = Table("", "before", "now", title="The same answers, scored again", title_justify="left")
        table.add_row("mean", f"{figures['mean_before']:.4f}", f"{figures['mean_now']:.4f}")
        table.add_row("changed", "", f"{changed} of {scored}")
        Console().print(table)
        title = f"{changed} of {scored} scores changed"
        leave(folder, title, cards, sections, summary={"changed": changed}, figures=figures, rows=[])
    return folder


Scorer = Callable[[Sequence[tuple[Prompt, str]]], list[Score]]


def _scorer(source: RewardSource) -> Scorer:
    reward = Checked(source, max_error_fraction=1.0)  # what cannot be scored is a finding

    def score(texts: Sequence[tuple[Prompt, str]]) -> list[Score]:
        return reward.score([text_rollout(prompt, Completion(text=text)) for prompt, text in texts])

    return score


def _source(specs: Sequence[dict[str, object]]) -> RewardSource:
    source = build(specs)
    refuse_token_rewards(specs, source)
    return source


def _prompts(config: VerifyConfig) -> list[Prompt]:
    found: dict[str, Prompt] = {}
    for data in [config.data.train] if config.data.train else data_of(config.completions) or [""]:
        read = to_prompts(
            train_table(replace(config.data, train=data)), max_bad_fraction=config.data.max_dropped_fraction
        )
        found |= {prompt.id: prompt for prompt in report_read(read, f"prompts of {data}")}
    return list(found.values())


def _golds(prompt: Prompt, column: str) -> list[str]:
    """The answers of a prompt that are known to be right, one or several."""
    if not (texts := _known(prompt, column)):
        raise ConfigError(
            f"prompt {prompt.id!r} has no {column or '/'.join(GOLD)}; expected an answer known to be right. Name its "
            f"column with --gold; there are {', '.join(prompt.columns) or 'none'}."
        )
    return texts


def _known(prompt: Prompt, column: str) -> list[str]:
    names = [column] if column else [name for name in GOLD if name in prompt.columns]
    value = prompt.columns.get(names[0]) if names else None
    texts = [str(one) for one in (value if isinstance(value, list | tuple) else [value]) if one is not None]
    return [text.rpartition("####")[2].strip() if "####" in text else text for text in texts if text.strip()]


def _judged(
    config: VerifyConfig, prompts: Sequence[Prompt], score: Scorer, probes: Sequence[Probe]
) -> Disagreement | None:
    """The reward beside the judge, on answers that were given or else on the probes; what differs is queued."""
    if not config.judge:
        return None
    texts = [(probe.prompt, probe.text) for probe in probes]
    if config.completions:
        texts = [(given.prompt, given.text) for given in given_answers(config.completions, prompts)]
    texts = [(prompt, text) for prompt, text in texts if in_share(f"{prompt.id}|{text}", config.share)]
    reward = [passes(found, config.full) for found in score(texts)]
    judge = [passes(found, config.full) for found in _scorer(_source(config.judge))(texts)]
    if config.queue:
        differ = [
            (text, r, j) for text, r, j in zip(texts, reward, judge, strict=True) if r != j and None not in (r, j)
        ]
        _queue(config, differ)
    return compare(reward, judge)


def _queue(config: VerifyConfig, differ: Sequence[tuple[tuple[Prompt, str], bool | None, bool | None]]) -> None:
    items = [
        CheckItem(
            prompt=prompt,
            completion=Completion(text=text),
            answer="\n".join(_known(prompt, config.gold)) or None,
            verdicts={"reward": float(bool(reward)), "judge": float(bool(judge))},
            why="reward and judge differ",
        )
        for (prompt, text), reward, judge in differ
    ]
    with PreferenceStore(config.queue) as store:
        added = store.add_tasks(items)
    print(f"{added} answers on which reward and judge differ wait in {config.queue} for people: prefrl annotate")


def _cards(judged: Disagreement) -> list[tuple[str, str, str]]:
    positive, negative = judged.false_positive_rate, judged.false_negative_rate
    return [
        ("false positives", percent(positive[0]), percents(positive[1])),
        ("false negatives", percent(negative[0]), percents(negative[1])),
    ]


def _problems(found: Sequence[str]) -> str:
    return f"{len(found)} problem{'s' if len(found) != 1 else ''}"


def _unscored(count: ProbeCount) -> str:
    return f"{count.unscored} could not be scored" if count.unscored else "all could be scored"


def _as_dict(record: object) -> dict[str, object]:
    return {name: getattr(record, name) for name in record.__slots__}  # type: ignore[attr-defined]
