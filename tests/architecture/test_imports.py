"""Imports point one way, the light modules stay light, and what is imported is declared and pinned.

`ALLOWED` is the architecture: a module or package of prefrl, and what it may import besides itself. Imports
inside functions and under TYPE_CHECKING count too: they are knowledge of the other side all the same.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from prefrl.policy.algorithms import ALGORITHMS

ROOT = Path(__file__).parents[2]

NOUNS = {"types", "errors"}
MIDDLE = {"config", "plugins", "sandbox", "data", "rollout", "model", "policy", "rewards"}
ALLOWED: dict[str, set[str]] = {
    "types": set(),
    "errors": set(),
    "config": {"errors"},
    "parsing": {"errors"},
    "plugins": {"errors"},
    "data": NOUNS | {"config"},
    "sandbox": NOUNS,
    "rollout": NOUNS | {"config", "plugins", "sandbox"},
    "model": NOUNS | {"config", "data", "rollout"},
    "policy": NOUNS | {"config"},  # takes the engine and the reward source by protocol
    "rewards": NOUNS | {"plugins", "data", "model", "sandbox"},  # a learned reward runs a model, and reads its data
    "evaluate": NOUNS | MIDDLE,
    "recipes": NOUNS | MIDDLE | {"parsing", "evaluate"},
    "cli": NOUNS | MIDDLE | {"parsing", "evaluate", "recipes"},
    "__main__": {"cli"},
    "__init__": NOUNS | MIDDLE | {"parsing", "evaluate", "recipes"},
}
ANNOTATE = NOUNS | {"data", "config", "evaluate"}
PURE = {"advantages", "losses", "preference", "comparison"}  # of prefrl.policy: functions on tensors
LIGHT = {"__init__", "cli", "config", "errors", "parsing", "plugins", "types"}  # of prefrl
HEAVY = {"datasets", "matplotlib", "pandas", "sklearn", "torch", "transformers", "trl"}

# Where an algorithm may be named: its table, what offers it to people, and the defaults of a configuration.
NAMING = ("prefrl/policy/algorithms.py", "prefrl/recipes/", "prefrl/cli.py", "prefrl/config/")


@dataclass(frozen=True)
class Import:
    """One imported name, `prefrl.types.Pair`, and where it is imported."""

    name: str
    file: str
    line: int
    at_run_time: bool  # when the module itself is imported: not in a function, not for the type checker

    @property
    def unit(self) -> str:
        """`types` of `prefrl.types.Pair`, and `prefrl` of a bare `prefrl`."""
        return self.name.split(".")[:2][-1]

    @property
    def top(self) -> str:
        return self.name.split(".")[0]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.name}"


def relative(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@cache
def imports(file: Path) -> tuple[Import, ...]:
    return tuple(walk(ast.parse(file.read_text()), relative(file), True))


def walk(node: ast.AST, file: str, at_run_time: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(a.name, file, node.lineno, at_run_time) for a in node.names)
    elif isinstance(node, ast.ImportFrom):
        start = "." * node.level + (node.module or "")
        yield from (Import(f"{start}.{a.name}", file, node.lineno, at_run_time) for a in node.names)
    deferred = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for_checker = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
    for child in ast.iter_child_nodes(node):
        yield from walk(child, file, at_run_time and not deferred and not for_checker)


def unit_of(file: Path) -> str:
    return file.relative_to(ROOT / "prefrl").parts[0].removesuffix(".py")


def check(offenders: Iterable[object], rule: str) -> None:
    found = [str(o) for o in offenders]
    assert not found, f"{rule}\n  " + "\n  ".join(found)


def all_imports() -> list[Import]:
    return [i for package in ("prefrl", "annotate") for f in sources(package) for i in imports(f)]


def test_table_points_one_way():
    TopologicalSorter(ALLOWED).prepare()


def test_rewards_and_policy_cannot_reach_each_other():
    def reachable(unit: str) -> set[str]:
        return ALLOWED[unit].union(*(reachable(u) for u in ALLOWED[unit]))

    assert "policy" not in reachable("rewards")
    assert "rewards" not in reachable("policy")


def test_every_module_has_a_row():
    assert {unit_of(f) for f in sources("prefrl")} <= set(ALLOWED), "add the new module to ALLOWED"


def test_imports_are_absolute():
    check(
        (i for i in all_imports() if i.name.startswith(".")),
        "write prefrl.x or annotate.x, not a relative import",
    )


@pytest.mark.parametrize("unit", ALLOWED)
def test_direction(unit):
    read = [i for f in sources("prefrl") if unit_of(f) == unit for i in imports(f)]
    wrong = [i for i in read if i.top == "prefrl" and i.unit not in ALLOWED[unit] | {unit}]
    wrong += [i for i in read if i.top == "annotate"]
    check(wrong, f"{unit} may import {sorted(ALLOWED[unit]) or 'nothing'} of prefrl")


def test_annotate_knows_data_and_figures_only():
    read = [i for f in sources("annotate") for i in imports(f)]
    wrong = (i for i in read if i.top == "prefrl" and i.unit not in ANNOTATE)
    check(wrong, f"annotate may import {sorted(ANNOTATE)} of prefrl")


def test_losses_are_pure():
    files = [f for f in sources("prefrl/policy") if f.stem in PURE]
    assert len(files) >= 3
    outside = [i for f in files for i in imports(f) if i.top not in sys.stdlib_module_names | {"torch"}]
    wrong = (i for i in outside if i.top != "prefrl" or i.unit not in NOUNS)
    check(wrong, "functions on tensors import torch, the standard library and the nouns")


def test_algorithms_are_named_in_their_table_only():
    files = [f for f in [*sources("prefrl"), *sources("annotate")] if not relative(f).startswith(NAMING)]
    texts = [(f, n) for f in files for n in ast.walk(ast.parse(f.read_text())) if isinstance(n, ast.Constant)]
    said = (f"{relative(f)}:{n.lineno} says {n.value!r}" for f, n in texts if str(n.value).lower() in ALGORITHMS)
    check(said, "read the parts of an algorithm, never its name")


def test_light_modules_import_nothing_heavy():
    read = [i for f in sources("prefrl") if unit_of(f) in LIGHT for i in imports(f)]
    check((i for i in read if i.at_run_time and i.top in HEAVY), "import it in the function that needs it")


def test_light_modules_load_nothing_heavy():
    light = ["prefrl", *(f"prefrl.{unit}" for unit in sorted(LIGHT - {"__init__"}))]
    script = f"import sys, {', '.join(light)}; print(*sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> dict[str, set[str]]:
    """Names of the direct dependencies of each extra; those of the core under an empty name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    return {extra: {normal(re.split(r"[^\w.-]", r)[0]) for r in needs} for extra, needs in groups.items()}


def test_imported_distributions_are_declared():
    known = set().union(*(names for extra, names in declared().items() if extra != "dev"))
    inside = sys.stdlib_module_names | {"prefrl", "annotate"}
    owners = packages_distributions()
    outside = [(i, owners.get(i.top, [i.top])) for i in all_imports() if i.top not in inside]
    check((i for i, owner in outside if not known & {normal(o) for o in owner}), "declare it in pyproject.toml")


def test_what_is_declared_is_imported():
    owners = packages_distributions()
    used = {normal(owner) for i in all_imports() for owner in owners.get(i.top, [i.top])}
    asked = set().union(*(declared()[extra] for extra in ("", "annotate", "control", "verifiers")))
    # transformers reads the embedded model with gguf; trl is there for its trainers to take what we write
    assert asked - used == {"gguf", "trl"}, "leave it out of pyproject.toml"


def test_direct_dependencies_are_pinned():
    lines = [line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    pins = {normal(line.partition("==")[0]) for line in lines if "==" in line}
    assert set().union(*declared().values()) - pins == set()
