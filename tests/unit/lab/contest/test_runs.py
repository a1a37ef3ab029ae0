"""Runs in a file: played once, gone on with where they were cut off, by any number of processes."""

from dataclasses import replace
from pathlib import Path

import pytest

from bireme.contender import Contender
from bireme_lab.contest import runs as module
from bireme_lab.contest.runs import RUNS_FILE, Runs
from bireme_lab.contest.tuning import play_all
from bireme_lab.simulator.errors import SimulationError
from testbed.planted import planted

PAIRS = [
    (Contender(name), world)
    for world in (planted(0), planted(1))
    for name in ("fifo", "tiresias-las")
]


def test_a_contest_that_was_cut_off_ends_like_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = play_all(PAIRS)
    Runs(tmp_path).play_all(PAIRS[:2])
    file = tmp_path / RUNS_FILE
    first, second = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + second[:40])  # the second one's line was being written
    told: list[tuple[int, int]] = []

    def tell(done: int, of: int, seconds_left: float) -> None:
        assert seconds_left >= 0
        told.append((done, of))

    again = Runs(tmp_path, on_progress=tell)
    assert again.play_all(PAIRS) == whole
    assert told == [(1, 3), (2, 3), (3, 3)], "the first run is not played again"

    monkeypatch.setattr(module, "play", None)  # so that nothing can be played
    assert Runs(tmp_path).play_all(PAIRS) == whole


def test_several_processes_find_the_same(tmp_path: Path) -> None:
    assert Runs(tmp_path, jobs=2).play_all(PAIRS) == play_all(PAIRS)


def test_a_world_of_the_same_name_that_differs_is_played_anew(tmp_path: Path) -> None:
    fifo, world = PAIRS[0]
    Runs(tmp_path).play_all([(fifo, world)])
    longer = replace(planted(5), name=world.name)
    assert Runs(tmp_path).play_all([(fifo, longer)]) == play_all([(fifo, longer)])


def test_a_run_of_ones_own_policy_that_was_edited_is_played_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own_order.py"
    own.write_text("from bireme.heuristics.simple_orderers import Fifo as Mine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    pair = (Contender("own_order:Mine"), planted(0))
    Runs(tmp_path).play_all([pair])
    own.write_text(own.read_text() + "\n")
    module._deciding.cache_clear()
    monkeypatch.setattr(module, "play", None)
    with pytest.raises(TypeError):
        Runs(tmp_path).play_all([pair])


def test_a_run_that_fails_names_its_policy_and_world(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match=r"nought in planted-0: .*called 'nought'"):
        Runs(tmp_path).play_all([(Contender("nought"), planted(0))])


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / RUNS_FILE).write_text("[]\n")
    with pytest.raises(SimulationError, match="holds what is no run"):
        Runs(tmp_path)
