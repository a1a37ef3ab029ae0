"""The parts of the engine on their own: time that rounds, step functions, places that must hold."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.placement import make_placement
from bireme.core.queues import Queue
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.times import moment_at, moment_past
from bireme.testing import a_gang, a_node, a_task
from bireme_lab.simulator.cluster import SimulatedCluster
from bireme_lab.simulator.errors import SimulationError
from bireme_lab.simulator.events import Event, EventKind, EventQueue
from bireme_lab.simulator.outcome import Recorder

seconds = st.floats(0, 1e9)


@given(begin=seconds, wait=seconds)
def test_reader_of_the_clock_finds_a_wait_over_when_it_is_and_not_much_later(
    begin: float, wait: float
) -> None:
    at, past = moment_at(begin, wait), moment_past(begin, wait)
    assert at - begin >= wait
    assert past - begin > wait
    assert past - (begin + wait) <= 4 * math.ulp(begin + wait)


@given(st.permutations(list(EventKind)))
def test_events_of_one_moment_come_out_in_one_order(kinds: list[EventKind]) -> None:
    events = EventQueue(Event(1.0, kind, name) for kind in kinds for name in ("b", "a"))
    came = [events.pop() for _ in range(2 * len(EventKind))]
    assert came == [Event(1.0, kind, name) for kind in sorted(EventKind) for name in ("a", "b")]


def test_event_that_never_happens_is_no_event() -> None:
    events = EventQueue()
    events.push(Event(math.inf, EventKind.FINISH, "a"))
    assert (len(events), events.next_time) == (0, math.inf)


def test_later_word_about_one_moment_replaces_the_earlier() -> None:
    recorder = Recorder(3)
    for time, used in ((0, 1), (5, 2), (5, 3), (6, 3), (7, 0)):
        recorder.record(time, used, 0, 0)
    series = recorder.series()
    assert series.times.tolist() == [0, 5, 7]
    assert series.used_gpus.tolist() == [1, 3, 0]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 50)), min_size=1, max_size=60))
def test_thinned_series_has_the_same_integrals_and_the_same_ends(
    steps: list[tuple[int, int]],
) -> None:
    recorder, time = Recorder(3), 0.0
    for length, used in steps:
        recorder.record(time, used, 2 * used, used / 2)
        time += length
    whole, thin = recorder.series(), recorder.series(most_points=7)
    assert len(thin.times) <= 7
    assert (thin.times[0], thin.times[-1]) == (whole.times[0], whole.times[-1])
    assert np.all(np.diff(thin.times) > 0)
    for name in ("used_gpus", "waiting", "fragmented_gpus"):
        areas = [float((getattr(s, name)[:-1] * np.diff(s.times)).sum()) for s in (whole, thin)]
        assert areas[0] == pytest.approx(areas[1])
        assert getattr(thin, name)[-1] == getattr(whole, name)[-1]


def a_cluster() -> SimulatedCluster:
    nodes = (a_node("n0", 4), a_node("n1", 4, is_ready=False))
    return SimulatedCluster(nodes, {"default": Queue("default")}, SchedulingSettings())


def placed(
    cluster: SimulatedCluster, name: str, counts: tuple[int, int], asked: int = 4
) -> RunningGang:
    gang = a_gang(name, a_task(asked, 1))
    placement = make_placement(gang, cluster.table, {"worker": np.array(counts)})
    return RunningGang(gang, placement, 0.0)


def test_over_committed_node_ends_the_simulation() -> None:
    cluster = a_cluster()
    cluster.occupy(placed(cluster, "a", (4, 0)))
    with pytest.raises(SimulationError, match=r"b was placed on node n0, .* 5 of 4 nvidia.com/gpu"):
        cluster.occupy(placed(cluster, "b", (1, 0), asked=1))


def test_gang_without_all_its_replicas_ends_the_simulation() -> None:
    cluster = a_cluster()
    with pytest.raises(SimulationError, match="a was given 3 replicas of task worker"):
        cluster.occupy(placed(cluster, "a", (3, 0)))


def test_gang_on_a_node_that_is_not_ready_ends_the_simulation() -> None:
    cluster = a_cluster()
    with pytest.raises(SimulationError, match="not ready"):
        cluster.occupy(placed(cluster, "a", (0, 4)))


def test_node_that_is_away_offers_nothing_and_is_what_it_was_when_it_is_back() -> None:
    cluster = SimulatedCluster([a_node("n0", 4), a_node("n1", 4)], {}, SchedulingSettings())
    before = cluster.snapshot(0.0, ())
    cluster.remove_nodes(["n1"])
    seen = cluster.snapshot(0.0, ())
    assert {name: 2 * total for name, total in seen.total.items()} == before.total
    assert seen.nodes.is_ready.tolist() == [True, False]
    assert seen.nodes.names == before.nodes.names
    cluster.add_node("n1")
    assert cluster.snapshot(0.0, ()).total == before.total


def test_node_that_goes_away_under_a_gang_ends_the_simulation() -> None:
    cluster = a_cluster()
    cluster.occupy(placed(cluster, "a", (4, 0)))
    with pytest.raises(SimulationError, match="a node went away while a was on it"):
        cluster.remove_nodes(["n0"])


def test_cluster_that_lost_count_is_found_out() -> None:
    cluster = a_cluster()
    cluster.occupy(placed(cluster, "a", (4, 0)))
    cluster.verify()
    cluster.used[0, 0] += 1
    with pytest.raises(SimulationError, match="used differs"):
        cluster.verify()
    cluster.used[0, 0] -= 1
    cluster.queue_usage["default"]["cpu"] += 1
    with pytest.raises(SimulationError, match="queue usage"):
        cluster.verify()
