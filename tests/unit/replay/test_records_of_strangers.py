"""Records from strangers: what they name is imported by nobody who has not said so."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from bireme.cli import main
from bireme.cli.ui import recorded
from bireme.core.cycle import run_cycle
from bireme.core.settings import SchedulingSettings
from bireme.registry import make_policy
from bireme.replay.reader import open_record
from bireme.replay.record import RecordError
from bireme.rl.lookup import SETTINGS_SOURCE, PolicySource
from bireme.testing import a_gang, a_node, a_snapshot
from testbed.recordings import a_writer

CLASS: Final = "stranger_module:Thief"
MODULE: Final = """
from bireme.heuristics.simple_orderers import Fifo
class Thief(Fifo): "Orders as fifo does."
"""
BY_CANARY: Final = PolicySource(name="x", orderer="fifo", canaries=(PolicySource(orderer=CLASS),))
SOURCES: Final = {
    "settings": SETTINGS_SOURCE,
    "policy": PolicySource(name="x", orderer=CLASS),
    "policy with parameters": PolicySource(name="x", orderer=f"{CLASS}?seed=1"),
    "canary": BY_CANARY,
}
COMMANDS: Final = (
    ("replay",),
    ("queue", "--record"),
    ("why", "job", "--what-if", "estimate=1h", "--record"),
)


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that lies where programs find it, as any that is installed."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "stranger_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    monkeypatch.delitem(sys.modules, "stranger_module", raising=False)
    monkeypatch.chdir(tmp_path)


def record_of(folder: Path, where: str) -> Path:
    settings = SchedulingSettings(orderer=CLASS if where == "settings" else "fifo")
    snapshot = replace(a_snapshot([a_node("n0")], a_gang("job"), now=1e9), settings=settings)
    (folder / "record").mkdir()
    writer = a_writer(folder / "record", settings)
    writer.write(snapshot, run_cycle(snapshot, make_policy(SchedulingSettings())), SOURCES[where])
    writer.close()
    return folder / "record"


def is_imported() -> bool:
    return "stranger_module" in sys.modules


@pytest.mark.parametrize("where", SOURCES)
def test_record_that_names_a_class_of_its_own_is_refused_by_name_and_imports_nothing(
    tmp_path: Path, where: str
) -> None:
    folder = record_of(tmp_path, where)
    with pytest.raises(RecordError, match=f"orderer is '{CLASS}'.*--policy-class {CLASS}"):
        list(open_record([folder]).cycles())
    assert not is_imported()
    assert len(list(open_record([folder], [CLASS]).cycles())) == 1


def test_class_that_is_named_by_hand_decides_again_as_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = record_of(tmp_path, "policy")
    main(["replay", str(folder), f"--policy-class={CLASS}"])
    assert is_imported()
    assert "cannot be made" not in capsys.readouterr().out


@pytest.mark.parametrize("where", SOURCES)
@pytest.mark.parametrize("command", COMMANDS, ids=[command[0] for command in COMMANDS])
def test_no_command_imports_what_a_record_names_until_it_is_told_to(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    where: str,
    command: tuple[str, ...],
) -> None:
    folder = str(record_of(tmp_path, where))
    assert main([*command, folder]) != 0
    assert f"--policy-class {CLASS}" in capsys.readouterr().err
    assert not is_imported()
    main([*command, folder, f"--policy-class={CLASS}"])
    assert "--policy-class" not in capsys.readouterr().err


def test_board_of_a_record_imports_nothing_that_it_names(tmp_path: Path) -> None:
    folder = record_of(tmp_path, "settings")
    with pytest.raises(RecordError, match="--policy-class"):
        recorded.read([folder], "")
    assert not is_imported()


def test_use_of_a_record_is_told_whoever_decided_it_and_imports_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = record_of(tmp_path, "settings")
    main(["usage", str(folder)])
    assert "--policy-class" not in capsys.readouterr().err
    assert not is_imported()
