"""One spelling for what LaTeX, ASCII and Unicode spell in many ways."""

from __future__ import annotations

import re
import unicodedata

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ", "0123456789+-ni")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ]+")
_LOWERED = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋]+")
_VULGAR = re.compile("(\\d?)([¼½¾⅐-⅞])")
_GREEK = {
    **{"α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "θ": "theta", "κ": "kappa"},  # noqa: RUF001
    **{"λ": "lambda", "μ": "mu", "ν": "nu", "ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "phi", "ω": "omega"},  # noqa: RUF001
    **{"χ": "chi", "ψ": "psi", "Δ": "Delta", "Σ": "Sigma", "Φ": "Phi", "Ω": "Omega"},
}
_SYMBOLS = {
    "\u2212\u2013\ufe63\uff0d": "-",
    "\u00d7": r"\times ",
    "·⋅∙": r"\cdot ",
    "÷": "/",
    "≤⩽": r"\le ",
    "≥⩾": r"\ge ",
    "≠": r"\ne ",
    "≈": r"\approx ",
    "∞": r"\infty ",
    "π": r"\pi ",
    "√": r"\sqrt ",
    "\u222a": r"\cup ",
    "∩": r"\cap ",
    "∈": r"\in ",
    "∅⌀": r"\emptyset ",
    "±": r"\pm ",
    "°": r"^\circ ",
    "\u211d": r"\R ",
    "⟨": r"\langle ",
    "⟩": r"\rangle ",
    "⌊": r"\lfloor ",
    "⌋": r"\rfloor ",
    "⌈": r"\lceil ",
    "⌉": r"\rceil ",
    "…": r"\ldots ",
    "\u2223": "|",
    "\u2018\u2019\u2032": "'",
    "“”": '"',
    "\u2228": " or ",
    "∧": " and ",
}
_UNICODE = str.maketrans(
    {character: plain for characters, plain in _SYMBOLS.items() for character in characters}
    | {letter: rf"\{name} " for letter, name in _GREEK.items()}
)

# Commands that change how something looks and not what it is.
_LAYOUT = re.compile(
    r"(?<!\\)\\(?:left|right|middle|[bB]igg?[lrm]?|displaystyle|textstyle|limits|nolimits|boldsymbol|mathstrut)(?![a-zA-Z])"
    r"|(?<!\\)\\(?:quad|qquad|hspace\{[^}]*\}|hfill|,|;|:|!|>|\s|/)|~"
)
_SAME = {
    "dfrac": "frac",
    "tfrac": "frac",
    "cfrac": "frac",
    "dbinom": "binom",
    "tbinom": "binom",
    "leq": "le",
    "leqslant": "le",
    "geq": "ge",
    "geqslant": "ge",
    "neq": "ne",
    "lt": "<",
    "gt": ">",
    "varnothing": "emptyset",
    "land": " and ",
    "wedge": " and ",
    "lor": " or ",
    "vee": " or ",
    "ast": "*",
    "div": "/",
    "dots": "ldots",
    "cdots": "ldots",
    "dotsc": "ldots",
    "lbrace": r"\{",
    "rbrace": r"\}",
    "lbrack": "[",
    "rbrack": "]",
    "lparen": "(",
    "rparen": ")",
    "lvert": "|",
    "rvert": "|",
    "vert": "|",
    "mid": "|",
    "mathbb R": "R",
    "infin": "infty",
    "degree": r"^\circ",
    "varepsilon": "epsilon",
    "varphi": "phi",
    "operatorname*": "operatorname",
    "lg": "log",
    "implies": "Rightarrow",
}
_COMMAND = re.compile(r"\\([a-zA-Z]+\*?)")
_GROUPED = re.compile(r"(?<=\d)(?:,\\!|\{,\}|\\,|\\ |[\u00a0\u2009\u202f])(?=\d{3}(?!\d))")
_FONT = re.compile(
    r"\\(?:mathrm|mathbf|mathit|mathsf|mathcal|mathnormal|bf|rm|it|underline|operatorname)\s*\{([^{}]*)\}"
)
_BLACKBOARD = re.compile(r"\\(?:mathbb|Bbb|mathbf)\s*\{?\s*([RZQNC])\s*\}?")
_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|textnormal|texttt|mbox|hbox|emph)\s*\{([^{}]*)\}")
_SPACES = re.compile(r"\s+")
_DOLLAR = re.compile(r"\\\$\s*(?=[0-9.])")
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
_DOLLARS = re.compile(r"\$+|(?<!\\)\\[()\[\]]")


def _same(match: re.Match[str]) -> str:
    found = _SAME.get(match[1])
    if found is None:
        return match[0]
    return f"\\{found}" if found[0].isalpha() else found


def _vulgar(match: re.Match[str]) -> str:
    top, _, bottom = unicodedata.normalize("NFKC", match[2]).partition("\u2044")
    return f"{match[1]}\\frac{{{top}}}{{{bottom}}}"


def ascii_of(text: str) -> str:
    """A text with its mathematical Unicode characters in LaTeX, and other compatibility forms made plain."""
    if text.isascii():
        return text
    text = _VULGAR.sub(_vulgar, text)
    text = _RAISED.sub(lambda m: "^{" + m[0].translate(_SUPERSCRIPTS) + "}", text)
    text = _LOWERED.sub(lambda m: "_{" + m[0].translate(_SUBSCRIPTS) + "}", text)
    return unicodedata.normalize("NFKC", text.translate(_UNICODE)).translate(_UNICODE)


def _text(match: re.Match[str]) -> str:
    """A piece of text within a formula, kept apart by spaces."""
    return f" {match[1]} "


def clean(answer: str) -> str:
    """One answer without layout, dollar signs and outer punctuation, in the one spelling that the parser reads."""
    answer = _GROUPED.sub("", answer)  # thin spaces between groups of digits, before they become spaces
    answer = ascii_of(answer)
    answer = _BOLD.sub(r"\1", answer).replace("\\%", "%")
    answer = _DOLLAR.sub("USD ", answer).replace("\\$", "$")
    if "\\" in answer:
        answer = _GROUPED.sub("", answer)
        answer = _LAYOUT.sub(" ", answer)
        answer = _BLACKBOARD.sub(r"\\\1 ", answer)
        for pattern, put in ((_FONT, _text), (_TEXT, _text), (_FONT, _text)):
            answer = pattern.sub(put, answer)
        answer = _COMMAND.sub(_same, answer)
    answer = _DOLLARS.sub(" ", answer) if "$" in answer or "\\" in answer else answer
    return _trim(_SPACES.sub(" ", answer))


def _trim(answer: str) -> str:
    answer = answer.strip().strip('*`"').strip()
    while answer and answer[-1] in ".,;:" and not answer.endswith("..."):
        answer = answer[:-1].rstrip()
    return answer
