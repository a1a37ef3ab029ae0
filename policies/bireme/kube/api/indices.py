"""Replica indices as compact text: ``(0, 1, 2, 3, 7)`` is ``"0-3,7"``.

A plan names every replica it places; ranges keep the plan of 10 000 replicas far below the size
an object may have.
"""

import re
from collections.abc import Iterable
from typing import Final

from bireme.kube.api.fields import MAX_REPLICAS

_RANGE: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


def compress(indices: Iterable[int]) -> str:
    """Text of the given indices, sorted; ``""`` for none.

    Raises :class:`ValueError` for duplicates and indices outside 0..9999.
    """
    ordered = sorted(indices)
    if ordered and not 0 <= ordered[0] <= ordered[-1] < MAX_REPLICAS:
        raise ValueError(f"index outside 0..{MAX_REPLICAS - 1}: {ordered[0]}..{ordered[-1]}")
    ranges: list[list[int]] = []
    for index in ordered:
        if ranges and index == ranges[-1][1]:
            raise ValueError(f"index {index} is given twice; a replica has one place")
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def expand(text: str) -> tuple[int, ...]:
    """Indices of a text that :func:`compress` wrote, ascending.

    Raises :class:`ValueError` for anything else: other forms, descending or overlapping ranges,
    indices above 9999. The work is bounded whatever the text says.
    """
    indices: list[int] = []
    for part in text.split(",") if text else ():
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"indices: cannot read {part[:32]!a}; write ranges as 0-3,7")
        low, high = int(match[1]), int(match[2] or match[1])
        if high >= MAX_REPLICAS or high < low or (indices and low <= indices[-1]):
            raise ValueError(f"indices: {part} is not ascending within 0..{MAX_REPLICAS - 1}")
        indices.extend(range(low, high + 1))
    return tuple(indices)
