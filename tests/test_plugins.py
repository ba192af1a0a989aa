from __future__ import annotations

import importlib

import pytest

from prefrl import plugins
from prefrl.errors import ConfigError

GROUP = "prefrl.rewards"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution: `install("dist", "name = module:attribute", module="source")`."""

    def install(dist, *entries, folder="site", group=GROUP, **modules):
        site = tmp_path / folder
        info = site / f"{dist.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *entries]))
        for name, source in modules.items():
            (site / f"{name}.py").write_text(source)
        monkeypatch.syspath_prepend(site)
        importlib.invalidate_caches()

    return install


def test_names_import_nothing_and_load_imports(install):
    install("dist-a", "b = plug_ok:two", "a = plug_absent:one", plug_ok="two = 2\n")
    assert plugins.names(GROUP) == ["a", "b"]
    assert plugins.load(GROUP, "b") == 2
    assert plugins.owner(GROUP, "b") == "'dist-a'"


def test_groups_are_separate_and_known(install):
    install("dist-a", "vllm = plug_sampler:x", group="prefrl.samplers")
    assert plugins.names(GROUP) == [] and plugins.names("prefrl.samplers") == ["vllm"]
    with pytest.raises(ConfigError, match=r"unknown plug-in group 'prefrl\.reward'"):
        plugins.names("prefrl.reward")


def test_a_miss_lists_the_names(install):
    install("dist-a", "judge = plug_ok:x", "court = plug_ok:y")
    with pytest.raises(ConfigError, match=r"no plug-in 'juge' .* installed: court, judge\. Did you mean 'judge'\?"):
        plugins.load(GROUP, "juge")


def test_a_miss_with_nothing_installed():
    with pytest.raises(ConfigError, match="installed: none"):
        plugins.load(GROUP, "judge")


def test_two_distributions_with_one_name_are_both_named(install):
    install("dist-a", "judge = plug_ok:x", "fine = plug_two:y", plug_two="y = 1\n")
    install("dist-b", "judge = plug_ok:x", folder="other")
    assert plugins.names(GROUP) == ["fine", "judge"]
    assert plugins.load(GROUP, "fine") == 1
    with pytest.raises(ConfigError, match=r"'judge' .* comes from 'dist-b' and 'dist-a'; uninstall one"):
        plugins.load(GROUP, "judge")


def test_one_distribution_on_two_paths_is_no_conflict(install):
    install("dist-a", "judge = plug_three:x", plug_three="x = 1\n")
    install("dist-a", "judge = plug_three:x", folder="other")
    assert plugins.load(GROUP, "judge") == 1


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import nothing_of_that_name\n", "ModuleNotFoundError"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("", "AttributeError"),
    ],
)
def test_a_broken_plugin_fails_when_used_and_names_its_distribution(install, source, reason):
    module = f"plug_broken_{reason.lower()}"
    install("dist-a", f"judge = {module}:x", **{module: source})
    assert plugins.names(GROUP) == ["judge"]
    with pytest.raises(ConfigError, match=rf"'judge' .* from 'dist-a' cannot be imported \({module}:x\): {reason}"):
        plugins.load(GROUP, "judge")
