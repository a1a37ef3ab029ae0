"""Promises of every simulation, on random small workloads: recomputed from the segments alone."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gpus import GPU
from bireme.core.nodes import Node
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.core.usage import Holder, UsageMeter, Use, devices_held
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.simulation import Simulation, SimulationConfig, simulate
from bireme_lab.simulator.state import SimulationState
from bireme_lab.simulator.workload import Trace
from testbed.examples import examples
from testbed.model.rules import most_evictions
from testbed.simulations import (
    broken_promises,
    record_of,
    small_clusters,
    small_traces,
    story,
    used_gpu_seconds,
)

quick = examples(10)
thorough = examples(20)
ORDERERS = (Fifo(), CombinedPriority())
CASES = st.tuples(small_traces(), small_clusters(), st.sampled_from(ORDERERS))
HURRIED = SchedulingSettings(
    wait_bound_seconds=15,
    min_runtime_seconds=2,
    resize_settle_seconds=1,
    eviction_budget=2,
    eviction_backoff_seconds=4,
    service_threshold=4,
    service_preemption_delay_seconds=4,
    preemption_cost_seconds=2,
)
DISTURBED = Physics(
    per_neighbour=0.5,
    restart_seconds=1,
    checkpoint_interval_seconds=2,
    node_mtbf_seconds=40,
    node_repair_seconds=3,
)
Case = tuple[Trace, tuple[Node, ...], Fifo | CombinedPriority]


def simulated(
    case: Case, physics: Physics | None = None, *, takes_shortcuts: bool = True
) -> Outcome:
    trace, nodes, orderer = case
    config = SimulationConfig(heartbeat_seconds=3, takes_shortcuts=takes_shortcuts, verifies=True)
    policy = Policy(orderer, Packing())
    return simulate(trace, nodes, policy, HURRIED, physics=physics or Physics(), config=config)


@pytest.mark.parametrize("physics", [Physics(), DISTURBED], ids=["undisturbed", "disturbed"])
@quick
@given(case=CASES)
def test_no_node_is_over_committed_and_no_gang_is_split_at_any_moment(
    case: Case, physics: Physics
) -> None:
    assert list(broken_promises(simulated(case, physics), case[1])) == []


@pytest.mark.parametrize("physics", [Physics(), DISTURBED], ids=["undisturbed", "disturbed"])
@quick
@given(case=CASES)
def test_every_job_that_fits_the_empty_cluster_finishes(case: Case, physics: Physics) -> None:
    trace, nodes, orderer = case
    outcome = simulated(case, physics)
    for job in trace.jobs:
        alone = Trace("alone", (job,), queues=trace.queues)
        fits = simulated((alone, nodes, orderer)).jobs[0].finished is not None
        record = record_of(outcome, job.name)
        assert (record.finished is not None) is fits
        assert fits or record.verdict == "NeverFits"


@quick
@given(case=CASES)
def test_undisturbed_job_that_is_never_resized_runs_for_its_duration_in_all(case: Case) -> None:
    for record in simulated(case).jobs:
        if record.finished is not None and not record.job.is_elastic:
            ran = sum(span.ended - span.began for span in record.segments)
            assert ran == pytest.approx(record.job.duration_seconds, abs=1e-9)


@quick
@given(case=CASES)
def test_gpu_seconds_of_the_series_are_those_of_the_spans(case: Case) -> None:
    outcome = simulated(case)
    times, used = outcome.series.times, outcome.series.used_gpus
    held = float((used[:-1] * (times[1:] - times[:-1])).sum())
    assert held == pytest.approx(used_gpu_seconds(outcome.jobs), abs=1e-6)


class Metered(Simulation):
    """A simulation that meters its devices after every moment, with the most that were held."""

    def __init__(self, case: Case, physics: Physics) -> None:
        trace, nodes, orderer = case
        config = SimulationConfig(heartbeat_seconds=3, verifies=True)
        state = SimulationState(trace, nodes, HURRIED, physics, 0, None)
        super().__init__(state, Policy(orderer, Packing()), config)
        self.meter, self.device_seconds = UsageMeter(), Counter[Holder]()
        self.most: float = 0

    def finish_step(self) -> None:
        super().finish_step()
        held = devices_held(self.state.snapshot(()), self._last.held)
        self.most = max(self.most, sum(held.values()))
        self.device_seconds.update(self.meter.look(self.state.now, held).device_seconds)


@pytest.mark.parametrize("physics", [Physics(), DISTURBED], ids=["undisturbed", "disturbed"])
@quick
@given(case=CASES)
def test_device_seconds_of_all_holders_are_devices_held_times_time(
    case: Case, physics: Physics
) -> None:
    simulation = Metered(case, physics)
    simulation.run()
    records, used = simulation.records(), Counter[str]()
    for holder, seconds in simulation.device_seconds.items():
        used[holder.queue] += seconds * (holder.use is not Use.RESERVED)
    for queue in {record.job.queue for record in records}:
        own = [record for record in records if record.job.queue == queue]
        assert used[queue] == pytest.approx(used_gpu_seconds(own), abs=1e-6)
    assert simulation.most <= sum(node.allocatable.get(GPU, 0) for node in case[1])


@quick
@given(case=CASES, shuffle=st.randoms(use_true_random=False))
def test_order_of_jobs_and_nodes_in_the_input_does_not_matter(
    case: Case, shuffle: random.Random
) -> None:
    trace, nodes, orderer = case
    jobs, machines = list(trace.jobs), list(nodes)
    shuffle.shuffle(jobs)
    shuffle.shuffle(machines)
    other = (Trace(trace.name, tuple(jobs), queues=trace.queues), tuple(machines), orderer)
    assert story(simulated(other, DISTURBED)) == story(simulated(case, DISTURBED))


@pytest.mark.parametrize("physics", [Physics(), DISTURBED], ids=["undisturbed", "disturbed"])
@thorough
@given(case=CASES)
def test_shortcuts_change_nothing(case: Case, physics: Physics) -> None:
    slow = simulated(case, physics, takes_shortcuts=False)
    short = simulated(case, physics)
    assert story(short) == story(slow)
    assert short.counts["cycles"] <= slow.counts["cycles"]


@quick
@given(case=CASES)
def test_no_start_comes_before_the_job_and_no_wait_is_negative(case: Case) -> None:
    for record in simulated(case, DISTURBED).jobs:
        assert record.started is None or record.started >= record.job.submitted
        ran = sum(segment.ended - segment.began for segment in record.segments)
        assert record.preemptions <= most_evictions(HURRIED, ran)
