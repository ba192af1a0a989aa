"""A process reward model from labelled steps: trained, calibrated, measured beside baselines, saved."""

from __future__ import annotations

from rich.console import Console

from prefrl.config import PRMConfig
from prefrl.data.splits import check_disjoint, split_by_prompt
from prefrl.data.steps import Stepped, load_stepped
from prefrl.errors import ConfigError
from prefrl.evaluate.run_folder import RunFolder
from prefrl.model.process_model import ProcessModel, new_process_model
from prefrl.model.process_record import StepLayout
from prefrl.recipes.common import final_checkpoint
from prefrl.recipes.prm_fit import fit
from prefrl.recipes.prm_measure import conclude, finish, measure, quality_table
from prefrl.recipes.resuming import opened
from prefrl.recipes.reward import TEST_SPLIT

Solutions = list[Stepped]


def run(config: PRMConfig) -> RunFolder:
    """Train a process reward model as configured; everything is left in the run folder.

    The final figures are those on `test`, else those on the held-out part, which chose pass, temperature and threshold.
    """
    with opened(config, "prm") as (folder, checkpoints):
        train, held_out, test = read_solutions(config)
        tested = f", {len(test)} to test on" if test else ""
        print(f"{len(train)} solutions to train on, {len(held_out)} held out{tested}. Loading {config.model.name} ...")
        model = new_model(config)
        fit(folder, model, train, held_out, config, checkpoints=checkpoints)
        fitted = finish(model, held_out, config)
        model.save(final_checkpoint(folder))
        quality = measure(model, train, held_out, test or held_out or train)
        where = "test" if test else "held-out" if held_out else "training"
        if quality is not None:
            Console().print(quality_table(quality, where))
        conclude(folder, quality, fitted, where)
    return folder


def new_model(config: PRMConfig) -> ProcessModel:
    """A fresh process reward model as configured."""
    steps, model = config.steps, config.model
    made = new_process_model(
        model.name,
        head=config.head,
        layout=StepLayout(marker=steps.marker, good=steps.good, bad=steps.bad),
        separator=steps.separator,
        lora=model.lora,
        top_layers=model.top_layers,
        layers=model.layers,
        dtype=model.dtype,
        device=model.device,
        seed=config.seed,
    )
    return made


def read_solutions(config: PRMConfig) -> tuple[Solutions, Solutions, Solutions]:
    """Solutions to train on, held out, and to test on; no problem is in two of them."""
    data = config.data
    if not data.train:
        raise ConfigError("data.train is empty; expected a file of solutions with labelled steps: --data.train FILE")
    train = _load(data.train, config, data.limit)
    test: Solutions = []
    if config.test:
        test = _load(config.test, config)
    elif config.test_fraction:
        train, test = split_by_prompt(train, config.test_fraction, TEST_SPLIT)
    if data.eval:
        held_out = _load(data.eval, config)
        check_disjoint(train, held_out)
    else:
        train, held_out = split_by_prompt(train, data.eval_fraction, config.seed)
    if test:
        check_disjoint([*train, *held_out], test)
    return train, held_out, test


def _load(source: str, config: PRMConfig, limit: int = 0) -> Solutions:
    steps = config.steps
    found, changed = load_stepped(
        source,
        style=steps.style,
        neutral=steps.neutral,
        after_error=steps.after_error,
        separator=steps.separator,
        limit=limit or None,
        max_bad_fraction=config.data.max_dropped_fraction,
    )
    for what, count in changed.items():
        print(f"{source}: {count} {what}")
    return found
