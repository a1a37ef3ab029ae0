"""Promises about room: of nodes and of queues, for every resource, at every revision.

Both are looked at when a pod gets its node: only then can Bireme have taken too much. A node that
shrinks under its pods or a limit that is lowered later is nobody's fault.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from tests.support.history.amounts import Amounts, amounts, shown, total
from tests.support.history.records import Record
from tests.support.history.violations import Violation, violation
from tests.support.history.world import World


class NodesNotOvercommitted:
    """The pods of a node ask no more than it offers, of any resource."""

    name: Final = "node-overcommitted"

    def see(self, world: World, record: Record) -> Iterator[Violation]:
        pod = world.newly_bound(record)
        offered = world.allocatable(pod.node) if pod is not None else None
        if pod is None or offered is None:
            return
        here = [p.request for p in world.pods.values() if p.node == pod.node and p.holds_node]
        for resource, excess in _excess(total(here), offered).items():
            message = f"{excess} of {resource} with pod {pod.name}"
            yield violation(self.name, record, f"node {pod.node}", message)


class QueueLimitsKept:
    """The gangs on nodes ask no more together than the limit of their queue."""

    name: Final = "queue-limit-exceeded"

    def see(self, world: World, record: Record) -> Iterator[Violation]:
        pod = world.newly_bound(record)
        if pod is None or not pod.is_ours or not pod.gang[1]:
            return
        name = world.queue_of(pod.gang)
        queue = world.get("Queue", ("", name)) or {}
        limit = amounts(queue.get("spec", {}).get("limit"))
        if not limit:
            return
        held = [
            p.request
            for gang, pods in world.gangs.items()
            if gang[1] and world.queue_of(gang) == name
            for p in pods.values()
            if p.is_active
        ]
        for resource, excess in _excess(_named(total(held), limit), limit).items():
            yield violation(self.name, record, f"queue {name}", f"{excess} of {resource}")


def _named(used: Amounts, limit: Amounts) -> Amounts:
    return {name: value for name, value in used.items() if name in limit}


def _excess(used: Amounts, most: Amounts) -> dict[str, str]:
    """Resource to words where more is used than there is; what is not named is not there."""
    return {
        name: f"{shown(value)} used, {shown(most.get(name, Fraction(0)))} there"
        for name, value in used.items()
        if value > most.get(name, 0)
    }
