"""The wait bound: gangs past it go first, what blocks them blocks the right others, it holds."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.nodes import GrowablePool
from bireme.core.pod_constraints import NodeConstraints
from bireme.core.policy import Orderer, Policy, Ranked
from bireme.core.queues import Queue
from bireme.core.quotas import Quota
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import (
    GPU,
    a_gang,
    a_node,
    a_running_gang,
    a_snapshot,
    a_task,
    racks,
    with_running,
)

BOUND = SchedulingSettings(wait_bound_seconds=100)
GPU_QUOTA = ("gpus", ((f"requests.{GPU}", 1),))
"""The charge of a replica with one GPU on the quota of this name."""


class SmallestFirst:
    """The orderer that starves: the fewest replicas first, always."""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        return [Ranked(g, 0.0) for g in sorted(gangs, key=lambda g: (g.replicas, g.uid))]


class NewestFirst:
    """The last to arrive first, so that the first never gets its turn."""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        return [Ranked(g, 0.0) for g in sorted(gangs, key=lambda g: (-g.arrived, g.uid))]


ADVERSARIES = [
    pytest.param(SmallestFirst(), id="smallest-first"),
    pytest.param(NewestFirst(), id="newest-first"),
    pytest.param(Fifo(), id="fifo"),
    pytest.param(CombinedPriority(), id="combined-priority"),
]


def decide(snapshot: ClusterSnapshot, orderer: Orderer | None = None) -> Decision:
    return run_cycle(snapshot, Policy(orderer or SmallestFirst(), Packing()))


def reasons(decision: Decision) -> dict[str, Reason]:
    return {action.gang.uid: action.reason for action in decision.actions}


def half_used(nodes: int) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    used = np.zeros((nodes, 5), dtype=np.int64)
    used[:, 4] = 4
    return used


@pytest.mark.parametrize(("now", "late"), [(100.0, 0.0), (100.5, 0.5), (50.0, 0.0)])
def test_a_gang_is_overdue_only_past_its_bound(now: float, late: float) -> None:
    assert a_snapshot([], now=now, settings=BOUND).overdue_seconds(a_gang()) == late


@pytest.mark.parametrize(
    ("estimate", "ran", "bound"), [(22.5, 0.0, 180.0), (10.0, 22.5, 5760.0), (30.0, 22.5, 7680.0)]
)
def test_the_bound_grows_with_the_longer_of_the_run_so_far_and_the_estimate(
    estimate: float, ran: float, bound: float
) -> None:
    gang = a_gang("long", arrived=0, attained_seconds=ran, estimated_seconds=estimate)
    late = a_snapshot([], gang, now=10_000, settings=BOUND).overdue_seconds(gang)
    assert late == 10_000 - bound
    # Who states that it ends soon goes first no sooner than without a statement.
    short = replace(gang, attained_seconds=0.0, estimated_seconds=1.0)
    assert a_snapshot([], short, now=200, settings=BOUND).overdue_seconds(short) == 100.0


@pytest.mark.parametrize(("factor", "late"), [(8.0, 4240.0), (2.0, 6800.0), (0.0, 6800.0)])
def test_a_gang_that_has_run_is_overdue_only_past_32_times_its_bound(
    factor: float, late: float
) -> None:
    settings = replace(BOUND, wait_bound_run_factor=factor)
    ran = a_gang("ran", arrived=0, attained_seconds=22.5)
    assert a_snapshot([], ran, now=10_000, settings=settings).overdue_seconds(ran) == late
    # While it runs, it is as overdue as when it started.
    bare = a_snapshot(racks(1, 1), now=10_500, settings=settings)
    again = with_running(bare, a_running_gang(ran, bare.nodes, started=10_000.0))
    assert again.overdue_seconds(ran) == late


def test_an_overdue_gang_goes_before_all_others_whatever_the_policy_says() -> None:
    gangs = [a_gang("old", a_task(8), arrived=0), a_gang("new", a_task(1), arrived=150)]
    decision = decide(a_snapshot(racks(1, 1), *gangs, now=151, settings=BOUND))
    assert reasons(decision) == {
        "old": Reason.ADMITTED,
        "new": Reason.WAITING_FOR_CAPACITY,
    }


def test_the_longest_overdue_goes_first_by_its_own_bound() -> None:
    all_of_them = replace(BOUND, overdue_share=1.0)
    queues = [Queue("default"), Queue("hasty", wait_bound_seconds=10)]
    gangs = [
        a_gang("old", a_task(8), arrived=0),
        a_gang("hasty", a_task(8), arrived=50, queue="hasty"),
        a_gang("older", a_task(8), arrived=-1),
    ]
    gangs = [replace(gang, tasks=(a_task(2),)) for gang in gangs]
    snapshot = a_snapshot(racks(1, 1), *gangs, queues=queues, now=150, settings=all_of_them)
    decision = decide(snapshot)
    assert [action.gang.uid for action in decision.actions] == ["hasty", "older", "old"]


def line(snapshot: ClusterSnapshot) -> set[str]:
    """Uids of the gangs that a decision on ``snapshot`` puts before all others."""
    return set(decide(snapshot).overdue)


def test_overdue_gangs_go_first_only_as_far_as_their_share_of_the_capacity_goes() -> None:
    """Sixteen GPUs, of which a quarter is four: the others keep their order."""
    gangs = [a_gang(f"g{at}", a_task(1, 2), arrived=float(at)) for at in range(4)]
    snapshot = a_snapshot(racks(1, 2), *gangs, now=200, settings=BOUND)
    assert line(snapshot) == {"g0", "g1"}
    wide = a_gang("wide", a_task(2, 8), arrived=3.0)
    more = replace(snapshot, waiting=(*snapshot.waiting, wide))
    everybody = {gang.uid for gang in more.waiting}
    assert line(replace(more, settings=replace(BOUND, overdue_share=1.0))) == everybody
    assert line(replace(snapshot, settings=replace(BOUND, overdue_share=1e-6))) == {"g0"}
    assert line(replace(snapshot, settings=replace(BOUND, overdue_share=0.0))) == set()


def test_of_gangs_that_lost_a_node_the_most_overdue_goes_first() -> None:
    gangs = [
        a_gang("a", arrived=5.0, displaced=True),
        a_gang("b", arrived=0.0, displaced=True),
        a_gang("c", arrived=-5.0),
    ]
    decision = decide(a_snapshot(racks(1, 2), *gangs, now=200, settings=BOUND))
    assert [action.gang.uid for action in decision.actions] == ["b", "a", "c"]
    assert decision.overdue == {"c"}
    early = decide(a_snapshot(racks(1, 2), *gangs, now=10, settings=BOUND))
    assert [action.gang.uid for action in early.actions] == ["b", "a", "c"], "the first that came"


def test_what_overdue_gangs_hold_that_run_counts_with_the_share() -> None:
    gangs = [a_gang(f"g{at}", a_task(1, 2), arrived=float(at)) for at in range(1, 4)]
    bare = a_snapshot(racks(1, 2), *gangs, now=200, settings=BOUND)
    first = a_running_gang(a_gang("first", a_task(1, 2), arrived=0), bare.nodes, started=150.0)
    assert line(with_running(bare, first)) == {"g1"}
    # One that started in time, or passed its bound after those that wait, takes nothing of theirs.
    for arrived in (60.0, 40.0):
        other = a_running_gang(
            a_gang("other", a_task(1, 2), arrived=arrived), bare.nodes, started=150.0
        )
        assert line(with_running(bare, other)) == {"g1", "g2"}


def test_an_overdue_gang_larger_than_the_share_has_the_line_for_itself() -> None:
    wide = a_gang("wide", a_task(2, 8), arrived=1.0)
    small = [a_gang(f"small{at}", a_task(1), arrived=2.0 + at) for at in range(3)]
    snapshot = a_snapshot(racks(1, 2), wide, *small, now=200, settings=BOUND)
    assert line(snapshot) == {"wide"}
    # It waits until those have ended that passed their bound before, and for no others.
    early = a_running_gang(a_gang("early", a_task(1), arrived=0.0), snapshot.nodes, started=150.0)
    assert line(with_running(snapshot, early)) == set()
    late = a_running_gang(a_gang("late", a_task(1), arrived=30.0), snapshot.nodes, started=150.0)
    assert line(with_running(snapshot, late)) == {"wide"}


def test_the_share_is_one_of_the_nodes_a_gang_may_use_and_of_its_queues_limits() -> None:
    nodes = [a_node(f"n{at}", 8, labels={"pool": "a" if at < 2 else "b"}) for at in range(8)]
    to_a = NodeConstraints(node_selector=(("pool", "a"),))
    to_b = NodeConstraints(node_selector=(("pool", "b"),))
    gangs = [
        a_gang(f"{pool}{at}", a_task(1, 4, constraints=where), arrived=float(at))
        for pool, where in (("a", to_a), ("b", to_b))
        for at in range(5)
    ]
    snapshot = a_snapshot(nodes, *gangs, now=200, settings=BOUND)
    assert line(snapshot) == {"a0", "b0", "b1", "b2"}
    limited = [Queue("default", limit={GPU: 16}), Queue("other")]
    both = [
        a_gang(f"{queue[0]}{at}", a_task(1, 4), arrived=float(at), queue=queue)
        for queue in ("default", "other")
        for at in range(3)
    ]
    snapshot = a_snapshot(nodes, *both, queues=limited, now=200, settings=BOUND)
    assert line(snapshot) == {"d0", "o0", "o1", "o2"}


@pytest.mark.parametrize(
    "other",
    [
        a_gang("parked", a_task(2, 8), arrived=0.0, parked=190.0),
        a_gang("too-large", a_task(3, 8), arrived=0.0),
        a_gang("fits-in-sum-only", a_task(3, 5), arrived=0.0),
        a_gang("beyond-its-quota", a_task(3, 1, charges=(GPU_QUOTA,)), arrived=0.0),
        a_gang("beyond-its-limit", a_task(9), arrived=0.0, queue="limited"),
    ],
    ids=lambda gang: gang.uid,
)
def test_an_overdue_gang_that_cannot_start_keeps_nobody_from_the_line(other: Gang) -> None:
    gangs = [other, a_gang("small", a_task(1), arrived=5.0)]
    queues = [Queue("default"), Queue("limited", limit={GPU: 8})]
    snapshot = a_snapshot(racks(1, 2), *gangs, queues=queues, now=200, settings=BOUND)
    quota = Quota(other.namespace, "gpus", {f"requests.{GPU}": 2}, {})
    snapshot = replace(snapshot, quotas={(quota.namespace, quota.name): quota})
    assert line(snapshot) == {"small"}
    # Nor does it where pools have nodes to come, but none for it.
    pool = GrowablePool("cpu", a_node("new", 0), 4, patience_seconds=600)
    assert line(replace(snapshot, growable=(pool,))) == {"small"}


def test_an_overdue_gang_for_which_nodes_may_come_is_in_the_line() -> None:
    gangs = [a_gang("large", a_task(3, 5), arrived=0.0), a_gang("small", a_task(1), arrived=5.0)]
    snapshot = a_snapshot(racks(1, 2), *gangs, now=200, settings=BOUND)
    pool = GrowablePool("gpu", a_node("new", 8), 4, patience_seconds=600)
    assert line(replace(snapshot, growable=(pool,))) == {"large"}


def test_outside_the_line_an_overdue_gang_that_runs_makes_room_like_any_other() -> None:
    """Only who is in the line is kept from gangs that are less overdue."""
    nodes, settings = racks(1, 1), replace(BOUND, min_runtime_seconds=0)
    high = a_gang("high", a_task(8), arrived=390.0, priority=1000)
    bare = a_snapshot(nodes, high, now=400, settings=settings)
    two = [
        a_running_gang(a_gang(name, a_task(4), arrived=at), bare.nodes, started=300.0)
        for name, at in (("first", 0.0), ("second", 1.0))
    ]
    one_each = replace(high, tasks=(a_task(4),))
    world = replace(with_running(bare, *two), waiting=(one_each,))
    stopped = decide(world, CombinedPriority()).preempted
    assert [stop.gang.uid for stop in stopped] == ["second"]


def test_nobody_behind_takes_what_an_overdue_gang_without_capacity_may_need() -> None:
    queues = [Queue("default"), Queue("other")]
    gangs = [
        a_gang("old", a_task(2, 8), arrived=0),
        a_gang("small", a_task(1), arrived=190),
        a_gang("elsewhere", a_task(1), arrived=190, queue="other"),
        a_gang("never", a_task(99), arrived=190),
    ]
    snapshot = a_snapshot(
        racks(1, 2), *gangs, queues=queues, used=half_used(2), now=200, settings=BOUND
    )
    decision = decide(snapshot)
    assert reasons(decision) == {
        "old": Reason.WAITING_FOR_CAPACITY,
        "small": Reason.WAITING_BEHIND,
        "elsewhere": Reason.WAITING_BEHIND,
        "never": Reason.NEVER_FITS,
    }
    messages = {hold.gang.uid: (hold.position, hold.message) for hold in decision.held}
    assert messages["elsewhere"] == (
        2,
        "fits now, but would take places kept for default/old; 1 ahead",
    )
    assert messages["small"][0] == 3
    assert messages["never"][0] is None


def test_a_gang_not_overdue_blocks_nobody() -> None:
    gangs = [a_gang("old", a_task(2, 8), arrived=0), a_gang("small", a_task(1), arrived=90)]
    snapshot = a_snapshot(racks(1, 2), *gangs, used=half_used(2), now=100, settings=BOUND)
    assert reasons(decide(snapshot, Fifo()))["small"] is Reason.ADMITTED


def test_an_overdue_gang_over_its_queue_limit_blocks_only_its_queue() -> None:
    queues = [Queue("default", limit={GPU: 8}), Queue("other")]
    gangs = [
        a_gang("old", a_task(8), arrived=0),
        a_gang("same-queue", a_task(1), arrived=190),
        a_gang("other-queue", a_task(1), arrived=190, queue="other"),
    ]
    snapshot = a_snapshot(
        racks(1, 2),
        *gangs,
        queues=queues,
        queue_usage={"default": {GPU: 1}},
        now=200,
        settings=BOUND,
    )
    assert reasons(decide(snapshot)) == {
        "old": Reason.OVER_QUEUE_LIMIT,
        "same-queue": Reason.WAITING_BEHIND,
        "other-queue": Reason.ADMITTED,
    }


def test_an_overdue_gang_that_never_fits_blocks_nobody() -> None:
    gangs = [a_gang("old", a_task(99), arrived=0), a_gang("small", a_task(1), arrived=190)]
    decision = decide(a_snapshot(racks(1, 2), *gangs, now=200, settings=BOUND))
    assert reasons(decision) == {"old": Reason.NEVER_FITS, "small": Reason.ADMITTED}


def test_an_overdue_elastic_gang_starts_at_its_minimum_rather_than_block() -> None:
    gangs = [a_gang("old", a_task(16, min_replicas=2), arrived=0), a_gang("new", arrived=190)]
    snapshot = a_snapshot(racks(1, 2), *gangs, used=half_used(2), now=200, settings=BOUND)
    assert reasons(decide(snapshot)) == {"old": Reason.ADMITTED, "new": Reason.ADMITTED}


@dataclass
class World:
    """Time, running gangs and an endless stream of small ones, for one orderer."""

    orderer: Orderer
    queues: tuple[Queue, ...] = (Queue("default"), Queue("hasty", wait_bound_seconds=90))
    now: float = 0.0
    waiting: list[Gang] = field(default_factory=list)
    running: list[tuple[float, "np.ndarray[tuple[int, int], np.dtype[np.int64]]"]] = field(
        default_factory=list
    )
    started: dict[str, float] = field(default_factory=dict)

    def step(self, run_seconds: float) -> None:
        """One second: ends what is over, decides, starts what was admitted."""
        self.now += 1
        self.running = [(end, used) for end, used in self.running if end > self.now]
        nodes = racks(2, 2)
        used = sum((used for _, used in self.running), np.zeros((4, 5), dtype=np.int64))
        snapshot = a_snapshot(
            nodes, *self.waiting, queues=self.queues, used=used, now=self.now, settings=BOUND
        )
        for admit in decide(snapshot, self.orderer).admitted:
            taken = np.zeros_like(used)
            for task, placed in zip(admit.gang.tasks, admit.placement.tasks, strict=True):
                request = snapshot.nodes.axis.usage(task.request)
                taken[placed.rows] += placed.counts[:, None] * request
            self.running.append((self.now + run_seconds, taken))
            self.started[admit.gang.uid] = self.now
            self.waiting = [gang for gang in self.waiting if gang.uid != admit.gang.uid]


@pytest.mark.parametrize("orderer", ADVERSARIES)
@pytest.mark.parametrize(
    ("stream_queue", "due_before"),
    [pytest.param("default", 11, id="one-bound"), pytest.param("hasty", 21, id="shorter-bound")],
)
def test_a_large_gang_starts_soon_after_its_bound_under_an_endless_stream(
    orderer: Orderer, stream_queue: str, due_before: int
) -> None:
    run_seconds = 10
    world = World(orderer)
    for second in range(300):
        if second == 10:
            world.waiting.append(a_gang("large", a_task(32), arrived=10.0))
        # Eight of these run side by side for ten seconds: one each second is more than that.
        world.waiting.append(
            a_gang(
                f"s{second:03}", a_task(1, 4), arrived=float(second), priority=9, queue=stream_queue
            )
        )
        world.step(run_seconds)
        if "large" in world.started:
            break
    rounds = 1 + -(-due_before // 8)  # what runs when it is due, then all that were due before it
    assert world.started["large"] - 10.0 <= 100 + 1 + rounds * (run_seconds + 1)
    assert len(world.started) > 50
