"""Device-seconds: which gangs held the devices of a cluster, for how long, and in which state.

:func:`devices_held` counts the devices at one moment, :class:`UsageMeter` sums them over time.
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
from bireme.core.running import RunningGang, sum_by_row
from bireme.core.snapshot import ClusterSnapshot


class Use(StrEnum):
    """The state of a device that a gang holds."""

    RUNNING = "running"
    """The whole gang runs."""
    STARTING = "starting"
    """The gang has its places, but not all replicas have run yet."""
    STOPPING = "stopping"
    """The gang has ended or gives up its places, and its pods still hold them."""
    RESERVED = "reserved"
    """The device is free, and kept for a waiting gang."""


class Holder(NamedTuple):
    """The owner of devices, and their state.

    Attributes:
        resource: Such as ``nvidia.com/gpu``.
        pool: Value of the nodes' pool label; empty where they have none.
    """

    resource: str
    queue: str
    namespace: str
    pool: str
    use: Use


def devices_held(snapshot: ClusterSnapshot, holds: Iterable[Hold]) -> dict[Holder, float]:
    """Return the accelerators that gangs of ``snapshot`` hold, and those reserved by ``holds``.

    A share of a device counts as that fraction. Devices of pods outside all gangs do not count.
    """
    pools = snapshot.nodes.label(snapshot.settings.node_pool_label)
    totals = Counter[Holder]()
    for resource, gang, code, amount in (
        *_usage_by_gang(snapshot),
        *_usage_by_reservation(snapshot, holds),
    ):
        queue, namespace, use = gang
        pool = pools.values[code] if code >= 0 else ""
        totals[Holder(resource, queue, namespace, pool, use)] += amount
    weight = snapshot.nodes.accelerators.weight
    return {holder: count * weight(holder.resource) for holder, count in totals.items()}


_Owner: TypeAlias = tuple[str, str, Use]
"""Queue and namespace of a gang, and the state of its devices."""
_GangUsage: TypeAlias = tuple[str, _Owner, int, int]
"""Resource, owner, code of the node pool and number of devices."""


def _usage_by_gang(snapshot: ClusterSnapshot) -> Iterator[_GangUsage]:
    table = snapshot.running_table
    pools = snapshot.nodes.label(snapshot.settings.node_pool_label)
    width = len(pools.values) + 1  # the first code, -1, stands for no pool
    owners: dict[_Owner, int] = {}
    indices = (owners.setdefault(_owner(running), len(owners)) for running in table.gangs)
    numbers = np.fromiter(indices, dtype=np.int64, count=len(table.gangs))
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


def _usage_by_reservation(snapshot: ClusterSnapshot, holds: Iterable[Hold]) -> Iterator[_GangUsage]:
    nodes = snapshot.nodes
    pools = nodes.label(snapshot.settings.node_pool_label)
    unused = np.where(
        open_nodes(nodes)[:, None], np.maximum(nodes.allocatable - snapshot.used, 0), 0
    )
    for hold in holds:
        if hold.reservation is None:
            continue
        rows, request = sum_by_row(*usage_of(hold.gang, hold.reservation.placement, nodes.axis))
        reserved = np.minimum(request, unused[rows])
        unused[rows] -= reserved
        owner = hold.gang.queue, hold.gang.namespace, Use.RESERVED
        for column, resource in _devices(snapshot):
            for row, amount in zip(rows.tolist(), reserved[:, column].tolist(), strict=True):
                if amount:
                    yield resource, owner, int(pools.codes[row]), amount


def _devices(snapshot: ClusterSnapshot) -> list[tuple[int, str]]:
    """Return column and name of every resource that is an accelerator."""
    is_accelerator = snapshot.nodes.accelerators.is_accelerator
    return [
        (column, name)
        for column, name in enumerate(snapshot.nodes.axis.names)
        if is_accelerator(name)
    ]


class Lapse(NamedTuple):
    """A time span in seconds, and the device-seconds within it by holder."""

    seconds: float
    device_seconds: Mapping[Holder, float]


@dataclass(slots=True)
class UsageMeter:
    """Converts device counts at moments into device-seconds between them.

    A count holds until the next call. Nothing counts before the first call, so the meters of two
    successive leaders count no second twice.
    """

    _last_seconds: float | None = None
    _devices: Mapping[Holder, float] = field(default_factory=dict)

    def look(self, now: float, devices: Mapping[Holder, float]) -> Lapse:
        """Return the time since the last call, and remember ``devices`` from now on.

        ``now`` is in seconds. After a clock step backwards, no time has passed.
        """
        seconds = 0.0 if self._last_seconds is None else max(0.0, now - self._last_seconds)
        lapse = Lapse(seconds, {holder: seconds * n for holder, n in self._devices.items()})
        self._last_seconds, self._devices = now, devices
        return lapse
