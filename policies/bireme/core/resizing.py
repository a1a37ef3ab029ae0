"""Size changes of running elastic gangs, after the admissions of a cycle."""

from collections.abc import Iterator, Mapping

import numpy as np

from bireme.core import messages
from bireme.core.admission import AdmissionPass
from bireme.core.decision import Resize
from bireme.core.elastic import larger, smaller
from bireme.core.reasons import Reason
from bireme.core.running import RunningGang


def resizes(admission: AdmissionPass) -> Iterator[Resize]:
    """Yield size changes of running elastic gangs that make room for no gang in particular."""
    table = admission.snapshot.running_table
    elastic = (table.gangs[index] for index in np.flatnonzero(table.is_elastic).tolist())
    able = {r.gang.uid: r for r in elastic if _may_resize(admission, r)}
    growing: dict[RunningGang, Mapping[str, int]] = {}
    for entry in admission.order.ranked if able else ():
        running = able.get(entry.gang.uid)
        if running is None:
            continue
        sizes = admission.target_sizes.get(running.gang.uid)
        placement = sizes and smaller(running, sizes, admission.snapshot.nodes)
        if placement:
            message = "the sizer wants it smaller" if admission.explain else ""
            yield Resize(running, placement, message, Reason.SHRUNK)
        elif sizes is not None or not admission.position:
            max_sizes = {task.name: task.maximum for task in running.gang.tasks}
            growing[running] = max_sizes if sizes is None else sizes
    # All shrink before the first grows, so that growth does not depend on the order of the
    # gangs.
    for running, sizes in growing.items():
        yield from _grow(admission, running, sizes)


def _may_resize(admission: AdmissionPass, running: RunningGang) -> bool:
    settle_seconds = admission.snapshot.settings.resize_settle_seconds
    return (
        not running.is_leaving
        # A resize costs training time, so it happens at most once in this time.
        and admission.snapshot.now - running.resized >= settle_seconds
        and running.gang.uid not in admission.preemptor.victim_uids
    )


def _grow(
    admission: AdmissionPass, running: RunningGang, sizes: Mapping[str, int]
) -> Iterator[Resize]:
    gang = running.gang
    if admission.barrier(gang) is not None:
        return  # its queue keeps all free capacity for an urgent gang
    if not admission.queues.admits(gang.queue):
        return  # closed or deleted since it started: it runs on as it is
    room = admission.ledger.room_for(gang)
    growth = larger(running, sizes, room, admission.placer, admission.commitments.allow)
    if growth is None:
        return
    added, placement, whole = growth
    admission.commitments.start(added, placement)
    yield Resize(running, whole, admission.text(messages.growth, added), Reason.GROWN)
