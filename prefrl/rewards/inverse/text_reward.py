"""A reward that was learnt from demonstrations, ready for use: r alone, without potential and without log pi."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from prefrl.errors import ModelError
from prefrl.model.checkpoint import atomic_folder
from prefrl.model.reward_record import tokenizer_fingerprint
from prefrl.model.reward_rows import encode_row
from prefrl.rewards.base import Reward
from prefrl.rewards.inverse.text_nets import TextBody, TextModel, TextNet, own_body
from prefrl.types import Completion, Prompt, Rollout, Row, Score

if TYPE_CHECKING:
    from prefrl.model.engine import Engine

RECORD, HEADS, ADAPTER = "text_reward.json", "heads.safetensors", "adapter.safetensors"
FORMAT = 1


class TextReward(Reward):
    """Scores `beta u(x, y)` of completions, up to a constant that belongs to the prompt.

    Scores of different prompts are not comparable. Completions are read by their text, so that any policy's will do;
    attached to a policy with the tokenizer of the reward's body, token ids are read as they were sampled.

    Args:
        model: heads and body.
        beta: the temperature that the reward was learnt with, its unit.
        method: what it was learnt by, for people.
        name: shown in metrics.
    """

    def __init__(self, model: TextModel, *, beta: float, method: str = "", name: str = "text_reward") -> None:
        self.model = model
        self.beta = beta
        self.method = method
        self.name = name
        self._reads_ids = False

    @classmethod
    def load(cls, path: str, device: str = "auto", dtype: str = "auto") -> TextReward:
        """A reward from the folder that `save` wrote, or from the run that learnt it.

        Raises:
            ModelError: no such reward, damaged, or its body cannot be loaded or reads other tokens.
        """
        run = Path(path) / "checkpoints" / "reward"
        folder = run if run.is_dir() else Path(path)
        record = _read(folder)
        body = own_body(
            record["base"], lora=record["lora"], layers=record["layers"], dtype=dtype, device=device, seed=0
        )
        if tokenizer_fingerprint(body.tokenizer) != record["tokenizer"]:
            raise ModelError(
                f"{folder} was learnt on {record['base']}, whose tokenizer has changed since. Use the version of the "
                "model that it was learnt on."
            )
        net = TextNet(body.size, level=record["level"], hidden=record["hidden"], gamma=record["gamma"])
        net.load_state_dict(_tensors(folder / HEADS))
        if body.trained:
            saved = _tensors(folder / ADAPTER)
            with torch.no_grad():
                for name, parameter in body.trained.items():
                    parameter.copy_(saved[name])
        return cls(TextModel(net=net, body=body), beta=record["beta"], method=record["method"])

    def attach(self, engine: Engine) -> None:
        """Read the token ids of a policy that has the body's own tokenizer."""
        tokenizer: Any = getattr(engine.actor, "tokenizer", None)
        own = self.model.body.tokenizer
        same = tokenizer is not None and tokenizer_fingerprint(tokenizer) == tokenizer_fingerprint(own)
        self._reads_ids = same

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """One score per rollout: the sum of what its tokens get, or what the completion gets."""
        rows = [self._row(rollout) for rollout in rollouts]
        plain, _ = self.model.rewards(rows, [rollout.terminated for rollout in rollouts])
        return [Score(value=self.beta * float(u.sum())) for u in plain]

    def save(self, folder: str | Path) -> None:
        """Write heads, adapter and record, all or nothing; a frozen body is named, not copied."""
        from safetensors.torch import save_file

        net, body = self.model.net, self.model.body
        with atomic_folder(folder) as scratch:
            save_file(_plain(net.state_dict()), scratch / HEADS)
            if body.trained:
                save_file(_plain(body.trained), scratch / ADAPTER)
            (scratch / RECORD).write_text(json.dumps(self._record(), indent=2) + "\n")

    def _record(self) -> dict[str, Any]:
        net, body = self.model.net, self.model.body
        return {
            "format": FORMAT,
            "method": self.method,
            "beta": self.beta,
            "level": net.level,
            "hidden": list(net.hidden),
            "gamma": net.gamma,
            "base": body.base,
            "layers": body.layers,
            "lora": body.lora,
            "tokenizer": tokenizer_fingerprint(body.tokenizer),
        }

    def _row(self, rollout: Rollout) -> Row:
        if self._reads_ids and rollout.prompt_ids:
            return row_of(rollout.prompt_ids, rollout.completion_ids)
        completion = Completion(text=rollout.text, finished=rollout.terminated)
        return text_row(self.model.body, rollout.prompt, completion)


def row_of(prompt_ids: Sequence[int], ids: Sequence[int]) -> Row:
    """A prompt and a completion, all of whose tokens count."""
    return Row(prompt_ids=tuple(prompt_ids), completion_ids=tuple(ids), mask=(True,) * len(ids))


def text_row(body: TextBody, prompt: Prompt, completion: Completion) -> Row:
    """The same of texts, as the body's tokenizer has them; what was cut off before it began has no token."""
    row, _ = encode_row(body.tokenizer, prompt, completion, ends=body.ends)
    if not completion.text and not completion.finished:
        return row_of((*row.prompt_ids, *row.completion_ids), ())
    return row_of(row.prompt_ids, row.completion_ids)


def _read(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / RECORD).read_text())
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{folder} holds no reward learnt from demonstrations: {RECORD} is missing or damaged ({error}). Name the "
            "run folder of prefrl irl, or its checkpoints/reward."
        ) from error
    if record.get("format") != FORMAT:
        raise ModelError(
            f"{folder / RECORD} has format {record.get('format')}; this version of prefrl reads format {FORMAT}."
        )
    found: dict[str, Any] = record
    return found


def _tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path} cannot be read: {error}. Copy the whole folder that was saved.") from error


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
