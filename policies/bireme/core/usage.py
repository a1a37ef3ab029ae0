"""Device-seconds: who held the devices of a cluster, for how long, and whether they worked.

:func:`devices_held` counts the devices of one moment, :class:`UsageMeter` sums them over time.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import numpy as np

from bireme.core.decision import Hold
from bireme.core.device_use import open_nodes
from bireme.core.placement import usage_of
from bireme.core.running import RunningGang, summed
from bireme.core.snapshot import ClusterSnapshot


class Use(StrEnum):
    """What becomes of a device while a gang has it."""

    RUNNING = "running"
    """Its gang runs, whole."""
    STARTING = "starting"
    """Its gang has its places, and not all replicas have run yet."""
    STOPPING = "stopping"
    """Its gang has ended or gives its places up, and its pods still hold them."""
    RESERVED = "reserved"
    """It is free, and kept for a gang that waits."""


class Holder(NamedTuple):
    """Whose devices they are, and what they do.

    Attributes:
        resource: Such as ``nvidia.com/gpu``.
        pool: Value of the nodes' label; empty where they have none.
    """

    resource: str
    queue: str
    namespace: str
    pool: str
    use: Use


def devices_held(snapshot: ClusterSnapshot, holds: Iterable[Hold]) -> dict[Holder, float]:
    """Return the accelerators that gangs of ``snapshot`` have, and those kept for ``holds``.

    Each counts once, a share as the part of one that it is. Those of pods outside all gangs do not
    count.
    """
    pools = snapshot.nodes.label(snapshot.settings.node_pool_label)
    found = Counter[Holder]()
    for resource, gang, code, amount in (*_placed(snapshot), *_reserved(snapshot, holds)):
        queue, namespace, use = gang
        pool = pools.values[code] if code >= 0 else ""
        found[Holder(resource, queue, namespace, pool, use)] += amount
    weight = snapshot.nodes.accelerators.weight
    return {holder: count * weight(holder.resource) for holder, count in found.items()}


_Owner: TypeAlias = tuple[str, str, Use]
"""Queue and namespace of a gang, and what its devices do."""
_Held: TypeAlias = tuple[str, _Owner, int, int]
"""Resource, owner, code of the node pool and number of devices."""


def _placed(snapshot: ClusterSnapshot) -> Iterator[_Held]:
    table = snapshot.running_table
    pools = snapshot.nodes.label(snapshot.settings.node_pool_label)
    width = len(pools.values) + 1  # the code -1 of no pool is the first
    owners: dict[_Owner, int] = {}
    each = (owners.setdefault(_owner(running), len(owners)) for running in table.gangs)
    numbers = np.fromiter(each, dtype=np.int64, count=len(table.gangs))
    keys = numbers[table.owner] * width + pools.codes[table.rows] + 1
    names = list(owners)
    for column, resource in _devices(snapshot):
        amounts = np.zeros(len(names) * width, dtype=np.int64)
        np.add.at(amounts, keys, table.usage[:, column])
        for key in np.flatnonzero(amounts).tolist():
            yield resource, names[key // width], key % width - 1, int(amounts[key])


def _owner(running: RunningGang) -> _Owner:
    return running.gang.queue, running.gang.namespace, _use(running)


def _use(running: RunningGang) -> Use:
    if running.is_leaving:
        return Use.STOPPING
    return Use.STARTING if running.is_starting else Use.RUNNING


def _reserved(snapshot: ClusterSnapshot, holds: Iterable[Hold]) -> Iterator[_Held]:
    nodes = snapshot.nodes
    pools = nodes.label(snapshot.settings.node_pool_label)
    unused = np.where(
        open_nodes(nodes)[:, None], np.maximum(nodes.allocatable - snapshot.used, 0), 0
    )
    for hold in holds:
        if hold.reservation is None:
            continue
        rows, asked = summed(*usage_of(hold.gang, hold.reservation.placement, nodes.axis))
        kept = np.minimum(asked, unused[rows])
        unused[rows] -= kept
        owner = hold.gang.queue, hold.gang.namespace, Use.RESERVED
        for column, resource in _devices(snapshot):
            for row, amount in zip(rows.tolist(), kept[:, column].tolist(), strict=True):
                if amount:
                    yield resource, owner, int(pools.codes[row]), amount


def _devices(snapshot: ClusterSnapshot) -> list[tuple[int, str]]:
    """Return column and name of every resource that is an accelerator."""
    known = snapshot.nodes.accelerators.is_accelerator
    return [(at, name) for at, name in enumerate(snapshot.nodes.axis.names) if known(name)]


class Lapse(NamedTuple):
    """Time that has passed, in seconds, and the device-seconds in it by holder."""

    seconds: float
    device_seconds: Mapping[Holder, float]


@dataclass(slots=True)
class UsageMeter:
    """Turns numbers of devices at moments into device-seconds between them.

    What is seen counts until the next look. Nothing counts before the first, so that of two leaders
    of an operator, one after the other, no second counts twice.
    """

    _at: float | None = None
    _devices: Mapping[Holder, float] = field(default_factory=dict)

    def look(self, at: float, devices: Mapping[Holder, float]) -> Lapse:
        """Return what has passed since the last look, and remember ``devices`` from now on.

        ``at`` is in seconds. Where a clock was set back, no time has passed.
        """
        seconds = 0.0 if self._at is None else max(0.0, at - self._at)
        lapse = Lapse(seconds, {holder: seconds * n for holder, n in self._devices.items()})
        self._at, self._devices = at, devices
        return lapse
