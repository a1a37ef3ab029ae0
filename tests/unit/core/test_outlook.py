"""The outlook: it comes true where estimates do, agrees with the reservation, and is bounded."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.cycle import run_cycle
from bireme.core.gangs import Gang
from bireme.core.outlook import Outlook, look_ahead
from bireme.core.play import Bounds, Cut
from bireme.core.policy import Policy
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import a_gang, a_running_gang, a_snapshot, a_task, racks, with_running
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from bireme_lab.simulator.workload import Trace, TraceJob, gang_of
from testbed.examples import examples

FIFO = Policy(Fifo(), Packing())
EXACT = Bounds(coarseness=0.0)
PATIENT = SchedulingSettings(preemption=False, wait_bound_seconds=86_400 * 300)
"""Nobody is stopped, and no wait bound passes between two ends."""
NOW = 1000.0


def foreseen(
    snapshot: ClusterSnapshot, bounds: Bounds = EXACT, policy: Policy = FIFO
) -> tuple[Outlook, dict[str, float | None]]:
    outlook = look_ahead(snapshot, run_cycle(snapshot, policy), policy, bounds)
    return outlook, {each.gang.uid: each.start for each in outlook.prospects}


def lasting(name: str, seconds: float | None, replicas: int = 8, arrived: float = 0.0) -> Gang:
    gang = a_gang(name, a_task(replicas), arrived=arrived)
    return replace(gang, estimated_seconds=seconds)


def full(*waiting: Gang, ends: float | None = 600.0) -> ClusterSnapshot:
    """One node of 8 GPUs that a gang fills since ``NOW``."""
    empty = a_snapshot(racks(1, 1), *waiting, now=NOW, settings=PATIENT)
    return with_running(empty, a_running_gang(lasting("r", ends), empty.nodes, started=NOW))


job_sizes = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 400)), min_size=1, max_size=14)


@examples(25)
@given(sizes=job_sizes, orderer=st.sampled_from([Fifo(), CombinedPriority()]))
def test_without_surprises_every_start_comes_as_it_was_foreseen(
    sizes: list[tuple[int, int]], orderer: Fifo | CombinedPriority
) -> None:
    jobs = tuple(
        TraceJob(f"j{n:02}", 0.0, (a_task(gpus),), float(run), estimated_seconds=float(run))
        for n, (gpus, run) in enumerate(sizes)
    )
    policy, nodes = Policy(orderer, Packing()), racks(2, 2)
    gangs = [gang_of(job, None) for job in jobs]
    snapshot = a_snapshot(nodes, *gangs, settings=PATIENT)
    outlook, starts = foreseen(snapshot, policy=policy)
    outcome = simulate(
        *(Trace("t", jobs), nodes, policy, PATIENT), config=SimulationConfig(verifies=True)
    )
    came = {record.job.name: record.started for record in outcome.jobs}
    assert starts == {uid: came[uid] for uid in starts}
    assert {uid for uid, start in came.items() if start != 0.0} <= starts.keys()
    assert outlook.cut is Cut.ALL_STARTED


@examples(25)
@given(
    ends=st.lists(st.integers(1, 5000), min_size=4, max_size=4),
    asked=st.integers(1, 32),
    coarseness=st.sampled_from([0.0, 0.03, 0.5]),
)
def test_the_first_gang_is_foreseen_when_its_reservation_begins(
    ends: list[int], asked: int, coarseness: float
) -> None:
    others = [lasting(f"w{n}", 300.0, 3, arrived=2.0 + n) for n in range(5)]
    waiting = [lasting("first", 60.0, asked, arrived=1.0), *others]
    empty = a_snapshot(racks(1, 4), *waiting, now=NOW, settings=PATIENT)
    running = [
        a_running_gang(lasting(f"r{row}", float(end)), empty.nodes, row=row, started=NOW)
        for row, end in enumerate(ends)
    ]
    snapshot = with_running(empty, *running)
    hold = next(h for h in run_cycle(snapshot, FIFO).held if h.gang.uid == "first")
    assert hold.reservation is not None
    _, starts = foreseen(snapshot, Bounds(coarseness=coarseness))
    assert starts["first"] == hold.reservation.expected


def test_gangs_behind_the_first_start_one_after_another() -> None:
    line = [lasting(f"w{n}", 100.0, arrived=float(n)) for n in range(3)]
    outlook, starts = foreseen(full(*line))
    assert starts == {"w0": NOW + 600, "w1": NOW + 700, "w2": NOW + 800}
    assert [each.position for each in outlook.prospects] == [1, 2, 3]


def test_behind_a_gang_without_an_estimate_a_start_is_foreseen_at_once() -> None:
    _, starts = foreseen(full(lasting("w", 100.0), ends=None))
    assert starts == {"w": NOW}


def test_a_gang_that_never_fits_has_neither_position_nor_start() -> None:
    outlook, _ = foreseen(full(lasting("huge", 1.0, 9), lasting("w", 1.0)))
    last = outlook.prospects[-1]
    assert (last.gang.uid, last.position, last.start) == ("huge", None, None)
    assert last.reason is Reason.NEVER_FITS
    assert outlook.cut is Cut.NOTHING_ENDS


# --- bounds -----------------------------------------------------------------------------------


LINE = [lasting(f"w{n}", 100.0, arrived=float(n)) for n in range(5)]


@pytest.mark.parametrize(
    ("bounds", "cut", "reached"),
    [
        (replace(EXACT, cycles=2), Cut.CYCLES, 2),
        (replace(EXACT, horizon_seconds=750.0), Cut.HORIZON, 2),
        (replace(EXACT, cycles=0), Cut.CYCLES, 0),
    ],
)
def test_beyond_a_bound_gangs_have_a_position_and_no_start(
    bounds: Bounds, cut: Cut, reached: int
) -> None:
    outlook, starts = foreseen(full(*LINE), bounds)
    assert (outlook.cut, outlook.cycles) == (cut, reached)
    assert [start is not None for start in starts.values()] == [n < reached for n in range(5)]
    assert [each.position for each in outlook.prospects] == [1, 2, 3, 4, 5]


def test_coarse_steps_are_few_however_many_gangs_wait() -> None:
    line = [lasting(f"w{n:03}", 7.0 + n % 13, 1, arrived=float(n)) for n in range(400)]
    snapshot = full(*line)
    exact, at_once = foreseen(snapshot, EXACT)
    coarse, rough = foreseen(snapshot, Bounds(coarseness=0.05))
    assert coarse.cut is exact.cut is Cut.ALL_STARTED
    # Each step reaches one twentieth further than the one before, but for the one that ends at the
    # reservation, and there are two cycles to a step.
    most = 4 + 2 * math.log((coarse.until - NOW) / 600) / math.log(1.05)
    assert coarse.cycles <= most < exact.cycles / 2
    assert rough["w000"] == at_once["w000"] == NOW + 600


def test_the_snapshot_stays_as_it_was() -> None:
    snapshot = full(*LINE)
    used, usage = snapshot.used.copy(), dict(snapshot.queue_usage)
    assert foreseen(snapshot) == foreseen(snapshot)
    assert (snapshot.used == used).all()
    assert snapshot.queue_usage == usage
