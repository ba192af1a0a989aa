"""Reward models of their own that score side by side: whole models, or adapters that share one base in memory."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prefrl.errors import ModelError
from prefrl.model.checkpoint import atomic_folder
from prefrl.model.load import is_adapter, quiet_peft
from prefrl.model.reward_head import reset_head
from prefrl.model.reward_model import RewardModel, load_reward_model, new_reward_model
from prefrl.model.reward_record import RewardRecord, check_belongs, read_record
from prefrl.model.reward_scorer import RewardScorer
from prefrl.types import Row

FOLDER = "members"
_ADAPTER = "member_{}"  # peft finds an adapter's weights by its name in theirs: a bare number is that of a layer too


class RewardEnsemble(RewardScorer):
    """Several reward models with one tokenizer; every completion gets a score from each.

    Args:
        models: the members, each trained on its own.
        name: where they came from.
        record: how their scores are made and read.
    """

    def __init__(self, models: Sequence[RewardModel], *, name: str, record: RewardRecord | None = None) -> None:
        super().__init__(models[0].tokenizer, name, record or RewardRecord(kind="models", members=len(models)))
        self.models = list(models)

    @property
    def members(self) -> int:
        return len(self.models)

    def member_scores(self, rows: Sequence[Row], token_budget: int = 4096) -> Tensor:
        return torch.cat([model.member_scores(rows, token_budget) for model in self.models], dim=1)

    @property
    def most_tokens(self) -> int:
        return self.models[0].most_tokens

    def divide(self, temperature: float) -> None:
        for model in self.models:
            model.divide(temperature)

    def fingerprint(self) -> str:
        return hashlib.sha256("".join(model.fingerprint() for model in self.models).encode()).hexdigest()[:16]

    def save(self, folder: str | Path) -> None:
        """Write `members/0`, `members/1`, ..., each a reward model of its own, and the record; all or nothing."""
        with atomic_folder(folder) as scratch:
            for index, model in enumerate(self.models):
                place = scratch / FOLDER / str(index)
                place.mkdir(parents=True)
                model.record = replace(self.record, kind="heads", members=1)
                model.write(place)
            self.record.write(scratch, self.tokenizer, self.fingerprint(), decoder=self.models[0].is_decoder)


def new_ensemble(base: str, members: int, *, lora: int = 0, seed: int = 0, **options: Any) -> RewardEnsemble:
    """Fresh reward models on one base, with small random heads from seeds of their own.

    With `lora` they are adapters that share the base in memory; each is saved with its own head.

    Args:
        base: as for `new_reward_model`, like all other options.
        members: how many.
        lora: rank of the adapters; 0 makes whole models.
        seed: of the first member; the others follow it.
    """
    first = new_reward_model(base, lora=lora, seed=seed, **options)
    if lora:
        models = [first, *(_sibling(first, _ADAPTER.format(i), seed + i) for i in range(1, members))]
        first.adapter = "default"
    else:
        models = [first, *(new_reward_model(base, seed=seed + i, **options) for i in range(1, members))]
    for index, model in enumerate(models):
        torch.manual_seed(seed + index)
        reset_head(model.output_layer, random=True)
    return RewardEnsemble(models, name=base)


def load_reward_scorer(folder: str, *, dtype: str = "auto", device: str = "auto") -> RewardScorer:
    """A trained reward model, or an ensemble of them.

    Raises:
        ModelError: not a reward model, damaged, or with a record that belongs to another one.
    """
    place = Path(folder).expanduser()
    found = read_record(str(place))
    if found is None or found[0].kind == "heads":
        return load_reward_model(folder, dtype=dtype, device=device)
    record, prints = found
    if not place.is_dir():
        raise ModelError(
            f"{folder} is an ensemble of {record.members} models on the hub; expected a folder, as ensembles of kind "
            f"models are not loaded by their id. Type: hf download {folder} --local-dir FOLDER, and give that path."
        )
    places = [place / FOLDER / str(index) for index in range(record.members)]
    missing = [str(member) for member in places if not member.is_dir()]
    if missing:
        raise ModelError(
            f"{folder} is an ensemble of {record.members} models, but {missing[0]} is missing. Copy it whole."
        )
    first = load_reward_model(str(places[0]), dtype=dtype, device=device)
    if all(map(is_adapter, map(str, places))):
        models = [first, *(_loaded_sibling(first, member) for member in places[1:])]
        first.adapter = "default"
    else:
        models = [first, *(load_reward_model(str(member), dtype=dtype, device=device) for member in places[1:])]
    made = RewardEnsemble(models, name=folder, record=record)
    check_belongs(prints, folder, made.tokenizer, made.fingerprint())
    return made


def _sibling(first: RewardModel, adapter: str, seed: int) -> RewardModel:
    """Another fresh adapter on the base of `first`."""
    torch.manual_seed(seed)
    with quiet_peft():
        first.model.add_adapter(adapter, copy.deepcopy(first.model.peft_config["default"]))
    return RewardModel(first.model, first.tokenizer, name=first.name, adapter=adapter)


def _loaded_sibling(first: RewardModel, folder: Path) -> RewardModel:
    """A trained adapter of the same base, beside `first`."""
    adapter = _ADAPTER.format(folder.name)
    with quiet_peft():
        first.model.load_adapter(str(folder), adapter_name=adapter, is_trainable=True)
    return RewardModel(first.model, first.tokenizer, name=str(folder), adapter=adapter)
