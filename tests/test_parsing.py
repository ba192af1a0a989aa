"""YAML and flags into configurations, and what is said of wrong ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prefrl import config
from prefrl.config import DPOConfig, EvalConfig, RLConfig, SFTConfig
from prefrl.errors import ConfigError
from prefrl.parsing import descriptions, flags, parse, to_dict


def parsed(*arguments, kind=RLConfig):
    return parse(kind, arguments, prog="prefrl test")[0]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rl.yaml"
    path.write_text(
        "policy: {lr: 2.0e-5, warmup: 3}\n"
        "algorithm: {name: grpo, kl: {coef: 0.1}}\n"
        "rewards: [{kind: numeric, column: answer}]\n"
        "steps: 7\n"
    )
    return str(path)


def test_nothing_given_is_the_defaults():
    assert parsed() == RLConfig()


def test_flags_win_over_the_file(file):
    both = parsed(file, "--policy.lr", "1e-6", "--sampling.stop", "[a, b]", "--data.train=x.jsonl")
    assert (both.policy.lr, both.policy.warmup, both.steps) == (1e-6, 3, 7)
    assert both.sampling.stop == ("a", "b")
    assert both.data.train == "x.jsonl"
    assert both.rewards == [{"kind": "numeric", "column": "answer"}]
    assert parsed("--config", file).steps == 7


@pytest.mark.parametrize("how", ["file", "flag"])
def test_texts_within_rewards_stay_texts(tmp_path, how):
    text = "[{kind: regex, pattern: '[0-9]', template: '{completion}', weight: 2, bounds: [0, 1]}]"
    (tmp_path / "rl.yaml").write_text(f"rewards: {text}\n")
    got = parsed(str(tmp_path / "rl.yaml")) if how == "file" else parsed("--rewards", text)
    assert got.rewards == [
        {"kind": "regex", "pattern": "[0-9]", "template": "{completion}", "weight": 2, "bounds": [0, 1]}
    ]


def test_texts_within_added_rewards_stay_texts(tmp_path):
    (tmp_path / "rl.yaml").write_text("rewards: [{kind: regex, pattern: '[0-9]'}]\n")
    added = ["--rewards+", "{kind: regex, pattern: '[a-z]'}", "--rewards+=[{kind: exact}]"]
    found = [{"kind": "regex", "pattern": "[0-9]"}, {"kind": "regex", "pattern": "[a-z]"}, {"kind": "exact"}]
    assert parsed(str(tmp_path / "rl.yaml"), *added).rewards == found
    assert parsed(*added).rewards == found[1:]


def test_the_last_list_wins(file):
    assert parsed(file, "--rewards", "[{kind: exact}]").rewards == [{"kind": "exact"}]
    assert parsed(file, "--rewards+", "{kind: exact}").rewards == [
        {"kind": "numeric", "column": "answer"},
        {"kind": "exact"},
    ]


def test_parts_of_an_algorithm(file):
    assert parsed("--algorithm", "rloo").algorithm == {"name": "rloo"}
    changed = parsed("--algorithm", "dr_grpo", "--algorithm.clip.high", "0.28").algorithm
    assert changed == {"name": "dr_grpo", "clip": {"high": 0.28}}
    assert parsed("--algorithm.group_size=4").algorithm == {"name": "grpo", "group_size": 4}
    assert parsed("--algorithm.pairs.beta=1", kind=DPOConfig).algorithm == {"name": "dpo", "pairs": {"beta": 1}}


def test_parts_of_the_algorithm_of_a_file_are_kept(file):
    changed = parsed(file, "--algorithm.kl.estimator", "k2").algorithm
    assert changed == {"name": "grpo", "kl": {"coef": 0.1, "estimator": "k2"}}
    assert parsed(file, "--algorithm", "reinforce").algorithm == {"name": "reinforce"}


def test_parts_of_an_algorithm_are_merged_in_any_order():
    both = {"name": "grpo", "clip": {"low": 0.1, "high": 0.28}}
    high, whole = ("--algorithm.clip.high", "0.28"), ("--algorithm", "{name: grpo, clip: {low: 0.1}}")
    assert parsed(*high, *whole).algorithm == both
    assert parsed(*whole, *high).algorithm == both
    assert parsed(*high, "--algorithm.clip", "{low: 0.1}").algorithm == both
    assert parsed(*high, "--algorithm.clip.high=0.3").algorithm["clip"] == {"high": 0.3}


def test_config_with_an_equals_sign(file, tmp_path):
    assert parsed(f"--config={file}") == parsed("--config", file) == parsed(file)
    changed = parsed("--steps", "2", f"--config={file}", "--algorithm.kl.coef", "0.2")
    assert changed.algorithm == {"name": "grpo", "kl": {"coef": 0.2}}
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("stepz: 3")
    for arguments in ([f"--config={wrong}"], [file, f"--config={wrong}", "--algorithm.clip.low", "0.1"]):
        with pytest.raises(ConfigError, match=r"wrong\.yaml: unknown key 'stepz'; .* Did you mean 'steps'\?"):
            parsed(*arguments)
    with pytest.raises(ConfigError, match=r"The configuration file \S*/none\.yaml does not exist"):
        parsed(f"--config={tmp_path / 'none.yaml'}", "--algorithm.clip.low", "0.1")


def test_the_last_file_with_an_algorithm_has_its_parts_changed(file, tmp_path):
    last, none = tmp_path / "last.conf", tmp_path / "none.yaml"
    last.write_text("algorithm: {name: rloo, clip: {high: 0.4}}")
    none.write_text("steps: 9")
    flag = ("--algorithm.clip.low", ".1")
    expected = {"name": "rloo", "clip": {"high": 0.4, "low": 0.1}}
    assert parsed(file, "--config", str(last), *flag).algorithm == expected
    assert parsed(file, *flag, f"--config={last}").algorithm == expected
    assert parsed(str(last), "--config", str(none), *flag).algorithm == expected
    assert parsed(str(last), "--config", file, *flag).algorithm == {
        "name": "grpo",
        "kl": {"coef": 0.1},
        "clip": {"low": 0.1},
    }


def test_a_value_that_ends_like_a_configuration_is_none(file):
    flags_of_two = ("--data.train", "rows.yaml", "--algorithm.clip.low", "0.1")
    assert parsed(*flags_of_two).algorithm == {"name": "grpo", "clip": {"low": 0.1}}
    both = parsed("--data.train", "rows.yaml", "--config", file, "--algorithm.clip.low", "0.1")
    assert both.algorithm == {"name": "grpo", "kl": {"coef": 0.1}, "clip": {"low": 0.1}}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--algorithm.clip", "3", "--algorithm.clip.high", ".2"],
            "--algorithm.clip is both 3 and {'high': 0.2}; give it once, or only parts of it.",
        ),
        (
            ["--algorithm.clip.high", ".2", "--algorithm", "{name: grpo, clip: 3}"],
            "--algorithm.clip is both {'high': 0.2} and 3; give it once, or only parts of it.",
        ),
        (
            ["--algorithm.clip.high.x", "1", "--algorithm.clip.high", "2"],
            "--algorithm.clip.high is both {'x': 1} and 2; give it once, or only parts of it.",
        ),
    ],
)
def test_a_value_and_parts_of_it_are_refused(arguments, says):
    with pytest.raises(ConfigError) as error:
        parsed(*arguments)
    assert str(error.value) == says


@pytest.mark.parametrize("flag", ["--algorithm", "--algorithm.clip.high"])
@pytest.mark.parametrize("value", ["[", "2024-99-99"])
def test_a_part_that_is_not_yaml(flag, value):
    for arguments in ([flag, value], [f"{flag}={value}"]):
        with pytest.raises(ConfigError) as error:
            parsed(*arguments)
        assert str(error.value).startswith(f"{flag} is {value!r}; expected a value in YAML, such as 0.2")
        assert "\n" not in str(error.value)


def test_switch_without_a_value():
    assert parsed("--overwrite").overwrite
    assert parsed("--overwrite", "--steps", "3") == replace(RLConfig(), overwrite=True, steps=3)
    assert not parsed("--overwrite", "false").overwrite


def test_print_config():
    assert parse(SFTConfig, ["--print-config"], prog="prefrl sft") == (SFTConfig(), True)
    assert parse(SFTConfig, [], prog="prefrl sft") == (SFTConfig(), False)


def test_saved_configuration_is_plain():
    saved = to_dict(RLConfig(sampling=config.SamplingConfig(stop=("a",))))
    assert saved["sampling"] == {"max_new_tokens": 32, "temperature": 1.0, "stop": ["a"]}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--policy.lr", "abc"], "policy.lr is 'abc'; expected a number."),
        (["--steps", "1.5"], "steps is '1.5'; expected an integer."),
        (["--overwrite", "maybe"], "overwrite is 'maybe'; expected true or false."),
        (["--sampling.stop", "x"], "sampling.stop is 'x'; expected a list, such as '[a, b]'."),
        (["--steps"], "--steps needs a value. See --help."),
        (["--policy.lrr", "1"], "Unknown flag --policy.lrr. Did you mean '--policy.lr'? See --help."),
        (["--steps", "0"], "steps is 0; expected 1 or more."),
        (
            ["--steps", "3", "x"],
            "Cannot read 'x': a YAML file comes first, and every flag is --name value. See --help.",
        ),
        (
            ["--policy.schedule", "cosin"],
            "policy.schedule is 'cosin'; valid: constant, linear, cosine. Did you mean 'cosine'?",
        ),
        (
            ["--rewards", "numeric"],
            "rewards is 'numeric'; expected a list, such as '[{kind: numeric, column: answer}]'.",
        ),
    ],
)
def test_wrong_flags(arguments, says):
    with pytest.raises(ConfigError) as error:
        parsed(*arguments)
    assert str(error.value) == says


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("stepz: 3", "unknown key 'stepz'; valid here: output, overwrite, .* Did you mean 'steps'?"),
        ("policy: {lrr: 1}", "unknown key 'policy.lrr'; .* Did you mean 'lr'?"),
        ("policy: {lr: fast}", "policy.lr is 'fast'; expected a number."),
        ("# nothing", "holds no keys; expected some of output, overwrite"),
        ("- a\n- b", "holds a list; expected keys and values"),
        ("a: [1", "is not valid YAML"),
    ],
)
def test_wrong_files(content, says, tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=says) as error:
        parsed(str(file))
    assert "\n" not in str(error.value)


def test_missing_file(tmp_path):
    (tmp_path / "grpo.yaml").touch()
    with pytest.raises(ConfigError, match=r"does not exist. Did you mean 'grpo.yaml'\?"):
        parsed(str(tmp_path / "grop.yaml"))


def test_choices_of_a_command():
    with pytest.raises(ConfigError, match=r"what is 'rewrd'; valid: reward, policy. Did you mean 'reward'\?"):
        parsed("--what", "rewrd", kind=EvalConfig)


def test_few_knobs():
    assert len(flags(RLConfig)) <= 60
    assert {"policy.lr", "sampling.stop", "algorithm"} <= set(flags(RLConfig))


@pytest.mark.parametrize("name", [name for name in dir(config) if name.endswith("Config")])
def test_every_field_says_what_it_is(name):
    kind = getattr(config, name)
    assert set(flags(kind)) <= set(descriptions(kind))
    assert all(said.endswith((".", ")")) for said in descriptions(kind).values())  # the whole sentence
