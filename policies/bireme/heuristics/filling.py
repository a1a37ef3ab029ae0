"""Dividing replicas among bins (nodes, racks, ...): the arithmetic under every placer.

All functions take ``room``, int64 of shape (bins,): how many replicas each bin takes, and return
counts of the same shape with ``counts <= room`` and ``counts.sum() == replicas``. The caller has
checked that ``room.sum() >= replicas``. No loop runs over bins.
"""

import numpy as np

from bireme.core.resources import FloatArray, IntArray


def pack(room: IntArray, tightness: FloatArray, replicas: int) -> IntArray:
    """Use the fewest bins: the roomiest first, and the tightest bin that holds what remains.

    Best fit for a remainder that one bin holds: among those, the one with the least
    ``tightness`` (free capacity), so that large holes stay whole. Ties go to the lower index.
    """
    counts = np.zeros_like(room)
    if replicas <= 0:
        return counts
    order = np.lexsort((np.arange(len(room)), tightness, -room))
    filled = np.cumsum(room[order])
    whole = int(np.searchsorted(filled, replicas))  # bins that are used up before the last one
    counts[order[:whole]] = room[order[:whole]]
    remainder = replicas - int(counts.sum())
    rest = order[whole:]
    holding = rest[room[rest] >= remainder]
    last = holding[np.lexsort((holding, tightness[holding]))[0]]
    counts[last] = remainder
    return counts


def spread(room: IntArray, replicas: int, first: IntArray | None = None) -> IntArray:
    """As even as possible: no bin gets two while another with room has none.

    ``first`` (higher first, shape (bins,)) says which bins get the odd ones; ties by index.
    """
    low, high = 0, replicas
    while low < high:  # the largest level q that all replicas can be poured to: sum(min(room, q))
        middle = (low + high + 1) // 2
        if int(np.minimum(room, middle).sum()) <= replicas:
            low = middle
        else:
            high = middle - 1
    counts = np.minimum(room, low)
    odd = replicas - int(counts.sum())
    if odd:
        preference = np.zeros(len(room)) if first is None else -first
        open_bins = np.flatnonzero(room > counts)
        chosen = open_bins[np.lexsort((open_bins, preference[open_bins]))[:odd]]
        counts[chosen] += 1
    return counts


def spread_beside(room: IntArray, used: IntArray, replicas: int) -> IntArray:
    """Evenly over the bins in use (``used`` > 0), the busiest first; what is left, elsewhere."""
    beside = np.where(used > 0, room, 0)
    within = min(replicas, int(beside.sum()))
    placed = spread(beside, within, first=used)
    if within < replicas:
        placed = placed + spread(np.where(used > 0, 0, room), replicas - within)
    return placed


def pack_beside(room: IntArray, used: IntArray, replicas: int, tightness: FloatArray) -> IntArray:
    """Packed into the bins in use (``used`` > 0), then into the others."""
    beside = np.where(used > 0, room, 0)
    within = min(replicas, int(beside.sum()))
    placed = pack(beside, tightness, within)
    if within < replicas:
        placed = placed + pack(np.where(used > 0, 0, room), tightness, replicas - within)
    return placed
