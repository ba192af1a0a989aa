from __future__ import annotations

import math
import subprocess
import sys
from types import ModuleType

import pytest

from prefrl import plugins, rewards
from prefrl.errors import ConfigError
from prefrl.rewards import (
    Clip,
    GroupNormalise,
    GroupRank,
    Normalise,
    Sigmoid,
    Standardise,
    WeightedSum,
    build,
)
from prefrl.types import Score


class Judge:
    """A source and a class of one."""

    def __init__(self, strictness: float = 1.0) -> None:
        self.name, self.strictness = "judge", strictness

    def score(self, rollouts):
        return [Score(value=self.strictness)] * len(rollouts)


@pytest.fixture
def my_module(monkeypatch):
    module = ModuleType("my_rewards")
    module.shout = lambda text: float(text.isupper())
    module.Judge, module.judge, module.number = Judge, Judge(3.0), 3
    monkeypatch.setitem(sys.modules, "my_rewards", module)
    return module


@pytest.fixture
def plugin(monkeypatch):
    """Pretend that the given entry points are installed."""

    def install(**factories):
        monkeypatch.setattr(plugins, "names", lambda group: sorted(factories))
        monkeypatch.setattr(plugins, "load", lambda group, name: factories[name])
        monkeypatch.setattr(plugins, "owner", lambda group, name: "'some-dist'")

    return install


def value(source, rollout):
    return source.score([rollout])[0].value


def test_every_listed_kind_can_be_made(rollout):
    one = rollout('{"x": 1}', answer='{"x": 1}', letter="B", number=1)
    specs = [
        {"kind": "exact"},
        {"kind": "numeric", "column": "number", "pick": "only"},
        {"kind": "choice", "column": "letter", "options": ["A", "B"]},
        {"kind": "regex", "pattern": "x"},
        {"kind": "json", "column": "answer"},
        {"kind": "length_band", "low": 1, "high": 5},
    ]
    got = {spec["kind"]: value(build([spec]), one) for spec in specs}
    assert got == {"exact": 1.0, "numeric": 1.0, "choice": 0.0, "regex": 1.0, "json": 1.0, "length_band": 1.0}


def test_weights_make_a_sum_and_a_single_plain_spec_does_not(rollout):
    total = build([{"kind": "numeric", "weight": 0.3}, {"kind": "exact", "weight": 0.7}])
    assert value(total, rollout("x 4", answer=4)) == pytest.approx(0.3)
    assert total.name == "0.3*numeric + 0.7*exact"
    for single in (["numeric"], "numeric", {"kind": "numeric", "weight": 1}):
        assert build(single).name == "numeric" and not isinstance(build(single), WeightedSum)
    assert build([{"kind": "numeric", "weight": 2}]).name == "2*numeric"


def test_options_name_normalise_and_clip():
    source = build([{"kind": "numeric", "name": "maths", "normalise": True, "clip": [-1, 2]}])
    assert isinstance(source, Clip) and (source.low, source.high, source.name) == (-1, 2, "maths")
    assert isinstance(source.source, Normalise)


@pytest.mark.parametrize(
    ("how", "made"),
    [
        ("running", Normalise), ("group", GroupNormalise), ("rank", GroupRank), ("sigmoid", Sigmoid),
        ({"kind": "fixed", "mean": 0.25, "std": 2}, Standardise), ({"kind": "sigmoid", "centre": 1}, Sigmoid),
    ],
)  # fmt: skip
def test_normalise_takes_a_kind_or_settings(how, made):
    source = build([{"kind": "numeric", "normalise": how}])
    assert type(source) is made
    if isinstance(how, dict):
        assert all(getattr(source, name) == value for name, value in how.items() if name != "kind")
    assert build([{"kind": "numeric", "normalise": "none"}]).name == "numeric"


def test_rewards_of_rewards(rollout):
    right, wrong = rollout("4", answer=4), rollout("five", answer=4)
    number, words = {"kind": "numeric"}, {"kind": "length_band", "low": 1, "high": 5}
    sources = {
        "gate": {"kind": "gate", "source": words, "by": number, "threshold": 1, "otherwise": -1},
        "min": {"kind": "min", "sources": [number, words]},
        "product": {"kind": "product", "sources": [[{**words, "weight": 2}, number], words]},
        "constraint": {"kind": "constraint", "main": number, "cost": words, "limit": 0.5, "start": 2},
        "tournament": {"kind": "tournament", "by": number, "opponents": 1},
        "both": [{**words, "weight": 0.5}, {"kind": "gate", "source": [number, words], "by": number, "threshold": 1}],
    }
    batch = [right, wrong]
    got = {name: [s.value for s in build(spec).score(batch)] for name, spec in sources.items()}
    one = 1 / (1 + math.exp(-1))
    assert got == {
        "gate": [1.0, -1.0],
        "min": [1.0, 0.0],
        "product": [3.0, 2.0],
        "constraint": [0.0, -1.0],
        "tournament": [pytest.approx(one), pytest.approx(1 - one)],
        "both": [2.5, 0.5],
    }


