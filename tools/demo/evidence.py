"""What the recorded history says about a job, and which room there was: facts for the promises.

Nothing of Bireme is asked: only objects as the API server gave them out, and arithmetic of its own.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

from tests.support.history.amounts import Amounts, request_of, total
from tests.support.history.observed import ObservedCluster
from tests.support.history.records import Key, Manifest, Record, in_order
from tools.demo.workload import NAMESPACE

Room = dict[str, Amounts]
"""What is free on every node."""
Test = Callable[[Manifest], bool]
PRIORITY_CLASS: Final = "PriorityClass"


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise, whether it was kept, and the numbers or violations behind that."""

    text: str
    kept: bool
    detail: str


def verdict(text: str, wrong: Iterable[str], detail: str) -> Promise:
    """Return a promise that is kept if nothing is ``wrong``; ``detail`` shows then."""
    said = "; ".join(wrong)
    return Promise(text, not said, said or detail)


class Evidence:
    """A recorded history, asked about jobs of the demo by their names."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = in_order(record for record in records if record.change != "GAP")

    def of(self, kind: str, name: str) -> list[Record]:
        """Return every revision of an object in the demo's namespace, the last one too."""
        return [r for r in self.records if r.kind == kind and r.key == (NAMESPACE, name)]

    def first(self, kind: str, name: str, test: Test) -> Record | None:
        return next((record for record in self.of(kind, name) if test(record.manifest)), None)

    def start(self, name: str, attempt: int = 0) -> Record | None:
        """Return the record with which the places of an attempt were published."""
        return self.first("PodGroup", name, lambda group: plan_of(group).get("attempt") == attempt)

    def last_status(self, name: str) -> Manifest:
        records = self.of("TrainingJob", name)
        return status_of(records[-1].manifest) if records else {}

    def events(self, name: str, reason: str) -> list[Record]:
        return [
            record
            for record in self.records
            if record.kind == "Event"
            and record.manifest["reason"] == reason
            and record.manifest["involvedObject"]["name"] == name
        ]

    def before(self, record: Record) -> ObservedCluster:
        """Return the cluster just before ``record``."""
        world = ObservedCluster()
        for earlier in self.records:
            if earlier.revision >= record.revision:
                break
            world.apply(earlier)
        return world

    def seconds_of(self, stamp: str) -> float:
        """Convert a time that an object carries to seconds of the recorder's clock."""
        return datetime.fromisoformat(stamp).timestamp() - self._offset

    @cached_property
    def _offset(self) -> float:
        """POSIX time at the recorder's zero.

        Creation times are cut to whole seconds, so the largest difference is the closest.
        """
        return max(
            datetime.fromisoformat(stamp).timestamp() - record.seconds
            for record in self.records
            if (stamp := record.manifest["metadata"].get("creationTimestamp"))
        )

    def starts(self) -> dict[str, list[Record]]:
        names = {r.key[1] for r in self.records if r.kind == "TrainingJob"}
        found: dict[str, list[Record]] = {}
        for name in sorted(names):
            attempts = range(int(self.last_status(name).get("attempt") or 0) + 1)
            found[name] = [r for a in attempts if (r := self.start(name, a)) is not None]
        return found


def status_of(manifest: Manifest) -> Manifest:
    status: Manifest = manifest.get("status") or {}
    return status


def plan_of(group: Manifest) -> Manifest:
    plan: Manifest = status_of(group).get("plan") or {}
    return plan


def rank_of(world: ObservedCluster, job: Manifest) -> tuple[int, int]:
    """Return the parts of a claim: user priority of the queue and value of the class."""
    spec = job["spec"]
    queue = world.get("Queue", ("", spec["queue"])) or {"spec": {}}
    chosen = world.get(PRIORITY_CLASS, ("", spec["priorityClassName"])) or {"value": 0}
    return int(queue["spec"].get("userPriority", 50)), int(chosen["value"])


def is_lower(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Return whether a rank is below another one, whatever the weights of its two parts are."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def room(world: ObservedCluster, without: Iterable[Key] = ()) -> Room:
    """Return what is free once the gangs ``without`` have left."""
    gone = frozenset(without)
    left = {name: world.allocatable(name) or {} for _, name in world.objects.get("Node", {})}
    for pod in world.pods.values():
        if pod.holds_node and pod.gang not in gone and pod.node in left:
            taken = {resource: -amount for resource, amount in pod.request.items()}
            left[pod.node] = total([left[pod.node], taken])
    return left


def fits(job: Manifest, free: Mapping[str, Amounts]) -> bool:
    """Return whether all replicas of a job fit; they must ask the same, as torch's do here."""
    replicas = sum(int(task["replicas"]) for task in job["spec"]["tasks"])
    asked = request_of(job["spec"]["tasks"][0]["template"]["spec"])

    def most(there: Amounts) -> int:
        return int(min(there.get(name, 0) // amount for name, amount in asked.items() if amount))

    return sum(map(most, free.values())) >= replicas
