"""Returns: a gang that had to go, and starts again, owns the places where it goes.

Bireme stopped it for the maintenance of its nodes or for a move to faster GPUs, or it lost a node.
Its pods may take a long time to end, and until the last one is gone it does not wait: its own
places are in use, and the places to which it will go are free. A cycle keeps these for it, before
it looks at any gang that came later. Where the gang fits nowhere yet, it gets the reservation.

Nothing is remembered from cycle to cycle. That the gang returns follows from its recorded stop, and
the places from what is free beside its own: where its target is lost, it is given others, or its
own again. A gang that is suspended, deleted or edited does not return and keeps nothing.
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
    """Return the gangs that are being stopped and start again before all others, in order."""
    table = snapshot.running_table
    leaving = (table.gangs[at] for at in np.flatnonzero(table.is_leaving).tolist())
    found = [running for running in leaving if running.gang.displaced]
    if len(found) > 1:
        found.sort(key=lambda running: order.places[running.gang.uid][0])
    return found


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
