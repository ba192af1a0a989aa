"""What is saved beside a reward model: how its scores are made, how they are to be read, and whom they belong to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from prefrl.data.chat import encode_prompt
from prefrl.errors import ModelError
from prefrl.types import Prompt

FILE = "reward_model.json"
FORMAT = 1
POOLING = {True: "last position with mask 1", False: "as the architecture pools"}
_PROBE = "H\u00e9llo, w\u00f6rld: 12 + 30 = ?\n\tYes"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardRecord:
    """How the scores of a reward model are made and read.

    kind, members  heads on one body, or models of their own, and how many
    max_tokens     most tokens of a row in training, and so in serving; 0 knows of no limit
    long           whether longer rows are refused, or their prompts cut
    temperature    what the head's weights were divided by so that scores are log-odds
    mean, std      of the scores of held-out completions; None where none were held out
    length_slope, length_centre  score taken off for every character above the centre
    offsets        score of each member above the mean of all, on held-out completions; taken off, as only differences
                   within a prompt are learnt and a minimum over members would compare where each happens to stand
    tie_model, tie_parameter     how ties were learnt: rao_kupper or davidson, and its parameter; empty: not at all
    reliability    how far each annotator could be trusted, where that was learnt
    """

    kind: Literal["heads", "models"] = "heads"
    members: int = 1
    max_tokens: int = 0
    long: Literal["refuse", "cut"] = "refuse"
    temperature: float = 1.0
    mean: float | None = None
    std: float | None = None
    length_slope: float = 0.0
    length_centre: float = 0.0
    offsets: tuple[float, ...] = ()
    tie_model: str = ""
    tie_parameter: float = 0.0
    reliability: Mapping[str, float] = field(default_factory=dict)

    def write(self, folder: Path, tokenizer: Any, head: str, *, decoder: bool) -> None:
        """Write it into a model folder, with the fingerprints of the tokenizer and of the head it belongs to."""
        prints = {"tokenizer": tokenizer_fingerprint(tokenizer), "head": head}
        content = {"format": FORMAT, "pooling": POOLING[decoder], **asdict(self), **prints}
        (folder / FILE).write_text(json.dumps({**content, "checksum": _checksum(content)}, indent=2) + "\n")


def read_record(folder: str) -> tuple[RewardRecord, dict[str, str]] | None:
    """The record of a model folder or hub id and the fingerprints in it; None where there is none, as with others'.

    Raises:
        ModelError: damaged, or written by a later version.
    """
    path = Path(folder) / FILE if Path(folder).is_dir() else _from_hub(folder)
    if path is None or not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
        checksum, version = content.pop("checksum"), content.pop("format")
        intact = checksum == _checksum({"format": version, **content})
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        intact, version = False, FORMAT
    if intact and version != FORMAT:
        raise ModelError(f"{path} has format {version}; this version of prefrl reads format {FORMAT}. Update prefrl.")
    if not intact:
        raise ModelError(
            f"{path} is damaged or was changed: its checksum is not that of its content. Copy the model again, or "
            "delete that file to use the bare scores, without what it says of long rows, length and normalisation."
        )
    prints = {name: content.pop(name) for name in ("tokenizer", "head")}
    content.pop("pooling")
    return RewardRecord(**content | {"offsets": tuple(content["offsets"])}), prints


def check_belongs(prints: Mapping[str, str], where: str, tokenizer: Any, head: str) -> None:
    """Make sure that a record lies beside the model it was written for.

    Raises:
        ModelError: the tokenizer or the head is another one.
    """
    now = {"tokenizer": tokenizer_fingerprint(tokenizer), "head": head}
    wrong = [name for name in ("tokenizer", "head") if prints[name] != now[name]]
    if wrong:
        raise ModelError(
            f"{Path(where) / FILE} belongs to another model: the {wrong[0]} in {where} is not the one it was written "
            "for. Copy the whole folder that was saved; if the model was changed on purpose, delete that file."
        )


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """16 hexadecimal digits that change with the vocabulary, the end of a text, and how text and turns are encoded."""
    probe = encode_prompt(tokenizer, Prompt(id="probe", text=_PROBE))
    content = [sorted(tokenizer.get_vocab().items()), tokenizer.eos_token, tokenizer.chat_template, probe]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _from_hub(name: str) -> Path | None:
    from transformers.utils.hub import cached_file

    quiet = ("missing_entries", "connection_errors", "gated_repo")
    try:
        found = cached_file(name, FILE, **{f"_raise_exceptions_for_{what}": False for what in quiet})
    except OSError:  # no such id: loading the model will say so
        return None
    return Path(found) if found else None


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
