"""Jobs of a simulation that report progress: what the cycle sees of it, and when."""

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.errors import SettingError
from bireme.core.gangs import Gang
from bireme.core.policy import Policy
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import InverseQuadratic, LinearSpeed
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.testing import a_node
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from bireme_lab.simulator.workload import ProgressReporting, TraceJob
from testbed.simulations import a_job, a_trace, story

COMBINED = Policy(CombinedPriority(), Packing())
UNDISTURBED = Physics()
NODES = (a_node("n0", 4),)


class Accuracy:
    """From 0.1 to 0.9 in a hundred steps."""

    def loss(self, steps: float) -> float:
        return float(np.interp(steps, (0.0, 100.0), (0.1, 0.9)))


LOSS = InverseQuadratic(0.0, 0.1, 1.0)


class Seen:
    """The cycle, and what it saw of one job at every moment."""

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self.gangs: dict[float, Gang] = {}

    def __call__(self, snapshot: ClusterSnapshot, policy: Policy) -> Decision:
        for gang in (*(held.gang for held in snapshot.running), *snapshot.waiting):
            if gang.uid == self._uid:
                self.gangs[snapshot.now] = gang
        return run_cycle(snapshot, policy)


def views(jobs: Sequence[TraceJob], physics: Physics = UNDISTURBED) -> dict[float, Gang]:
    """The gang of the job called ``job`` as cycles saw it, by time."""
    seen = Seen("job")
    config = SimulationConfig(decide=seen, takes_shortcuts=False)
    simulate(a_trace(*jobs), NODES, COMBINED, physics=physics, config=config)
    return seen.gangs


def trained(honesty: float = 1.0, every_seconds: float = 0.0) -> TraceJob:
    """A hundred steps in 50 s."""
    reporting = ProgressReporting(LOSS, Accuracy(), every_seconds, honesty)
    return a_job("job", 50.0, speed=LinearSpeed(2.0), steps=100.0, reporting=reporting)


def others(*moments: float) -> list[TraceJob]:
    return [a_job(f"other-{at}", 1000.0, at=at) for at in moments]


def test_running_job_tells_its_steps_loss_and_accuracy() -> None:
    done = views([trained(), *others(10.0, 20.0)])[20.0].progress
    assert done is not None
    assert asdict(done) == pytest.approx(
        {
            "reported": 20.0,
            "fraction": 0.4,
            "remaining_seconds": 30.0,
            "steps": 40.0,
            "loss": LOSS.loss(40.0),
            "worst_loss": LOSS.loss(20.0),
            "accuracy": 0.1 + 0.8 * 0.4,
            "accuracy_gain": 0.8 * 0.2,
            "remaining_steps": 60.0,
            "anchor_seconds": 50.0,
        }
    )


def test_loss_curve_is_known_from_the_start() -> None:
    assert views([trained()])[0.0].loss is LOSS


def test_job_without_steps_tells_its_share_alone() -> None:
    done = views([a_job("job", 50.0, reporting=ProgressReporting()), *others(10.0)])[10.0].progress
    assert done is not None
    assert done.fraction == pytest.approx(0.2)
    assert (done.remaining_seconds, done.steps) == (40.0, None)


def test_job_reports_no_more_often_than_its_script() -> None:
    seen = views([trained(every_seconds=15.0), *others(10.0, 20.0, 30.0, 40.0)])
    reports = [gang.progress.reported for gang in seen.values() if gang.progress]
    assert sorted(set(reports)) == [10.0, 30.0]


def test_report_ends_what_nobody_knew() -> None:
    """Without an estimate it may end at any moment; now it ends when it says."""
    seen = views([trained(), *others(10.0)])
    assert seen[10.0].estimated_seconds == pytest.approx(50.0)


def test_report_is_what_the_steps_at_the_start_of_the_run_were() -> None:
    gang = views([trained(), *others(10.0)])[10.0]
    assert gang.done_steps == pytest.approx(0.0)
    assert gang.remaining_steps == pytest.approx(100.0)


def test_slow_start_shows_in_what_is_left() -> None:
    done = views([trained(), *others(10.0)], Physics(start_seconds=6.0))[10.0].progress
    assert done is not None
    assert done.steps == pytest.approx(8.0)
    assert done.remaining_seconds == pytest.approx(46.0)


def test_stopped_job_keeps_what_it_reported_last() -> None:
    slow = a_job("job", 1000.0, gpus=4, reporting=ProgressReporting())
    high = a_job("high", 100.0, at=400.0, gpus=4, priority=1000)
    waits = views([slow, high])[400.0]
    assert waits.interrupted
    assert waits.progress is not None
    assert waits.progress.reported == 400.0
    assert waits.estimated_seconds == pytest.approx(600.0)


def test_a_false_report_may_be_nearly_done() -> None:
    done = views([trained(honesty=0.1), *others(10.0)])[10.0].progress
    assert done is not None
    assert done.remaining_seconds == pytest.approx(4.0)
    assert done.remaining_steps == pytest.approx(8.0)


def test_honest_reports_of_jobs_whose_run_time_is_known_change_nothing() -> None:
    def run(reporting: ProgressReporting | None) -> dict[str, object]:
        jobs = [
            a_job(f"j{n}", 10.0 + n, at=float(n), gpus=1 + n % 4, estimated_seconds=10.0 + n)
            for n in range(20)
        ]
        loud = [replace(job, reporting=reporting) for job in jobs]
        found = story(simulate(a_trace(*loud), NODES, COMBINED))
        return {k: v[:2] if isinstance(v, tuple) else v for k, v in found.items()}

    assert run(ProgressReporting(every_seconds=0.0)) == run(None)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan")])
def test_honesty_is_a_number_above_zero(bad: float) -> None:
    with pytest.raises(SettingError, match="honesty is"):
        ProgressReporting(honesty=bad)
