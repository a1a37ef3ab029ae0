"""Schedules worked out by hand: what starts when, and why the rest waits."""

import time

import pytest

from bireme.core.errors import BiremeError
from bireme.core.nodes import Node
from bireme.core.policy import Policy
from bireme.core.queues import Queue
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import GPU, a_node, a_task
from bireme_lab.simulator.errors import SimulationError, TraceError
from bireme_lab.simulator.outcome import Outcome, RunSegment
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from bireme_lab.simulator.workload import Trace, TraceJob
from testbed.simulations import a_job, a_trace, lifetimes, record_of, used_gpu_seconds

FIFO = Policy(Fifo(), Packing())
COMBINED = Policy(CombinedPriority(), Packing())
ONE_NODE = (a_node("n0", 4),)


def run(
    *jobs: TraceJob,
    nodes: tuple[Node, ...] = ONE_NODE,
    policy: Policy = FIFO,
    settings: SchedulingSettings | None = None,
    config: SimulationConfig | None = None,
    queues: tuple[Queue, ...] = (),
) -> Outcome:
    return simulate(
        a_trace(*jobs, queues=queues),
        nodes,
        policy,
        settings or SchedulingSettings(),
        config=config or SimulationConfig(verifies=True),
    )


def test_job_that_nobody_disturbs_runs_exactly_as_long_as_its_trace_says() -> None:
    outcome = run(a_job("a", 0.1 + 0.2, at=0.1))
    record = record_of(outcome, "a")
    assert (record.started, record.finished) == (0.1, 0.1 + (0.1 + 0.2))
    assert record.segments == (
        RunSegment(0.1, 0.1 + (0.1 + 0.2), (("worker", "n0", 1),), "finished"),
    )


def test_three_jobs_in_order_of_arrival() -> None:
    """4 GPUs: a and b fit together; c needs what both leave."""
    outcome = run(
        a_job("a", 10, at=0, gpus=3), a_job("b", 20, at=1, gpus=1), a_job("c", 5, at=2, gpus=4)
    )
    assert lifetimes(outcome) == {"a": (0, 10), "b": (1, 21), "c": (21, 26)}


def test_short_job_passes_the_blocked_one_and_long_one_does_not() -> None:
    """b waits for a until 10. c ends by then and takes a free GPU; d would delay b."""
    outcome = run(
        a_job("a", 10, gpus=3, estimated_seconds=10),
        a_job("b", 10, at=1, gpus=4, estimated_seconds=10),
        a_job("c", 5, at=2, estimated_seconds=5),
        a_job("d", 9, at=3, estimated_seconds=9),
    )
    assert lifetimes(outcome) == {"a": (0, 10), "b": (10, 20), "c": (2, 7), "d": (20, 29)}
    assert record_of(outcome, "b").reserved_start == 10
    counted = {name: n for name, n in outcome.counts.items() if n and name != "cycles"}
    assert counted == {
        "admissions": 4,
        "backfills": 1,
        "reservations": 1,
        "reservations_honoured": 1,
    }


def test_reservation_on_run_times_that_nobody_knows_is_no_promise() -> None:
    outcome = run(a_job("a", 10, gpus=4), a_job("b", 10, at=1, gpus=4))
    assert record_of(outcome, "b").reserved_start == 1
    assert outcome.counts["reservations"] == 0


def test_promise_that_an_overrun_breaks_is_not_counted_as_honoured() -> None:
    outcome = run(a_job("a", 10, gpus=4, estimated_seconds=5), a_job("b", 1, at=1, gpus=4))
    assert (record_of(outcome, "b").reserved_start, record_of(outcome, "b").started) == (5, 10)
    assert (outcome.counts["reservations"], outcome.counts["reservations_honoured"]) == (1, 0)


def test_places_given_back_are_taken_at_the_same_moment() -> None:
    outcome = run(a_job("a", 10, gpus=4), a_job("b", 1, at=10, gpus=4))
    assert lifetimes(outcome)["b"] == (10, 11)


def test_job_without_work_starts_and_finishes_at_once() -> None:
    outcome = run(a_job("a", 0, gpus=4), a_job("b", 3, gpus=4))
    assert lifetimes(outcome) == {"a": (0, 0), "b": (0, 3)}


def test_higher_job_stops_the_lower_one_which_goes_on_afterwards() -> None:
    outcome = run(
        a_job("low", 1000, gpus=4),
        a_job("high", 50, at=400, gpus=4, priority=1000),
        policy=COMBINED,
    )
    assert lifetimes(outcome) == {"low": (0, 1050), "high": (400, 450)}
    low = record_of(outcome, "low")
    assert [(s.began, s.ended, s.ended_by) for s in low.segments] == [
        (0, 400, "preempted"),
        (450, 1050, "finished"),
    ]
    assert (low.preemptions, outcome.counts["preemptions"]) == (1, 1)


