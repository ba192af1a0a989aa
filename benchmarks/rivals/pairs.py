"""Fifty pairs, and what a simulated person thinks of each of them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

Wish = Literal["first", "second", "tie", "both_bad", "skip"]
WISHES: tuple[Wish, ...] = ("first", "second", "first", "second", "tie", "first", "second", "both_bad", "first", "skip")

# Everything that a text of a model may bring, in one pair; each kind of formula is there once.
SHOWCASE_PROMPT = r"Solve \(a^2 = 4\). Does a loaf cost $5 to $7?"
SHOWCASE = r"""
**Yes**: with $x^2$ and
\[b = \sqrt{2}\]
and $$c = \frac{1}{2}$$

```python
def double(x: int) -> int:
    return 2 * x
```

- `List<int>`, or List<int> without marks
- <think>first thought</think>

هذا نص باللغة العربية

![picture](http://elsewhere.example/picture.png) <img src="http://elsewhere.example/tag.png" onerror="alert(1)">
<div style="position:fixed;inset:0;background:#fff;z-index:9999">covered</div>
"""
NEEDLES = ("double(x: int)", "List<int>, or List<int> without", "first thought", "$5 to $7", "covered")
ARABIC = "العربية"


@dataclass(frozen=True)
class Pair:
    """Two answers, and what the person thinks of them."""

    prompt: str
    first: str
    second: str
    wish: Wish


def fifty() -> list[Pair]:
    """The pairs, the same every time; the first one is the showcase."""
    return [Pair(SHOWCASE_PROMPT, SHOWCASE, "The shorter answer.", "first"), *map(_sum, range(1, 50))]


def _sum(number: int) -> Pair:
    rng = random.Random(number)
    a, b = rng.randint(11, 99), rng.randint(3, 9)
    right, wrong, worse = f"It is **{a * b}**.", f"It is {a * b + rng.randint(1, 9)}.", f"Perhaps {a + b}?"
    texts = {
        "first": (right, wrong),
        "second": (wrong, right),
        "tie": (right, f"{a} x {b} = {a * b}"),
        "both_bad": (wrong, worse),
        "skip": (wrong, right),
    }
    wish = WISHES[number % len(WISHES)]
    return Pair(f"Question {number}: what is {a} times {b}?", *texts[wish], wish)
