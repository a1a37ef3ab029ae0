"""Starts that failed: gangs that pause after one, and what is done for them afterwards.

A pause follows from the status of the gang alone (``startFailures`` and ``retryTime``), so that
a new leader keeps it. In a pause a gang is held like one with a fault: it is not admitted, nothing
is reserved, and nobody is stopped for it.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from bireme.core.gangs import Gang, Key
from bireme.core.nodes import Node
from bireme.core.reasons import Reason
from bireme.kube.cluster_state import ClusterState
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator.lifecycle import Transition
from bireme_operator.rejections import Rejection

_REASONS = (
    Reason.UNSCHEDULABLE,
    Reason.START_TIMED_OUT,
    Reason.POD_REJECTED,
    Reason.PODS_CHANGED,
)


@dataclass(frozen=True, slots=True)
class _Blocked:
    """The node on which a start failed, as it was then, and the pods of others on it."""

    name: str
    node: Node | None
    others: frozenset[Key]


@dataclass(slots=True)
class StartFailures:
    """Gangs whose last start failed, and what may have been in their way."""

    state: ClusterState
    _blocked: dict[str, _Blocked] = field(default_factory=dict)

    def observe(self, job: JobFacts, move: Transition) -> None:
        """Take note of a change of phase that was recorded."""
        if move.start_failures:
            self.add(job, move.node)
        elif move.phase != "Restarting":
            self._blocked.pop(job.uid, None)

    def add(self, gang: JobFacts | GroupFacts, node: str) -> None:
        """Take note of a start that failed on ``node``."""
        others = self.state.others_on(node, gang.key)
        self._blocked[gang.uid] = _Blocked(node, self.state.node(node), others)

    def pauses(self, now: float) -> dict[str, Rejection]:
        """Return the gangs in a pause at ``now`` (POSIX seconds) by uid, and why they are."""
        jobs = (self.state.jobs[key] for key in self.state.start_failed)
        gangs: Iterable[JobFacts | GroupFacts] = chain(jobs, self.state.groups.values())
        return {gang.uid: _why(gang.status) for gang in gangs if gang.is_pausing(now)}

    def may_preempt(self, gang: Gang) -> bool:
        """Return whether others may be stopped for a gang, whose last start may have failed.

        Else running gangs would be stopped in vain again and again. They may be once the spec has
        changed, which ends the count of failures, or what was in the way: the node that refused a
        replica is gone, its labels, its taints or what it offers have changed, or a pod of others
        that was on it is there no more (which may have had a port, room, or labels that a rule
        keeps others from). A pod that comes back to it under its name is in the way as before. A
        new leader does not know how it was, and waits for an edit, or until the gang has run.
        """
        known: Mapping[Key, JobFacts | GroupFacts]
        known = self.state.groups if gang.kind == "PodGroup" else self.state.jobs
        facts = known.get(gang.key)
        if facts is None or facts.uid != gang.uid or not facts.start_failures:
            return True
        # A later proof that kube-scheduler would take the pods now belongs here.
        before = self._blocked.get(facts.uid)
        if before is None:
            return False
        if self.state.node(before.name) != before.node:
            return True
        return not before.others <= self.state.others_on(before.name, gang.key)

    def forget(self, uids: Container[str]) -> None:
        """Drop what is remembered of gangs that are gone; ``uids`` are those that exist."""
        self._blocked = {uid: known for uid, known in self._blocked.items() if uid in uids}


def _why(status: dict[str, object]) -> Rejection:
    for reason in _REASONS:
        if status.get("reason") == reason.value:
            return reason, str(status.get("message") or "")
    return Reason.UNSCHEDULABLE, f"its last start failed; tried again at {status['retryTime']}"
