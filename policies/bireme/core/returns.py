"""Returns: a gang that was stopped and starts again owns the places where it will start.

Bireme stopped it for node maintenance or for a move to faster GPUs, or it lost a node. Its pods may
take a long time to end, and it does not wait until the last one is gone. Meanwhile its own places
are in use, and its target places are free. A cycle keeps the target places for it before it
considers any later gang. If the gang fits nowhere yet, it gets the reservation.

No state is kept between cycles. The recorded stop shows that the gang returns. Its places follow
from the capacity that is free beside its own: if its target is lost, it gets other places, or its
own again. A suspended, deleted or edited gang does not return and keeps nothing.
"""

from collections.abc import Iterator

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.policy import Placer, TotalOrder
from bireme.core.reservations import CapacityLedger
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot


def returning_gangs(snapshot: ClusterSnapshot, order: TotalOrder) -> list[RunningGang]:
    """Return the stopping gangs that start again before all others, in order."""
    table = snapshot.running_table
    leaving = (table.gangs[index] for index in np.flatnonzero(table.is_leaving).tolist())
    displaced = [running for running in leaving if running.gang.displaced]
    if len(displaced) > 1:
        displaced.sort(key=lambda running: order.places[running.gang.uid][0])
    return displaced


def sizes_of_start(gang: Gang) -> Iterator[Gang]:
    """Yield the gang at the sizes at which it may start again, the largest first."""
    yield gang
    if gang.at_minimum is not gang:
        yield gang.at_minimum


def returning_place(
    running: RunningGang, gang: Gang, ledger: CapacityLedger, placer: Placer
) -> Placement | None:
    """Return where ``running``, at the size ``gang``, fits once its own places are free."""
    nodes = ledger.now.nodes
    rows, usage = running.usage(nodes.axis)
    is_counted_on = np.full(len(rows), running.gang.uid in ledger.counted_on)
    free = ledger.room_after(rows, usage, is_counted_on)
    occupants = ledger.occupants_after(gang, {running.gang.uid})
    room = FreeCapacity(nodes, nodes.allocatable - free, occupants)
    return None if room.lacks(gang) else placer.place(gang, room)
