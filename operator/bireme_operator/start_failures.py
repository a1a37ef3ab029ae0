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
from bireme.kube.plans import PlanFacts
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator.lifecycle import Transition
from bireme_operator.rejections import Rejection

_REASONS = (
    Reason.UNSCHEDULABLE,
    Reason.START_TIMED_OUT,
    Reason.POD_REJECTED,
    Reason.PODS_CHANGED,
    Reason.GANG_NOT_BOUND_IN_TIME,
    Reason.PODS_REFUSED,
)
# Others that wait may be planned for so long before a gang of which the scheduler said nothing: it
# is not known whether it binds anybody, and only they can show it.
_YIELD_SECONDS = 10.0

_YIELDING = (
    "kube-scheduler said nothing of its last pods and bound nobody else; gangs that wait are "
    "planned before it, so that it shows whether that is about this gang alone"
)


@dataclass(frozen=True, slots=True)
class _Blocked:
    """The node on which a start failed, as it was then, and the pods of others on it."""

    name: str
    node: Node | None
    others: frozenset[Key]


@dataclass(frozen=True, slots=True)
class _Silence:
    """A gang of whose pods the scheduler says nothing: the times are POSIX seconds."""

    generation: int
    planned: float
    """The first plan in a row of which it said nothing."""
    ended: float
    """The end of the last of these starts."""


@dataclass(slots=True)
class StartFailures:
    """Gangs whose last start failed, and what may have been in their way."""

    state: ClusterState
    _blocked: dict[str, _Blocked] = field(default_factory=dict)
    _silent: dict[str, _Silence] = field(default_factory=dict)

    def observe(self, job: JobFacts, move: Transition, now: float) -> None:
        """Take note of a change of phase that was recorded at ``now``, POSIX seconds."""
        if move.start_failures:
            self.add(job, move.node)
        elif move.phase != "Restarting":
            self._blocked.pop(job.uid, None)
        if move.silent_plan is not None:
            self.add_silence(job, move.silent_plan, now)
        elif move.phase != "Restarting":
            self._silent.pop(job.uid, None)

    def add_silence(self, gang: JobFacts | GroupFacts, planned: float, now: float) -> None:
        """Take note that kube-scheduler said nothing of pods planned then (POSIX seconds)."""
        known = self._silence_of(gang)
        first = planned if known is None else min(known.planned, planned)
        self._silent[gang.uid] = _Silence(gang.generation, first, now)

    def end_silence(self, uid: str) -> None:
        """Take note that all pods of a gang are on their nodes."""
        self._silent.pop(uid, None)

    def _silence_of(self, gang: JobFacts | GroupFacts) -> _Silence | None:
        known = self._silent.get(gang.uid)
        return known if known is not None and known.generation == gang.generation else None

    def serves_others(self, gang: JobFacts | GroupFacts, plan: PlanFacts) -> bool:
        """Return whether kube-scheduler served others since it first said nothing of ``gang``."""
        known = self._silence_of(gang)
        since = plan.planned if known is None else min(known.planned, plan.planned)
        return self.state.serves_others(gang.key, since)

    def _yields(self, gang: JobFacts | GroupFacts, now: float) -> bool:
        known = self._silence_of(gang)
        is_recent = known is not None and 0 <= now - known.ended < _YIELD_SECONDS
        return is_recent and gang.plan is None and self.state.waits_another(gang.key)

    def add(self, gang: JobFacts | GroupFacts, node: str) -> None:
        """Take note of a start that failed on ``node``."""
        others = self.state.others_on(node, gang.key)
        self._blocked[gang.uid] = _Blocked(node, self.state.node(node), others)

    def pauses(self, now: float) -> dict[str, Rejection]:
        """Return the gangs in a pause at ``now`` (POSIX seconds) by uid, and why they are."""
        jobs = (self.state.jobs[key] for key in self.state.start_failed)
        gangs: Iterable[JobFacts | GroupFacts] = chain(jobs, self.state.groups.values())
        pauses = {gang.uid: _why(gang.status) for gang in gangs if gang.is_pausing(now)}
        if self._silent:
            every: Iterable[JobFacts | GroupFacts]
            every = chain(self.state.jobs.values(), self.state.groups.values())
            for each in (each for each in every if each.uid in self._silent):
                if each.uid not in pauses and self._yields(each, now):
                    pauses[each.uid] = Reason.GANG_NOT_BOUND_IN_TIME, _YIELDING
        return pauses

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
        if facts is None or facts.uid != gang.uid:
            return True
        if self._silence_of(facts) is not None:
            return False  # whoever stopped for it might stop in vain, again and again
        if not facts.start_failures:
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
        self._silent = {uid: known for uid, known in self._silent.items() if uid in uids}


def _why(status: dict[str, object]) -> Rejection:
    for reason in _REASONS:
        if status.get("reason") == reason.value:
            return reason, str(status.get("message") or "")
    return Reason.UNSCHEDULABLE, f"its last start failed; tried again at {status['retryTime']}"
