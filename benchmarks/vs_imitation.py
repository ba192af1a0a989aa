"""prefrl and imitation 1.0.1 on the same tasks: CPU seconds until the expert's return, and what preferences teach.

    python benchmarks/vs_imitation.py --folder /tmp/imitation --install   # once: imitation in an environment of its own
    python benchmarks/vs_imitation.py --folder /tmp/imitation --seeds 5

    gail, airl    CartPole of 500 steps whatever happens (seals/CartPole-v0), 64 demonstrations of an expert of return
                  500 that are the same on both sides: CPU seconds until 20 episodes of the most likely actions have a
                  mean return of 495
    gail_pendulum, airl_pendulum
                  Pendulum-v1, 64 demonstrations of an expert: CPU seconds until 95 % of the way from a random
                  player's return, -1,230, to the expert's
    preferences   Pendulum-v1, 200 comparisons of fragments of 100 steps, then the policy on the learnt reward: its true
                  return over 50 episodes, and how many of 500 pairs of fragments, the same on both sides and seen by
                  neither, the reward ranks right

imitation runs with the settings of its tutorials, prefrl with those of configs/irl; both with one thread, one after
the other, the two sides of a seed next to each other so that both meet the same machine. CPU seconds are user and
system time of the process, without evaluations; with and without the time that imports take. Every run is kept as JSON,
so that the same command goes on where it was interrupted. Prints interquartile means and writes them, with a figure,
beside the runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "imitation_race"
TASKS = ("gail", "airl", "preferences")
PENDULUM = ("gail_pendulum", "airl_pendulum")  # not raced unless asked for: see docs/inverse/preferences.md
RANDOM = -1_230.0  # true return of random actions on Pendulum
PINS = ("imitation==1.0.1", "gymnasium==0.29.1", "stable-baselines3==2.2.1", "seals==0.2.1", "pygame==2.6.1")
TORCH = "torch==2.13.0"

Result = dict[str, Any]


def install(folder: Path, torch: Sequence[str]) -> None:
    """Make the other side's environment; imitation pins versions that this project cannot have."""
    venv.create(folder / "venv", with_pip=True)
    for packages in (torch, PINS):
        subprocess.run([folder / "venv" / "bin" / "python", "-m", "pip", "install", "-q", *packages], check=True)


def prepare(folder: Path, tasks: Sequence[str]) -> None:
    """Demonstrations and held-out fragments, once for all runs."""
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    if not (folder / "held_out.npz").exists():
        start([sys.executable, str(HERE / "held_out.py"), str(folder / "held_out.npz")], folder / "held_out.log")
    for expert, name, used in (("expert", "demonstrations.npz", TASKS), ("expert_pendulum", "pendulum.npz", PENDULUM)):
        if set(used) & set(tasks) and not (folder / name).exists():
            one(folder, "imitation", expert, 0)


def goal(folder: Path, task: str) -> tuple[str, float]:
    """The demonstrations of a task, and the return that is to be reached."""
    if not task.endswith("pendulum"):
        return "demonstrations.npz", 495.0
    expert = folder / "runs" / "imitation-expert_pendulum-0.json"
    reached = json.loads(expert.read_text())["return"] if expert.exists() else 0.0
    return "pendulum.npz", RANDOM + 0.95 * (reached - RANDOM)


def one(folder: Path, side: str, task: str, seed: int) -> Result:
    """The result of a run, which is made unless it is there."""
    out = folder / "runs" / f"{side}-{task}-{seed}.json"
    if not out.exists():
        print(f"{side} {task} {seed} ...", file=sys.stderr, flush=True)
        demonstrations, wanted = goal(folder, task)
        files = {"demonstrations": folder / demonstrations, "held-out": folder / "held_out.npz", "out": out}
        python, script = (
            (sys.executable, "ours.py") if side == "prefrl" else (folder / "venv" / "bin" / "python", "rival.py")
        )
        flags = [str(x) for name, path in files.items() for x in (f"--{name}", path)] + ["--goal", str(wanted)]
        start([str(python), str(HERE / script), task, "--seed", str(seed), *flags], out.with_suffix(".log"))
    found: Result = json.loads(out.read_text())
    return found


