"""Windows of a record: equal stretches of its time, each a workload of its own.

A window begins with what ran and waited then, as recorded, and takes the gangs that arrive in it.
What becomes of them is observed beyond its end, but not beyond the end of its part of the record:
of what happened later nothing reaches an earlier part.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from bireme.core.snapshot import ClusterSnapshot
from bireme.replay.workload import Workload, WorkloadBuilder


@dataclass(frozen=True, slots=True)
class Part:
    """Some windows in a row; times in POSIX seconds.

    Attributes:
        name: For messages and results.
        began, ended: The second is outside.
        windows: How many.
    """

    name: str
    began: float
    ended: float
    windows: int

    @property
    def seconds(self) -> float:
        """Return the length of one window."""
        return (self.ended - self.began) / self.windows

    def window_at(self, now: float) -> int:
        """Return the window in which ``now`` is, counted from 0."""
        return min(int((now - self.began) / self.seconds), self.windows - 1)

    def start_of(self, window: int) -> float:
        """Return when ``window`` begins."""
        return self.began + window * self.seconds

    def end_of(self, window: int) -> float:
        """Return when ``window`` ends."""
        return self.began + (window + 1) * self.seconds


@dataclass(frozen=True, slots=True)
class RecordWindow:
    """The workload of one window of a part."""

    part: str
    number: int
    workload: Workload


def windows_of(
    snapshots: Iterator[ClusterSnapshot],
    parts: Sequence[Part],
    on_cycle: Callable[[float], None] = lambda _: None,
) -> list[RecordWindow]:
    """Return the windows of ``parts``, which follow each other, from the snapshots of a record.

    ``on_cycle`` gets the time of each. Windows to which no gang came are left out.
    """
    found: list[RecordWindow] = []
    left, current = list(parts), _Open(parts[0])
    before: ClusterSnapshot | None = None
    for snapshot in snapshots:
        while snapshot.now >= current.part.ended and len(left) > 1:
            found += current.close()
            left = left[1:]
            current = _Open(left[0])
        current.observe(snapshot, before)
        before = snapshot
        on_cycle(snapshot.now)
    found += current.close()
    return [window for window in found if window.workload.counted]


class _Open:
    """The windows of a part while it is read."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self._builders: dict[int, WorkloadBuilder] = {}
        self._done: dict[int, Workload] = {}

    def observe(self, snapshot: ClusterSnapshot, before: ClusterSnapshot | None) -> None:
        """Take in ``snapshot``; until then all was as it was ``before``."""
        number = self.part.window_at(snapshot.now)
        if number not in self._builders and number not in self._done:
            builder = WorkloadBuilder(until=self.part.end_of(number))
            if before is not None:
                # What ended with this cycle still ran when the window began.
                builder.observe(replace(before, now=self.part.start_of(number)))
            self._builders[number] = builder
        for at, builder in list(self._builders.items()):
            builder.observe(snapshot)
            if builder.is_settled:
                self._done[at] = self._builders.pop(at).workload()

    def close(self) -> list[RecordWindow]:
        done = self._done | {at: builder.workload() for at, builder in self._builders.items()}
        return [RecordWindow(self.part.name, at, workload) for at, workload in sorted(done.items())]
