"""Promises about the story of a job: it ends, ends once, and only one leader writes it."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from tests.support.history.records import Key, Manifest, Record
from tests.support.history.violations import Violation, violation
from tests.support.history.world import ENDED, World, phase_of

LOST: Final = "job-lost"


class JobsGoForward:
    """A finished job stays finished, and attempts are only ever counted up."""

    name: Final = "job-went-back"

    def see(self, world: World, record: Record) -> Iterator[Violation]:
        before = world.before
        if record.kind != "TrainingJob" or record.change == "DELETED" or before is None:
            return
        was, now = phase_of(before), phase_of(record.manifest)
        if was in ENDED and now != was:
            yield violation(self.name, record, record.key, f"{was} became {now}")
        first, second = _attempt(before), _attempt(record.manifest)
        if second < first:
            message = f"attempt {first} became {second}"
            yield violation(self.name, record, record.key, message)


def _attempt(job: dict[str, Any]) -> int:
    return int(job.get("status", {}).get("attempt") or 0)


class EpochsGrow:
    """A leader that was deposed writes no more plans, in any gang.

    A plan that is resized keeps the epoch of the leader that admitted the gang.
    """

    name: Final = "epoch-went-back"

    def __init__(self) -> None:
        self._highest = 0

    def see(self, world: World, record: Record) -> Iterator[Violation]:
        if record.kind != "PodGroup" or record.change == "DELETED":
            return
        plan = world.plan(record.key)
        before = (world.before or {}).get("status", {}).get("plan")
        if plan is None or plan == before or _is_resize(before, plan):
            return
        epoch = int(plan["epoch"])
        if epoch < self._highest:
            message = f"a plan of epoch {epoch} was written after one of epoch {self._highest}"
            yield violation(self.name, record, record.key, message)
        self._highest = max(self._highest, epoch)


def _is_resize(before: Manifest | None, plan: Manifest) -> bool:
    kept = ("epoch", "attempt", "plannedTime")
    return before is not None and all(before[name] == plan[name] for name in kept)


class JobsStay:
    """No job disappears before it has finished, but by the hand of its user."""

    name: Final = LOST

    def __init__(self, removed: Iterable[Key]) -> None:
        self._removed = frozenset(removed)

    def see(self, world: World, record: Record) -> Iterator[Violation]:
        if record.kind != "TrainingJob" or record.change != "DELETED":
            return
        phase = phase_of(record.manifest)
        if phase not in ENDED and record.key not in self._removed:
            yield violation(LOST, record, record.key, f"deleted while {phase}")


def unsettled(world: World, record: Record) -> Iterator[Violation]:
    """Jobs that at the end are neither finished nor waiting for a stated reason."""
    for key, job in world.objects.get("TrainingJob", {}).items():
        status = job.get("status", {})
        phase = phase_of(job)
        # A gang that was stopped, as by a preemption, waits again once it has a place in the queue.
        is_queued = phase == "Restarting" and "queuePosition" in status
        waits = is_queued or phase in ("Pending", "Suspended")
        waits = waits and status.get("reason") and status.get("message")
        if phase not in ENDED and not waits:
            said = f"{phase}, reason {status.get('reason')}, message {status.get('message')!r}"
            yield violation(LOST, record, key, f"at the end {said}")
