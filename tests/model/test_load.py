"""Models from folders: what comes back is what was written, and every mistake is named with its remedy."""

from __future__ import annotations

import json
import time

import huggingface_hub
import pytest
import torch
from tiny import byte_tokenizer, llama, naive_logps, random_rows
from transformers import BertConfig, BertForMaskedLM

from prefrl.errors import ModelError
from prefrl.model.load import load, load_tokenizer, pick_device, pick_dtype, refuse_unreachable, resolve
from prefrl.model.process_model import load_process_model

VOCABULARY = 259
NOBODY = "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"  # the discard port, where nobody listens


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder with a tiny model of three layers."""
    folder = tmp_path_factory.mktemp("models") / "base"
    llama(VOCABULARY, layers=3, eos=2, tie_word_embeddings=True).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return str(folder)


def trained(policy):
    """The policy after its trained weights were moved."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in policy.module.parameters():
            if parameter.requires_grad:
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return policy


def trainable(policy):
    return {name for name, p in policy.module.named_parameters() if p.requires_grad}


def logps(policy):
    with torch.no_grad():
        return policy.token_outputs(random_rows({3: 3, 6: 2}))


def test_a_folder(base):
    policy = load(base)
    assert policy.name == base
    assert not policy.module.training
    assert next(policy.module.parameters()).dtype == torch.float32
    assert policy.head.weight is policy.decoder.embed_tokens.weight
    assert trainable(policy) == {name for name, _ in policy.module.named_parameters()}
    assert policy.tokenizer.pad_token == "<|im_end|>"


@pytest.mark.parametrize("options", [{}, {"top_layers": 1}, {"lora": 4}], ids=str)
def test_round_trip(base, options, tmp_path):
    policy = trained(load(base, **options))
    policy.save(tmp_path / "final")
    again = load(str(tmp_path / "final"))
    torch.testing.assert_close(logps(again), logps(policy), atol=0, rtol=0)
    assert (logps(again) - logps(load(base))).abs().max() > 1e-3
    assert (tmp_path / "final" / "adapter_config.json").exists() == ("lora" in options)
    assert again.tokenizer("a <|im_end|>")["input_ids"] == policy.tokenizer("a <|im_end|>")["input_ids"]


def test_an_adapter_is_trained_on_and_saved_again(base, tmp_path):
    trained(load(base, lora=4)).save(tmp_path / "one")
    again = load(str(tmp_path / "one"), lora=8)  # it has a rank already
    assert trainable(again)
    assert all("lora_" in name for name in trainable(again))
    assert {p.shape[0] for n, p in again.module.named_parameters() if "lora_A" in n} == {4}
    trained(again).save(tmp_path / "two")
    torch.testing.assert_close(logps(load(str(tmp_path / "two"))), logps(again), atol=0, rtol=0)


def test_a_fresh_adapter_changes_nothing_and_comes_from_its_seed(base):
    adapters = [load(base, lora=4, seed=seed) for seed in (0, 0, 1)]
    torch.testing.assert_close(logps(adapters[0]), logps(load(base)), atol=0, rtol=0)
    first, same, other = ({n: p for n, p in a.module.named_parameters() if "lora_A" in n} for a in adapters)
    assert all(torch.equal(first[n], same[n]) for n in first)
    assert not any(torch.equal(first[n], other[n]) for n in first)
    assert all("lora_" in name for name in trainable(adapters[0]))
    assert not any("lm_head" in name for name in trainable(adapters[0]))


@pytest.mark.parametrize(("top_layers", "wanted"), [(1, {"2"}), (2, {"1", "2"}), (3, {"0", "1", "2"})])
def test_top_layers(base, top_layers, wanted):
    names = trainable(load(base, top_layers=top_layers))
    assert {name.split(".")[2] for name in names} == wanted
    assert all(name.startswith("model.layers.") for name in names)


def test_gradients_reach_what_is_trained_and_nothing_else(base):
    policy = load(base, top_layers=1)
    policy.token_outputs(random_rows({3: 3})).sum().backward()
    assert {n for n, p in policy.module.named_parameters() if p.grad is not None} == trainable(policy)


def test_log_probs_are_those_of_the_plain_model(base):
    policy = load(base)
    rows = random_rows({3: 3, 6: 2})
    wanted = torch.cat(naive_logps(policy.model, rows)).detach()
    torch.testing.assert_close(logps(policy), wanted, atol=1e-5, rtol=0)


def refused(match, name, **options):
    with pytest.raises(ModelError, match=match):
        load(str(name), **options)


