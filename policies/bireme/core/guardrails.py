"""Guardrails: checks of the answers of orderers, sizers and placers, learned or not.

If an answer is invalid, the policy's rules answer in the same cycle. One orderer orders all gangs
of a policy in a cycle, because the preemption priorities of two do not compare. Without rules, a
gang whose placer fails has no places; without a sizer's answer, the general rule sizes all gangs. A
fault text names no gang.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from bireme.core import ruled_placement
from bireme.core.errors import error_text
from bireme.core.gangs import Gang
from bireme.core.placement import (
    FreeCapacity,
    Placement,
    TaskPlacement,
    keeps_affinity,
    usage_of,
)
from bireme.core.policy import (
    Orderer,
    Placer,
    Policy,
    Ranked,
    Sizer,
    TotalOrder,
    is_asked,
    placer_on,
)
from bireme.core.running import RunningGang, sum_by_row
from bireme.core.snapshot import ClusterSnapshot

PATIENCE: Final = 3
"""The limit on invalid answers of a placer in one cycle."""

Sizes = dict[str, dict[str, int]]
"""Target replicas by gang uid and task name."""


class OrderError(Exception):
    """An orderer failed, lost or invented a gang; the text says which."""


class CheckedOrderer:
    """Wraps an orderer; its answers are complete: all gangs, each once."""

    def __init__(self, orderer: Orderer) -> None:
        self._orderer = orderer

    def lowest_preemption_priority(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> float:
        """Return a lower bound on the preemption priority of ``gangs``; -infinity if unknown."""
        lowest = getattr(self._orderer, "lowest_preemption_priority", None)
        if lowest is None:
            return -math.inf
        try:
            return float(lowest(gangs, snapshot))
        except Exception as error:  # a policy may raise anything
            raise OrderError(f"the orderer failed: {error_text(error)}") from error

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Return all ``gangs``, each once. Raises OrderError for any other answer."""
        if not gangs:
            return []
        try:
            ranked = list(self._orderer.order(gangs, snapshot))
            # By identity: an orderer that returns a gang with other tasks has invented it.
            is_whole = {id(e.gang) for e in ranked} == {id(g) for g in gangs}
            is_sound = all(
                math.isfinite(e.score)
                and not math.isnan(e.preemption_priority or 0.0)
                and not math.isnan(e.stop_priority or 0.0)
                and not math.isnan(e.stop_priority_until or 0.0)
                for e in ranked
            )
        except Exception as error:  # a policy may raise anything
            raise OrderError(f"the orderer failed: {error_text(error)}") from error
        if len(ranked) != len(gangs) or not is_whole:
            raise OrderError(
                f"the orderer returned {len(ranked)} of {len(gangs)} gangs, or unknown ones"
            )
        if not is_sound:
            raise OrderError(
                "the orderer returned a score that is no finite number, or a preemption priority"
                " or its moment that is not a number"
            )
        return ranked


