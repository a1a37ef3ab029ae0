"""Elastic gangs in a simulation: they grow into idle places, shrink for others, keep their work."""

from collections.abc import Sequence
from dataclasses import replace

from bireme.core.policy import Policy, Ranked
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import LinearSpeed
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.heuristics.sizing import steps_left
from bireme.testing import a_node, a_task
from bireme_lab.simulator.outcome import JobRecord
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from bireme_lab.simulator.workload import TraceJob
from testbed.simulations import a_job, a_trace, lifetimes, record_of

COMBINED = Policy(CombinedPriority(), Packing())
ONE_NODE = (a_node("n0", 4),)
VERIFIED = SimulationConfig(verifies=True)


def elastic(seconds: float, *, at: float = 0.0, most: int = 4) -> TraceJob:
    """Two workers, one to ``most`` of them; twice as many are twice as fast."""
    task = replace(a_task(2, min_replicas=1), max_replicas=most)
    law = LinearSpeed(0.5)
    return a_job("elastic", seconds, task, at=at, is_elastic=True, speed=law, steps=seconds)


def sizes(record: JobRecord) -> list[tuple[float, float, int]]:
    return [(s.began, s.ended, sum(n for _, _, n in s.places)) for s in record.segments]


def test_elastic_gang_grows_at_once_into_what_nobody_wants() -> None:
    outcome = simulate(a_trace(elastic(100)), ONE_NODE, COMBINED, config=VERIFIED)
    assert sizes(record_of(outcome, "elastic")) == [(0, 0, 2), (0, 50, 4)]
    assert outcome.counts["growths"] == 1


def test_elastic_gang_gives_back_what_it_was_lent_and_goes_on() -> None:
    """From 70 on it has two of four workers: 140 of 200 steps are done, 60 s are left."""
    outcome = simulate(
        a_trace(elastic(200), a_job("other", 1000, at=70, gpus=2)),
        ONE_NODE,
        COMBINED,
        config=VERIFIED,
    )
    assert sizes(record_of(outcome, "elastic")) == [(0, 0, 2), (0, 70, 4), (70, 130, 2)]
    assert lifetimes(outcome)["other"] == (70, 1070)
    assert (outcome.counts["shrinks"], outcome.counts["preemptions"]) == (1, 0)


def test_gang_waits_until_the_elastic_one_has_kept_its_size_long_enough() -> None:
    outcome = simulate(
        a_trace(elastic(200), a_job("other", 10, at=20, gpus=2)),
        ONE_NODE,
        COMBINED,
        SchedulingSettings(resize_settle_seconds=60),
        config=SimulationConfig(verifies=True, heartbeat_seconds=1e9),
    )
    assert lifetimes(outcome)["other"] == (60, 70)


def test_every_resize_stalls_the_gang_for_the_time_of_a_restart() -> None:
    outcome = simulate(
        a_trace(elastic(100)), ONE_NODE, COMBINED, physics=Physics(restart_seconds=3)
    )
    assert record_of(outcome, "elastic").finished == 3 + 50


def test_resize_saves_what_was_done_before_it() -> None:
    """Grown at 0, shrunk at 70 after 140 steps, stopped at 400 for good: the 140 steps stay."""
    settings = SchedulingSettings(resize_settle_seconds=0, min_runtime_seconds=0)
    outcome = simulate(
        a_trace(
            elastic(1000),
            a_job("other", 5000, at=70, gpus=2, priority=1000),
            a_job("urgent", 10, at=400, gpus=2, priority=1000, queue="urgent"),
        ),
        ONE_NODE,
        COMBINED,
        settings,
        physics=Physics(checkpoint_interval_seconds=float("inf")),
        config=VERIFIED,
    )
    segments = record_of(outcome, "elastic").segments
    stopped = [span for span in segments if span.ended_by == "preempted"]
    assert [span.ended for span in stopped] == [400]
    assert record_of(outcome, "elastic").finished == 410 + 1000 - 140


class Watching:
    """Wants four workers until 70, then two; remembers how many steps it thought were left."""

    def __init__(self) -> None:
        self.left: dict[float, float] = {}

    def sizes(
        self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> dict[str, dict[str, int]]:
        (gang,) = (entry.gang for entry in ranked if entry.gang.is_elastic)
        self.left[snapshot.now] = steps_left(gang, snapshot)
        return {"elastic": {"worker": 4 if snapshot.now < 70 else 2}}


def test_the_sizer_counts_steps_of_an_earlier_size_at_the_speed_of_that_size() -> None:
    """140 of 200 steps are done by 70, with four workers; from then on two do one a second."""
    sizer = Watching()
    settings = SchedulingSettings(resize_settle_seconds=0)
    jobs = (elastic(200), a_job("first", 1, at=70), a_job("second", 1, at=80))
    simulate(a_trace(*jobs), ONE_NODE, replace(COMBINED, sizer=sizer), settings, config=VERIFIED)
    assert (sizer.left[70], sizer.left[80]) == (60.0, 50.0)
