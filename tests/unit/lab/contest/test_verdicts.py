"""Verdicts: ratios of means with an interval over blocks, against cases computed by hand."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bireme.contender import Contender
from bireme.core.errors import SettingError
from bireme_lab.contest.tuning import play
from bireme_lab.contest.verdicts import Verdict, verdict
from bireme_lab.contest.worlds import World
from bireme_lab.simulator.metrics import SimulationMetrics
from testbed.planted import planted


def runs(*seconds: float) -> list[SimulationMetrics]:
    """A run for each, with that mean completion time."""
    known = play(Contender("fifo"), planted(0))
    return [replace(known, jct_seconds=replace(known.jct_seconds, mean=each)) for each in seconds]


def worlds(blocks: Sequence[str]) -> list[World]:
    return [replace(planted(number), block=block) for number, block in enumerate(blocks)]


def judged(blocks: str, ours: Sequence[float], theirs: Sequence[float]) -> Verdict:
    return verdict(worlds(list(blocks)), runs(*ours), runs(*theirs))


def test_two_blocks_have_the_interval_of_their_four_equally_likely_samples() -> None:
    # Samples: both a, both b, or one of each (twice as likely): 10/20, 90/60 and 100/80.
    found = judged("ab", (10, 90), (20, 60))
    assert found.jct.mean == pytest.approx(100 / 80)
    assert (found.jct.low, found.jct.high) == pytest.approx((10 / 20, 90 / 60))
    assert found.finding == "too few"


def test_worlds_of_one_block_are_drawn_together() -> None:
    # Each block has the ratio 1, though its worlds do not: nothing is left to chance.
    found = judged("aabbccddee", (10, 20) * 5, (20, 10) * 5)
    assert (found.blocks, found.worlds) == (5, 10)
    assert (found.jct.low, found.jct.mean, found.jct.high) == (1, 1, 1)
    assert found.finding == "level"
    apart = judged("abcdefghij", (10, 20) * 5, (20, 10) * 5)
    assert (apart.jct.low or 1) < 0.9


@pytest.mark.parametrize(("ours", "finding"), [(9, "better"), (11, "worse")])
def test_what_is_ahead_in_every_block_is_better(ours: float, finding: str) -> None:
    assert judged("abcde", (ours,) * 5, (10,) * 5).finding == finding


def test_where_hardly_anybody_waits_the_change_has_an_interval_and_the_ratio_has_not() -> None:
    def waiting(*seconds: float) -> list[SimulationMetrics]:
        return [
            replace(run, wait_seconds=replace(run.wait_seconds, p99=each))
            for run, each in zip(runs(*[10] * 5), seconds, strict=True)
        ]

    found = verdict(worlds("abcde"), waiting(0, 0, 0, 0, 20), waiting(10, 0, 0, 0, 0))
    assert found.p99_wait is not None
    assert found.p99_wait.interval is None, "a sample without the first block divides by nothing"
    assert found.p99_wait_change is not None
    assert found.p99_wait_change.mean == pytest.approx(2)
    low, high = found.p99_wait_change.interval or (0, 0)
    assert low < 0 < high


def test_jobs_that_never_finish_decide_before_any_ratio() -> None:
    short = [replace(run, finished=run.jobs - 1) for run in runs(9, 9, 9, 9, 9)]
    found = verdict(worlds("abcde"), short, runs(10, 10, 10, 10, 10))
    assert (found.unfinished, found.finding) == (5, "unfinished")


def test_runs_of_other_worlds_are_refused() -> None:
    with pytest.raises(SettingError, match="1 and 2 runs on 2 worlds"):
        verdict(worlds("ab"), runs(1), runs(1, 2))
