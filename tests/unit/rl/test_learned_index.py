"""The learned index that is shipped: claims only fall, nobody takes turns, records are decided."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.cycle import run_cycle
from bireme.core.gangs import Gang
from bireme.core.settings import SchedulingSettings
from bireme.registry import make_orderer, make_policy
from bireme.replay.reader import open_record
from bireme.testing import a_gang, a_node, a_running_gang, a_snapshot, a_task, with_running
from bireme_lab.simulator.simulation import simulate
from testbed.recordings import RecordedCluster
from testbed.simulations import a_job, a_trace
from testbed.workloads import NODES, PATIENT, QUEUES

INDEX = SchedulingSettings(orderer="learned-index")
EAGER = replace(INDEX, min_runtime_seconds=0, eviction_budget=1000)
ORDERER = make_orderer("learned-index")


def claim(gang: Gang, now: float, started: float | None = None) -> float:
    """Of ``gang``, which waits or has run since ``started``."""
    snapshot = a_snapshot([a_node("n0")], gang, now=now)
    if started is not None:
        snapshot = with_running(snapshot, a_running_gang(gang, snapshot.nodes, started=started))
    (entry,) = ORDERER.order([gang], snapshot)
    assert entry.preemption_priority is not None
    assert entry.preemption_priority == entry.score
    return entry.preemption_priority


estimates = st.none() | st.floats(1, 1e6)


@given(estimates, st.integers(1, 8), st.floats(0, 1e6), st.floats(0, 1e6))
def test_no_claim_grows_by_waiting(
    estimate: float | None, gpus: int, attained: float, wait: float
) -> None:
    gang = replace(a_gang("g", a_task(gpus)), attained_seconds=attained, estimated_seconds=estimate)
    assert claim(gang, wait) == claim(gang, 0.0)


@given(estimates, st.integers(1, 8), st.lists(st.floats(0, 1e6), min_size=2, max_size=6))
def test_no_claim_grows_by_running(estimate: float | None, gpus: int, moments: list[float]) -> None:
    gang = replace(a_gang("g", a_task(gpus)), estimated_seconds=estimate)
    claims = [claim(gang, now, started=0.0) for now in sorted(moments)]
    assert all(later <= earlier for earlier, later in pairwise(claims))


def test_a_short_gang_stops_a_long_one_and_not_the_other_way_round() -> None:
    long = replace(a_gang("long", a_task(8)), estimated_seconds=500_000.0)
    short = replace(a_gang("short"), estimated_seconds=60.0)
    assert claim(short, 7200.0) > claim(long, 7200.0, started=0.0)


jobs = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 4000), st.integers(1, 8), estimates),
    min_size=1,
    max_size=12,
)


@given(jobs)
def test_gangs_do_not_stop_each_other_in_turn(
    drawn: list[tuple[int, int, int, float | None]],
) -> None:
    """Without the guardrails: claims only fall, a step at a time, so stops are few."""
    trace = a_trace(
        *(
            a_job(f"j{n}", float(seconds), at=float(at), gpus=gpus, estimated_seconds=estimate)
            for n, (at, seconds, gpus, estimate) in enumerate(drawn)
        )
    )
    outcome = simulate(trace, [a_node("n0")], make_policy(EAGER), EAGER)
    assert all(record.finished is not None for record in outcome.jobs)
    assert outcome.counts["fallbacks"] == 0
    assert outcome.counts["preemptions"] <= 10 * len(drawn)


@pytest.mark.parametrize("seed", range(2))
def test_it_decides_on_the_records_of_another_policy(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("record")
    world = RecordedCluster(NODES, settings=PATIENT, queues=QUEUES, stop_seconds=3.0, folder=folder)
    for n in range(6):
        world.advance(10.0 * n)
        gang = replace(a_gang(f"g{n}", a_task(1 + (n + seed) % 8)), queue=QUEUES[0].name)
        world.submit(gang, 100.0)
        world.decide()
    world.writer.close()
    decisions = [
        run_cycle(moment.snapshot, make_policy(INDEX), explain=False)
        for moment in open_record([folder]).cycles()
    ]
    assert any(decision.admitted for decision in decisions)
    assert not any(decision.fallback for decision in decisions)