def test_an_audit_has_weight_0_and_is_measured(rollout):
    total = build(["exact", {"kind": "numeric", "audit": True, "normalise": "rank"}])
    assert total.name == "1*exact + 0*numeric"
    assert total.score([rollout("4", answer="4")])[0].parts["numeric"] == 0.5
    alone = build([{"kind": "numeric", "audit": True}])
    assert value(alone, rollout("4", answer=4)) == 0.0


def test_bradley_terry_is_loaded_from_its_folder(monkeypatch, rollout):
    class BradleyTerry:
        @classmethod
        def load(cls, path):
            return Judge(float(len(path)))

    module = ModuleType("prefrl.rewards.bradley_terry")
    module.BradleyTerry = BradleyTerry
    monkeypatch.setitem(sys.modules, "prefrl.rewards.bradley_terry", module)
    assert value(build([{"kind": "bradley_terry", "path": "runs/rm"}]), rollout()) == 7.0
    with pytest.raises(ConfigError, match="'bradley_terry' needs the argument 'path'; its arguments: path"):
        build(["bradley_terry"])


@pytest.mark.parametrize(
    "spec",
    [
        "my_rewards:shout",
        {"kind": "my_rewards:shout", "timeout": 5},
        {"kind": "function", "path": "my_rewards:shout"},
    ],
)
def test_a_function_of_a_module(my_module, rollout, spec):
    source = build([spec])
    assert (value(source, rollout("HI")), value(source, rollout("hi"))) == (1.0, 0.0)
    assert source.timeout == (5 if "timeout" in spec else 30.0)


def test_a_source_or_a_class_of_a_module(my_module, rollout):
    assert value(build(["my_rewards:judge"]), rollout()) == 3.0
    assert value(build([{"kind": "my_rewards:Judge", "strictness": 0.5}]), rollout()) == 0.5
    with pytest.raises(ConfigError, match=r"'my_rewards:judge' is a ready reward source; .*\['strictness'\]"):
        build([{"kind": "my_rewards:judge", "strictness": 0.5}])


def test_a_function_of_a_file(tmp_path, monkeypatch, rollout):
    (tmp_path / "mine.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class Box:\n"
        "    x: float\n"
        "def constant(text):\n"
        "    return Box(0.5).x\n"
    )
    assert value(build([f"{tmp_path}/mine.py:constant"]), rollout()) == 0.5
    monkeypatch.chdir(tmp_path)
    assert value(build([{"kind": "mine.py:constant", "weight": 2.0}]), rollout()) == 1.0
    with pytest.raises(ConfigError, match=r"has no 'constnt'; it has .*Did you mean 'constant'"):
        build(["mine.py:constnt"])


