"""Inverse RL in an environment: rounds of {sample, score, improve the policy, improve the reward} in a run folder."""

from __future__ import annotations

import time

from prefrl.config import IRLConfig
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.report import standard_sections, write_report
from prefrl.evaluate.run_folder import RunFolder, read
from prefrl.recipes.common import final_checkpoint, quiet, record_reward
from prefrl.recipes.irl import algorithm_of
from prefrl.recipes.irl_files import stands
from prefrl.recipes.irl_report import irl_section, irl_title
from prefrl.recipes.irl_study import Study, prepare, warm_up
from prefrl.recipes.resuming import Checkpoints, opened

SHOWN = {
    "episode/return": "return",
    "irl/accuracy_expert": "right on expert",
    "irl/accuracy_policy": "right on policy",
    "irl/ess": "ess",
    "irl/gap": "gap",
}


def run(config: IRLConfig) -> RunFolder:
    """Learn a reward and a policy as configured; everything is left in the run folder."""
    algorithm = algorithm_of(config)
    quiet()
    with opened(config, "irl") as (folder, checkpoints):
        study = prepare(config, algorithm)
        demonstrations = study.reward.demonstrations
        print(f"{len(demonstrations)} demonstrations; {config.method}, policy by {algorithm.name}", flush=True)
        first = checkpoints.restore(stands=stands, **study.parts())
        if not first:
            warm_up(study)
            folder.log(0, study.evaluation()[0], phase="eval")
        _rounds(folder, study, checkpoints, first)
        _conclude(folder, study)
    return folder


def _rounds(folder: RunFolder, study: Study, checkpoints: Checkpoints, first: int) -> None:
    config = study.config
    with Progress(config.method, total=config.steps - first) as progress:
        for step in range(first + 1, config.steps + 1):
            began = time.perf_counter()
            metrics = study.round(step)
            folder.log(step, {**metrics, "seconds": time.perf_counter() - began})
            if step == config.steps or (config.eval_every and step % config.eval_every == 0):
                folder.log(step, study.evaluation()[0], phase="eval")
            checkpoints.after(step, last=step == config.steps)
            progress.step({label: metrics[name] for name, label in SHOWN.items() if name in metrics})


def _conclude(folder: RunFolder, study: Study) -> None:
    """Leave policy, both rewards, summary and report."""
    study.learner.engine.save(final_checkpoint(folder))
    study.reward.save(folder.checkpoints / "train_reward")
    study.reward.export().save(folder.checkpoints / "test_reward")
    record_reward(study.reward, folder.path)
    data = read(folder.path)
    expert = study.expert_return()
    _, returns = data.series("return/mean", "eval")
    known = {"return": returns[-1] if returns else None, "expert_return": expert}
    folder.finish({name: value for name, value in known.items() if value is not None})
    data = read(folder.path)
    report = standard_sections(data, title=irl_title(data, expert), extra=[irl_section(data, expert)])
    print(f"Report: {write_report(folder, report)}")
