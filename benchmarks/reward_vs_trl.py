"""A reward model trained by prefrl and by TRL's RewardTrainer: same start weights, tokens, batches and budget.

    python benchmarks/reward_vs_trl.py --train pairs.jsonl --test held_out.jsonl [--model smollm2-135m] [--layers 8]

Each side trains in a process of its own, one after the other; both are then scored by the same code. TRL gets float32
and no gradient checkpointing, which is its fastest setting on a CPU. Prints accuracy on the test pairs with intervals,
the paired comparison, seconds of training and their ratio.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from prefrl.config import DataConfig, RewardConfig, RewardModelConfig
from prefrl.evaluate.reward_quality import evaluate_pairs
from prefrl.evaluate.run_folder import RunFolder
from prefrl.evaluate.statistics import sign_test
from prefrl.model.reward_model import load_reward_model, new_reward_model
from prefrl.recipes import reward as recipe
from prefrl.recipes.common import load_pairs, quiet
from prefrl.recipes.pairs import fitting, reward_rows
from prefrl.types import Pair


def pairs_of(path: str) -> list[Pair]:
    """All pairs of a file."""
    return load_pairs(DataConfig(train=path, eval_fraction=0.0), 0)[0]


def train_ours(args: argparse.Namespace, folder: Path) -> float:
    """Seconds of training with prefrl."""
    model = load_reward_model(str(folder / "start"))
    model.module.requires_grad_(True)
    config = RewardConfig(
        model=RewardModelConfig(name=args.model, lr=args.lr, schedule="linear", token_budget=args.token_budget),
        data=DataConfig(max_dropped_fraction=1.0),
        epochs=args.epochs,
        batch_size=args.batch_size,
        max_tokens=args.max_tokens,
        seed=args.seed,
    )
    train = pairs_of(args.train)
    with RunFolder.create(folder / "run", "reward", {}) as run:
        began = time.perf_counter()
        recipe.fit(run, model, train, [], config)
        seconds = time.perf_counter() - began
    model.save(folder / "ours")
    return seconds


def train_trl(args: argparse.Namespace, folder: Path) -> float:
    """Seconds of training with TRL, on the very same token ids."""
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification
    from trl import RewardConfig as TRLConfig
    from trl import RewardTrainer

    ours = load_reward_model(str(folder / "start"))
    rows = fitting(reward_rows(pairs_of(args.train), ours), args.max_tokens, 1.0).items
    sides = [
        {"chosen_ids": [*c.prompt_ids, *c.completion_ids], "rejected_ids": [*r.prompt_ids, *r.completion_ids]}
        for c, r in rows
    ]
    config = TRLConfig(
        output_dir=str(folder / "trl-run"),
        per_device_train_batch_size=args.batch_size,
        num_train_epochs=args.epochs,
        learning_rate=args.lr,
        lr_scheduler_type="linear",
        weight_decay=0.0,
        max_length=args.max_tokens,
        gradient_checkpointing=False,
        bf16=False,
        save_strategy="no",
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True,
        seed=args.seed,
    )
    model = AutoModelForSequenceClassification.from_pretrained(folder / "start", num_labels=1, dtype=torch.float32)
    trainer = RewardTrainer(model, config, train_dataset=Dataset.from_list(sides), processing_class=ours.tokenizer)
    began = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - began
    trainer.save_model(str(folder / "trl"))
    return seconds


def margins(folder: Path, pairs: list[Pair]) -> tuple[list[float], list[float]]:
    """Scores of both sides of every pair."""
    model = load_reward_model(str(folder))
    scores = model.scores([row for pair in reward_rows(pairs, model) for row in pair])
    return scores[::2], scores[1::2]


def main() -> None:
    """Train both, measure both, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--lr", type=float, default=5e-5)
    for name, default in (
        ("layers", 0),
        ("epochs", 1),
        ("batch-size", 16),
        ("max-tokens", 512),
        ("token-budget", 4096),
        ("threads", 0),
        ("seed", 0),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--side", choices=("ours", "trl"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    quiet()
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.side:
        seconds = {"ours": train_ours, "trl": train_trl}[args.side](args, Path(args.folder))
        (Path(args.folder) / f"{args.side}.json").write_text(json.dumps(seconds))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        new_reward_model(args.model, layers=args.layers).save(folder / "start")
        for side in ("ours", "trl"):
            subprocess.run([sys.executable, *sys.argv, "--side", side, "--folder", scratch], check=True)
        report(folder, pairs_of(args.test))


def report(folder: Path, test: list[Pair]) -> None:
    """Both sides on the same pairs."""
    seconds = {side: float(json.loads((folder / f"{side}.json").read_text())) for side in ("ours", "trl")}
    outcomes = {}
    for side, name in (("ours", "prefrl"), ("trl", "TRL")):
        chosen, rejected = margins(folder / side, test)
        quality = evaluate_pairs(chosen, rejected, test)
        outcomes[side] = [float(c > r) for c, r in zip(chosen, rejected, strict=True)]
        low, high = quality.accuracy.interval
        print(
            f"{name:<7} accuracy {quality.accuracy.rate:.1%} [{low:.1%}, {high:.1%}] of {len(test)}, "
            f"NLL {quality.nll:.3f}, {seconds[side]:.0f} s of training"
        )
    paired = sign_test(outcomes["ours"], outcomes["trl"])
    print(f"only prefrl right {paired.wins}, only TRL right {paired.losses}, p = {paired.p_value:.2g}")
    print(f"TRL took {seconds['trl'] / seconds['ours']:.2f} times as long")


if __name__ == "__main__":
    main()
