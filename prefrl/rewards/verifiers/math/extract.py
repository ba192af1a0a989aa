"""The final answers of a completion, as it wraps them."""

from __future__ import annotations

import re

from prefrl.rewards.verifiers.math.answers import PHRASES, Raw, Words
from prefrl.rewards.verifiers.math.reading import read

_THOUGHT = re.compile(r".*</think(?:ing)?>", re.DOTALL)
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*(\{|\s)")
_HASHES = re.compile(r"^\s*####\s*(.+?)\s*$", re.MULTILINE)
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_FINAL = r"(?:final|correct|right)\s+(?:answer|result)"
_IS = (
    r"(?:\s*(?:is|are|was|will be|should be|must be|would be|equals)\b"
    r"(?:\s+(?:therefore|thus|simply|equal to|given by))?\s*:?|\s*[:=])"
)
_OF = r"(?:\s+(?:to|of|for)\s[^.:=\n]{1,60}?)?"
_MARKS = r"[*_]{0,2}"
_STATED = [
    re.compile(rf"\b{name}{_OF}{_MARKS}{_IS}{_MARKS}\s*(?=(.+))", re.IGNORECASE)
    for name in (_FINAL, "(?:answers?|correct (?:option|choice))\\b")
]
_SAYING = re.compile("answer|result|correct", re.IGNORECASE)
_HEDGE = re.compile(
    r"\b(?:alternatively|or (?:maybe|perhaps|possibly|else)|(?:could|might|may) (?:also )?be"
    r"|another (?:possible )?(?:answer|possibility)|possibly|perhaps|maybe|or it(?:'s| is))\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(
    r"(?<![0-9A-Za-z]\.[a-z])[.!?](?=\s+[A-Z\\$*]|\s*$)"
    r"|\s+(?:because|since|as|which|where|so that|after|when)\s|[;\n]"
)
_MATHS = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL)
_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\$\s?)?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?:\s?/\s?[0-9]+)?(?![\w]|[.,][0-9])%?"
)
_COMMAND = re.compile(r"\\(?:begin|end)\{\w*\}(?:\{\w*\})?|\\[A-Za-z]+|[_^]\{[^}]*\}")
_WORD = re.compile(r"[A-Za-z]{2,}")
_LABEL = re.compile(r"^[A-Za-z][A-Za-z ]{0,20}:\s*(?=\S)")  # "Total: 5"
_SAID = re.compile(
    r".*\b(?:is|are|was|were|be|equals?|get|gets|gives?|obtain)\s+(?:at |equal to |exactly |simply )?(.+?)[.!\s]*$"
)
_DENIED = re.compile(r"(?:\bnot|n['\u2019]t)\s+(?:\w+\s+){0,2}\S*[0-9]")
_TAIL = 2000  # characters at the end of a completion where an unmarked answer is looked for


def final_answers(text: str) -> list[str]:
    """The different final answers of a completion, in order; none when there is no answer.

    The first of these that is there counts: `\\boxed{...}`; `#### ...`; `<answer>...</answer>`; "the final answer
    is ..."; "the answer is ...", "Answer: ..."; the last formula between dollars of the last line; the last line, or
    what follows its last `=`, or its last number. What is thought aloud before `</think>` is no answer. After a stated
    answer another one introduced by "alternatively", "or maybe", "it could be" counts as well.
    """
    if "</think" in text:
        text = _THOUGHT.sub("", text, count=1)
    for wrapped in (_boxes(text), _HASHES.findall(text), _tags(text)):
        if wrapped:
            return list(dict.fromkeys(answer.strip() for answer in wrapped))
    return _stated(text) or _last(text)


def gold_answer(gold: str) -> str:
    """The answer in a gold text: what follows the last ####, the last box, or all of it."""
    if "####" in gold:
        return gold.rpartition("####")[2].strip()
    boxes = _boxes(gold)
    return boxes[-1].strip() if boxes else gold.strip()


def _boxes(text: str) -> list[str]:
    if "boxed" not in text and "fbox" not in text:
        return []
    found: list[str] = []
    end = 0
    for match in _BOXED.finditer(text):
        if match.start() < end:  # a box within a box
            continue
        if match[1] != "{":  # \boxed 5
            rest = text[match.end() :].split(maxsplit=1)
            found.extend(part.strip("$.,") for part in rest[:1])
            continue
        end = _closing(text, match.end())
        if end > 0:
            inside = text[match.end() : end]
            found.extend(_boxes(inside) or [inside])
        else:
            end = match.end()
    return found


