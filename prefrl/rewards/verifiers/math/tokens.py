"""The words of an expression."""

from __future__ import annotations

import re


class Unreadable(Exception):
    """The text is not an expression that is understood."""


class Hostile(Exception):
    """The expression is refused: working it out could take forever."""


_TOKEN = re.compile(
    r"""\s*(?:
      (?P<num> [0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?
            | (?: [0-9]+(?:\.[0-9]*)? | \.[0-9]+ ) (?: [eE][-+]?[0-9]{1,3}(?![0-9]) )? )
    | (?P<cmd> \\[a-zA-Z]+ )
    | (?P<word> [a-zA-Z]+ )
    | (?P<op> \*\* | \\[{}] | [-+*/^_(){}\[\]|!%,=<>'] )
    )""",
    re.VERBOSE,
)

FUNCTIONS = frozenset(
    [
        *("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "asin", "acos", "atan"),
        *("arcsin", "arccos", "arctan", "ln", "log", "exp", "sqrt", "abs", "min", "max", "gcd", "lcm"),
        *("floor", "ceil", "sgn", "sign"),
    ]
)
ALIASES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "sign": "sgn"}
INVERSE = {"sin": "asin", "cos": "acos", "tan": "atan"}
GREEK = frozenset(
    [
        *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu"),
        *("xi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda"),
        *("Xi", "Sigma", "Phi", "Psi", "Omega", "ell"),
    ]
)
CONSTANTS = {"pi": "pi", "infty": "inf", "e": "e", "i": "i", "infinity": "inf", "inf": "inf"}
_PRODUCT_WORD = re.compile(r"[xyz]{2,3}|[abc]{2,3}|[pqr]{2,3}|[uvw]{2,3}|[mnk]{2,3}|[rst]{2,3}|[a-zA-Z]{1,2}")


def tokens_of(text: str) -> list[str]:
    """The tokens of a cleaned text; raises Unreadable at anything else."""
    tokens: list[str] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise Unreadable(text[at : at + 20])
        at = match.end()
        word = match["word"]
        tokens.extend(_letters(word) if word else [match[match.lastgroup or 0]])
    return tokens


def _letters(word: str) -> list[str]:
    """A run of letters: a name that is known, or a product of one-letter variables."""
    if word in FUNCTIONS or word in CONSTANTS or word in GREEK:
        return [f"\\{word}"]
    if _PRODUCT_WORD.fullmatch(word):
        return list(word)
    known = next((f for f in ("sqrt", "sin", "cos", "tan", "ln", "log", "pi") if word.startswith(f)), word)
    if len(word) - len(known) == 1:
        return [f"\\{known}", word[-1]]  # sinx
    raise Unreadable(word)
