"""What is saved beside a process reward model: where its scores are read, and how texts become steps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from prefrl.errors import ModelError, did_you_mean
from prefrl.model.reward_record import tokenizer_fingerprint

FILE = "process_model.json"
FORMAT = 1

Head = Literal["scalar", "classes", "tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLayout:
    """How steps stand in a sequence, and where the score of each is read.

    chat       a plain prompt is asked as a message of the user; otherwise it stands as it is
    before     text between the prompt and the first step
    marker     text put after every step in place of the white space it ends with; read at its last token. Empty: the
               steps stand as they are, and each is read at its own last token
    after      text between a marker and the next step
    turns      every step is a user's turn of a conversation, and read where the assistant is about to answer
    good, bad  vocabulary entries whose probabilities are compared there, for models that answer with a token
    """

    chat: bool = True
    before: str = ""
    marker: str = ""
    after: str = ""
    turns: bool = False
    good: str = ""
    bad: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """How the step scores of a model are made and read.

    head         scalar: one logit; classes: two, the second of which is "fine"; tokens: those of two words of the
                 language-model head
    layout       where scores are read
    separator    what ends a step in a text
    max_tokens   most tokens of a row in training, and so in serving; 0 knows of no limit
    temperature  what log-odds are divided by where no head could be: of `tokens`
    threshold    a step below it is called wrong; chosen on held-out solutions
    """

    head: Head = "scalar"
    layout: StepLayout = field(default_factory=StepLayout)
    separator: str = "\n\n"
    max_tokens: int = 0
    temperature: float = 1.0
    threshold: float = 0.5

    def write(self, folder: Path, tokenizer: Any, head: str) -> None:
        """Write it into a model folder, with the fingerprints of the tokenizer and of the head it belongs to."""
        content = {"format": FORMAT, **asdict(self), "prints": {"tokenizer": tokenizer_fingerprint(tokenizer)}}
        content["prints"]["head"] = head
        (folder / FILE).write_text(json.dumps({**content, "checksum": _checksum(content)}, indent=2) + "\n")


# Conventions of models in the wild: where TRL, Qwen2.5-Math-PRM, Math-Shepherd and RLHFlow read their scores.
STYLES: dict[str, ProcessRecord] = {
    "trl": ProcessRecord(head="classes", layout=StepLayout(chat=False, marker="\n"), separator="\n"),
    "qwen": ProcessRecord(head="classes", layout=StepLayout(marker="<extra_0>")),
    "math_shepherd": ProcessRecord(
        head="tokens",
        layout=StepLayout(chat=False, before=" ", marker=" \u043a\u0438", after="\n", good="\u2581+", bad="\u2581-"),
        separator="\n",
    ),
    "rlhflow": ProcessRecord(head="tokens", layout=StepLayout(turns=True, good="+", bad="-")),
}


def style_record(style: str) -> ProcessRecord:
    """The record of a convention by name; ConfigError's sibling for models, ModelError, where there is none."""
    if style not in STYLES:
        raise ModelError(f"style is {style!r}; valid: {', '.join(STYLES)}.{did_you_mean(style, STYLES)}")
    return STYLES[style]


def read_process_record(folder: str) -> tuple[ProcessRecord, dict[str, str]] | None:
    """The record of a model folder and the fingerprints in it; None where there is none, as with models of others.

    Raises:
        ModelError: damaged, or written by a later version.
    """
    path = Path(folder) / FILE
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
        whole = content.pop("checksum") == _checksum(content)
        layout, prints, version = (content.pop(name) for name in ("layout", "prints", "format"))
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        whole, version = False, FORMAT
    if not whole:
        raise ModelError(f"{path} is damaged or was changed: its checksum is not that of its content. Copy it again.")
    if version != FORMAT:
        raise ModelError(f"{path} has format {version}; this version of prefrl reads format {FORMAT}. Update prefrl.")
    return ProcessRecord(**content, layout=StepLayout(**layout)), prints


def check_prints(prints: Mapping[str, str], where: str, tokenizer: Any, head: str) -> None:
    """Make sure that a record lies beside the model it was written for; ModelError if not."""
    now = {"tokenizer": tokenizer_fingerprint(tokenizer), "head": head}
    wrong = next((name for name in now if prints.get(name) != now[name]), None)
    if wrong:
        raise ModelError(
            f"{Path(where) / FILE} belongs to another model: its {wrong} is not the one in {where}. Copy the whole "
            "folder that was saved; if the model was changed on purpose, delete that file and name a style."
        )


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
