from __future__ import annotations

import pytest
import torch

from prefrl.errors import ConfigError
from prefrl.model.load import load
from prefrl.model.small import small_model
from prefrl.types import Prompt, Row

WORDS = ("<eos>", "Guess", "higher", "lower", "7")


def test_a_word_is_a_token_and_an_unknown_one_is_the_end_of_a_turn():
    assert small_model(WORDS).encode(Prompt(id="a", text="Guess nine higher 7")) == (1, 0, 2, 4)


def test_weights_come_from_the_seed_and_leave_other_numbers_of_chance_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, same, other = (small_model(WORDS, seed=seed).head.weight for seed in (0, 0, 1))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert small_model([str(n) for n in range(2000)], spread=0.3).head.weight.std().item() == pytest.approx(
        0.3, rel=0.02
    )


def test_it_comes_back_from_its_folder(tmp_path):
    made = small_model(WORDS, width=16, layers=1, heads=2)
    made.save(tmp_path / "model")
    loaded, row = load(str(tmp_path / "model")), Row(prompt_ids=(1, 2), completion_ids=(3, 4, 0), mask=(True,) * 3)
    assert torch.equal(made.token_outputs([row]), loaded.token_outputs([row]))
    assert loaded.encode(Prompt(id="a", text="Guess lower")) == (1, 3)


@pytest.mark.parametrize("words", [(), ("<eos>", "a", "a"), ("<eos>", "two words"), ("<eos>", ""), ("<eos>", " a")])
def test_words_that_cannot_be_told_apart_are_refused(words):
    with pytest.raises(ConfigError, match="expected different ones"):
        small_model(words)


def test_a_width_that_heads_cannot_share_is_refused():
    with pytest.raises(ConfigError, match="a multiple of 8"):
        small_model(WORDS, width=20)
