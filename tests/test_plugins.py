from __future__ import annotations

import importlib
import sys

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


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current folder that is not on the path, as under an installed command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(("my_", "prefrl_user_"))]:
        del sys.modules[name]


@pytest.mark.parametrize("place", ["my_place", "my_folder.my_place", "my_place.py", "my_folder/my_place.py"])
def test_a_module_or_a_file_of_the_current_folder(here, place):
    (here / "my_folder").mkdir()
    (here / "my_helper.py").write_text("answer = 42\n")
    for folder in (here, here / "my_folder"):
        (folder / "my_place.py").write_text("import my_helper\nclass Box:\n    answer = my_helper.answer\n")
    before = list(sys.path)
    assert plugins.import_path(f"{place}:Box.answer", "reward") == 42
    assert sys.path == before


def test_the_current_folder_hides_nothing_that_is_installed(here):
    (here / "this_is_installed.py").write_text("")
    (here / "site").mkdir()
    (here / "site" / "this_is_installed.py").write_text("x = 1\n")
    sys.path.insert(0, str(here / "site"))
    assert plugins.import_path("this_is_installed:x", "reward") == 1


@pytest.mark.parametrize("on_path", [True, False])
def test_the_path_is_as_before_and_keeps_what_the_module_added(here, on_path):
    sys.path[:] = [str(here), *sys.path] if on_path else sys.path
    (here / "my_adding.py").write_text("import sys\nsys.path.append('added')\nx = 1\n")
    (here / "my_broken.py").write_text("1 / 0\n")
    before = list(sys.path)
    plugins.import_path("my_adding:x", "reward")
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        plugins.import_path("my_broken:x", "reward")
    assert sys.path == [*before, "added"]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (
            "no_such_module:Game",
            r"environment 'no_such_module:Game': cannot import 'no_such_module': ModuleNotFoundError: .*; for a file "
            r"give path/to/file\.py:Game$",
        ),
        ("no/such.py:Game", r"environment 'no/such\.py:Game': no file 'no/such\.py' \(looked in '"),
        ("my_game:Gme", r"environment 'my_game:Gme': 'my_game' has no 'Gme'; it has Game\. Did you mean 'Game'\?"),
        ("my_game:", "'my_game' has no ''; it has Game"),
        (":Game", "cannot import '': ValueError"),
        ("broken.py:Game", r"'broken\.py': ZeroDivisionError: division by zero$"),
    ],
)
def test_a_path_that_leads_nowhere_says_why(here, path, says):
    (here / "my_game.py").write_text("class Game:\n    pass\n")
    (here / "broken.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError, match=says):
        plugins.import_path(path, "environment")
