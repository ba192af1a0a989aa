"""The whole loop in a quarter of a minute: a tiny transformer learns what a declared annotator likes, in three rounds.

It starts from random weights and answers prompts with three characters; the annotator likes large digits, errs now and
then, and only ever says which of two answers is better. Interrupt the loop and run it again: it goes on where it was.
Run it with: python examples/05_loop.py (it writes runs/loop-example)
"""

import json
import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

from prefrl.config import (
    DataConfig,
    LabellerConfig,
    LoopConfig,
    ModelConfig,
    RewardConfig,
    RewardModelConfig,
    SamplingConfig,
)
from prefrl.evaluate.run_folder import read
from prefrl.recipes.loop import run

FOLDER = Path("runs/loop-example")
SYMBOLS = ("<eos>", "<pad>", "=", *"0123456789")


def size(text: str) -> float:
    """What the annotator likes: the mean of three digits, between 0 and 1."""
    return sum(int(character) for character in text[:3] if character.isdigit()) / 27


def write_model(folder: Path) -> None:
    """A transformer of one layer with random weights, which reads and writes single characters."""
    tokenizer = Tokenizer(models.WordLevel({symbol: i for i, symbol in enumerate(SYMBOLS)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4}
    special = {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": None}
    set_seed(0)
    LlamaForCausalLM(LlamaConfig(vocab_size=len(SYMBOLS), **shape, **special)).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>").save_pretrained(folder)


def write_prompts(path: Path) -> None:
    """160 prompts, half of which the loop holds out."""
    numbers = random.Random(0).sample(range(1000), 160)
    path.write_text("".join(json.dumps({"prompt": f"{number:03d}="}) + "\n" for number in numbers))


def config() -> LoopConfig:
    """Three rounds of 64 pairs, of which the reward model chooses three quarters once there is one."""
    model = str(FOLDER / "model")
    return LoopConfig(
        policy=ModelConfig(name=model, lr=4e-4),
        data=DataConfig(train=str(FOLDER / "prompts.jsonl"), eval_fraction=0.5),
        sampling=SamplingConfig(max_new_tokens=3),
        labeller=LabellerConfig(utility=[{"kind": f"{__file__}:size"}], noise=0.05, flip=0.05),
        reward=RewardConfig(model=RewardModelConfig(name=model, lr=3e-3), epochs=4),
        algorithm={"name": "grpo", "group_size": 8, "kl": {"coef": 0.0}},
        steps=5,
        pairs_per_round=64,
        output=str(FOLDER / "run"),
    )


def main() -> None:
    """Write what the loop needs, unless it is there, run it, unless it is finished, and print its rounds."""
    if not (FOLDER / "prompts.jsonl").exists():
        write_model(FOLDER / "model")
        write_prompts(FOLDER / "prompts.jsonl")
    output = FOLDER / "run"
    if (output / "status.json").exists() and read(output).state == "finished":
        print(f"{output} holds the finished loop; delete it to run it anew.")
    else:
        run(config())
    for number, one in enumerate(read(output).status["summary"].values(), start=1):
        print(f"round {number}: {one['labels']} labels, preferred to the start in {one['win_rate']:.0%}")


if __name__ == "__main__":
    main()
