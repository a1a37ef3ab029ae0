"""Values that were not recorded: where they are missing, and what is put in their place."""

from collections.abc import Iterator

import numpy as np

from bireme.core.resources import BoolArray, FloatArray


def gaps(values: FloatArray) -> Iterator[tuple[int, int]]:
    """First missing place, and first one recorded after it, of each run of NaN."""
    edges = np.flatnonzero(np.diff(np.isnan(values).astype(np.int8), prepend=0, append=0))
    yield from ((int(first), int(last)) for first, last in edges.reshape(-1, 2))


def filled(values: FloatArray, season: int, by_line: BoolArray | None = None) -> FloatArray:
    """``values`` without NaN: from one season before, else by a line between the neighbours.

    Args:
        values: Shape (n,), at least one of them recorded.
        season: How many places back; 0 where nothing comes back.
        by_line: Places that are never filled from the season before, shape (n,).
    """
    found = values.copy()
    for first, last in gaps(values) if season else ():
        for at in range(max(first, season), last):
            if by_line is None or not by_line[at]:
                found[at] = found[at - season]
    there = ~np.isnan(found)
    places = np.arange(len(found))
    return np.interp(places, places[there], found[there])