def test_the_time_a_stopped_job_has_run_counts_as_no_wait() -> None:
    """Else it would be overdue at once, and start again before the job it was stopped for."""
    outcome = run(
        a_job("low", 1000, gpus=4, queue="bounded"),
        a_job("high", 50, at=400, gpus=4, priority=1000, queue="bounded"),
        policy=COMBINED,
        queues=(Queue("bounded", wait_bound_seconds=60),),
    )
    assert lifetimes(outcome) == {"low": (0, 1050), "high": (400, 450)}


@pytest.mark.parametrize(("factor", "again"), [(0, 450), (0.002, 450), (8, 500)])
def test_a_stopped_job_is_overdue_when_its_waits_exceed_32_times_the_bound_and_its_run(
    factor: float, again: float
) -> None:
    """It has run for 400 seconds, and has waited for 50 when the next one could start."""
    outcome = run(
        a_job("low", 1000, gpus=4, queue="bounded"),
        a_job("high", 50, at=400, gpus=4, priority=1000, queue="bounded"),
        a_job("next", 50, at=401, gpus=4, priority=1000, queue="patient"),
        policy=COMBINED,
        settings=SchedulingSettings(wait_bound_run_factor=factor),
        queues=(Queue("bounded", wait_bound_seconds=1), Queue("patient")),
    )
    assert [segment.began for segment in record_of(outcome, "low").segments[:2]] == [0, again]


def test_lower_job_is_stopped_at_the_very_moment_it_has_run_long_enough() -> None:
    settings = SchedulingSettings(min_runtime_seconds=300)
    outcome = run(
        a_job("low", 1000, at=0.1, gpus=4),
        a_job("high", 50, at=10, gpus=4, priority=1000),
        policy=COMBINED,
        settings=settings,
        config=SimulationConfig(heartbeat_seconds=1e9),
    )
    assert record_of(outcome, "high").started == pytest.approx(300.1, abs=1e-9)


def test_service_stops_a_job_at_the_very_moment_another_has_waited_long_enough() -> None:
    delay = SchedulingSettings().service_preemption_delay_seconds
    outcome = run(
        a_job("long", 10_000, gpus=4),
        a_job("new", 50, at=5000.1, gpus=4),
        policy=COMBINED,
        config=SimulationConfig(heartbeat_seconds=1e9),
    )
    assert record_of(outcome, "new").started == pytest.approx(5000.1 + delay, abs=1e-9)


def test_nobody_is_stopped_where_preemption_is_off() -> None:
    outcome = run(
        a_job("low", 1000, gpus=4),
        a_job("high", 50, at=400, gpus=4, priority=1000),
        policy=COMBINED,
        settings=SchedulingSettings(preemption=False),
    )
    assert lifetimes(outcome) == {"low": (0, 1000), "high": (1000, 1050)}


def test_cycle_runs_when_a_wait_bound_passes_though_nothing_else_happens() -> None:
    """c would delay b, by nobody's run time known; past its own bound it goes first."""
    bounded = Queue("bounded", wait_bound_seconds=30)
    outcome = run(
        a_job("a", 100, gpus=3),
        a_job("b", 10, at=1, gpus=4),
        a_job("c", 10, at=2, queue="bounded"),
        queues=(bounded,),
    )
    started = record_of(outcome, "c").started
    assert started is not None
    assert 32 < started <= 32.001
    assert record_of(outcome, "c").wait_bound_seconds == 30


def test_job_that_never_fits_is_recorded_so_and_the_simulation_ends() -> None:
    outcome = run(a_job("huge", 10, gpus=64), a_job("a", 10))
    huge = record_of(outcome, "huge")
    assert (huge.started, huge.finished, huge.verdict, huge.segments) == (
        None,
        None,
        "NeverFits",
        (),
    )
    assert lifetimes(outcome)["a"] == (0, 10)


def test_job_of_an_unknown_queue_is_reported() -> None:
    assert record_of(run(a_job("a", queue="nowhere")), "a").verdict == "QueueNotFound"


def test_queue_limit_keeps_jobs_waiting_until_its_own_finish() -> None:
    limited = Queue("limited", limit={GPU: 1})
    outcome = run(
        a_job("a", 10, queue="limited"), a_job("b", 5, queue="limited"), queues=(limited,)
    )
    assert lifetimes(outcome) == {"a": (0, 10), "b": (10, 15)}


