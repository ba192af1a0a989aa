"""The command line itself: commands, help, exit status."""

from __future__ import annotations

import pytest
import yaml

from prefrl import cli
from prefrl.cli import COMMANDS, FIRST, main
from prefrl.policy.algorithms import ALGORITHMS


def test_help_lists_every_command(capsys):
    for arguments in ([], ["--help"], ["help"]):
        assert main(arguments) == 0
        text = capsys.readouterr().out
        assert text.startswith("usage: prefrl COMMAND")
        assert all(f"  {command} " in text for command in (*COMMANDS, "algorithms"))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_explains_every_flag(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: prefrl {command} [CONFIG.yaml] [--flag value ...]")
    assert "--print-config" in text and "--print_config" not in text
    assert "<class" not in text
    undocumented = [line for line in text.splitlines() if line.strip().startswith("(type:") and "--" in line]
    assert undocumented == []


@pytest.mark.parametrize("command", COMMANDS)
def test_printed_configuration_can_be_read_back(command, tmp_path, capsys):
    assert main([command, "--print-config"]) == 0
    printed = capsys.readouterr().out
    file = tmp_path / "config.yaml"
    file.write_text(printed)
    given = ["--config", str(file)] if command in FIRST else [str(file)]
    assert main([command, *given, "--print-config"]) == 0
    assert capsys.readouterr().out == printed
    assert isinstance(yaml.safe_load(printed), dict)


def test_algorithms_fit_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["algorithms"]) == 0
    text = capsys.readouterr().out
    assert all(text.count(name) >= 2 for name in ALGORITHMS)
    assert "leave_one_out" in text and "sequence_mean" in text
    assert "\N{HORIZONTAL ELLIPSIS}" not in text


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("prefrl 0")


def test_the_second_word_of_eval_says_what_is_evaluated(capsys):
    def printed(*arguments):
        assert main(["eval", *arguments, "--print-config"]) == 0
        return yaml.safe_load(capsys.readouterr().out)

    assert printed("policy") == printed("--what", "policy") and printed("policy")["what"] == "policy"
    assert printed("reward") == printed() and printed("reward")["what"] == "reward"
    assert printed("policy", "configs/eval/policy.yaml")["what"] == "policy"
    assert printed("reward", "--model", "m")["model"] == "m"
    with pytest.raises(SystemExit):
        main(["eval", "reward", "--help"])
    assert capsys.readouterr().out.startswith("usage: prefrl eval reward [CONFIG.yaml] [--flag value ...]")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["eval", "rewrd"],
            "prefrl eval takes reward or policy, or a YAML file, but not 'rewrd'. Did you mean 'reward'?",
        ),
        (["eval", "policy", "--what", "reward"], "prefrl eval policy says what is meant; leave out --what."),
        (["eval", "policy", "--what=reward"], "prefrl eval policy says what is meant; leave out --what."),
        (["eval", "missing.yaml"], "The configuration file missing.yaml does not exist."),
    ],
)
def test_a_second_word_that_means_nothing(arguments, says, capsys):
    assert main(arguments) == 2
    assert says in capsys.readouterr().err


def test_unknown_command(capsys):
    assert main(["rewrd"]) == 2
    assert capsys.readouterr().err == "prefrl: Unknown command 'rewrd'. Did you mean 'reward'? See prefrl --help.\n"


def test_defects_keep_their_traceback(monkeypatch):
    def broken(_):
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "_dispatch", broken)
    with pytest.raises(ZeroDivisionError):
        main(["rl"])
