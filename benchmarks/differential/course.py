"""Decisions about gangs, read from a simulation and from a recorded history alike.

A change is a start, a stop or a resize, with the places the gang holds from then on. The end of a
gang is none: it was not decided.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, Literal

from bireme_lab.simulator.outcome import JobRecord, Outcome
from testbed.history.observed import ENDED, ObservedCluster, phase_of, planned_nodes
from testbed.history.records import Key, Record, in_order

Kind = Literal["start", "stop", "resize"]
Places = Mapping[tuple[str, str], int]
"""(task, node) to the number of replicas there."""
NOTICED_SECONDS: Final = 0.2
"""From the end of a replica until the operator knows of it, at most."""
STOPPED: Final = ("preempted", "node lost")


@dataclass(frozen=True, slots=True)
class Change:
    """One start, stop or resize of ``gang`` with the places it holds then, none after a stop."""

    seconds: float
    kind: Kind
    gang: str
    places: Places

    def __str__(self) -> str:
        nodes: Counter[str] = Counter()
        for (_, node), replicas in self.places.items():
            nodes[node] += replicas
        where = ", ".join(f"{count} on {node}" for node, count in sorted(nodes.items()))
        return f"{self.kind} of {self.gang}" + (f" ({where})" if where else "")


@dataclass(frozen=True, slots=True)
class Course:
    """One run, in seconds after the first moment of the scenario.

    Attributes:
        changes: In order of time.
        arrivals, ends: By gang, its arrival, and the end of its last replica.
        stoppings: Intervals in which replicas of a gang that gave up places were still there.
        endings: From the end of a gang's first replica to that of its last.
    """

    changes: tuple[Change, ...]
    arrivals: Mapping[str, float]
    ends: Mapping[str, float]
    stoppings: tuple[tuple[float, float], ...] = ()
    endings: tuple[tuple[float, float], ...] = ()

    @property
    def is_overtaken(self) -> bool:
        """Return whether anything fell into what a simulation takes for a moment."""
        events = (*self.arrivals.values(), *self.ends.values())
        if any(began < event < ended for began, ended in self.stoppings for event in events):
            return True
        return any(
            began < min(ended, change.seconds) and change.seconds - NOTICED_SECONDS < ended
            for began, ended in self.endings
            for change in self.changes
        )

    @property
    def starts(self) -> list[Change]:
        return [change for change in self.changes if change.kind == "start"]

    def of(self, gang: str) -> list[Change]:
        return [change for change in self.changes if change.gang == gang]

    def count(self, kind: Kind) -> int:
        return sum(change.kind == kind for change in self.changes)


def of_outcome(outcome: Outcome) -> Course:
    changes = [change for record in outcome.jobs for change in _of_record(record)]
    return Course(
        tuple(sorted(changes, key=lambda change: change.seconds)),
        {record.job.name: record.job.submitted for record in outcome.jobs},
        {r.job.name: r.finished for r in outcome.jobs if r.finished is not None},
    )


def _of_record(record: JobRecord) -> Iterable[Change]:
    is_resized = False
    for segment in record.segments:
        places = {(task, node): count for task, node, count in segment.places}
        yield Change(segment.began, "resize" if is_resized else "start", record.job.name, places)
        is_resized = segment.ended_by == "resized"
        if segment.ended_by in STOPPED:
            yield Change(segment.ended, "stop", record.job.name, {})


def of_history(records: Sequence[Record], namespace: str, began: float) -> Course:
    """Read the decisions of the operator in ``namespace``; ``began`` is when the scenario began.

    A start is the first plan of an attempt, a resize a plan of the same attempt with other places,
    a stop the change of the job's phase to Restarting.
    """
    reader = _Reader(namespace, began)
    for record in in_order(r for r in records if r.change != "GAP"):
        reader.read(record)
    return Course(
        tuple(reader.changes),
        reader.arrivals,
        reader.ends,
        tuple(reader.stoppings),
        tuple((reader.first_ends[name], end) for name, end in reader.ends.items()),
    )


class _Reader:
    def __init__(self, namespace: str, began: float) -> None:
        self.changes: list[Change] = []
        self.arrivals: dict[str, float] = {}
        self.ends: dict[str, float] = {}
        self.first_ends: dict[str, float] = {}
        self.stoppings: list[tuple[float, float]] = []
        self._namespace = namespace
        self._began = began
        self._world = ObservedCluster()
        self._phases: dict[str, str] = {}
        self._held: dict[str, tuple[int, Places]] = {}
        self._stopping: dict[str, tuple[float, int]] = {}
        """Since when a gang has more replicas than it should, and how many it should have."""

    def read(self, record: Record) -> None:
        self._world.apply(record)
        if record.key[0] != self._namespace:
            return
        seconds, name = round(record.seconds - self._began, 3), record.key[1]
        if record.change == "DELETED":
            self._see_deletion(seconds)
            return
        if record.kind == "TrainingJob":
            self.arrivals.setdefault(name, seconds)
            phase = phase_of(record.manifest)
            if phase == "Restarting" != self._phases.get(name):
                self.changes.append(Change(seconds, "stop", name, {}))
                self._stopping[name] = (seconds, 0)
            self._phases[name] = phase
            self._read_plan(record.key, seconds)
        elif record.kind == "Pod":
            gang = self._world.pods[record.key].gang
            if self._world.pods[record.key].phase == ENDED[0]:
                self.first_ends.setdefault(gang[1], seconds)
            if self._has_ended(gang):
                self.ends.setdefault(gang[1], seconds)

    def _read_plan(self, key: Key, seconds: float) -> None:
        plan = self._world.plan(key)
        if plan is None:
            return
        nodes = planned_nodes(plan)
        places = dict(Counter((task, node) for (task, _), node in nodes.items()))
        attempt, before = int(plan["attempt"]), self._held.get(key[1])
        if before != (attempt, places):
            again = before is not None and before[0] == attempt
            self.changes.append(Change(seconds, "resize" if again else "start", key[1], places))
            if before is not None and again and sum(places.values()) < sum(before[1].values()):
                self._stopping[key[1]] = (seconds, sum(places.values()))
        self._held[key[1]] = (attempt, places)

    def _see_deletion(self, seconds: float) -> None:
        for name, (since, size) in list(self._stopping.items()):
            if len(list(self._world.members((self._namespace, name)))) <= size:
                self.stoppings.append((since, seconds))
                del self._stopping[name]

    def _has_ended(self, gang: Key) -> bool:
        """Return whether all its replicas have succeeded; those of a stopped gang are Failed."""
        pods = list(self._world.members(gang))
        held = sum(self._held.get(gang[1], (0, {}))[1].values())
        return len(pods) == held and all(pod.phase == ENDED[0] for pod in pods)


def differences(expected: Course, seen: Course, tolerance_seconds: float) -> list[str]:
    """Return every difference of ``seen`` from the simulation's course, by gang, then by time.

    Every gang is to be started, stopped and resized in the same succession, on the same nodes, and
    no start further from its moment than ``tolerance_seconds``. Starts of different moments come in
    the order of those; those of one moment are a tie, and come in any order, because one cycle
    decided them and its writes go side by side.
    """
    gangs = sorted({change.gang for change in (*expected.changes, *seen.changes)})
    return [
        *(line for gang in gangs for line in _of_gang(expected.of(gang), seen.of(gang))),
        *_out_of_order(expected, seen),
        *_out_of_time(expected, seen, tolerance_seconds),
    ]


def pairs_of_starts(expected: Course, seen: Course) -> list[tuple[Change, Change]]:
    """Pair each expected start with the one that was seen, in the order they were seen."""
    known = dict(_numbered(expected.starts))
    return [(known[name], change) for name, change in _numbered(seen.starts) if name in known]


def tied_starts(expected: Course) -> int:
    """Count the starts that share their moment with another."""
    at = Counter(change.seconds for change in expected.starts)
    return sum(count for count in at.values() if count > 1)


def _numbered(changes: Sequence[Change]) -> Iterator[tuple[tuple[str, int], Change]]:
    counts: Counter[str] = Counter()
    for change in changes:
        yield (change.gang, counts[change.gang]), change
        counts[change.gang] += 1


def _of_gang(expected: Sequence[Change], seen: Sequence[Change]) -> Iterator[str]:
    """Return the first difference in one gang: later ones only follow from it."""
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
    latest: Change | None = None
    for wanted, _ in pairs_of_starts(expected, seen):
        if latest is not None and wanted.seconds < latest.seconds:
            yield (
                f"start of {wanted.gang} after that of {latest.gang} in the cluster; in the "
                f"simulator before, at {wanted.seconds:.1f} and {latest.seconds:.1f} s"
            )
        else:
            latest = wanted


def _out_of_time(expected: Course, seen: Course, tolerance_seconds: float) -> Iterator[str]:
    """Yield starts that are too early or too late. One that waited for a stop waits for its end."""
    for wanted, found in pairs_of_starts(expected, seen):
        latest = wanted.seconds + tolerance_seconds
        ends = (e for began, e in seen.stoppings if began <= latest and e < found.seconds)
        due = max([wanted.seconds, *ends])
        is_late = found.seconds - due > tolerance_seconds
        if is_late or wanted.seconds - found.seconds > tolerance_seconds:
            yield (
                f"start of {found.gang} at {found.seconds:.1f} s in the cluster, at "
                f"{wanted.seconds:.1f} s in the simulator: more than {tolerance_seconds:g} s apart"
            )
