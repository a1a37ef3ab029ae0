"""Tuning: it finds what was planted, the same every time, and never looks at the test."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bireme.contender import Contender
from bireme.core.errors import SettingError
from bireme.policy_names import checkpoint_folder
from bireme_lab.contest.candidates import TunedRule
from bireme_lab.contest.tuning import loss, play, play_all, tune
from bireme_lab.contest.worlds import World
from bireme_lab.simulator.metrics import SimulationMetrics
from testbed.planted import planted

LAS = TunedRule("tiresias-las", {"threshold_device_seconds": (1e9, 1e8, 10_000, 1e7)})
FOUND = "tiresias-las?threshold_device_seconds=10000"


def test_the_planted_constant_is_found_by_the_grid_and_by_halving() -> None:
    worlds = [planted(number) for number in range(4)]
    for rungs in (1, 3):
        tuned = tune(LAS.candidates(), worlds, rungs=rungs)
        assert tuned.best.orderer == FOUND
    assert [(rung.worlds, len(rung.losses)) for rung in tuned.rungs] == [(1, 4), (2, 2), (4, 1)]


def test_of_equal_candidates_the_first_is_chosen() -> None:
    worlds = [planted(0)]
    candidates = [Contender(name) for name in ("tiresias-las?promote_knob=8", "fifo", "tetris")]

    def equal(pairs: Sequence[tuple[Contender, World]]) -> list[SimulationMetrics]:
        return [known] * len(pairs)

    (known,) = play_all([(candidates[1], worlds[0])])
    assert tune(candidates, worlds, equal).best is candidates[0]


def test_worlds_of_the_test_are_refused() -> None:
    with pytest.raises(SettingError, match="'planted-7' is kept for the test"):
        tune(LAS.candidates(), [planted(0), planted(7, "test")])


def test_a_run_in_which_a_job_never_started_or_did_not_finish_is_the_worst() -> None:
    known = play(Contender("fifo"), planted(0))
    assert math.isfinite(loss(known))
    fewer = known.finished - 1
    assert loss(replace(known, finished=fewer, unfinished=1)) == math.inf
    assert loss(replace(known, finished=fewer, never_started=1)) == math.inf


def test_an_oracle_is_told_run_times_and_keeps_its_name() -> None:
    oracle = Contender("srtf", knows_run_times=True)
    told, untold = play_all([(oracle, planted(0)), (Contender("srtf"), planted(0))])
    assert told.policy == "srtf, run times known"
    assert Contender.read(told.policy) == oracle
    assert (told.jct_seconds.mean or 0) < (untold.jct_seconds.mean or 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a/b/c/d", "is no policy; write orderer, orderer/placer"),
        ("fifo//goodput", "is no policy"),
    ],
)
def test_a_text_that_is_no_policy_is_refused(text: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Contender.read(text)


@pytest.mark.parametrize("text", ["fifo", "sjf/best-fit", "fifo/packing/goodput"])
def test_a_name_reads_back_as_its_candidate(text: str) -> None:
    assert Contender.read(text).name == text


def test_a_checkpoint_with_parameters_stands_for_the_parts_that_it_decides() -> None:
    folder = f"checkpoint:{checkpoint_folder('rlpto')}?beta=0.0005"
    read = Contender.read(folder)
    assert (read.orderer, read.sizer) == ("combined-priority", folder)
    assert Contender.read(read.name) == read
    read.policy()