def test_a_function_of_a_module_in_the_current_folder(tmp_path, monkeypatch, rollout):
    (tmp_path / "my_local_rewards.py").write_text("def half(text):\n    return 0.5\n")
    monkeypatch.chdir(tmp_path)
    assert value(build(["my_local_rewards:half"]), rollout()) == 0.5


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "numerc",
            r"unknown reward kind 'numerc'; kinds: exact, numeric, .*length_band, .*bradley_terry, .*function;",
        ),
        ("numerc", r"Did you mean 'numeric'\?$"),
        (
            {"kind": "numeric", "colum": "x"},
            r"has no argument 'colum'; its arguments: column='answer', .*Did you mean 'column'",
        ),
        (
            {"kind": "numeric", "wieght": 1},
            r"options of every kind: weight, clip, normalise, name, audit\. Did you mean 'weight'",
        ),
        ({"kind": "regex"}, "'regex' needs the argument 'pattern'; its arguments: pattern, column=None"),
        ({"kind": "regex", "pattern": "("}, r"regex: the pattern '\(' is not valid"),
        ({"kind": "function"}, "needs a path"),
        ({"column": "x"}, "expected a kind, or a mapping with 'kind'"),
        (3, "got the reward 3"),
        ({"kind": "exact", "weight": "0.5"}, "weight='0.5'; expected a number"),
        ({"kind": "exact", "weight": True}, "weight=True; expected a number"),
        ({"kind": "exact", "weight": float("nan")}, "weight of reward 'exact' is nan"),
        ({"kind": "exact", "clip": 1}, r"clip=1; expected two numbers: clip: \[-1, 1\]"),
        ({"kind": "exact", "clip": [2, 1]}, "expected low <= high"),
        ({"kind": "exact", "normalise": "yes"}, "normalise='yes'; expected true or false, one of none, fixed, running"),
        ({"kind": "exact", "normalise": "grup"}, "Did you mean 'group'"),
        (
            {"kind": "exact", "normalise": {"kind": "fixed", "std": "2"}},
            "'normalise: fixed': std='2'; expected a number",
        ),
        ({"kind": "exact", "normalise": {"kind": "group", "mean": 2}}, "'normalise: group' has no argument 'mean'"),
        ({"kind": "exact", "normalise": {"mean": 2}}, "expected true or false"),
        ({"kind": "exact", "audit": "yes"}, "audit='yes'; expected true, false, or a share"),
        ({"kind": "exact", "audit": True, "weight": 0.1}, "weight of reward 'exact' is 0.1, but it is an audit"),
        ({"kind": "gate", "source": "exact", "by": "exat", "threshold": 1}, "Did you mean 'exact'"),
        ({"kind": "gate", "source": "exact", "by": "exact"}, "'gate' needs the argument 'threshold'"),
        ({"kind": "gate", "source": "exact", "by": "exact", "threshold": "1"}, "threshold='1'; expected a number"),
        ({"kind": "gate", "source": "exact", "by": None, "threshold": 1}, "got the reward None"),
        ({"kind": "tournament", "by": "exact", "opponents": 1.5}, r"opponents=1\.5; expected a whole number"),
        (
            {"kind": "min", "sources": ["exact", {"kind": "exact", "audit": True}]},
            "reward 'min' has an audit inside; move it to the list of rewards, beside 'min'",
        ),
        ({"kind": "gate", "source": ["exact", {"kind": "exact", "audit": True}], "by": "exact"}, "has an audit inside"),
        (
            {"kind": "tournament", "by": {"kind": "judge", "model": "m", "url": "http://x", "weight": 2}},
            "'judge' compares answers, but its weight, normalise or clip would make it grade them one by one",
        ),
        ({"kind": "judge", "model": "m", "url": "http://me:pw@x/v1"}, "url holds a password"),
        ({"kind": "judge", "model": "m", "url": "http://x", "timeout": "60"}, "timeout='60', .*expected positive"),
        ({"kind": "min", "sources": "exact"}, r"sources='exact'; expected a list of rewards"),
        ({"kind": "product", "sources": ["exact"]}, "product of 1 rewards; expected two or more"),
        ({"kind": "constraint", "main": "exact", "cost": "exact", "limt": 1}, "Did you mean 'limit'"),
        ({"kind": "tournament", "by": "exact", "score": "elo"}, "score='elo'; expected wins or strength"),
        (
            {"kind": "judge", "model": "m", "url": "localhost:8000"},
            r"url='localhost:8000'; expected an http\(s\) address",
        ),
        (
            {"kind": "judge", "model": "m", "url": "http://x", "retry": 1},
            "no option 'retry' here.*Did you mean 'retries'",
        ),
        ("no_such_pkg.mod:fn", "cannot import 'no_such_pkg.mod': ModuleNotFoundError.*path/to/file.py:fn"),
        ("no/such.py:fn", "no file 'no/such.py'"),
        ("my_rewards:shut", r"'my_rewards' has no 'shut'; it has .*Did you mean 'shout'"),
        ("my_rewards:number", "'my_rewards:number' is 3; expected a function"),
        ({"kind": "my_rewards:shout", "timeot": 5}, r"has no argument 'timeot'.*Did you mean 'timeout'"),
    ],
)
def test_wrong_settings_say_what_to_type_instead(my_module, spec, message):
    with pytest.raises(ConfigError, match=message):
        build([spec])


def test_an_empty_list_is_refused():
    with pytest.raises(ConfigError, match=r"no rewards given; .*exact, numeric"):
        build([])


def test_a_file_that_does_not_run_says_why(tmp_path):
    (tmp_path / "bad.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError, match=r"bad\.py': ZeroDivisionError: division by zero$"):
        build([f"{tmp_path}/bad.py:fn"])


def test_a_plugin_is_a_kind(plugin, rollout):
    plugin(court=Judge)
    assert value(build([{"kind": "court", "strictness": 4.0}]), rollout()) == 4.0
    with pytest.raises(
        ConfigError, match=r"unknown reward kind 'cort'; kinds: .*function, court;.*Did you mean 'court'"
    ):
        build(["cort"])
    with pytest.raises(ConfigError, match="'court' has no argument 'strict'"):
        build([{"kind": "court", "strict": 1}])


def test_a_plugin_must_make_a_source_and_must_not_hide_a_kind(plugin):
    plugin(court=lambda: 3, exact=Judge)
    with pytest.raises(ConfigError, match="the plug-in 'court' from 'some-dist' returned 3"):
        build(["court"])
    with pytest.raises(ConfigError, match="'some-dist' has a plug-in named like the built-in reward 'exact'"):
        build(["exact"])


def test_public_names_resolve_and_a_typo_is_an_attribute_error():
    for name in set(rewards.__all__) - {"BradleyTerry"}:
        assert getattr(rewards, name).__name__ == name
    assert set(rewards.__all__) <= set(dir(rewards))
    assert set(rewards.__all__) == set(rewards._MODULE_OF)
    with pytest.raises(AttributeError, match="no attribute 'numerc'"):
        _ = rewards.numerc


def test_making_verifiers_imports_no_heavy_library():
    code = (
        "import sys\nfrom prefrl import rewards\n"
        "rewards.build(['numeric', {'kind': 'json', 'weight': 0.5}])\n"
        "print([m for m in ('torch', 'transformers', 'datasets', 'asyncio', 'numpy') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
