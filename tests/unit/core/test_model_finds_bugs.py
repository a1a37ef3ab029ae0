"""The checkers are checked: bugs put into the core are found, each by the check that is for it.

Every bug replaces one real function by a variant with a mistake that people make. A history of a
cluster that shows it is written down by its seed: the rules of ``test_model.py``, drawn by a plain
random generator. Where that seed no longer shows the bug the next ones are tried. A bug that none
shows means that a check has gone blind, or that the function has moved: then the bug moves with it.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from bireme.core import candidates, cycle, elastic, messages, preemption
from bireme.core.admission import AdmissionPass
from bireme.core.gangs import Gang
from bireme.core.guardrails import CheckedPlacer
from bireme.core.nodes import NodeTable
from bireme.core.overdue import OverdueLine
from bireme.core.placement import Placement
from bireme.core.policy import Placer, Ranked
from bireme.core.preemption import VictimSearch
from bireme.core.queue_tree import QueueTree
from bireme.core.queues import Queue
from bireme.core.reservations import CapacityLedger
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot
from testbed.model.machine import DISTURBANCES, JOBS, STEPS, Machine, Submission

MORE_SEEDS = 200
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Bug:
    """A mistake in the function ``name`` of ``place``, and the check that must see it."""

    place: object
    name: str
    make: Callable[[Function], Function]
    found_by: str
    seed: int = 0


def lets_all_the_overdue_go_first(real: Function) -> Function:
    def init(self: Any, snapshot: ClusterSnapshot, *others: Any) -> None:
        settings = replace(snapshot.settings, overdue_share=1.0)
        real(self, replace(snapshot, settings=settings), *others)

    return init


def forgets_who_is_overdue(_: Function) -> Function:
    def first(ranked: Sequence[Ranked], _: object) -> list[Ranked]:
        return [entry for entry in ranked if entry.gang.displaced]

    return first


def lets_one_more_in(real: Function) -> Function:
    def excess(self: Queue, used: Any, asked: Any) -> Any:
        more = replace(self, limit={name: limit + 1 for name, limit in self.limit.items()})
        return real(more, used, asked)

    return excess


def looks_at_no_parent(real: Function) -> Function:
    def excess(self: QueueTree, queue: str, *given: Any, **more: Any) -> Any:
        found = real(self, queue, *given, **more)
        return found if found and found[0] == queue else None

    return excess


def stops_equals_too(real: Function) -> Function:
    def init(self: candidates.Candidates, *given: Any) -> None:
        real(self, *given)
        self.priority = np.nextafter(self.priority, -1.0)

    return init


def stops_for_service_at_once(_: Function) -> Function:
    return lambda preemption_priority, _: preemption_priority


def forgets_the_minimum_run_time(real: Function) -> Function:
    return _with_other_settings(real, min_runtime_seconds=0)


def forgets_the_eviction_budget(real: Function) -> Function:
    return _with_other_settings(real, eviction_budget=10**6)


def _with_other_settings(real: Function, **changes: Any) -> Function:
    def init(self: candidates.Candidates, snapshot: ClusterSnapshot, *given: Any) -> None:
        changed = replace(snapshot, settings=replace(snapshot.settings, **changes))
        real(self, changed, *given)

    return init


def forgets_how_long_victims_waited(real: Function) -> Function:
    def init(self: candidates.Candidates, *given: Any) -> None:
        real(self, *given)
        self.overdue = np.zeros_like(self.overdue)

    return init


def takes_leaving_for_gone(real: Function) -> Function:
    def post_init(self: AdmissionPass) -> None:
        real(self)
        for running in self.snapshot.running:
            if running.is_leaving:
                np.add.at(self.ledger.now.free, *running.usage(self.snapshot.nodes.axis))

    return post_init


def spares_nobody(_: Function) -> Function:
    def prune(self: VictimSearch, chosen: list[int], placement: Placement, may: object) -> Any:
        return chosen, placement

    return prune


def gives_places_away_twice(_: Function) -> Function:
    return lambda *_: None


def places_one_replica_fewer(real: Function) -> Function:
    def place(self: CheckedPlacer, gang: Gang, capacity: Any) -> Placement | None:
        sizes = {task.name: max(1, task.replicas - 1) for task in gang.tasks}
        placement: Placement | None = real(self, gang.with_sizes(sizes), capacity)
        return placement

    return place


def lets_the_short_into_closed_places(_: Function) -> Function:
    def ends_in_time(self: CapacityLedger, gang: Gang) -> bool:
        if self.reservation is None:
            return True
        estimate = gang.estimated_seconds
        return estimate is not None and self._time + estimate <= self.reservation.start + 100

    return ends_in_time


def shrinks_below_the_minimum(real: Function) -> Function:
    def smaller(running: RunningGang, sizes: Any, nodes: NodeTable) -> Any:
        return real(running, {name: max(1, size - 1) for name, size in sizes.items()}, nodes)

    return smaller


def empties_the_node_of_replica_0(real: Function) -> Function:
    return lambda task, excess, _: real(task, excess, -1)


def grows_while_others_wait(real: Function) -> Function:
    def resizes(admission: AdmissionPass) -> Any:
        admission.position = 0
        return real(admission)

    return resizes


def remembers_other_nodes(real: Function) -> Function:
    known: dict[object, Any] = {}

    def never_fits(gang: Gang, nodes: NodeTable, placer: Placer) -> Any:
        if gang.shape not in known:
            known[gang.shape] = real(gang, nodes, placer)
        return known[gang.shape]

    return never_fits


def reclaims_for_anybody(_: Function) -> Function:
    return lambda *_, **__: True


def decides_by_order_of_input(real: Function) -> Function:
    def decided(snapshot: ClusterSnapshot, *given: Any) -> Any:
        first = snapshot.waiting[0].uid if snapshot.waiting else ""
        gangs = tuple(g for g in snapshot.waiting if g.uid != first or len(snapshot.waiting) < 2)
        return real(replace(snapshot, waiting=gangs), *given)

    return decided


BUGS = (
    Bug(cycle, "_urgent", forgets_who_is_overdue, "turns_come_in_order"),
    Bug(
        OverdueLine,
        "__init__",
        lets_all_the_overdue_go_first,
        "the_line_of_the_overdue_is_short",
    ),
    Bug(Queue, "excess", lets_one_more_in, "queues_stay_within_their_limits", seed=3),
    Bug(QueueTree, "excess", looks_at_no_parent, "queues_stay_within_their_limits", seed=1),
    Bug(candidates.Candidates, "__init__", stops_equals_too, "only_the_lower", seed=3),
    Bug(
        preemption,
        "stop_priority_of",
        stops_for_service_at_once,
        "only_the_lower_make_room",
        seed=4,
    ),
    Bug(
        candidates.Candidates,
        "__init__",
        forgets_the_minimum_run_time,
        "only_those_stop_that_may",
        seed=8,
    ),
    Bug(
        candidates.Candidates,
        "__init__",
        forgets_the_eviction_budget,
        "only_those_stop_that_may",
        seed=69,
    ),
    Bug(candidates.Candidates, "__init__", forgets_how_long_victims_waited, "only_the_lower"),
    Bug(AdmissionPass, "__post_init__", takes_leaving_for_gone, "nodes_hold_what_they_offer"),
    Bug(VictimSearch, "_prune", spares_nobody, "every_stop_is_needed", seed=38),
    Bug(CapacityLedger, "take", gives_places_away_twice, "nodes_hold_what_they_offer"),
    Bug(CapacityLedger, "keep", gives_places_away_twice, "room_that_is_made_is_enough"),
    Bug(CheckedPlacer, "place", places_one_replica_fewer, "gangs_start_whole"),
    Bug(
        CapacityLedger,
        "ends_in_time",
        lets_the_short_into_closed_places,
        "nobody_takes_reserved_places",
        seed=400,
    ),
    Bug(
        candidates,
        "smaller",
        shrinks_below_the_minimum,
        "sizes_stay_between_least_and_most",
        seed=6,
    ),
    Bug(elastic, "_without", empties_the_node_of_replica_0, "replica_0_stays", seed=2),
    Bug(cycle, "resizes", grows_while_others_wait, "nobody_grows_while_others_wait"),
    Bug(messages, "never_fits", remembers_other_nodes, "a_verdict_is_true", seed=2),
    Bug(QueueTree, "may_evict", reclaims_for_anybody, "only_the_lower", seed=41),
    Bug(cycle, "_decide", decides_by_order_of_input, "everybody_is_answered_once"),
)


def history(seed: int) -> str:
    """The first problem of one random history; empty when there is none."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    machine = Machine()

    def submission() -> Submission:
        queue, priority = draw.choice((0, 0, 0, 1, 2, 3, 4, 4, 5)), draw.choice((0, 0, 10, 1000))
        estimate = draw.choice((None, 5.0, 20.0, 100.0))
        return draw.randrange(len(JOBS)), queue, priority, estimate

    def place() -> int:
        return draw.randrange(12)

    steps: tuple[Callable[[], object], ...] = (
        lambda: machine.disturb(draw.choice(DISTURBANCES), place(), place()),
        lambda: machine.submit(submission()),
        lambda: machine.submit_and_decide(submission()),
        lambda: machine.end(place(), draw.choice(("finish", "finish", "fail"))),
        lambda: machine.leave(place()),
        lambda: machine.tick(draw.choice((1.0, 5.0, 20.0, 70.0))),
        lambda: machine.decide(draw.choice((1, 1, 2, 5))),
    )
    try:
        machine.begin([submission() for _ in range(draw.randint(2, 6))])
        for _ in range(STEPS):
            draw.choice(steps)()
        machine.teardown()
    except AssertionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.make.__name__)
def test_a_bug_is_found_by_the_check_that_is_for_it(
    bug: Bug, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bug.place, bug.name, bug.make(getattr(bug.place, bug.name)))
    seeds = range(bug.seed, bug.seed + MORE_SEEDS)
    assert any(bug.found_by in history(seed) for seed in seeds)
