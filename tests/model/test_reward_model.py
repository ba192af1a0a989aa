"""A scalar head reads the last position that is really there, whatever stands next to a row."""

from __future__ import annotations

import pytest
import torch
from tiny import byte_tokenizer, character_tokenizer, llama
from transformers import AutoModelForSequenceClassification, BertConfig, BertModel

from prefrl.errors import ModelError
from prefrl.model.load import load
from prefrl.model.reward_model import load_reward_model, new_reward_model
from prefrl.types import Completion, Prompt

TURNS = (
    {"role": "user", "content": "two?"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "and three, please"},
)
ASKED = [
    (Prompt(id="text", text="What is it?"), Completion(text=" A word.")),
    (Prompt(id="text", text="What is it?"), Completion(text=" ")),
    (Prompt(id="short", text="?"), Completion(text="A much longer answer than the others have.")),
    (Prompt(id="empty", text="?"), Completion(text="")),
    (Prompt(id="turns", messages=TURNS), Completion(text="3")),  # end-of-turn tokens inside the prompt
    (Prompt(id="turns", messages=TURNS), Completion(text="three", finished=False)),
    (Prompt(id="cut", text="Why?"), Completion(text=" Because", finished=False)),
    (Prompt(id="nothing", text="Why?"), Completion(text="", finished=False)),
]


def written(folder, model, tokenizer):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """Folders of a decoder whose padding is its end of turn, one with padding of its own, and an encoder."""
    place = tmp_path_factory.mktemp("bases")
    apart = byte_tokenizer()
    apart.pad_token = "<|endoftext|>"
    torch.manual_seed(0)
    encoder = BertConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, pad_token_id=0
    )
    return {
        "pad is eos": written(place / "pad_is_eos", llama(259, layers=3, eos=2), byte_tokenizer()),
        "pad apart": written(place / "pad_apart", llama(259, layers=3, eos=2, seed=1), apart),
        "encoder": written(place / "encoder", BertModel(encoder), character_tokenizer()),
    }


DECODERS = ("pad is eos", "pad apart")


def trained(base, **options):
    """A reward model whose trained weights were moved, so that a round trip has something to lose."""
    return moved(new_reward_model(base, **options))


def moved(model):
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.module.parameters():
            if parameter.requires_grad:
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


def rows_of(model):
    asked = [(p, c) for p, c in ASKED if p.messages is None or model.is_decoder]
    return [model.encode(p, c) for p, c in asked]


def close(got, wanted, tolerance=1e-5):
    assert got == pytest.approx(wanted, abs=tolerance)
    assert max(wanted) - min(wanted) > 100 * tolerance


def plain_scores(model, rows, tokenizer):
    """Scores of a right-padded batch by transformers' own class, which looks for the padding token."""
    padded = tokenizer.pad({"input_ids": [[*r.prompt_ids, *r.completion_ids] for r in rows]}, return_tensors="pt")
    with torch.no_grad():
        return model(input_ids=padded["input_ids"], attention_mask=padded["attention_mask"]).logits.squeeze(-1).tolist()


@pytest.mark.parametrize("base", [*DECODERS, "encoder"])
@pytest.mark.parametrize("batch", [1, 2, 8])
def test_scores_do_not_depend_on_the_batch(bases, base, batch):
    model = trained(bases[base])
    rows = rows_of(model)
    together = model.scores(rows)
    parts = [score for i in range(0, len(rows), batch) for score in model.scores(rows[i : i + batch])]
    close(parts, together)
    close(model.scores(rows, token_budget=30), together)
    close(model.scores(rows[::-1]), together[::-1])


