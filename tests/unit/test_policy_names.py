"""Names of policies and commands, with the lab's distribution and without it."""

import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import bireme_lab.cli
from bireme import cli, policy_names, registry
from bireme.cli import commands, main
from bireme.core.errors import SettingError
from bireme.core.policy import PARTS, PartName
from bireme.core.settings import SchedulingSettings
from bireme.onnx.errors import CheckpointError
from bireme.policy_names import PolicyNames
from bireme.rl import encoders, lookup
from bireme.rl.lookup import PolicySource
from bireme_lab.policy_names import NAMES

ROOT = Path(__file__).parents[2]
REMEDY = "policies of research need pip install bireme-lab, or the image bireme-lab"


@pytest.fixture
def without_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bireme as it is where nothing adds to it."""
    monkeypatch.setattr(policy_names, "added", dict)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [])


@pytest.fixture
def with_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_names, "added", lambda: {"lab": NAMES})


def test_these_tests_run_where_the_lab_is_installed() -> None:
    """Other tests take all names: without the lab they would leave out its policies."""
    assert policy_names.added().get("lab") is NAMES, "run make install"


@pytest.mark.usefixtures("without_lab")
@pytest.mark.parametrize(
    ("part", "name"), [(part, name) for part in PARTS for name in NAMES.classes[part]]
)
def test_without_the_lab_a_policy_of_research_is_refused_with_the_remedy(
    part: PartName, name: str
) -> None:
    settings = SchedulingSettings(**{part: name})  # type: ignore[arg-type]  # text
    with pytest.raises(SettingError, match=f"no {part} is called '{name}'.*{REMEDY}"):
        registry.make_policy(settings)


@pytest.mark.usefixtures("without_lab")
@pytest.mark.parametrize("name", ["a2c", "a2c-cnn", "das", "rlpto", "tapfinger"])
def test_without_the_lab_its_checkpoints_are_refused_with_the_remedy(name: str) -> None:
    source = PolicySource("p", checkpoint=name)
    with pytest.raises(CheckpointError, match=rf"'{name}'.*\(learned-index\).*{REMEDY}"):
        lookup.policy_of(source, SchedulingSettings(), registry.make_policy)


@pytest.mark.usefixtures("without_lab")
def test_without_the_lab_a_copied_checkpoint_names_an_encoder_that_the_lab_has() -> None:
    with pytest.raises(CheckpointError, match=rf"'das-jobs/1'.*\(index-gangs/1\).*{REMEDY}"):
        encoders.make("orderer", "das-jobs/1")


@pytest.mark.usefixtures("without_lab")
def test_without_the_lab_the_command_line_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["simulate", "--trace", "gen:poisson"]) == 2
    assert "pip install bireme-lab" in capsys.readouterr().err


@pytest.mark.usefixtures("without_lab")
def test_without_the_lab_every_other_policy_can_be_made() -> None:
    for part in PARTS:
        for name in registry.names(part):
            settings = SchedulingSettings(**{part: name})  # type: ignore[arg-type]
            assert registry.make_policy(settings)
    assert registry.shipped_parts() == {"learned-index": ("orderer",)}


@pytest.mark.usefixtures("without_lab")
def test_without_the_lab_the_command_that_explains_policies_names_the_remedy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["policies", "tapfinger", "--kubeconfig", "none"]) == 1
    shown = capsys.readouterr().err
    assert "no policy that comes with Bireme is called 'tapfinger'" in shown
    assert REMEDY in shown


@pytest.mark.usefixtures("with_lab")
def test_an_unknown_name_needs_no_lab_where_that_is_installed() -> None:
    with pytest.raises(SettingError) as refused:
        registry.make_orderer("tapfingr")
    assert "did you mean 'tapfinger'?" in str(refused.value)
    assert "bireme-lab" not in str(refused.value)


def test_names_of_bireme_are_those_of_no_other_distribution(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "learned-index").mkdir()
    other = PolicyNames(
        classes={"orderer": {"fifo": "other:Fifo", "ours": "other:Ours"}}, checkpoints=tmp_path
    )
    monkeypatch.setattr(policy_names, "added", lambda: {"other": other})
    assert policy_names.class_path("orderer", "fifo").startswith("bireme.")
    assert policy_names.class_paths("orderer")["fifo"].startswith("bireme.")
    assert policy_names.class_path("orderer", "ours") == "other:Ours"
    assert policy_names.checkpoint_folder("learned-index") != tmp_path / "learned-index"
    assert policy_names.class_path("placer", "ours") == ""


def test_an_entry_point_that_cannot_be_loaded_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = EntryPoint("broken", "no_such_module:NAMES", policy_names.GROUP)
    monkeypatch.setattr(policy_names, "entry_points", lambda **_: [broken])
    with pytest.raises(SettingError, match=r"'broken' of bireme\.policies .*install its distrib"):
        policy_names.added.__wrapped__()


def test_the_distribution_of_the_lab_adds_its_names_and_its_commands() -> None:
    project = tomllib.loads((ROOT / "policies/pyproject.toml").read_text())["project"]
    points = project["entry-points"]
    assert points.keys() == {policy_names.GROUP, commands.ENTRY_POINTS}
    values = {}
    for group, entries in points.items():
        module, _, attribute = entries["lab"].partition(":")
        values[group] = getattr(import_module(module), attribute)
    assert values[policy_names.GROUP] is NAMES
    assert values[commands.ENTRY_POINTS] is bireme_lab.cli.COMMANDS


def test_names_of_bireme_read_no_entry_point_and_load_no_lab() -> None:
    statements = (
        "import sys; from bireme import policy_names, registry\n"
        "from bireme.core.settings import SchedulingSettings\n"
        "import bireme_operator.app, bireme_extender.app\n"
        "registry.make_policy(SchedulingSettings()); registry.make_orderer('learned-index')\n"
        "assert policy_names.added.cache_info().currsize == 0\n"
        "assert not [name for name in sys.modules if name.startswith('bireme_lab')]"
    )
    done = subprocess.run(
        [sys.executable, "-c", statements], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
