"""A tiny model in a folder, and data in files, as a user has them."""

from __future__ import annotations

import json

import pytest
import torch
from tiny import byte_tokenizer, llama

from prefrl.config import RewardModelConfig
from prefrl.recipes import reward as reward_recipe


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A folder with a byte-level language model of a few thousand random weights."""
    tokenizer = byte_tokenizer()
    path = tmp_path_factory.mktemp("tiny") / "model"
    llama(len(tokenizer), eos=tokenizer.eos_token_id).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


@pytest.fixture(scope="module")
def reward_model(model, tmp_path_factory):
    """A folder with a reward model of random weights on it."""
    path = tmp_path_factory.mktemp("reward") / "model"
    made = reward_recipe.new_model(RewardModelConfig(name=model), seed=0)
    torch.manual_seed(0)
    torch.nn.init.normal_(made.model.score.weight)
    made.save(path)
    return str(path)


@pytest.fixture
def write(tmp_path):
    """Write rows into a .jsonl file of that name; its path."""

    def write(name, rows):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(tmp_path / name)

    return write
