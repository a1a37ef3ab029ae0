"""The hard wait bound under attack: whatever the policy, the estimates and the other gangs do.

Once a gang is first in line (its node was lost, or it is longest past its bound and nobody runs who
passed theirs before it did) and its queue's limits allow it, it starts at the latest when all gangs
have ended that ran at that moment, and those that are being stopped just then have left.
"""

import random
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision, Hold
from bireme.core.gangs import Gang, Role, Task
from bireme.core.policy import Policy, Ranked
from bireme.core.queue_tree import QueueTree
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.testing import GPU, a_gang, a_node, a_snapshot, a_task
from testbed.examples import examples
from testbed.small_cluster import SmallCluster
from testbed.workloads import growing

HURRIED = SchedulingSettings(
    wait_bound_seconds=20,
    min_runtime_seconds=0,
    eviction_budget=2,
    eviction_backoff_seconds=0,
    resize_settle_seconds=2,
)
QUEUES = (
    Queue("default"),
    Queue("hasty", wait_bound_seconds=3),
    Queue("org", limit={GPU: 10}),
    Queue("team", parent="org", limit={GPU: 9}),
    Queue("rival", parent="org"),
)


class Spiteful:
    """Another order for every question, at random; the victims last, and stopped for anybody."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        drawn = sorted(gangs, key=lambda gang: gang.uid)
        self.chance.shuffle(drawn)
        drawn.sort(key=lambda gang: gang.uid.startswith("victim"))
        return [
            Ranked(
                g,
                0.0,
                preemption_priority=-1.0 if g.uid.startswith("victim") else self.chance.random(),
            )
            for g in drawn
        ]


class Greedy:
    """A sizer that wants every gang as large as it may be, however many wait."""

    def sizes(
        self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        return {e.gang.uid: {t.name: 10**6 for t in e.gang.tasks} for e in ranked}


@dataclass
class Promise:
    """The gang that is first in line, and those that ran at that moment (uid and start).

    ``stop_seconds`` is how long it takes to stop a gang.
    """

    stop_seconds: float
    first: str = ""
    ran: frozenset[tuple[str, float]] = frozenset()
    running: frozenset[str] = frozenset()
    last_ran: float = 0.0
    broken: list[str] = field(default_factory=list)
    kept: int = 0
    hopeless: frozenset[str] = frozenset()

    def watch(self, before: ClusterSnapshot, decision: Decision) -> None:
        """Look at a decision on ``before``."""
        # A gang that can never fit stands in line until a cycle has found that out.
        first = first_in_line(before, self.hopeless)
        unfit = (Reason.NEVER_FITS, Reason.NODES_NOT_READY)
        told = {h.gang.uid for h in decision.held if h.reason in unfit}
        # What a cycle does not reach keeps its verdict.
        self.hopeless = self.hopeless & {gang.uid for gang in decision.unreached} | told
        runs = frozenset((r.gang.uid, r.started) for r in before.running)
        waits = frozenset(gang.uid for gang in before.waiting)
        if first != self.first:
            # Of two that lost a node, the one that is past its bound first goes first from then on.
            late = {g.uid for g in before.waiting if before.overdue_seconds(g) > 0}
            # And who comes back to the line may go before.
            if self.first in late and not waits & self.running:
                self.broken.append(f"at {before.now} {first} goes before {self.first}")
            self.first, self.ran, self.last_ran = first, runs, before.now
        self.ran &= runs
        self.running = frozenset(uid for uid, _ in runs)
        if not self.first or self.first in started(decision) | told:
            self.kept += self.first in started(decision)
            self.first = ""
        elif self.ran:
            self.last_ran = before.now
        elif before.now > self.last_ran + max(1.0, self.stop_seconds):
            self.broken.append(f"at {before.now} {self.first} waits for gangs that came later")


def started(decision: Decision) -> set[str]:
    return {admit.gang.uid for admit in decision.admitted}


def first_in_line(before: ClusterSnapshot, hopeless: Set[str]) -> str:
    """The uid; empty where nobody is, or a queue's limit is what the first one waits for.

    Gangs that are ``hopeless`` will never fit.
    """
    line = sorted(
        (not gang.displaced, -before.overdue_seconds(gang), gang.arrived, gang.uid)
        for gang in before.waiting
        if (gang.displaced or before.overdue_seconds(gang) > 0) and gang.uid not in hopeless
    )
    if not line:
        return ""
    first = next(gang for gang in before.waiting if gang.uid == line[0][-1])
    passed = (before.now - before.overdue_seconds(first), first.arrived, first.uid)
    if not first.displaced and any(
        (held.started - late, held.gang.arrived, held.gang.uid) < passed
        for held in before.running
        if not held.is_leaving and (late := before.overdue_seconds(held.gang)) > 0
    ):
        return ""
    queues = QueueTree(before.queues, before.queue_usage, before.total)
    allowed = queues.excess(first.queue, first.at_minimum.demand) is None
    return first.uid if allowed else ""


def attack(
    world: SmallCluster, arrivals: Mapping[int, list[tuple[Gang, float]]], seconds: int
) -> Promise:
    """Second after second, one cycle each."""
    promise = Promise(world.stop_seconds)
    for now in range(seconds):
        world.advance(float(now))
        for gang, run_seconds in arrivals.get(now, []):
            world.submit(gang, run_seconds)
        before = world.snapshot()
        promise.watch(before, world.decide())
    return promise


def a_world(seed: int, *, stop_seconds: float = 0.0, sizer: bool = False) -> SmallCluster:
    policy = Policy(Spiteful(seed), Packing(), Greedy() if sizer else None)
    nodes = [a_node("n0", 8), a_node("n1", 4), a_node("n2", 2)]
    return SmallCluster(nodes, policy, HURRIED, QUEUES, stop_seconds)


def a_stream(
    queue: str, seconds: int, chance: random.Random
) -> dict[int, list[tuple[Gang, float]]]:
    """Endless small gangs that say they take a second and take longer."""
    return {
        now: [
            (
                a_gang(
                    f"s{now:03}",
                    a_task(1, chance.choice((1, 2))),
                    queue=queue,
                    estimated_seconds=1.0,
                ),
                float(chance.randint(2, 12)),
            )
        ]
        for now in range(seconds)
    }


@pytest.mark.parametrize("queue", ["default", "hasty", "team"])
@pytest.mark.parametrize("seed", [0, 1, 3])
def test_a_large_gang_starts_under_an_endless_stream_of_lying_small_ones(
    seed: int, queue: str
) -> None:
    world = a_world(seed)
    arrivals = a_stream(queue, 150, random.Random(seed))  # noqa: S311
    victim = a_gang("victim", a_task(1, 8), queue=queue)
    arrivals[5].append((victim, 10.0))
    promise = attack(world, arrivals, 150)
    assert promise.broken == world.problems == []
    assert promise.kept, "somebody was past the bound"
    assert world.started["victim"] < 5 + 20 + 3 * 12


@st.composite
def some_arrivals(draw: st.DrawFn) -> dict[int, list[tuple[Gang, float]]]:
    """Gangs of all kinds, some of them victims, in 60 seconds."""
    arrivals: dict[int, list[tuple[Gang, float]]] = {}
    for index in range(draw(st.integers(5, 40))):
        name = draw(st.sampled_from(("victim", "a", "b"))) + f"{index:02}"
        tasks = draw(st.sampled_from(KINDS))
        estimate = draw(st.sampled_from((None, 1.0, 5.0, 50.0)))
        gang = a_gang(
            name,
            *tasks,
            queue=draw(st.sampled_from(("default", "default", "hasty", "team", "rival"))),
            estimated_seconds=estimate,
            is_elastic=any(task.max_replicas for task in tasks),
        )
        at = draw(st.integers(0, 60))
        arrivals.setdefault(at, []).append((gang, float(draw(st.integers(1, 25)))))
    return arrivals


KINDS: tuple[tuple[Task, ...], ...] = (
    (a_task(1, 1),),
    (a_task(3, 1),),
    (a_task(1, 8),),
    (a_task(2, 4),),
    (a_task(14, 1),),
    (growing(2, 1, 8),),
    (growing(4, 2, 14),),
    (a_task(1, 0, role=Role.PS, cpu_millis=40_000), a_task(4, 2)),
)


@examples(8)
@given(some_arrivals(), st.integers(0, 10**6), st.sampled_from((0.0, 3.0)), st.booleans())
def test_the_first_in_line_waits_for_nobody_that_came_later(
    arrivals: dict[int, list[tuple[Gang, float]]], seed: int, stop_seconds: float, sizer: bool
) -> None:
    world = a_world(seed, stop_seconds=stop_seconds, sizer=sizer)
    promise = attack(world, arrivals, 200)
    assert promise.broken == world.problems == []


@examples(8)
@given(some_arrivals(), st.integers(0, 10**6), st.integers(3, 6), st.integers(1, 4))
def test_it_holds_where_cycles_reach_few_gangs_and_lines_are_short(
    arrivals: dict[int, list[tuple[Gang, float]]], seed: int, visits: int, pending: int
) -> None:
    world = a_world(seed)
    world.visits = visits
    world.settings = replace(HURRIED, namespace_pending_limit=pending, namespace_shape_limit=4)
    tenants = {
        at: [(replace(gang, namespace=gang.name[0]), seconds) for gang, seconds in gangs]
        for at, gangs in arrivals.items()
    }
    promise = attack(world, tenants, 200)
    assert promise.broken == world.problems == []


@examples(8)
@given(some_arrivals(), st.integers(0, 10**6), st.integers(10, 50), st.sampled_from("012"))
def test_it_holds_for_gangs_that_lost_a_node_too(
    arrivals: dict[int, list[tuple[Gang, float]]], seed: int, lost_at: int, node: str
) -> None:
    world = a_world(seed)
    early = {at: gangs for at, gangs in arrivals.items() if at < lost_at}
    first = attack(world, early, lost_at)
    world.lose(f"n{node}")
    later = {at - lost_at: gangs for at, gangs in arrivals.items() if at >= lost_at}
    promise = Promise(0.0)
    for now in range(150):
        world.advance(float(lost_at + now))
        for gang, run_seconds in later.get(now, []):
            world.submit(gang, run_seconds)
        before = world.snapshot()
        promise.watch(before, world.decide())
    assert first.broken == promise.broken == world.problems == []


@pytest.mark.parametrize("lost", [True, False], ids=["lost a node", "past their bound"])
def test_the_first_to_arrive_starts_first_where_all_are_equally_late(lost: bool) -> None:
    # The bounds of their queues make the second exactly as late as the first.
    first = a_gang("z-first", a_task(1, 2), queue="default", arrived=0.0, displaced=lost)
    second = a_gang("a-second", a_task(1, 2), queue="hasty", arrived=17.0, displaced=lost)
    before = a_snapshot(
        [a_node("n0", 2)],
        second,
        first,
        queues=QUEUES,
        now=18.0 if lost else 25.0,
        settings=HURRIED,
    )
    assert before.overdue_seconds(first) == before.overdue_seconds(second)
    decision = run_cycle(before, Policy(Spiteful(0), Packing()))
    assert started(decision) == {"z-first"} == {first_in_line(before, frozenset())}


def test_the_reservation_of_an_overdue_gang_is_closed_whatever_the_policy_says() -> None:
    world = a_world(1)
    world.submit(a_gang("runs", a_task(1, 8), estimated_seconds=1000.0), 1000.0)
    world.decide()
    world.submit(a_gang("victim", a_task(1, 8)), 10.0)
    world.advance(30.0)
    world.submit(a_gang("short", a_task(1, 2), estimated_seconds=1.0), 1.0)
    holds = {h.gang.uid: h for h in world.decide().actions if isinstance(h, Hold)}
    reservation = holds["victim"].reservation
    assert reservation is not None
    assert reservation.is_closed
