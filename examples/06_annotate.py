"""The labelling app from a script: ask, let people answer in the browser, export, and learn what they like.

The person here is simulated: it joins by a one-time link, fetches pairs and sends labels over HTTP as the label page
does, and likes answers that are polite and short. A reward model of three weights is then trained on the export, and
its weights show that taste. Run it with: python examples/06_annotate.py (it writes runs/annotate-example)
To label by yourself: python examples/06_annotate.py me
"""

import itertools
import random
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import httpx
import torch
from torch import nn

import annotate
from prefrl.config import DataConfig, LabelConfig, ModelConfig
from prefrl.model.engine import Engine
from prefrl.model.features import FeatureRewardModel
from prefrl.policy.judgement import LabelModel
from prefrl.policy.objective import reward_objective
from prefrl.recipes.common import load_pairs
from prefrl.types import Pair, Row

FOLDER = Path("runs/annotate-example")
FEATURES = ("polite", "words / 10", "exclamation")
TOPICS = ("the train", "the invoice", "your parcel", "the printer", "our meeting", "the garden key")
OPENINGS = ("Please note that", "Look,")
ENDINGS = (
    "is late by a day.",
    "is late by a day, as you can see.",
    "is late by a day, which nobody here could foresee!",
)


def answers() -> list[str]:
    """Three ways to end a message, each begun in two ways."""
    return [f"{opening} it {ending}" for opening, ending in itertools.product(OPENINGS, ENDINGS)]


def features(text: str) -> torch.Tensor:
    """What the reward model sees of an answer (3,)."""
    return torch.tensor([float("Please" in text), len(text.split()) / 10, float("!" in text)])


def label_all(link: str) -> int:
    """The simulated person: joins by the link, and labels until nothing is left. How many labels that were."""
    with httpx.Client(base_url=link.partition("/join/")[0], timeout=60) as http:
        http.headers["Origin"] = str(http.base_url).rstrip("/")
        http.post(link)
        http.headers["X-CSRF-Token"] = http.get("/api/me").json()["csrf"]
        for count in itertools.count():
            items = http.post("/api/next", json={"count": 1}).raise_for_status().json()["items"]
            if not items:
                return count
            utility = {side: float(features(items[0][side]["raw"]) @ torch.tensor([1.0, -2.0, 0.0])) for side in "ab"}
            said = {"assignment": items[0]["assignment"], "outcome": max(utility, key=utility.__getitem__)}
            http.post("/api/labels", json={"id": uuid.uuid4().hex, **said, "active_ms": 1500}).raise_for_status()


def train(pairs: Sequence[Pair], passes: int = 40) -> FeatureRewardModel:
    """A linear reward model by the Bradley-Terry likelihood of the pairs."""
    torch.manual_seed(0)
    model = FeatureRewardModel(nn.Linear(len(FEATURES), 1, bias=False))
    engine, rows, labels = Engine(model, ModelConfig(lr=0.05)), list[Row](), LabelModel(LabelConfig())
    for atom, pair in enumerate(pairs):
        for completion, side in ((pair.chosen, 1), (pair.rejected, -1)):
            row = model.encode(features(completion.text))
            row.atom, row.side, row.weight = atom, side, 1 / len(pairs)
            rows.append(row)
    for _ in range(passes):
        engine.step(rows, lambda batch: reward_objective(batch, labels, 0.0))
    return model


def right(model: FeatureRewardModel, pairs: Sequence[Pair]) -> float:
    """Share of pairs that the model ranks as the person did."""
    sides = [torch.stack([features(getattr(pair, side).text) for pair in pairs]) for side in ("chosen", "rejected")]
    with torch.no_grad():
        return float((model.scores(sides[0]) > model.scores(sides[1])).float().mean())


def main(folder: Path = FOLDER, *, by_hand: bool = False) -> tuple[list[float], float]:
    """Ask, wait, export, train; the weights, and the share of held-out pairs that are ranked right."""
    with annotate.start(folder, browser=by_hand) as session:
        rng = random.Random(0)
        for topic in TOPICS:
            couples = rng.sample(list(itertools.combinations(answers(), 2)), 10)
            for couple in couples:
                session.compare(f"Say that {topic} is late.", couple)
        if not by_hand:
            link = f"{session.url}/join/{session.store.people.invite('annotator', 1.0, 'Sim')}"
            print(f"{label_all(link)} labels by a simulated person")
        said = session.wait_all()
        made = session.export(folder / "preferences.jsonl")
        print(f"{len(said)} answers, such as {said[0].outcome}: {said[0].chosen!r}. Exported: {made.summary()}")
    pairs, held_out = load_pairs(DataConfig(train=str(folder / "preferences.jsonl"), eval_fraction=0.3), seed=0)
    model = train(pairs)
    weights = [float(weight) for weight in next(model.module.parameters()).detach().flatten()]
    share = right(model, held_out)
    print("reward =", " ".join(f"{w:+.2f} {name}" for w, name in zip(weights, FEATURES, strict=True)))
    print(f"{share:.0%} of {len(held_out)} held-out pairs are ranked as the person ranks them")
    return weights, share


if __name__ == "__main__":
    main(by_hand="me" in sys.argv[1:])
