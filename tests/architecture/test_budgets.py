"""The sizes that keep the code readable in one go, and the promise of a fast `prefrl --help`.

Cyclomatic complexity is ruff's to count (C901 in pyproject.toml); everything else is counted here.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE_LINES, FUNCTION_LINES, NESTING, ARGUMENTS, INHERITANCE, HELP_SECONDS = 400, 50, 3, 7, 1, 0.5

Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)


@dataclass(frozen=True)
class Found:
    """A function or class, where it stands, and the class it is a method of."""

    node: Function | ast.ClassDef
    file: str
    owner: ast.ClassDef | None
    nested: bool  # inside a function

    @property
    def public(self) -> bool:
        names = [self.node.name, *([self.owner.name] if self.owner else [])]
        return not self.nested and not any(name.startswith("_") for name in names)

    def __str__(self) -> str:
        name = f"{self.owner.name}.{self.node.name}" if self.owner else self.node.name
        return f"{self.file}:{self.node.lineno} {name}"


def sources() -> list[Path]:
    return sorted(f for package in ("prefrl", "annotate") for f in (ROOT / package).rglob("*.py"))


def walk(node: ast.AST, file: str, owner: ast.ClassDef | None = None, nested: bool = False) -> Iterator[Found]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            yield Found(child, file, owner, nested)
        if isinstance(child, ast.ClassDef):
            yield from walk(child, file, child, nested)
        else:
            inside = isinstance(child, Function)
            yield from walk(child, file, None if inside else owner, nested or inside)


@cache
def definitions() -> tuple[Found, ...]:
    names = [(f, f.relative_to(ROOT).as_posix()) for f in sources()]
    return tuple(found for f, name in names for found in walk(ast.parse(f.read_text(), name), name))


def functions() -> list[Found]:
    return [f for f in definitions() if isinstance(f.node, Function)]


@cache
def classes() -> dict[str, ast.ClassDef]:
    return {f.node.name: f.node for f in definitions() if isinstance(f.node, ast.ClassDef)}


def decorators(node: Function) -> set[str]:
    return {ast.unparse(d).split(".")[-1] for d in node.decorator_list}


def arguments(found: Found) -> list[ast.arg]:
    """Positional arguments without self or cls."""
    everything = [*found.node.args.posonlyargs, *found.node.args.args]
    bound = found.owner is not None and "staticmethod" not in decorators(found.node)
    return everything[1:] if bound else everything


def bases(node: ast.ClassDef) -> list[str]:
    """Simple names of the bases: `Module` of `nn.Module`, `Cell` of `Cell[int]`."""
    return [ast.unparse(b).split("[")[0].split(".")[-1] for b in node.bases]


def ancestry(node: ast.ClassDef) -> list[ast.ClassDef]:
    """The longest chain of base classes that are ours; protocols are interfaces and do not count."""
    ours = [classes()[b] for b in bases(node) if b in classes()]
    chains = [[base, *ancestry(base)] for base in ours if "Protocol" not in bases(base)]
    return max(chains, key=len, default=[])


def inherits_docstring(found: Found) -> bool:
    """Whether the method is the one that a base class of ours, or a protocol of ours, documents."""
    known = [classes()[b] for b in bases(found.owner) if b in classes()] if found.owner else []
    known += [a for base in known for a in ancestry(base)]
    methods = [m for base in known for m in base.body if isinstance(m, Function)]
    return any(m.name == found.node.name and ast.get_docstring(m) for m in methods)


def lines(node: Function) -> int:
    """Lines from `def` to the end, without the docstring."""
    start = node.body[0]
    docstring = start.end_lineno - start.lineno + 1 if ast.get_docstring(node) is not None else 0
    return node.end_lineno - node.lineno + 1 - docstring


def nesting(node: ast.AST, depth: int = 0) -> int:
    """Deepest block; an `elif` is as deep as its `if`, and a function inside starts anew."""
    inside = [c for c in ast.iter_child_nodes(node) if not isinstance(c, Function | ast.ClassDef)]
    return max((nesting(c, depth + opens_block(c, node)) for c in inside), default=depth)


def opens_block(child: ast.AST, parent: ast.AST) -> bool:
    both_if = isinstance(parent, ast.If) and isinstance(child, ast.If)
    is_elif = both_if and child.col_offset == parent.col_offset
    return isinstance(child, BLOCKS) and not is_elif


def untyped(found: Found) -> list[str]:
    a = found.node.args
    rest = [*a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    missing = [arg.arg for arg in [*arguments(found), *rest] if arg.annotation is None]
    return missing if found.node.returns is not None else [*missing, "return"]


def check(offenders: list[str], rule: str) -> None:
    assert not offenders, f"{rule}\n  " + "\n  ".join(offenders)


def test_the_counting_itself():
    code = '''
class C(Base):
    def f(self, a, b: int, /, c, *, d) -> int:
        """One
        two."""
        if a:
            for x in b:
                with c:
                    pass
        elif b:
            pass
        return [y for y in a if y]
'''
    (_, found) = walk(ast.parse(code), "code.py")
    assert str(found) == "code.py:3 C.f"
    assert (lines(found.node), nesting(found.node), len(arguments(found))) == (8, 3, 3)
    assert untyped(found) == ["a", "c", "d"]


def test_files():
    sizes = {f.relative_to(ROOT).as_posix(): len(f.read_text().splitlines()) for f in sources()}
    long = [f"{f}: {n} lines" for f, n in sizes.items() if n > FILE_LINES]
    check(long, f"a file has at most {FILE_LINES} lines")


def test_functions():
    long = [f"{f}: {lines(f.node)} lines" for f in functions() if lines(f.node) > FUNCTION_LINES]
    check(long, f"a function has at most {FUNCTION_LINES} lines without its docstring")


def test_nesting():
    deep = [f"{f}: {nesting(f.node)} deep" for f in functions() if nesting(f.node) > NESTING]
    check(deep, f"blocks are nested at most {NESTING} deep")


def test_arguments():
    many = [f"{f}: {len(arguments(f))}" for f in functions() if len(arguments(f)) > ARGUMENTS]
    check(many, f"a function takes at most {ARGUMENTS} positional arguments; options are keyword-only")


def test_inheritance():
    # The one root of all errors counts for nobody: an error may be of a kind, such as DataError.
    chains = {n: [a.name for a in ancestry(node) if a.name != "PrefrlError"] for n, node in classes().items()}
    deep = [f"{n} < {' < '.join(chain)}" for n, chain in chains.items() if len(chain) > INHERITANCE]
    check(deep, f"a class has at most {INHERITANCE} level of our own classes above it")


def test_docstrings():
    def exempt(found: Found) -> bool:
        short = isinstance(found.node, Function) and len(found.node.body) == 1
        is_property = short and decorators(found.node) & {"property", "cached_property"}
        return bool(is_property) or inherits_docstring(found)

    bare = [f for f in definitions() if f.public and ast.get_docstring(f.node) is None and not exempt(f)]
    check([str(f) for f in bare], "everything public has a docstring")


def test_signatures():
    bare = [f"{f}: {', '.join(untyped(f))}" for f in functions() if f.public and untyped(f)]
    check(bare, "everything public is typed")


def test_help_comes_at_once():
    def seconds() -> float:
        command = [sys.executable, "-m", "prefrl.cli", "--help"]
        start = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        taken = time.perf_counter() - start
        assert done.stdout.startswith("usage: prefrl")
        return taken

    best = min(seconds() for _ in range(3))
    assert best < HELP_SECONDS, f"prefrl --help took {best:.2f} s; an import became heavy"