@pytest.mark.parametrize("base", [*DECODERS, "encoder"])
@pytest.mark.parametrize("place", ["left", "right"])
def test_neighbours_do_not_matter(bases, base, place):
    model = trained(bases[base])
    rows = rows_of(model)
    wanted = [model.scores([row])[0] for row in rows]
    for neighbour in (model.encode(Prompt(id="n", text="?"), Completion(text="a" * 60)), rows[3], rows[0]):
        pairs = [[neighbour, row] if place == "left" else [row, neighbour] for row in rows]
        with torch.no_grad():
            got = [float(model.token_outputs(pair)[1 if place == "left" else 0]) for pair in pairs]
        close(got, wanted)


@pytest.mark.parametrize("base", DECODERS)
def test_by_hand(bases, base):
    model = trained(bases[base])
    for row, got in zip(rows_of(model), model.scores(rows_of(model)), strict=True):
        ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
        with torch.no_grad():
            hidden = model.model.model(input_ids=ids, use_cache=False).last_hidden_state
            assert float(model.model.score(hidden[0, -1])) == pytest.approx(got, abs=1e-5)
        assert row.mask == (*(False,) * (len(row.completion_ids) - 1), True)


@pytest.mark.parametrize("base", [*DECODERS, "encoder"])
def test_the_saved_folder_loads_in_transformers(bases, base, tmp_path):
    model = trained(bases[base])
    model.save(tmp_path / "rm")
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "rm").eval()
    rows = rows_of(model)
    close(plain_scores(theirs, rows, model.tokenizer), model.scores(rows))


def test_a_folder_of_transformers_loads_here(bases, tmp_path):
    theirs = AutoModelForSequenceClassification.from_pretrained(bases["pad apart"], num_labels=1).eval()
    tokenizer = byte_tokenizer()
    tokenizer.pad_token = "<|endoftext|>"
    theirs.config.pad_token_id = tokenizer.pad_token_id
    model = load_reward_model(written(tmp_path / "theirs", theirs, tokenizer))
    rows = rows_of(model)
    close(model.scores(rows), plain_scores(theirs, rows, tokenizer))


WHOLE, LORA, LAYERS, TOP = {}, {"lora": 4}, {"layers": 1}, {"top_layers": 1}
TRIPS = [(b, o) for b in DECODERS for o in (WHOLE, LORA, LAYERS, TOP)] + [("encoder", o) for o in (WHOLE, LORA, LAYERS)]


@pytest.mark.parametrize(("base", "options"), TRIPS, ids=str)
def test_round_trip(bases, base, options, tmp_path):
    model = trained(bases[base], **options)
    model.save(tmp_path / "rm")
    again = load_reward_model(str(tmp_path / "rm"))
    close(again.scores(rows_of(again)), model.scores(rows_of(model)))
    assert (tmp_path / "rm" / "adapter_config.json").exists() == ("lora" in options)


def test_the_layers_of_an_encoder_are_not_told_apart(bases):
    with pytest.raises(ModelError, match="top_layers is 1, but the model has no decoder layers"):
        new_reward_model(bases["encoder"], top_layers=1)


def test_lora_saves_the_adapter_and_the_head_alone(bases, tmp_path):
    from safetensors.torch import load_file

    trained(bases["pad is eos"], lora=4).save(tmp_path / "rm")
    names = load_file(tmp_path / "rm" / "adapter_model.safetensors")
    assert all("lora_" in name or name.endswith("score.weight") for name in names)
    assert any(name.endswith("score.weight") for name in names)
    assert not list((tmp_path / "rm").glob("model*.safetensors"))


def test_what_is_trained(bases):
    def names(**options):
        module = new_reward_model(bases["pad is eos"], **options).module
        return {name for name, parameter in module.named_parameters() if parameter.requires_grad}

    assert {n.split(".")[2] for n in names(top_layers=1) if "layers" in n} == {"2"}
    assert "score.weight" in names(top_layers=1)
    assert "score.weight" in names()
    assert {n.split(".")[2] for n in names(layers=2) if "layers" in n} == {"0", "1"}
    assert all("lora_" in n or "score" in n for n in names(lora=4))


