"""Runs that are kept: simulated once, taken from their file afterwards."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.simulations.store import Run, Store, run_of
from bireme.core.policy import Policy
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import a_node
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.simulation import simulate
from testbed.simulations import a_job, a_trace


def a_run(folder: Path, simulate: Callable[[], Outcome]) -> Run:
    store = Store(folder, lambda _: None)
    (run,) = store.runs("table", "contender-0.9", "fifo", {2: None}, lambda _: simulate())
    return run


def an_outcome() -> Outcome:
    """Half of four GPUs until 20, all of them until 40, when the last job comes."""
    jobs = (a_job("a", 100, gpus=2), a_job("b", 30, at=20, gpus=2), a_job("c", 5, at=40, gpus=4))
    return simulate(a_trace(*jobs), (a_node("n0", 4),), Policy(Fifo(), Packing()))


def never() -> Outcome:
    raise AssertionError("this run is kept, and must not be simulated again")


def test_a_run_is_simulated_once(tmp_path: Path) -> None:
    assert a_run(tmp_path, an_outcome) == a_run(tmp_path, never)


def test_a_run_is_called_by_its_contender_and_window(tmp_path: Path) -> None:
    run = a_run(tmp_path, an_outcome)
    assert (run.metrics.policy, run.metrics.seed) == ("fifo", 2)


def test_a_run_that_was_cut_off_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        a_run(tmp_path, never)
    assert a_run(tmp_path, an_outcome).metrics.finished == 3


def test_waits_and_completions_are_by_job_and_use_is_until_the_last_submission() -> None:
    run = run_of(an_outcome())
    assert run.waits == {"a": 0.0, "b": 0.0, "c": 60.0}
    assert run.completions == {"a": 100.0, "b": 30.0, "c": 65.0}
    assert run.gpus_in_use == pytest.approx(0.75)


def test_equal_runs_are_equal_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        a_run(tmp_path / name, an_outcome)
    files = [tmp_path / name / "table" / "contender-0.9-2.json" for name in ("one", "two")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert json.loads(files[0].read_bytes())["metrics"]["decision_seconds"] == 0.0
