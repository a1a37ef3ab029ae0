"""Whether two courses are the same, and in plain lines where they are not.

The one that is expected is a simulation's, where a moment is exact. **A tie** is what it does at
one moment: the cluster may do that in any order, because one cycle decided it and its writes go
side by side. Everything else has one order:

*   Every gang is started, stopped and resized in the same succession, on the same nodes.
*   Starts of different moments come in the order of those moments.
*   No start is further from its moment than ``tolerance_seconds``.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from benchmarks.differential.deeds import Course, Deed


def differences(expected: Course, seen: Course, tolerance_seconds: float) -> list[str]:
    """Every way in which ``seen`` is not what was ``expected``, by gang, then by time."""
    gangs = sorted({deed.gang for deed in (*expected.deeds, *seen.deeds)})
    found = [
        line
        for gang in gangs
        for line in _of_gang(
            [deed for deed in expected.deeds if deed.gang == gang],
            [deed for deed in seen.deeds if deed.gang == gang],
        )
    ]
    return [
        *found,
        *_out_of_order(expected, seen),
        *_out_of_time(expected, seen, tolerance_seconds),
    ]


def pairs_of_starts(expected: Course, seen: Course) -> list[tuple[Deed, Deed]]:
    """Every expected start that was seen with the one that was, in the order they were seen."""
    known = dict(_numbered(expected.starts))
    return [(known[name], deed) for name, deed in _numbered(seen.starts) if name in known]


def tied_starts(expected: Course) -> int:
    """How many starts share their moment with another."""
    at = Counter(deed.seconds for deed in expected.starts)
    return sum(count for count in at.values() if count > 1)


def _numbered(deeds: Sequence[Deed]) -> Iterator[tuple[tuple[str, int], Deed]]:
    """Each deed with its gang and which one of that gang it is."""
    counts: Counter[str] = Counter()
    for deed in deeds:
        yield (deed.gang, counts[deed.gang]), deed
        counts[deed.gang] += 1


def _of_gang(expected: Sequence[Deed], seen: Sequence[Deed]) -> Iterator[str]:
    """The first difference in the life of one gang; what follows only follows from it."""
    for wanted, found in zip_longest(expected, seen):
        if found is None:
            yield f"{wanted} at {wanted.seconds:.1f} s in the simulator, never in the cluster"
        elif wanted is None:
            yield f"{found} at {found.seconds:.1f} s in the cluster, never in the simulator"
        elif (wanted.kind, wanted.places) != (found.kind, found.places):
            yield (
                f"{found} at {found.seconds:.1f} s in the cluster, "
                f"but {wanted} at {wanted.seconds:.1f} s in the simulator"
            )
        else:
            continue
        return


def _out_of_order(expected: Course, seen: Course) -> Iterator[str]:
    latest: Deed | None = None
    for wanted, _ in pairs_of_starts(expected, seen):
        if latest is not None and wanted.seconds < latest.seconds:
            yield (
                f"start of {wanted.gang} after that of {latest.gang} in the cluster; in the "
                f"simulator before, at {wanted.seconds:.1f} and {latest.seconds:.1f} s"
            )
        else:
            latest = wanted


def _out_of_time(expected: Course, seen: Course, tolerance_seconds: float) -> Iterator[str]:
    for wanted, found in pairs_of_starts(expected, seen):
        if abs(found.seconds - wanted.seconds) > tolerance_seconds:
            yield (
                f"start of {found.gang} at {found.seconds:.1f} s in the cluster, at "
                f"{wanted.seconds:.1f} s in the simulator: more than {tolerance_seconds:g} s apart"
            )
