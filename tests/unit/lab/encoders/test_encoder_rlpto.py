"""RLPTO as a sizer of gangs that report: who gives a node back, and who is given what is free."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import Gang, Role, TrainingProgress
from bireme.core.policy import Ranked
from bireme.core.resources import FloatArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import InverseQuadratic, LinearSpeed
from bireme.onnx.sessions import Array
from bireme.testing import a_gang, a_node, a_running_gang, a_snapshot, a_task, with_running
from bireme_lab.encoders.rlpto import MAX_MOVES, RlptoTasks

NOW = 10_000.0
ENCODER = RlptoTasks()
NOTHING = -1e9


@dataclass
class Network:
    """Answers with the same wishes: for none, and for more and less of every gang."""

    none: float = 0.0
    more: float | tuple[float, ...] = 1.0
    less: float | tuple[float, ...] = NOTHING
    asked: list[Mapping[str, Array]] = field(default_factory=list)

    def __call__(self, arrays: Mapping[str, Array], moves: int) -> FloatArray:
        self.asked.append(arrays)
        gangs = len(arrays["tasks"])
        assert moves == 2 * gangs + 1
        more, less = (np.broadcast_to(wish, gangs) for wish in (self.more, self.less))
        return np.concatenate([[self.none], more, less])


REFUSES = Network(more=NOTHING)


def reporting(name: str, gain: float | None, *, reported: float = NOW - 5, high: int = 8) -> Gang:
    """An elastic gang of 1 to ``high`` workers, 4 when it asked, that reported its accuracy."""
    gang = a_gang(name, a_task(4, min_replicas=1, max_replicas=high), is_elastic=True)
    report = TrainingProgress(reported, fraction=0.5, loss=0.5, worst_loss=2.0, accuracy=0.8)
    return replace(gang, progress=replace(report, accuracy_gain=gain))


def running(*gangs: Gang, gpus: int = 16, size: int = 4, resized: float = 0.0) -> ClusterSnapshot:
    """All on one node, at ``size`` workers."""
    snapshot = a_snapshot([a_node("n", gpus)], now=NOW)
    held = [
        a_running_gang(g, snapshot.nodes, sizes={"worker": size}, resized=resized) for g in gangs
    ]
    return with_running(snapshot, *held)


def sized(network: Network, snapshot: ClusterSnapshot, *more: Gang) -> dict[str, int]:
    gangs = [*(held.gang for held in snapshot.running), *more]
    found = ENCODER.sizes(network, [Ranked(gang, 0.0) for gang in gangs], snapshot)
    return {uid: sizes["worker"] for uid, sizes in found.items()}


def test_whose_gain_fell_below_beta_gives_one_node_back_and_nobody_else() -> None:
    snapshot = running(reporting("flat", 1e-4), reporting("rising", 1e-2))
    assert sized(REFUSES, snapshot) == {"flat": 3, "rising": 4}


def test_one_report_takes_one_node_only() -> None:
    """The gang was resized since: what it gains at its new size nobody knows yet."""
    reported_before = reporting("flat", 1e-4, reported=NOW - 500)
    assert sized(REFUSES, running(reported_before, size=3, resized=NOW - 400)) == {"flat": 3}


def test_a_gang_that_has_reported_its_accuracy_once_keeps_its_nodes() -> None:
    assert sized(REFUSES, running(reporting("new", None))) == {"new": 4}


def test_a_gang_at_its_minimum_keeps_it_however_little_it_gains() -> None:
    assert sized(REFUSES, running(reporting("flat", -0.1), size=1)) == {"flat": 1}


def test_without_accuracy_the_fall_of_the_loss_is_the_gain() -> None:
    """Of 1000 steps the last 10 made 1/(k + 1) fall by 0.003 after 50 and by 1e-5 after 990."""
    gang = replace(reporting("g", None), loss=InverseQuadratic(0, 1, 1))
    young, old = (replace(gang, done_steps=k, remaining_steps=1000 - k) for k in (50.0, 990.0))
    assert sized(REFUSES, running(young)) == {"g": 4}
    assert sized(REFUSES, running(old)) == {"g": 3}


def test_what_is_free_goes_node_by_node_to_whom_the_network_names() -> None:
    network = Network(more=(0.5, 1.0))
    snapshot = running(reporting("a", 1e-2), reporting("b", 1e-2))
    assert sized(network, snapshot) == {"a": 8, "b": 8}
    shares = [float(question["context"][0]) for question in network.asked]
    assert shares == pytest.approx([free / 16 for free in range(8, 0, -1)])


def test_nodes_stay_free_when_the_network_says_none() -> None:
    network = Network(none=2.0)
    assert sized(network, running(reporting("a", 1e-2))) == {"a": 4}
    assert len(network.asked) == 1


def test_the_network_can_take_a_node_from_one_for_another_once_something_is_free() -> None:
    snapshot = running(reporting("a", 1e-2), reporting("b", 1e-2), gpus=9)
    assert sized(Network(more=(NOTHING, 1.0), less=(1.5, NOTHING)), snapshot) == {"a": 1, "b": 8}


def test_nobody_is_asked_where_nothing_is_free() -> None:
    network = Network()
    assert sized(network, running(reporting("a", 1e-2), gpus=4)) == {"a": 4}
    assert network.asked == []


def test_gangs_that_report_nothing_get_what_they_ask_for_first() -> None:
    silent = a_gang("silent", a_task(6, min_replicas=1))
    snapshot = running(reporting("reports", 1e-2), gpus=11)
    assert sized(Network(), snapshot, silent) == {"silent": 6, "reports": 5}


def test_nodes_are_workers_where_servers_could_grow_too() -> None:
    servers = a_task(1, role=Role.PS, max_replicas=4)
    reports = reporting("g", 1e-2)
    gang = replace(reports, tasks=(servers, *reports.tasks))
    snapshot = a_snapshot([a_node("n", 16)], gang, now=NOW)
    found = ENCODER.sizes(Network(), [Ranked(gang, 0.0)], snapshot)
    assert found == {"g": {"ps": 1, "worker": 8}}


def test_one_cycle_has_a_bounded_number_of_moves() -> None:
    network = Network()
    snapshot = running(reporting("g", 1e-2, high=500), gpus=400)
    assert sized(network, snapshot) == {"g": 4 + MAX_MOVES}
    assert len(network.asked) == MAX_MOVES


def test_node_times_are_shown_by_their_ratio_to_the_middle() -> None:
    network = Network(none=2.0)
    slow, fast = (
        replace(reporting(name, 1e-2), speed=LinearSpeed(pace), remaining_steps=1000.0)
        for name, pace in (("a", 1.0), ("b", 4.0))
    )
    sized(network, running(slow, fast))
    assert network.asked[0]["tasks"][:, 5] == pytest.approx([0.5, -0.5])


wishes = st.lists(st.floats(-3, 3), min_size=3, max_size=3).map(tuple)


@given(st.floats(-3, 3), wishes, wishes, st.integers(3, 40))
def test_whatever_the_network_says_bounds_and_capacity_are_kept(
    none: float, more: tuple[float, ...], less: tuple[float, ...], gpus: int
) -> None:
    gangs = [reporting(name, 1e-2, high=high) for name, high in (("a", 6), ("b", 4), ("c", 9))]
    found = sized(Network(none, more, less), running(*gangs, gpus=gpus, size=1))
    assert sum(found.values()) <= gpus
    assert all(1 <= found[name] <= high for name, high in (("a", 6), ("b", 4), ("c", 9)))