def test_options_that_exclude_each_other(base, tmp_path):
    refused(r"lora=4 and top_layers=1 exclude each other; set one of them to 0", base, lora=4, top_layers=1)
    load(base, lora=4).save(tmp_path / "adapter")
    refused(r"adapter is a LoRA adapter.*Set top_layers to 0", tmp_path / "adapter", top_layers=1)


@pytest.mark.parametrize("top_layers", [4, -1])
def test_more_layers_than_there_are(base, top_layers):
    refused(rf"top_layers is {top_layers}, but the model has 3 layers\. Use 0, or lora", base, top_layers=top_layers)


def test_an_unknown_dtype(base):
    refused(r"dtype is 'float23'; valid: auto, float32, bfloat16\. Did you mean 'float32'\?", base, dtype="float23")


def test_dtypes(base):
    assert next(load(base, dtype="bfloat16").module.parameters()).dtype == torch.bfloat16
    assert pick_dtype("auto", torch.device("cpu"), frozen=True) == torch.float32
    assert pick_dtype("auto", torch.device("cuda"), frozen=False) == torch.float32  # small updates survive
    assert pick_device("cpu") == torch.device("cpu")


def test_an_encoder(tmp_path):
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, **sizes)).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    refused(r"is an encoder \(bert\).*Name a causal language model", tmp_path)


def test_a_folder_without_a_model(tmp_path):
    refused(r"holds no model: neither config\.json nor adapter_config\.json", tmp_path)


@pytest.mark.parametrize("name", ["runs/rl/checkpoints/final", "./final", "/nowhere/final", "~/no/such", "final.pt"])
def test_a_folder_that_does_not_exist(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    refused("does not exist", name)


def test_a_misspelt_folder(base):
    refused(r"base_model does not exist\. Did you mean 'base'\?", base + "_model")


@pytest.mark.parametrize("name", ["gpt2", "nobody/no-such-model"])
def test_a_hub_id_out_of_reach(name):
    refused(rf"Cannot load '{name}'.*not a local folder, not cached.*'smollm2-135m'.*needs no network", name)


@pytest.mark.parametrize("read", [load, load_tokenizer, load_process_model])
def test_a_hub_out_of_reach_is_asked_once(read, monkeypatch):
    """Left to itself the library below asks six times for every file, with pauses that double: over a minute."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", NOBODY)
    paused = []
    monkeypatch.setattr(time, "sleep", paused.append)
    with pytest.raises(ModelError, match=r"Cannot load 'smollm2-135M-x'.*Did you mean 'smollm2-135m'\?"):
        read("smollm2-135M-x")
    assert not paused


def test_a_hub_that_answers_is_asked_for_the_model(monkeypatch):
    class Unknown(Exception):
        response = "404"

    def answer(*_, **__):
        raise Unknown

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", answer)
    refuse_unreachable("some/adapter", "some/adapter")  # without config.json; what it has is for others to read


def test_a_hub_id_is_left_to_the_hub():
    assert resolve("someone/some-model") == "someone/some-model"


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["missing", "garbage", "cut"])
def test_a_damaged_folder(base, file, damage, tmp_path):
    policy = load(base)
    policy.save(tmp_path / "final")
    path = tmp_path / "final" / file
    if damage == "missing":
        path.unlink()
        if file == "config.json":
            return refused("holds no model", tmp_path / "final")
    elif damage == "garbage":
        path.write_bytes(b"\x00garbage" * 20)
    else:
        path.write_bytes(path.read_bytes()[:-40])
    return refused(r"The model in .*final cannot be read; a file is missing or damaged", tmp_path / "final")


def test_an_adapter_whose_base_is_gone(base, tmp_path):
    load(base, lora=4).save(tmp_path / "adapter")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    gone = str(tmp_path / "gone")
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": gone}))
    refused(rf"The model folder {gone} does not exist", tmp_path / "adapter")


def test_a_damaged_adapter(base, tmp_path):
    load(base, lora=4).save(tmp_path / "adapter")
    (tmp_path / "adapter" / "adapter_model.safetensors").write_bytes(b"garbage")
    refused(r"adapter cannot be read; a file is missing or damaged", tmp_path / "adapter")


def test_the_tokenizer_of_an_adapter_without_one_is_its_bases(base, tmp_path):
    load(base, lora=4).save(tmp_path / "adapter")
    for file in tmp_path.glob("adapter/tokenizer*"):
        file.unlink()
    assert load_tokenizer(str(tmp_path / "adapter"))("abc")["input_ids"] == byte_tokenizer()("abc")["input_ids"]
