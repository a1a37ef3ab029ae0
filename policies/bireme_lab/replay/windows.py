"""Windows of a record: equal stretches of its time, each a workload of its own.

A window begins with the gangs that ran and waited then, as recorded, and takes those that arrive in
it. Their further course is observed beyond its end, but not beyond the end of its part of the
record: no part knows what happened later.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from bireme.core.snapshot import ClusterSnapshot
from bireme_lab.replay.workload import Workload, WorkloadBuilder


@dataclass(frozen=True, slots=True)
class Part:
    """Some windows in a row; times in POSIX seconds.

    Attributes:
        name: Name for messages and results.
        begin, end: The end is exclusive.
        windows: Number of windows.
    """

    name: str
    begin: float
    end: float
    windows: int

    @property
    def seconds(self) -> float:
        """Return the length of one window."""
        return (self.end - self.begin) / self.windows

    def window_at(self, now: float) -> int:
        """Return the window that contains ``now``, counted from 0."""
        return min(int((now - self.begin) / self.seconds), self.windows - 1)

    def start_of(self, window: int) -> float:
        """Return the beginning of ``window``."""
        return self.begin + window * self.seconds

    def end_of(self, window: int) -> float:
        """Return the end of ``window``."""
        return self.begin + (window + 1) * self.seconds


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

    ``on_cycle`` gets the time of each cycle. Windows without a new gang are left out.
    """
    windows: list[RecordWindow] = []
    remaining, current = list(parts), _Open(parts[0])
    previous: ClusterSnapshot | None = None
    for snapshot in snapshots:
        while snapshot.now >= current.part.end and len(remaining) > 1:
            windows += current.close()
            remaining = remaining[1:]
            current = _Open(remaining[0])
        current.observe(snapshot, previous)
        previous = snapshot
        on_cycle(snapshot.now)
    windows += current.close()
    return [window for window in windows if window.workload.wait_uids]


class _Open:
    """The windows of a part while its record is read."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self._builders: dict[int, WorkloadBuilder] = {}
        self._done: dict[int, Workload] = {}

    def observe(self, snapshot: ClusterSnapshot, previous: ClusterSnapshot | None) -> None:
        """Add ``snapshot``; until then everything was as in ``previous``."""
        number = self.part.window_at(snapshot.now)
        if number not in self._builders and number not in self._done:
            builder = WorkloadBuilder(until=self.part.end_of(number))
            if previous is not None:
                # A gang that ended with this cycle still ran when the window began.
                builder.observe(replace(previous, now=self.part.start_of(number)))
            self._builders[number] = builder
        for index, builder in list(self._builders.items()):
            builder.observe(snapshot)
            if builder.is_settled:
                self._done[index] = self._builders.pop(index).workload()

    def close(self) -> list[RecordWindow]:
        done = self._done | {
            number: builder.workload() for number, builder in self._builders.items()
        }
        return [
            RecordWindow(self.part.name, number, workload)
            for number, workload in sorted(done.items())
        ]