def start(command: Sequence[str], log: Path) -> None:
    """Run a command to its end with one thread; what it says goes to a file."""
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parents[1])}
    with log.open("w") as file:
        done = subprocess.run(command, stdout=file, stderr=file, env={**os.environ, **settings}, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed ({done.returncode}); its words are in {log}.")


def interquartile_mean(values: Sequence[float]) -> float:
    """Mean of the middle half, values at its edges counted in part (Agarwal et al., 2021)."""
    ordered, cut = sorted(values), len(values) / 4.0
    weights = [max(0.0, min(i + 1, len(ordered) - cut) - max(i, cut)) for i in range(len(ordered))]
    return sum(w * v for w, v in zip(weights, ordered, strict=True)) / sum(weights)


def middle(results: Sequence[Result], *names: str) -> float:
    """Interquartile mean of a figure, or of the sum of several."""
    return interquartile_mean([sum(one[name] for name in names) for one in results])


def table(found: dict[str, dict[str, list[Result]]]) -> str:
    """The race in Markdown."""
    lines = [
        "| task | seeds | side | CPU s | with imports | true return | steps | pairs ranked right | goal reached |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for task, sides in found.items():
        for side, results in sides.items():
            if not results:
                continue
            accuracy = f"{middle(results, 'accuracy'):.3f}" if "accuracy" in results[0] else "-"
            reached = f"{sum(r['reached'] for r in results)}/{len(results)}" if "reached" in results[0] else "-"
            lines.append(
                f"| {task} | {len(results)} | {side} | {middle(results, 'cpu'):.1f} | "
                f"{middle(results, 'cpu', 'cpu_import'):.1f} | {middle(results, 'return'):.1f} | "
                f"{middle(results, 'steps'):,.0f} | {accuracy} | {reached} |"
            )
    ratios = [
        f"{task}: {middle(sides['imitation'], 'cpu') / middle(sides['prefrl'], 'cpu'):.1f} times"
        for task, sides in found.items()
        if sides["imitation"] and sides["prefrl"]
    ]
    return "\n".join([*lines, "", f"CPU seconds of imitation over those of prefrl: {', '.join(ratios) or 'not yet'}."])


def draw(found: dict[str, dict[str, list[Result]]], path: Path) -> None:
    """CPU seconds of every run, and returns over CPU seconds of GAIL and AIRL."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.1), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    colours = {"prefrl": "#2a6fbb", "imitation": "#c2603a"}
    for axes, (task, sides) in zip(panels, found.items(), strict=True):
        for side, results in sides.items():
            curves = [r["curve"] for r in results if "curve" in r]
            for curve in curves:
                axes.plot([c[1] for c in curve], [c[2] for c in curve], color=colours[side], alpha=0.7, lw=1.2)
            if not curves:
                at = [r["cpu"] for r in results]
                axes.plot(at, [r["return"] for r in results], "o", color=colours[side], alpha=0.8)
            axes.plot([], [], color=colours[side], lw=3, label=side if axes is panels[0] else None)
        if any("curve" in r for results in sides.values() for r in results):
            axes.set_xscale("log")
        else:
            axes.set_xlim(left=0.0)
        axes.set(title=task, xlabel="CPU seconds", ylabel="true return" if axes is panels[0] else "")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Install, or race and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where imitation and all runs are kept")
    parser.add_argument("--install", action="store_true", help="make the environment of imitation, then end")
    parser.add_argument("--torch", default=TORCH, help="what pip installs as torch there: a CPU build will do")
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds")
    parser.add_argument(
        "--first-seed", type=int, default=0, help="the smallest seed; the settings were tuned on 0 to 3"
    )
    parser.add_argument("--tasks", nargs="+", choices=(*TASKS, *PENDULUM), default=TASKS)
    parser.add_argument("--report", action="store_true", help="make no run, only the table of those there are")
    args = parser.parse_args()
    if args.install:
        install(args.folder, args.torch.split())
        return
    if not args.report:
        prepare(args.folder, args.tasks)
    found: dict[str, dict[str, list[Result]]] = {task: {"imitation": [], "prefrl": []} for task in args.tasks}
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for task in args.tasks:
            for side, results in found[task].items():
                if not args.report or (args.folder / "runs" / f"{side}-{task}-{seed}.json").exists():
                    results.append(one(args.folder, side, task, seed))
    said = table(found)
    print(said)
    (args.folder / "race.md").write_text(said + "\n")
    (args.folder / "race.json").write_text(json.dumps(found, indent=1) + "\n")
    draw(found, args.folder / "race.png")


if __name__ == "__main__":
    main()
