"""The promise about preemption: who was stopped, for whom, in which order, and that they came back.

Ranks are compared part by part (the queue's user priority, the class's value), so that the verdict
does not depend on how the policy weighs them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.history.observed import ObservedCluster
from tests.support.history.records import Key, Record
from tools.demo.clusters import MIN_RUNTIME_SECONDS
from tools.demo.evidence import (
    Evidence,
    Promise,
    fits,
    is_lower,
    rank_of,
    room,
    status_of,
    verdict,
)
from tools.demo.workload import NAMESPACE, Manifest, Workload

TEXT = "an urgent gang stops as few lower gangs as possible, the latest start first; they run again"


@dataclass(frozen=True, slots=True)
class _Stop:
    """Gangs that were stopped for an urgent one, and the cluster as it was before."""

    world: ObservedCluster
    urgent: Manifest
    victims: tuple[Key, ...]

    def helps(self, gangs: set[Key]) -> bool:
        return fits(self.urgent, room(self.world, gangs))

    def start(self, gang: Key) -> str:
        """Return when a running gang was planned, as its plan says; equal within a second."""
        return str((self.world.plan(gang) or {}).get("plannedTime", ""))

    def rank(self, gang: Key) -> tuple[int, int]:
        return rank_of(self.world, self.world.job(gang) or self.urgent)


def preemption(evidence: Evidence, workload: Workload) -> Promise:
    """Check the gangs that were stopped for the urgent one."""
    urgent = workload.named("urgent")
    stopped = list(_stopped(evidence))
    start = evidence.start(urgent)
    if not stopped or start is None:
        return Promise(TEXT, False, f"nobody was stopped, or {urgent} did not start")
    world = evidence.before(stopped[0])
    job = world.job((NAMESPACE, urgent))
    if job is None:
        return Promise(TEXT, False, f"{stopped[0].key[1]} was stopped before {urgent} came")
    stop = _Stop(world, job, tuple(record.key for record in stopped))
    came = evidence.of("TrainingJob", urgent)[0].seconds
    wrong = [*_unneeded(stop), *_unjust(stop, evidence, came)]
    for record in stopped:
        wrong += _unexplained(evidence, urgent, record)
        wrong += _lost(evidence, record.key[1], start)
    names = ", ".join(record.key[1] for record in stopped)
    waited = f"{start.seconds - came:.1f} s"
    detail = f"{names} made room for {urgent}, which waited {waited}; then ran again to its end"
    return verdict(TEXT, wrong, detail)


def _stopped(evidence: Evidence) -> Iterator[Record]:
    """Yield the revisions with which a job counts one more preemption."""
    counts: dict[Key, int] = {}
    for record in evidence.records:
        if record.kind == "TrainingJob":
            count = int(status_of(record.manifest).get("preemptions") or 0)
            if count > counts.get(record.key, 0):
                yield record
            counts[record.key] = count


def _unneeded(stop: _Stop) -> Iterator[str]:
    """Yield stops that were too many, or too few to help."""
    victims = set(stop.victims)
    if not stop.helps(victims):
        yield "what was stopped did not make room enough"
    for victim in stop.victims:
        if stop.helps(victims - {victim}):
            yield f"{victim[1]} was stopped in vain"


def _unjust(stop: _Stop, evidence: Evidence, came: float) -> Iterator[str]:
    """Yield victims not below the urgent gang, or before whom another should have gone."""
    urgent = rank_of(stop.world, stop.urgent)
    for victim in stop.victims:
        rank, start = stop.rank(victim), stop.start(victim)
        if not is_lower(rank, urgent):
            yield f"{victim[1]} has rank {rank}, the urgent gang {urgent}"
        for other in _may_stop(stop, evidence, came):
            later = stop.rank(other) == rank and stop.start(other) > start
            first = is_lower(stop.rank(other), rank) or later
            if first and stop.helps({*stop.victims, other} - {victim}):
                yield f"{other[1]} should have gone before {victim[1]}"


def _may_stop(stop: _Stop, evidence: Evidence, came: float) -> Iterator[Key]:
    """Yield gangs that were spared, and had run long enough when the urgent one came."""
    for gang, pods in stop.world.gangs.items():
        if gang in stop.victims or stop.world.job(gang) is None:
            continue
        age = came - evidence.seconds_of(start) if (start := stop.start(gang)) else 0.0
        if any(pod.holds_node for pod in pods.values()) and age > MIN_RUNTIME_SECONDS:
            yield gang


def _unexplained(evidence: Evidence, urgent: str, record: Record) -> Iterator[str]:
    victim, said = record.key[1], status_of(record.manifest)
    told = (said.get("reason"), said.get("message"))
    if told != ("Preempted", f"stopped to make room for {NAMESPACE}/{urgent}"):
        yield f"{victim} says {told}"
    named = f"{NAMESPACE}/{victim}"

    def waits_for_it(job: Manifest) -> bool:
        status = status_of(job)
        return status.get("reason") == "WaitingForPreemption" and named in status["message"]

    if evidence.first("TrainingJob", urgent, waits_for_it) is None:
        yield f"{urgent} never said that it waits for {victim} to leave"


def _lost(evidence: Evidence, victim: str, start: Record) -> Iterator[str]:
    """Yield victims that did not run again after the urgent gang, or did not end well."""
    status = evidence.last_status(victim)
    again = evidence.start(victim, attempt=1)
    counted = (status.get("phase"), status.get("preemptions"), status.get("restarts") or 0)
    if counted != ("Succeeded", 1, 0):
        yield f"{victim} ended with phase, preemptions, restarts {counted}"
    if again is None or again.seconds < start.seconds:
        yield f"{victim} did not run again after {start.key[1]} had started"
