"""A process reward model that finds the first wrong step, where every label is exact.

Chains of arithmetic modulo 5, four steps each; one step of a wrong solution slips by one to three. To know a right step
from a wrong one, a model must reckon: no word and no number is wrong by itself, so that a transformer made from nothing
makes no progress for some hundreds of updates. Then it learns all of it.

Run it with: python examples/11_first_error.py (three minutes on one CPU core; the run is left in runs/first-error)
"""

import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from prefrl.config import DataConfig, PRMConfig, RewardModelConfig
from prefrl.data.chains import Chain, chains
from prefrl.model.small import small_model
from prefrl.recipes import prm

MODULUS, STEPS = 5, 4
TRAIN, TEST, PASSES, BATCH = 12_000, 400, 6, 64
WRONG = 0.85  # of the solutions to learn from, so that about as many labels are right as wrong; half of the others
NUMBERS = [str(number) for number in range(MODULUS)]
WORDS = ["<eos>", "Compute", "modulo", "5.", "=", "+", "-", "*", *NUMBERS, *(f"{number}," for number in NUMBERS)]


def write(path: Path, some: Sequence[Chain], wrong: float, rng: random.Random) -> None:
    """Solutions with their exact labels; the share `wrong` of them goes wrong, at any step alike."""
    with path.open("w") as file:
        for chain in some:
            made = chain.with_error(rng.randrange(STEPS), rng) if rng.random() < wrong else chain.solution()
            row = {"prompt": made.prompt.text, "completions": made.steps, "labels": [bool(y) for y in made.labels]}
            file.write(json.dumps(row) + "\n")


def main(seed: int = 0, *, train: int = TRAIN, passes: int = PASSES, output: str = "runs/first-error") -> Path:
    """The run folder of a process reward model that was measured on problems of their own."""
    rng = random.Random(seed)
    found = chains(train + TEST, length=STEPS, modulus=MODULUS, seed=seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small_model(WORDS, width=128, seed=seed).save(folder / "model")
        write(folder / "train.jsonl", found[TEST:], WRONG, rng)
        write(folder / "test.jsonl", found[:TEST], 0.5, rng)
        config = PRMConfig(
            model=RewardModelConfig(name=str(folder / "model"), lr=1e-3, schedule="linear", warmup=50),
            data=DataConfig(train=str(folder / "train.jsonl"), eval_fraction=0.02),
            test=str(folder / "test.jsonl"),
            epochs=passes,
            patience=0,
            batch_size=BATCH,
            seed=seed,
            threads=1,
            output=output,
            overwrite=True,
        )
        return prm.run(config).path


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
