"""Pairs to label, without a loop: a policy or two answer prompts, and pairs of the answers go into a preference store.

Which pairs is settled as in a loop (see `loop_select`). A comparison pairs the two policies only, first and second in
this order, and at random, so that what people say of the pairs is a fair win rate of the first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from prefrl.config import GenerateConfig, ModelConfig
from prefrl.data.comparisons import Item
from prefrl.data.formats import to_prompts
from prefrl.data.preferences import PreferenceStore
from prefrl.errors import ConfigError, DataError
from prefrl.evaluate.files import append_lines
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.run_folder import RunFolder
from prefrl.model.language import LanguageModel
from prefrl.recipes.common import conclude, fitting_prompts, load_policy, quiet, report_read, start, train_table
from prefrl.recipes.loop_evaluate import COMPARISON
from prefrl.recipes.loop_files import Sample, as_sample, by_id
from prefrl.recipes.loop_items import by_prompt, couples, paired
from prefrl.recipes.loop_select import (
    Candidates,
    Question,
    candidates,
    model_uncertainty,
    question,
    select,
    selection_figures,
)
from prefrl.rewards.bradley_terry import BradleyTerry
from prefrl.types import Prompt

PROMPTS_AT_A_TIME = 16  # sampled together, between two signs of progress


def run(config: GenerateConfig) -> RunFolder:
    """Generate as configured; the pairs are in the store, and in `items.jsonl` of the run folder.

    Raises:
        ConfigError: no policy or no store was named.
        DataError: there is no pair whose completions differ and that was not asked before.
    """
    if not config.model:
        raise ConfigError("No policy was named. Type: prefrl generate --model runs/rl --store preferences.db ...")
    if not config.store:
        raise ConfigError("No store was named. Type: prefrl generate --store preferences.db ...")
    quiet()
    with PreferenceStore(config.store) as store, start(config, "generate") as folder:
        prompts, samples = _sampled(config)
        asked = {question(item) for item in store.items()}
        found = _candidates(config, by_id(prompts), samples, asked)
        chosen = _chosen(config, found)
        if not chosen:
            raise DataError(
                f"There is no pair to label: {found.identical} pairs of completions are identical, {found.asked} were "
                "asked before. Raise samples or sampling.temperature, or name other prompts."
            )
        append_lines(folder.path / "items.jsonl", [item.to_dict() for item in chosen])
        added = store.add_items(chosen)
        print(f"{added} pairs were put into {config.store}.", flush=True)
        conclude(folder, {"added": added, **selection_figures(found, chosen)})
    return folder


def _sampled(config: GenerateConfig) -> tuple[list[Prompt], list[Sample]]:
    """The prompts that fit every policy, and what each policy says to them."""
    names = [config.model, *([config.against] if config.against else [])]
    table = train_table(config.data)
    read = to_prompts(table, max_bad_fraction=config.data.max_dropped_fraction)
    prompts = report_read(read, f"prompts of {config.data.train}")
    print(f"{len(prompts)} prompts. Loading {' and '.join(names)} ...", flush=True)
    policies = [load_policy(ModelConfig(name=name), config.seed) for name in names]
    for policy in policies:
        prompts = fitting_prompts(prompts, policy, config.data)
    prompts = list(by_id(prompts).values())
    samples = [_drawn(policy, names[place], prompts, config, place) for place, policy in enumerate(policies)]
    return prompts, [sample for drawn in samples for sample in drawn]


def _drawn(
    policy: LanguageModel, name: str, prompts: Sequence[Prompt], config: GenerateConfig, place: int
) -> list[Sample]:
    found = list[Sample]()
    parts = [prompts[at : at + PROMPTS_AT_A_TIME] for at in range(0, len(prompts), PROMPTS_AT_A_TIME)]
    with Progress(f"answers of {name}", total=len(parts)) as progress:
        for part in parts:
            rollouts = policy.sample(part, config.samples, config.sampling, seed=config.seed + place)
            found += [as_sample(rollout, 0, name) for rollout in rollouts]
            progress.step(completions=len(found))
    return found


def _candidates(
    config: GenerateConfig, prompts: dict[str, Prompt], samples: Sequence[Sample], asked: Collection[Question]
) -> Candidates:
    def pairs_of(group: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
        if config.compare:
            return list(zip(group[: config.samples], group[config.samples :], strict=True))
        return couples(group)

    return candidates((paired(pairs_of(group), prompts, config.overlap) for group in by_prompt(samples)), asked)


def _chosen(config: GenerateConfig, found: Candidates) -> list[Item]:
    items = found.items
    if config.reward:
        print(f"Asking {config.reward} about {len(items)} pairs ...", flush=True)
        values = model_uncertainty(BradleyTerry.load(config.reward).model, items)
        items = [replace(i, uncertainty=value, judge=config.reward) for i, value in zip(items, values, strict=True)]
    chosen = select(
        items,
        config.pairs,
        random_share=config.random_share,
        max_per_prompt=config.max_per_prompt,
        diversity=config.diversity,
        seed=config.seed,
    )
    return [replace(item, why=COMPARISON) for item in chosen] if config.compare else chosen
