"""The cycle: every verdict a gang can get, elastic starts, queue limits, a policy gone wrong."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Admit, Decision
from bireme.core.gangs import Gang, Task
from bireme.core.policy import Policy, Ranked
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.registry import make_policy
from bireme.testing import GPU, a_gang, a_snapshot, a_task, racks
from testbed.decisions import hold_of

FIFO = Policy(Fifo(), Packing())


def decide(snapshot: ClusterSnapshot) -> Decision:
    return run_cycle(snapshot, FIFO)


def admitted(decision: Decision) -> list[str]:
    return [admit.gang.uid for admit in decision.admitted]


def test_without_gangs_there_is_nothing_to_do() -> None:
    assert decide(a_snapshot(racks(1, 1))) == Decision()


def test_a_gang_that_fits_is_admitted_whole() -> None:
    snapshot = a_snapshot(racks(1, 2), a_gang("job", a_task(10)))
    (admit,) = decide(snapshot).admitted
    assert admit.reason is Reason.ADMITTED
    assert admit.message == "10 worker planned on 2 nodes of rack r0"
    assert (
        sorted(admit.placement.by_task(snapshot.nodes)["worker"]) == ["r0-n0"] * 8 + ["r0-n1"] * 2
    )


def test_gang_waits_when_one_replica_does_not_fit() -> None:
    busy = a_gang("busy", a_task(1), arrived=0.0)
    wide = a_gang("wide", a_task(16), arrived=1.0)
    snapshot = a_snapshot(racks(1, 2), busy, wide, now=10.0)
    decision = decide(snapshot)
    assert admitted(decision) == ["busy"]
    hold = hold_of(decision, "wide")
    assert hold.reason is Reason.WAITING_FOR_CAPACITY
    assert hold.position == 1
    assert hold.message == (
        f"asks 16 {GPU} as 16 worker; 15 {GPU} free on nodes it may use; 1 {GPU} missing; 0 ahead"
    )


@pytest.mark.parametrize(
    ("gang", "reason", "text"),
    [
        pytest.param(
            a_gang(queue="gone"),
            Reason.QUEUE_NOT_FOUND,
            "queue 'gone' does not exist; create it or set spec.queue to one of: closed, open",
            id="QueueNotFound",
        ),
        pytest.param(
            a_gang(queue="closed"),
            Reason.QUEUE_CLOSED,
            "queue 'closed' is closed",
            id="QueueClosed",
        ),
        pytest.param(
            a_gang(queue="team", namespace="other"),
            Reason.QUEUE_FORBIDDEN,
            "does not admit namespace 'other'",
            id="QueueForbidden",
        ),
        pytest.param(
            a_gang(queue="gone", fault=(Reason.TEMPLATE_INVALID, "no such image field")),
            Reason.TEMPLATE_INVALID,
            "no such image field",
            id="fault-of-the-edge-comes-first",
        ),
        pytest.param(
            a_gang("g", Task("worker", 0, (("pods", 1),)), queue="open"),
            Reason.SPEC_INVALID,
            "task 'worker' has 0 replicas; set at least 1",
            id="SpecInvalid",
        ),
    ],
)
def test_a_configuration_fault_is_held_without_a_position(
    gang: Gang, reason: Reason, text: str
) -> None:
    queues = [
        Queue("open"),
        Queue("closed", is_open=False),
        Queue("team", namespaces=frozenset("t")),
    ]
    (hold,) = decide(a_snapshot(racks(1, 1), gang, queues=queues)).held
    assert (hold.reason, hold.position, hold.ranked) == (reason, None, None)
    assert text in hold.message
    assert hold.reason.is_configuration_fault


def test_a_queue_open_to_a_namespace_admits_it() -> None:
    queues = [Queue("team", namespaces=frozenset({"t"}))]
    snapshot = a_snapshot(racks(1, 1), a_gang(queue="team", namespace="t"), queues=queues)
    assert admitted(decide(snapshot)) == ["job"]


def test_a_faulty_gang_does_not_disturb_the_others() -> None:
    snapshot = a_snapshot(racks(1, 1), a_gang("bad", queue="gone"), a_gang("good"))
    assert admitted(decide(snapshot)) == ["good"]


def test_positions_count_waiting_gangs_only() -> None:
    gangs = [
        a_gang("fills", a_task(8), arrived=0),
        a_gang("never", a_task(9), arrived=1),
        a_gang("first", a_task(8), arrived=2),
        a_gang("second", a_task(4), arrived=3),
    ]
    decision = decide(a_snapshot(racks(1, 1), *gangs, now=10.0))
    assert {hold.gang.uid: hold.position for hold in decision.held} == {
        "never": None,
        "first": 1,
        "second": 2,
    }
    assert hold_of(decision, "second").message.endswith("1 ahead")


def test_a_smaller_gang_behind_a_blocked_one_may_start() -> None:
    gangs = [a_gang("big", a_task(16), arrived=0), a_gang("small", a_task(8), arrived=1)]
    used = np.zeros((2, 5), dtype=np.int64)
    used[1, 4] = 1
    assert admitted(decide(a_snapshot(racks(1, 2), *gangs, used=used, now=10.0))) == ["small"]


def test_an_elastic_gang_starts_at_its_minimum_when_all_do_not_fit() -> None:
    gang = a_gang("job", a_task(20, min_replicas=12))
    (admit,) = decide(a_snapshot(racks(1, 2), gang)).admitted
    assert admit.gang.replicas == 12
    assert admit.ranked.gang is gang
    assert admit.message.endswith("12 of 20 replicas")


def test_an_elastic_gang_starts_with_all_replicas_when_they_fit() -> None:
    (admit,) = decide(a_snapshot(racks(1, 2), a_gang("job", a_task(16, min_replicas=1)))).admitted
    assert admit.gang.replicas == 16


def test_an_elastic_gang_shrinks_to_its_queue_limit() -> None:
    queues = [Queue("default", limit={GPU: 6})]
    gang = a_gang("job", a_task(8, min_replicas=5))
    (admit,) = decide(a_snapshot(racks(1, 2), gang, queues=queues)).admitted
    assert admit.gang.replicas == 5


def test_an_elastic_gang_never_fits_only_when_its_minimum_does_not() -> None:
    snapshot = a_snapshot(racks(1, 1), a_gang("job", a_task(20, min_replicas=9)))
    (hold,) = decide(snapshot).held
    assert hold.reason is Reason.NEVER_FITS
    assert "asks 9 worker replicas" in hold.message


def test_a_queue_limit_counts_what_runs_and_what_was_just_admitted() -> None:
    queues = [Queue("default", limit={GPU: 8}), Queue("other")]
    gangs = [
        a_gang("one", a_task(3), arrived=0),
        a_gang("two", a_task(3), arrived=1),
        a_gang("three", a_task(2), arrived=2),
        a_gang("free", a_task(9), arrived=3, queue="other"),
    ]
    snapshot = a_snapshot(
        racks(1, 4), *gangs, queues=queues, queue_usage={"default": {GPU: 3}}, now=10.0
    )
    decision = decide(snapshot)
    assert admitted(decision) == ["one", "three", "free"]
    hold = hold_of(decision, "two")
    assert (hold.reason, hold.position) == (Reason.OVER_QUEUE_LIMIT, 1)
    assert hold.message == f"queue 'default': asks 3 {GPU}, 6 {GPU} of 8 {GPU} in use"
    assert snapshot.queue_usage == {"default": {GPU: 3}}


def test_a_gang_above_the_limit_of_an_unused_queue_never_fits() -> None:
    queues = [Queue("default", limit={GPU: 8})]
    (hold,) = decide(a_snapshot(racks(1, 2), a_gang("job", a_task(9)), queues=queues)).held
    assert hold.reason is Reason.NEVER_FITS
    assert f"9 {GPU}, its limit is 8 {GPU}" in hold.message


Misorder = Callable[[list[Ranked]], list[Ranked]]


class Broken:
    """An orderer that makes something of a right order."""

    def __init__(self, misorder: Misorder) -> None:
        self.misorder = misorder

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        return self.misorder(Fifo().order(gangs, snapshot)[::-1])


@pytest.mark.parametrize(
    "misorder",
    [
        pytest.param(lambda order: order[1:], id="loses-one"),
        pytest.param(lambda order: [*order, order[0]], id="repeats-one"),
        pytest.param(lambda order: [order[0], *order[:-1]], id="repeats-one-for-another"),
        pytest.param(lambda order: [*order, Ranked(a_gang("new"), 1.0)], id="invents-one"),
        pytest.param(
            lambda order: [Ranked(a_gang("a", a_task(7)), 1.0), *order[:2]], id="alters-one"
        ),
        pytest.param(lambda _: [], id="loses-all"),
    ],
)
def test_a_policy_that_does_not_return_the_gangs_is_overruled_by_fifo(misorder: Misorder) -> None:
    gangs = [a_gang(name, a_task(4), arrived=float(at)) for at, name in enumerate("abc")]
    snapshot = a_snapshot(racks(1, 1), *gangs, now=10.0)
    decision = run_cycle(snapshot, Policy(Broken(misorder), Packing()))
    assert admitted(decision) == ["a", "b"]
    assert decision.fallback
    assert decide(snapshot).fallback == ""


def test_a_policy_that_reverses_the_order_is_followed() -> None:
    gangs = [a_gang(name, a_task(4), arrived=float(at)) for at, name in enumerate("abc")]
    snapshot = a_snapshot(racks(1, 1), *gangs, now=10.0)
    decision = run_cycle(snapshot, Policy(Broken(lambda order: order), Packing()))
    assert admitted(decision) == ["c", "b"]


def test_the_default_policy_explains_its_score() -> None:
    policy = make_policy(SchedulingSettings())
    (action,) = run_cycle(a_snapshot(racks(1, 1), a_gang()), policy).actions
    assert isinstance(action, Admit)
    assert [factor.name for factor in action.ranked.factors] == [
        "userPriority",
        "jobPriority",
        "wait",
        "parallelism",
        "service",
    ]
