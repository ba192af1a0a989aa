"""Mathematical answers judged by prefrl, by math-verify, and by the comparison of strings and floats, side by side.

    python benchmarks/math_verifiers.py [--pairs FILE ...] [--seconds 2] [--workers 2]

Prints for every judge how many of the labelled pairs it gets wrong, the false positives and the false negatives, by
group as well, the answers per second on plain numbers and on expressions, and the longest time for a hostile answer.
math-verify runs in killable workers with a limit of `--seconds` of processor time each (its own default is 5 s); a pair
that it does not finish, or raises on, counts as "not equal", as it has it. `math-verify*` is helped: it gets the
answers that prefrl extracts, in a box, the gold answer between dollars, and reads text answers too.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from math_verify import ExprExtractionConfig, LatexExtractionConfig, StringExtractionConfig, parse, verify

from prefrl.rewards.verifiers.math import Case, judge_all
from prefrl.rewards.verifiers.math.compare import Rules
from prefrl.rewards.verifiers.math.extract import final_answers, gold_answer
from prefrl.rewards.verifiers.pool import Pool

FOLDER = Path(__file__).parents[1] / "tests" / "rewards" / "verifiers"
DEFAULT = [FOLDER / "math_corpus.jsonl", FOLDER / "math_heldback.jsonl"]
Row = dict[str, Any]
Judge = Callable[[Sequence[Row]], list[tuple[bool, float]]]  # equal or not, and seconds of work


def with_math_verify(job: Row) -> bool:
    """The task of the workers: math-verify on one pair, without its own signals."""
    kinds: list[Any] = [LatexExtractionConfig(), ExprExtractionConfig()]
    kinds += [StringExtractionConfig()] if job["helped"] else []
    gold, *found = (parse(text, kinds, parsing_timeout=None) for text in (job["gold"], *job["texts"]))
    return bool(found) and all(verify(gold, answer, timeout_seconds=None) for answer in found)


def helped_job(row: Row) -> Row:
    """A pair as math-verify likes it best: the answer of each side taken out of its text and put into a formula."""
    texts = [f"\\boxed{{{answer}}}" for answer in final_answers(row["text"])]
    return {"gold": f"${gold_answer(row['gold'])}$", "texts": texts, "helped": True}


def naive(row: Row) -> bool:
    """The boxed answer, what follows the last ####, or the last word of the text: equal as strings or as floats."""
    boxed = re.findall(r"\\boxed\{([^{}]*)\}", row["text"])
    words = row["text"].rpartition("####")[2].split()
    said = boxed[-1] if boxed else words[-1].rstrip(".") if words else ""
    gold = gold_answer(row["gold"])
    try:
        return said == gold or float(said.replace(",", "")) == float(gold.replace(",", ""))
    except ValueError:
        return False


def prefrl(rows: Sequence[Row]) -> list[tuple[bool, float]]:
    """prefrl's judgement of pairs."""
    cases = [Case((gold_answer(row["gold"]),), row["text"], Rules(**row.get("options", {}))) for row in rows]
    return [(verdict.score == 1.0, verdict.cost) for verdict in judge_all(cases)]


def judges(seconds: float, workers: int) -> dict[str, Judge]:
    """Every judge by its name."""
    pool = Pool("math_verifiers:with_math_verify", timeout=seconds, workers=workers, memory=1 << 32)

    def theirs(rows: Sequence[Row], *, helped: bool) -> list[tuple[bool, float]]:
        plain = [{"gold": gold_answer(row["gold"]), "texts": [row["text"]], "helped": False} for row in rows]
        jobs = [helped_job(row) for row in rows] if helped else plain
        return [(done.value is True, done.cost) for done in pool.map(jobs)]

    return {
        "prefrl": prefrl,
        "math-verify": lambda rows: theirs(rows, helped=False),
        "math-verify*": lambda rows: theirs(rows, helped=True),
        "string/float": lambda rows: [(naive(row), 0.0) for row in rows],
    }


def per_second(judge: Judge, rows: Sequence[Row]) -> float:
    """Pairs per second, the workers already started."""
    judge(rows[:2])
    began = time.perf_counter()
    judge(rows)
    return len(rows) / (time.perf_counter() - began)


def report_pairs(name: str, rows: Sequence[Row], said: dict[str, list[bool]]) -> None:
    """Errors of every judge on one file, in all and by group."""
    print(f"\n{name}: {len(rows)} pairs, {sum(row['right'] for row in rows)} of them right")
    print(f"{'':<14}{'wrong':>7}{'share':>8}{'false positives':>17}{'false negatives':>17}")
    for judge, answers in said.items():
        positives = sum(a and not row["right"] for a, row in zip(answers, rows, strict=True))
        negatives = sum(row["right"] and not a for a, row in zip(answers, rows, strict=True))
        wrong = positives + negatives
        print(f"{judge:<14}{wrong:>7}{wrong / len(rows):>8.1%}{positives:>17}{negatives:>17}")
    groups = Counter(row["group"] for row in rows)
    print("\nwrong by group " + "".join(f"{judge:>14}" for judge in said))
    for group, size in groups.items():
        counts = [
            sum(row["group"] == group and a != row["right"] for a, row in zip(answers, rows, strict=True))
            for answers in said.values()
        ]
        print(f"{group + f' ({size})':<15}" + "".join(f"{count:>14}" for count in counts))


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", nargs="*", type=Path, default=DEFAULT)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    everyone = judges(args.seconds, args.workers)
    rows: list[Row] = []
    slowest = dict.fromkeys(everyone, 0.0)
    for path in args.pairs:
        found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        said = {name: judge(found) for name, judge in everyone.items()}
        report_pairs(path.stem, found, {name: [equal for equal, _ in answers] for name, answers in said.items()})
        rows += found
        for name, answers in said.items():
            costs = [cost for row, (_, cost) in zip(found, answers, strict=True) if row["group"] == "hostile"]
            slowest[name] = max([slowest[name], *costs])
    plain = [{"gold": str(n), "text": f"First 2 + 3 = 5.\nThe answer is {n + n % 2}.0"} for n in range(20_000)]
    symbolic = [row for row in rows if row["group"] in ("expression", "equation")]
    print(f"\n{'':<14}{'plain numbers/s':>17}{'expressions/s':>15}{'longest hostile, s':>20}")
    for name, judge in everyone.items():
        few = plain[:400] if name.startswith("math-verify") else plain
        print(f"{name:<14}{per_second(judge, few):>17.0f}{per_second(judge, symbolic):>15.0f}{slowest[name]:>20.2f}")


if __name__ == "__main__":
    main()
