"""The image that A2cScheduler's paper shows its networks, of a real cluster: ``a2c-image/1``.

Beside each other lie, for each of two resources, the slots that running gangs hold in the coming
steps and what each job of the queue asks, as a block of its duration and demand; then a cell for
each job behind the queue, and how long ago one came last (Liang et al., PAKDD 2020, figure 2; Mao
et al., HotNets 2016, figure 2). An image has a queue of ten, so gangs are shown by tens, in order
of arrival: of every gang the image that it is in, and its slot there.

Demands are rounded up to tenths of the cluster: on a large one all small gangs look alike.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bireme.core.gangs import Gang
from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.rl.encoders.a2c import RESOURCES, scaled

SLOTS: Final = 10
"""Of each resource."""
QUEUE_SLOTS: Final = 10
HORIZON_STEPS: Final = 20
BACKLOG_SLOTS: Final = 60


def columns(queue_slots: int) -> int:
    """Columns of the image: 124 with a queue of 5, 224 with one of 10, as in DeepRM."""
    return RESOURCES * SLOTS * (1 + queue_slots) + BACKLOG_SLOTS // HORIZON_STEPS + 1


def paint(
    held: IntArray, durations: IntArray, demands: IntArray, behind: IntArray, since: FloatArray
) -> NDArray[np.float32]:
    """Images, shape (images, 1, HORIZON_STEPS, columns).

    Args:
        held: Slots held in each coming step, shape (images, HORIZON_STEPS, resources).
        durations: Steps, of each job of the queue, 0 where there is none, shape (images, queue).
        demands: Slots, shape (images, queue, resources).
        behind: How many jobs wait behind the queue, shape (images,).
        since: Steps since a job came last, shape (images,).
    """
    parts: list[NDArray[np.generic]] = []
    for resource in range(RESOURCES):
        parts.append(np.arange(SLOTS) < held[:, :, resource, None])
        parts.append(_blocks(durations, demands[:, :, resource]))
    cells = np.arange(BACKLOG_SLOTS) < behind[:, None]
    parts.append(cells.reshape(len(held), HORIZON_STEPS, -1))
    share = np.minimum(since / HORIZON_STEPS, 1.0)[:, None, None]
    parts.append(np.broadcast_to(share, (len(held), HORIZON_STEPS, 1)))
    return np.concatenate(parts, axis=2)[:, None].astype(np.float32)


def _blocks(durations: IntArray, demands: IntArray) -> BoolArray:
    """A block per job, its duration down and its demand across."""
    down = np.arange(HORIZON_STEPS)[:, None, None] < durations[:, None, :, None]
    across = np.arange(SLOTS) < demands[:, None, :, None]
    return np.asarray((down & across).reshape(len(durations), HORIZON_STEPS, -1))


class A2cImages:
    """Gangs of a real cluster, each with the image of the ten it came with."""

    inputs: Mapping[str, tuple[int | str, ...]] = {
        "image": ("gangs", 1, HORIZON_STEPS, columns(QUEUE_SLOTS)),
        "slot": ("gangs", QUEUE_SLOTS),
    }

    def encode(
        self, gangs: Sequence[Gang], snapshot: ClusterSnapshot
    ) -> dict[str, NDArray[np.float32]]:
        """``gangs``, at least one: the image of each, and a one for its slot there."""
        seen = scaled(gangs, snapshot, range(HORIZON_STEPS))
        order = np.argsort([gang.arrived for gang in gangs], kind="stable")
        images = -(-len(gangs) // QUEUE_SLOTS)
        place = np.empty(len(gangs), dtype=np.int64)
        place[order] = np.arange(len(gangs))
        durations = np.zeros(images * QUEUE_SLOTS, dtype=np.int64)
        demands = np.zeros((images * QUEUE_SLOTS, RESOURCES), dtype=np.int64)
        durations[place] = _whole(np.minimum(seen.durations, HORIZON_STEPS))
        demands[place] = _whole(SLOTS * seen.demands)
        held = _whole(SLOTS * (1.0 - seen.later))
        painted = paint(
            np.broadcast_to(held, (images, *held.shape)),
            durations.reshape(images, QUEUE_SLOTS),
            demands.reshape(images, QUEUE_SLOTS, RESOURCES),
            np.maximum(len(gangs) - QUEUE_SLOTS * np.arange(1, images + 1), 0),
            np.full(images, seen.waits.min()),
        )
        return {
            "image": painted[place // QUEUE_SLOTS],
            "slot": np.eye(QUEUE_SLOTS, dtype=np.float32)[place % QUEUE_SLOTS],
        }


def _whole(values: FloatArray) -> IntArray:
    """``values`` rounded up, but for what is off in their last bits."""
    return np.ceil(values - 1e-9).astype(np.int64)