class ByArrival:
    """First come, first served, without preemption: the order when all orderers fail."""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Return ``gangs``, first to arrive first, ties by uid."""
        return [Ranked(g, 0.0) for g in sorted(gangs, key=lambda gang: (gang.arrived, gang.uid))]


def orderers(policy: Policy) -> "Iterator[CheckedOrderer]":
    """Yield the orderers that may decide the cycle: the policy's, its rules', then arrival."""
    yield CheckedOrderer(policy.orderer)
    if policy.rules is not None:
        yield CheckedOrderer(policy.rules.orderer)
    yield CheckedOrderer(ByArrival())  # it cannot fail


class CheckedSizer:
    """Wraps a sizer; its answers are within every gang's smallest and largest size.

    Attributes:
        fault: The fault of the answer; empty without one.
    """

    def __init__(self, sizer: Sizer | None) -> None:
        self.fault = ""
        self._sizer = sizer

    def sizes(self, order: TotalOrder, snapshot: ClusterSnapshot) -> Sizes:
        """Return the target sizes of the sizer; gangs that it leaves out have none."""
        table = snapshot.running_table
        elastic = [table.gangs[index] for index in np.flatnonzero(table.is_elastic).tolist()]
        speeds = [gang.speed for gang in snapshot.waiting if gang.is_elastic]
        speeds += [running.gang.speed for running in elastic]
        if self._sizer is None or not is_asked(self._sizer, speeds):
            return {}
        try:
            answer = self._sizer.sizes(order.ranked, snapshot)
            return {
                entry.gang.uid: _within(entry.gang, answer[entry.gang.uid])
                for entry in order.ranked
                if entry.gang.uid in answer
            }
        except OrderError:  # from order.ranked: another orderer decides the cycle
            raise
        except Exception as error:  # noqa: BLE001  # a policy may raise anything
            self.fault = f"the sizer failed: {error_text(error)}"
            return {}


def _uid_text(gang: Gang) -> str:
    """Return a text that identifies the gang on a SchedulingPolicy."""
    # More people may read SchedulingPolicies than may read the gang.
    return f"the gang with uid {gang.uid}"


def _within(gang: Gang, sizes: Mapping[str, int]) -> dict[str, int]:
    """Clip ``sizes``: at least the minimum, at most the maximum (if elastic) or the request."""
    minimum = {task.name: task.replicas for task in gang.at_minimum.tasks}
    within = {}
    for task in gang.tasks:
        size: object = sizes.get(task.name, task.replicas)
        if not isinstance(size, (int, np.integer)):
            whose = f"a task of {_uid_text(gang)}"
            raise ValueError(f"it wants {size!r} replicas of {whose}, which is not a whole number")
        maximum = task.maximum if gang.is_elastic else task.replicas
        within[task.name] = max(minimum[task.name], min(int(size), maximum))
    return within


class CheckedPlacer:
    """Wraps a placer; if it fails or over-commits, the placer of the rules answers, if any.

    Attributes:
        fault: The fault of the last invalid answer; empty without one.
    """

    def __init__(self, policy: Policy, snapshot: ClusterSnapshot) -> None:
        self.fault = ""
        self.name = type(policy.placer).__qualname__
        self._own_placer, self._snapshot = policy.placer, snapshot
        self._rules: Placer | None = policy.rules.placer if policy.rules else None
        self._patience = PATIENCE

    @cached_property
    def _placer(self) -> Placer:
        """The placer of this cycle."""
        return placer_on(self._own_placer, self._snapshot)

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Return a valid placement of the whole gang, or None."""
        placement = self._answer(gang, capacity)
        # A placer knows all rules of pods without demands of their own.
        if not gang.has_demands or (
            placement and ruled_placement.keeps_rules(gang, placement, capacity)
        ):
            return placement
        # No placer knows the rules between the pods of one gang.
        return ruled_placement.place(gang, capacity)

    def faster(self, running: RunningGang, capacity: FreeCapacity, now: float) -> Placement | None:
        """Return the places to which moving ``running`` pays off, if the placer knows any."""
        ask = getattr(self._placer, "faster", None)
        if ask is None:
            return None
        try:
            placement: Placement | None = ask(running, capacity, now)
            fault = flaw(running.current, placement, capacity) if placement is not None else ""
        except Exception as error:  # noqa: BLE001  # a policy may raise anything
            fault = error_text(error)
        if not fault:
            return placement
        self.fault = f"the placer failed to move {_uid_text(running.gang)}: {fault}"
        return None

    def _answer(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Return a placement that is whole and fits, or None."""
        # Each invalid answer may have taken as long as a placer is allowed to take.
        if self._rules is not None and not self._patience:
            return self._rules.place(gang, capacity)
        try:
            placement = self._placer.place(gang, capacity)
            fault = flaw(gang, placement, capacity) if placement is not None else ""
        except Exception as error:  # noqa: BLE001  # a policy may raise anything
            placement, fault = None, error_text(error)
        if not fault:
            return placement
        self.fault = f"the placer failed for {_uid_text(gang)}: {fault}"
        if self._rules is None:
            return None
        self._patience -= 1
        return self._rules.place(gang, capacity)


def flaw(gang: Gang, placement: Placement, capacity: FreeCapacity) -> str:
    """Return the fault of ``placement``; empty if it is whole and fits."""
    counts = {task.task: int(task.counts.sum()) for task in placement.tasks}
    requested = {task.name: task.replicas for task in gang.tasks}
    if counts != requested or len(placement.tasks) != len(gang.tasks):
        return f"it placed {counts} replicas, the gang has {requested}"
    by_name = {task.task: task for task in placement.tasks}
    for task in gang.tasks:
        where = by_name[task.name]
        if not _is_plain(where, len(capacity.nodes)):
            return f"task {task.name} is on rows {where.rows} with {where.counts} replicas"
        if not capacity.replicas(task)[where.rows].all():
            return f"task {task.name} was placed on a node that cannot take one of its replicas"
    # All tasks together: each may fit alone where they do not fit together.
    rows, used = sum_by_row(*usage_of(gang, placement, capacity.nodes.axis))
    if bool(((used > capacity.free[rows]) & (used > 0)).any()):
        return "it over-commits a node"
    if not keeps_affinity(gang, placement.tasks, capacity.nodes):
        return "a worker has no parameter server in its domain"
    return ""


def _is_plain(task: TaskPlacement, nodes: int) -> bool:
    """Return whether ``task`` is on rows of the table, each once, ascending, with replicas."""
    rows, counts = task.rows, task.counts
    return (
        rows.dtype.kind == counts.dtype.kind == "i"
        and rows.shape == counts.shape
        and bool((rows[1:] > rows[:-1]).all())
        and int(rows[0]) >= 0
        and int(rows[-1]) < nodes
        and bool((counts > 0).all())
    )
