"""`prefrl COMMAND [CONFIG.yaml] [--flags]`. Everything heavy is imported only by the command that needs it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from prefrl.errors import PrefrlError, did_you_mean

# command -> (module with `run`, config class in prefrl.config, one line of help)
COMMANDS = {
    "quickstart": ("prefrl.recipes.quickstart", "QuickstartConfig", "the whole story in small, on this machine"),
    "sft": ("prefrl.recipes.sft", "SFTConfig", "supervised fine-tuning on completions"),
    "reward": ("prefrl.recipes.reward", "RewardConfig", "train a Bradley-Terry reward model on preference pairs"),
    "prm": ("prefrl.recipes.prm", "PRMConfig", "train a process reward model on labelled steps"),
    "yes": ("prefrl.recipes.yes", "YesConfig", "train a model that says whether an answer will succeed"),
    "dpo": ("prefrl.recipes.dpo", "DPOConfig", "preference optimization on given pairs or judgements"),
    "rl": ("prefrl.recipes.rl", "RLConfig", "optimize a policy against any reward source"),
    "control": ("prefrl.recipes.control", "ControlConfig", "a policy for an environment: clone, improve, record"),
    "irl": ("prefrl.recipes.irl", "IRLConfig", "learn a reward, and a policy, from demonstrations"),
    "rejection": ("prefrl.recipes.rejection", "RejectionConfig", "sample, keep what the rewards accept, train, repeat"),
    "loop": ("prefrl.recipes.loop", "LoopConfig", "rounds of labels, reward model and policy; resumable"),
    "fragments": (
        "prefrl.recipes.trajectory",
        "TrajectoryConfig",
        "learn a reward for control from compared pieces of episodes",
    ),
    "generate": (
        "prefrl.recipes.generate",
        "GenerateConfig",
        "put pairs of a policy's answers into a store to label",
    ),
    "label": ("prefrl.recipes.label", "LabelCommandConfig", "label pairs in the terminal, for a loop with people"),
    "annotate": ("prefrl.recipes.annotation", "AnnotateConfig", "the labelling app: people compare, rate and check"),
    "distill": ("prefrl.recipes.rl", "RLConfig", "learn from a teacher on the policy's own samples"),
    "score": ("prefrl.recipes.score", "ScoreConfig", "score completions with any reward source"),
    "steplabels": (
        "prefrl.recipes.step_labels",
        "StepLabelsConfig",
        "label the steps of solutions by how often a model goes on to a right answer",
    ),
    "verify": (
        "prefrl.recipes.verify",
        "VerifyConfig",
        "try a reward before it is learnt from: verify audit, verify rescore",
    ),
    "eval": (
        "prefrl.recipes.evaluation",
        "EvalConfig",
        "evaluate a reward source or a policy: eval reward, eval policy",
    ),
}

# Commands whose second word says what they are about: its flag, and the words.
SUBJECTS = {"eval": ("what", ("reward", "policy")), "verify": ("what", ("audit", "rescore"))}

# Commands whose first argument stands for a flag; that of the others is a configuration file.
FIRST = {"label": "--store", "annotate": "--project"}

# Commands that share a configuration with another start from other values.
DEFAULTS = {"distill": {"algorithm": "opd"}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 2 when the input or the configuration was wrong, 130 when interrupted."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _dispatch(arguments)
    except PrefrlError as error:
        print(f"prefrl: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("prefrl: interrupted; everything written so far is kept.", file=sys.stderr)
        return 130


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    command, rest = arguments[0], arguments[1:]
    if command == "--version":
        print(f"prefrl {importlib.import_module('prefrl').__version__}")
        return 0
    if command == "algorithms":
        return _algorithms(rest)
    if command not in COMMANDS:
        raise PrefrlError(
            f"Unknown command {command!r}.{did_you_mean(command, [*COMMANDS, 'algorithms'])} See prefrl --help."
        )
    return _run(command, rest)


def _run(command: str, rest: list[str]) -> int:
    from prefrl import config
    from prefrl.parsing import parse, to_dict

    module, config_class, _ = COMMANDS[command]
    kind, defaults = getattr(config, config_class), DEFAULTS.get(command, {})
    if command in FIRST and rest and not rest[0].startswith("-"):
        rest = [FIRST[command], *rest]
    subject, rest = _subject(command, rest)
    parsed, only_print = parse(kind, rest, prog=f"prefrl {command}{subject}", defaults=defaults)
    if only_print:
        import yaml

        print(yaml.safe_dump(to_dict(parsed), sort_keys=False), end="")
        return 0
    importlib.import_module(module).run(parsed)
    return 0


def _subject(command: str, rest: list[str]) -> tuple[str, list[str]]:
    """The second word of a command, if it has one, and the arguments with that word as a flag."""
    flag, words = SUBJECTS.get(command, ("", ()))
    word = rest[0] if words and rest else ""
    if word in words:
        if any(argument.split("=")[0] == f"--{flag}" for argument in rest):
            raise PrefrlError(f"prefrl {command} {word} says what is meant; leave out --{flag}.")
        return f" {word}", [*rest[1:], f"--{flag}", word]
    if word.isalpha() and not Path(word).exists():
        near = did_you_mean(word, words)
        raise PrefrlError(f"prefrl {command} takes {' or '.join(words)}, or a YAML file, but not {word!r}.{near}")
    return "", rest


def usage() -> str:
    """The help text of `prefrl --help`."""
    lines = [f"  {name:<11} {text}" for name, (_, _, text) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: prefrl COMMAND [CONFIG.yaml] [--flag value ...]",
            "",
            "Reward sources say what is good; one policy optimizer makes the policy do more of it.",
            "",
            "commands:",
            *lines,
            f"  {'algorithms':<11} show the table of algorithms",
            "",
            "Start with:  prefrl quickstart",
            "More about one:  prefrl COMMAND --help     What a run would do:  prefrl COMMAND ... --print-config",
        ]
    )


def _algorithms(rest: Sequence[str]) -> int:
    if rest and rest != ["--names"]:
        raise PrefrlError(f"prefrl algorithms takes --names, which lists nothing else, but not {rest[0]!r}.")
    if rest:
        print(*importlib.import_module("prefrl.policy.algorithms").ALGORITHMS, sep="\n")
        return 0
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from prefrl.policy.algorithms import ALGORITHMS
    from prefrl.policy.describe import credit_of, loss_of, rest_of

    console = Console()
    # Narrow tables: one wide one would cut its words on a terminal of 80 columns.
    for parts_of in (credit_of, loss_of, rest_of):
        rows = {name: parts_of(algorithm) for name, algorithm in ALGORITHMS.items()}
        headers = next(iter(rows.values()))
        table = Table("name", *headers, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for name, parts in rows.items():
            table.add_row(name, *parts.values())
        console.print(table)
    console.print("Change any part: --algorithm NAME --algorithm.clip.high 0.28", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