def test_on_top_of_a_policys_adapter(bases, tmp_path):
    policy = load(bases["pad is eos"], lora=4)
    with torch.no_grad():
        for parameter in policy.module.parameters():
            if parameter.requires_grad:
                parameter.fill_(0.05)
    policy.save(tmp_path / "policy")
    model = new_reward_model(str(tmp_path / "policy"))
    assert all(parameter.requires_grad for parameter in model.module.parameters())
    ids = torch.tensor([[5, 6, 7]])
    wanted = policy.decoder(input_ids=ids, use_cache=False).last_hidden_state
    torch.testing.assert_close(model.model.model(input_ids=ids, use_cache=False).last_hidden_state, wanted)
    moved(model).save(tmp_path / "rm")
    again = load_reward_model(str(tmp_path / "rm"))
    close(again.scores(rows_of(again)), model.scores(rows_of(model)))


@pytest.mark.parametrize("base", ["pad is eos", "adapter"])
def test_an_adapter_whose_base_would_not_come_back_is_refused(bases, base, tmp_path):
    if base == "adapter":
        load(bases["pad is eos"], lora=4).save(tmp_path / "policy")
        with pytest.raises(ModelError, match=r"lora=2 .* without its own adapter.*Set lora to 0"):
            new_reward_model(str(tmp_path / "policy"), lora=2)
    else:
        with pytest.raises(ModelError, match=r"lora=2 .* with all its layers.*Set lora to 0"):
            new_reward_model(bases[base], lora=2, layers=1)


@pytest.mark.parametrize("options", [WHOLE, LORA], ids=str)
@pytest.mark.parametrize("base", [*DECODERS, "encoder"])
def test_a_fresh_model_scores_everything_0(bases, base, options):
    model = new_reward_model(bases[base], **options)
    assert set(model.scores(rows_of(model))) == {0.0}


def test_the_seed_is_that_of_the_adapter(bases):
    def adapter(seed):
        module = new_reward_model(bases["pad is eos"], lora=4, seed=seed).module
        return torch.cat([p.detach().flatten() for n, p in module.named_parameters() if "lora_A" in n])

    assert torch.equal(adapter(0), adapter(0))
    assert not torch.equal(adapter(0), adapter(1))


def test_two_labels_are_refused(bases, tmp_path):
    two = AutoModelForSequenceClassification.from_pretrained(bases["pad apart"], num_labels=2)
    with pytest.raises(ModelError, match="has 2 labels; a reward model has one"):
        load_reward_model(written(tmp_path / "two", two, byte_tokenizer()))


@pytest.mark.parametrize("base", [*DECODERS, "encoder"])
def test_ends_of_completions(bases, base):
    model = new_reward_model(bases[base])
    end, prompt = model.tokenizer.eos_token_id, Prompt(id="a", text="why?")

    def encode(**completion):
        row = model.encode(prompt, Completion(**completion))
        return row.prompt_ids, row.completion_ids

    finished, cut = encode(text="so"), encode(text="so", finished=False)
    assert finished == (cut[0], (*cut[1], end))
    assert end not in cut[1]
    assert encode(text="") == (cut[0], (end,))
    assert encode(text="", finished=False) == (cut[0][:-1], cut[0][-1:])
    assert encode(text="so", ids=(3, 1, 4)) == finished  # another tokenizer's ids mean nothing here


def test_an_end_of_turn_inside_the_prompt_stays(bases):
    model = new_reward_model(bases["pad is eos"])
    row = model.encode(*ASKED[4])
    assert row.prompt_ids.count(2) == 3
    assert row.completion_ids == (*model.tokenizer("3")["input_ids"], 2)


def test_a_finished_answer_scores_differently_from_a_cut_off_one(bases):
    model = trained(bases["pad is eos"])
    prompt = ASKED[0][0]
    rows = [model.encode(prompt, Completion(text=" yes", finished=f)) for f in (True, False)]
    scores = model.scores(rows)
    assert abs(scores[0] - scores[1]) > 1e-3