def _closing(text: str, start: int) -> int:
    """Index of the brace that closes the one before `start`; -1 if there is none."""
    depth, at = 1, start
    while at < len(text):
        character = text[at]
        if character == "\\":
            at += 1
        elif character in "{}":
            depth += 1 if character == "{" else -1
            if depth == 0:
                return at
        at += 1
    return -1


def _tags(text: str) -> list[str]:
    return [answer for answer in _TAGGED.findall(text) if answer.strip()] if "<" in text else []


def _stated(text: str) -> list[str]:
    if not _SAYING.search(text):
        return []
    for pattern in _STATED:
        matches = list(pattern.finditer(text))
        if matches:
            answers = [_sentence(match[1]) for match in matches]
            hedged = _hedged(text[matches[-1].start(1) + len(answers[-1]) :])
            return list(dict.fromkeys(a for a in [*answers, *hedged] if a))
    return []


def _hedged(rest: str) -> list[str]:
    """Another answer after the stated one."""
    match = _HEDGE.search(rest)
    if match is None:
        return []
    number = _NUMBER.search(rest, match.end())
    formula = _MATHS.search(rest, match.end())
    return [_inside(formula)] if formula else [number[0]] if number else []


def _sentence(rest: str) -> str:
    """The answer at the start of a text: up to the end of its sentence, or the formula in it."""
    rest = rest.strip()
    if rest.startswith("not "):
        return ""
    formulas = list(_MATHS.finditer(rest))
    if formulas and formulas[0].start() == 0 and len(formulas) == 1:
        whole = _cut(rest)
        after = whole[formulas[0].end() :].strip(" .*")
        return whole if re.fullmatch(r"[A-Za-z^0-9{}/ ]{1,30}", after) else _inside(formulas[0])
    sentence = _cut(rest)
    if (
        len(formulas) == 1
        and formulas[0].end() <= len(sentence)
        and not _NUMBER.search(sentence[: formulas[0].start()])
    ):
        return _inside(formulas[0])
    return _value_in(sentence)


def _cut(text: str) -> str:
    """The first sentence; formulas are not cut."""
    spans = [match.span() for match in _MATHS.finditer(text)]
    ends = (m for m in _SENTENCE_END.finditer(text) if not any(low <= m.start() < high for low, high in spans))
    end = next(ends, None)
    return (text[: end.start()] if end else text).strip(" ,")


def _value_in(sentence: str) -> str:
    """The sentence, or the only number of one that is prose."""
    if not _is_prose(sentence):
        return sentence
    numbers = list(dict.fromkeys(match[0] for match in _NUMBER.finditer(sentence)))
    return numbers[0] if len(numbers) == 1 else sentence


def _is_prose(text: str) -> bool:
    words = _WORD.findall(_COMMAND.sub(" ", text))
    return len(words) >= 4 or (bool(words) and len(text) < 1000 and isinstance(read(text), Raw))


def _inside(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group is not None)


def _last(text: str) -> list[str]:
    lines = [line for line in text[-_TAIL:].splitlines() if line.strip(" *`#-_")]
    if not lines:
        return []
    line = lines[-1].strip()
    formulas = list(_MATHS.finditer(text[-_TAIL:]))
    inline = [f for f in formulas if f.group(0) in line]
    if inline:
        return [_inside(inline[-1])] if len(inline[-1][0]) < len(line) else [line]
    if formulas and text.rstrip().endswith(("$", r"\]", r"\)")):
        return [_inside(formulas[-1])]
    answer = _plain(line)
    return [answer] if answer else []


def _plain(line: str) -> str:
    """A last line without any mark: a formula as it is; of prose its last number, or the words it says that it is."""
    line = _LABEL.sub("", line)
    if not _is_prose(line):
        return line
    if "=" in line:
        return _cut(line.rpartition("=")[2])
    if _DENIED.search(line):
        return ""
    said, numbers = _SAID.search(line), _NUMBER.findall(line)
    known = read(line)
    if isinstance(known, Words) and known.text in PHRASES:
        return line
    if said and not isinstance(read(said[1]), Raw if not numbers else Raw | Words):
        return said[1]
    return numbers[-1] if numbers else line
