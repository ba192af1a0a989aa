"""Whether a file can be given to TRL's DPOTrainer as it is."""

from __future__ import annotations

import warnings
from pathlib import Path

SYMBOLS = {"<unk>": 0, "<eos>": 1, "<pad>": 2, "?": 3}


def accepts(file: Path, folder: Path) -> str:
    """Empty where one step of training on the file works, else why not."""
    from datasets import disable_progress_bars, load_dataset
    from trl import DPOConfig, DPOTrainer

    disable_progress_bars()
    settings = {"max_steps": 1, "per_device_train_batch_size": 2, "report_to": [], "use_cpu": True, "bf16": False}
    kind = "csv" if file.suffix == ".csv" else "json"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = _write_model(folder / "model")
        config = DPOConfig(output_dir=str(folder / "dpo"), save_strategy="no", disable_tqdm=True, **settings)
        try:
            rows = load_dataset(kind, data_files=str(file), split="train", cache_dir=str(folder / "datasets"))
            DPOTrainer(model, args=config, train_dataset=rows).train()
        except Exception as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
    return ""


def _write_model(folder: Path) -> str:
    """A transformer of one layer with random weights, and words for its tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel(SYMBOLS, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(SYMBOLS), eos_token_id=1, pad_token_id=2, **shape)).save_pretrained(
        folder
    )
    return str(folder)