def test_simulation_that_is_cut_off_shows_who_still_runs_and_who_still_waits() -> None:
    outcome = run(
        a_job("a", 10, gpus=4),
        a_job("b", 10, at=1, gpus=4),
        a_job("c", at=9),
        config=SimulationConfig(until_seconds=6),
    )
    a, b, c = outcome.jobs
    assert (a.finished, a.segments[-1].ended, a.segments[-1].ended_by) == (None, 6, "still running")
    assert (b.started, b.verdict) == (None, "WaitingForCapacity")
    assert (c.started, c.verdict) == (None, "")


def test_jobs_are_listed_in_order_of_submission_whatever_order_they_came_in() -> None:
    outcome = run(a_job("late", at=5), a_job("b", at=1), a_job("a", at=1))
    assert [record.job.name for record in outcome.jobs] == ["a", "b", "late"]


def test_series_holds_what_the_spans_say() -> None:
    nodes = (a_node("n0", 4), a_node("n1", 4))
    outcome = run(
        a_job("a", 10, gpus=3),
        a_job("b", 6, at=2, gpus=4),
        a_job("c", 4, a_task(2, 4), at=3),
        nodes=nodes,
    )
    series = outcome.series
    assert series.times.tolist() == [0, 2, 3, 8, 10, 14]
    assert series.used_gpus.tolist() == [3, 7, 7, 3, 8, 0]
    assert series.waiting.tolist() == [0, 0, 1, 1, 0, 0]
    assert series.fragmented_gpus.tolist() == [1, 1, 1, 1, 0, 0]
    held = float((series.used_gpus[:-1] * (series.times[1:] - series.times[:-1])).sum())
    assert held == used_gpu_seconds(outcome.jobs) == 3 * 10 + 4 * 6 + 8 * 4
    assert outcome.total_gpus == 8


def test_history_of_finished_jobs_gives_the_estimates_of_later_ones() -> None:
    class Last:
        def __init__(self) -> None:
            self.seen: dict[tuple[str, str], float] = {}

        def observe(self, user: str, template: str, seconds: float, /) -> None:
            self.seen[user, template] = seconds

        def estimate(self, user: str, template: str, /) -> float | None:
            return self.seen.get((user, template))

    jobs = [
        a_job("first", 7, user="ann", gpus=4),
        a_job("second", 7, at=10, user="ann", gpus=4),
        a_job("third", 7, at=11, gpus=4),
    ]
    outcome = simulate(a_trace(*jobs), ONE_NODE, FIFO, estimator=Last())
    assert record_of(outcome, "third").reserved_start == 17


def test_progress_is_reported_up_to_the_last_job() -> None:
    reported: list[tuple[int, int]] = []
    trace = a_trace(*(a_job(f"j{n}", 1, at=n) for n in range(3)))
    simulate(trace, ONE_NODE, FIFO, on_progress=lambda done, jobs: reported.append((done, jobs)))
    assert reported == [(1, 3), (2, 3), (3, 3)]


def test_decision_time_is_that_of_the_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1000))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    outcome = run(a_job("a"))
    assert (outcome.decision_seconds, outcome.counts["cycles"]) == (1.0, 1)


def test_empty_trace_has_an_empty_outcome() -> None:
    outcome = run()
    assert (outcome.jobs, len(outcome.series.times)) == ((), 0)


@pytest.mark.parametrize(
    ("trace", "nodes", "message"),
    [
        (a_trace(a_job("a"), a_job("a")), ONE_NODE, "two jobs are called 'a'"),
        (a_trace(a_job("a", -1)), ONE_NODE, "duration_seconds of job 'a' is -1"),
        (a_trace(a_job("a", float("inf"))), ONE_NODE, "duration_seconds of job 'a' is inf"),
        (a_trace(a_job("a", at=float("nan"))), ONE_NODE, "submitted of job 'a' is nan"),
        (a_trace(a_job("a")), (), "at least one node"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    trace: Trace, nodes: tuple[Node, ...], message: str
) -> None:
    with pytest.raises(BiremeError, match=message) as caught:
        simulate(trace, nodes, FIFO)
    assert isinstance(caught.value, TraceError | SimulationError)


@pytest.mark.parametrize("takes_shortcuts", [True, False])
def test_many_alike_jobs_start_at_one_moment_and_each_waits_for_its_own_reason(
    takes_shortcuts: bool,
) -> None:
    """With shortcuts the cycle sees only the first of the line, and more while those start."""
    alike = (a_job(f"k{index}", 5, at=1) for index in range(9))
    config = SimulationConfig(takes_shortcuts=takes_shortcuts, until_seconds=12, verifies=True)
    outcome = run(a_job("a", 10, gpus=4), *alike, config=config)
    assert [r.started for r in outcome.jobs] == [0, *[10] * 4, *[None] * 5]
    assert [r.verdict for r in outcome.jobs] == [""] * 5 + ["WaitingForCapacity"] * 5
