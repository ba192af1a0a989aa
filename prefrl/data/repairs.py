"""Small files with one bug each, for the environment `repair`: what they should do, and tests that tell.

The first test or two are shown to the policy. They never hold all that is asked for, so that code which only knows
them fails the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_TOOLS = (
    "Use one tool in each of your turns: <read/> shows the file, <edit>NEW FILE</edit> puts a whole new file in its "
    "place, <test/> runs a few tests, and <done/> says that you have finished. More tests than those judge the file "
    "in the end."
)


class Repair(NamedTuple):
    """One bug.

    name       of the kind of bug
    asked      what the function should do
    function   its name
    file       the source with the bug
    solution   the source without it
    cases      (arguments, expected value) of every test, or a case as the reward `code` has it
    shown      how many of them, from the first on, the policy may run
    held_out   whether it is kept for evaluation
    """

    name: str
    asked: str
    function: str
    file: str
    solution: str
    cases: Sequence[tuple[list[Any], Any] | dict[str, Any]]
    shown: int = 2
    held_out: bool = False

    def row(self) -> dict[str, Any]:
        """The prompt row."""
        cases = [case if isinstance(case, dict) else {"args": case[0], "expected": case[1]} for case in self.cases]
        asked = f"The function {self.function} in a Python file has a bug; repair it. {self.asked}"
        return {
            "id": f"repair-{self.name}",
            "prompt": [{"role": "user", "content": f"{asked}\n\n{_TOOLS}"}],
            "file": self.file,
            "visible": cases[: self.shown],
            "cases": cases,
            "entry_point": self.function,
            "solution": self.solution,
        }


REPAIRS = (
    Repair(
        "retry_bug",
        "It returns the configured number of retries, and 3 when none is configured or it is None. A configured 0 "
        "stays 0.",
        "retries",
        'def retries(config):\n    return config.get("retries") or 3\n',
        'def retries(config):\n    value = config.get("retries")\n    return 3 if value is None else value\n',
        [([{}], 3), ([{"retries": 0}], 0), ([{"retries": None}], 3), ([{"retries": 2}], 2)],
    ),
    Repair(
        "mutable_default",
        "It returns a new list: the items of `found`, if there are any, and then the item.",
        "collected",
        "def collected(item, found=[]):\n    found.append(item)\n    return found\n",
        "def collected(item, found=()):\n    return [*found, item]\n",
        [([1], [1]), ([2], [2]), ([3, [1, 2]], [1, 2, 3]), {"args": [1, [0]], "expected": [0, 1], "after": [1, [0]]}],
    ),
    Repair(
        "off_by_one",
        "It returns the sum of the whole numbers from 1 to n, n included, and 0 for n = 0.",
        "total_to",
        "def total_to(n):\n    return sum(range(1, n))\n",
        "def total_to(n):\n    return sum(range(1, n + 1))\n",
        [([1], 1), ([4], 10), ([0], 0), ([10], 55), ([100], 5050)],
        held_out=True,
    ),
    Repair(
        "integer_division",
        "It returns the arithmetic mean of a list of numbers, and None for an empty list.",
        "mean",
        "def mean(values):\n    return sum(values) // len(values)\n",
        "def mean(values):\n    return sum(values) / len(values) if values else None\n",
        [([[1, 2]], 1.5), ([[2, 4]], 3), ([[]], None), ([[-1, -2]], -1.5), ([[7]], 7), ([[1, 1, 2, 1]], 1.25)],
    ),
    Repair(
        "missing_none",
        "It returns first, middle and last name with one space between them, and leaves out a middle name that is None "
        "or empty.",
        "full_name",
        'def full_name(first, last, middle=None):\n    return f"{first} {middle} {last}"\n',
        "def full_name(first, last, middle=None):\n"
        '    return f"{first} {middle} {last}" if middle else f"{first} {last}"\n',
        [
            (["Ada", "Lovelace"], "Ada Lovelace"),
            (["John", "Neumann", "von"], "John von Neumann"),
            (["Emmy", "Noether", ""], "Emmy Noether"),
            (["Alan", "Turing", "Mathison"], "Alan Mathison Turing"),
            (["Kurt", "Gödel", None], "Kurt Gödel"),
        ],
    ),
    Repair(
        "wrong_sort_key",
        "It returns the names of the people, given as [name, age], oldest first; people of the same age by name.",
        "by_age",
        "def by_age(people):\n    return [name for name, age in sorted(people, reverse=True)]\n",
        "def by_age(people):\n    return [name for name, age in sorted(people, key=lambda p: (-p[1], p[0]))]\n",
        [
            ([[["Ann", 30], ["Bob", 20]]], ["Ann", "Bob"]),
            ([[["Bob", 20], ["Cy", 40], ["Ann", 20]]], ["Cy", "Ann", "Bob"]),
            ([[["Zoe", 9], ["Yan", 10], ["Abe", 100]]], ["Abe", "Yan", "Zoe"]),
            ([[["b", 1], ["c", 1], ["a", 1]]], ["a", "b", "c"]),
            ([[]], []),
        ],
    ),
    Repair(
        "early_return",
        "It says whether all numbers of a list are above 0, which is true of an empty list.",
        "all_positive",
        "def all_positive(numbers):\n    for number in numbers:\n        return number > 0\n    return True\n",
        "def all_positive(numbers):\n    return all(number > 0 for number in numbers)\n",
        [([[1, 2]], True), ([[1, -1]], False), ([[]], True), ([[3, 0, 3]], False), ([[-1, 5]], False), ([[5]], True)],
        held_out=True,
    ),
    Repair(
        "shadowed_name",
        "It returns the value, or the nearer end of the range from low to high when it lies outside.",
        "clamp",
        "def clamp(value, low, high):\n    min, max = low, high\n    return max(min, min(value, max))\n",
        "def clamp(value, low, high):\n    return max(low, min(value, high))\n",
        [([5, 0, 10], 5), ([-2, 0, 10], 0), ([12, 0, 10], 10), ([10, 0, 10], 10), ([-7, -9, -8], -8), ([1, 1, 1], 1)],
    ),
    Repair(
        "swallowed_exception",
        "It returns the port number in a text, and raises ValueError for a text that is no whole number from 1 to "
        "65535.",
        "port",
        "def port(text):\n    try:\n        return int(text)\n    except ValueError:\n        return 0\n",
        "def port(text):\n    number = int(text)\n    if not 1 <= number <= 65535:\n"
        '        raise ValueError(f"no port: {text}")\n    return number\n',
        [
            (["80"], 80),
            {"args": ["http"], "raises": "ValueError"},
            {"args": [""], "raises": "ValueError"},
            {"args": ["0"], "raises": "ValueError"},
            {"args": ["65536"], "raises": "ValueError"},
            (["65535"], 65535),
        ],
    ),
    Repair(
        "changed_argument",
        "It returns the list without its smallest number (the first of them where several are equal), and leaves the "
        "list that it was given as it is.",
        "without_smallest",
        "def without_smallest(numbers):\n    numbers.remove(min(numbers))\n    return numbers\n",
        "def without_smallest(numbers):\n    rest = list(numbers)\n    rest.remove(min(rest))\n    return rest\n",
        [
            ([[3, 1, 2]], [3, 2]),
            {"args": [[2, 1]], "expected": [2], "after": [[2, 1]]},
            {"args": [[1, 5, 1]], "expected": [5, 1], "after": [[1, 5, 1]]},
            {"args": [[4]], "expected": [], "after": [[4]]},
        ],
    ),
    Repair(
        "wrong_start",
        "It returns the largest number of a list, and None for an empty list.",
        "largest",
        "def largest(numbers):\n    best = 0\n    for number in numbers:\n        if number > best:\n"
        "            best = number\n    return best\n",
        "def largest(numbers):\n    return max(numbers, default=None)\n",
        [([[1, 3, 2]], 3), ([[-5, -2]], -2), ([[]], None), ([[0, -1]], 0), ([[-7]], -7), ([[2, 2]], 2)],
    ),
    Repair(
        "late_binding",
        "It returns the products of the value with each of the factors, in their order.",
        "products",
        "def products(value, factors):\n    steps = []\n    for factor in factors:\n"
        "        steps.append(lambda number: number * factor)\n    return [step(value) for step in steps]\n",
        "def products(value, factors):\n    return [value * factor for factor in factors]\n",
        [([2, [1, 2, 3]], [2, 4, 6]), ([5, [3]], [15]), ([3, []], []), ([-1, [0, 4]], [0, -4]), ([7, [2, 1]], [14, 7])],
        held_out=True,
    ),
    Repair(
        "lost_tail",
        "It cuts a list into pieces of the given size; the last piece holds what is left, and none is empty.",
        "pieces",
        "def pieces(items, size):\n    count = len(items) // size\n"
        "    return [items[i * size : (i + 1) * size] for i in range(count)]\n",
        "def pieces(items, size):\n    return [items[i : i + size] for i in range(0, len(items), size)]\n",
        [
            ([[1, 2, 3, 4], 2], [[1, 2], [3, 4]]),
            ([[1, 2, 3], 2], [[1, 2], [3]]),
            ([[], 3], []),
            ([[1], 5], [[1]]),
            ([[1, 2, 3, 4, 5, 6, 7], 3], [[1, 2, 3], [4, 5, 6], [7]]),
        ],
    ),
    Repair(
        "missing_base_case",
        "It says how deep a nested list is: 0 for a number, 1 for a list without lists in it, the empty one too, and "
        "so on.",
        "depth",
        "def depth(tree):\n    return 1 + max(depth(branch) for branch in tree)\n",
        "def depth(tree):\n    if not isinstance(tree, list):\n        return 0\n"
        "    return 1 + max(map(depth, tree), default=0)\n",
        [([[1, 2]], 1), ([5], 0), ([[]], 1), ([[[], 1]], 2), ([[1, [2, [3]]]], 3), ([[[[]]]], 3)],
    ),
    Repair(
        "changed_while_read",
        "It returns a dict without the entries whose value is None or an empty text; 0 and False stay.",
        "filled",
        "def filled(entries):\n    for name in entries:\n        if not entries[name]:\n"
        "            del entries[name]\n    return entries\n",
        'def filled(entries):\n    return {key: value for key, value in entries.items() if value not in (None, "")}\n',
        [
            ([{"a": 1, "b": None}], {"a": 1}),
            ([{"a": "", "b": "x", "c": ""}], {"b": "x"}),
            ([{"a": 0, "b": False}], {"a": 0, "b": False}),
            ([{}], {}),
            ([{"a": None}], {}),
        ],
    ),
    Repair(
        "wrong_boundary",
        "It says whether a year is a leap year: those that 4 divides, but of those that 100 divides only the ones that "
        "400 divides.",
        "leap",
        "def leap(year):\n    return year % 4 == 0 and year % 100 != 0\n",
        "def leap(year):\n    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)\n",
        [([2024], True), ([2000], True), ([1900], False), ([2023], False), ([2400], True), ([2100], False)],
        held_out=True,
    ),
)


def repairs() -> list[dict[str, Any]]:
    """The prompt rows of all of them."""
    return [repair.row() for repair in REPAIRS]


def by_bug(row: Mapping[str, Any]) -> bool:
    """Whether a row's kind of bug is kept for evaluation."""
    return row["id"] in {f"repair-{repair.name}" for repair in REPAIRS if repair.held_out}
