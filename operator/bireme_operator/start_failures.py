"""Starts that failed: gangs that pause after one, and what is done for them afterwards.

A pause follows from the status of the gang alone (``startFailures`` and ``retryTime``), so that
a new leader keeps it. In a pause a gang is held like one with a fault: it is not admitted, nothing
is reserved, and nobody is stopped for it.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from bireme.core.decision import Hold
from bireme.core.gangs import Gang, Key
from bireme.core.nodes import Node
from bireme.core.reasons import Reason
from bireme.kube.cluster_state import ClusterState
from bireme.kube.plans import PlanFacts
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.training_jobs import JobFacts, pause_seconds
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

# Silence about everybody is a fault of the scheduler. It counts against a gang until others are
# served, or for the pause after so many failed starts more than it had silent ones: four minutes.
_MORE_FAILURES = 2

_YIELDING = (
    "kube-scheduler said nothing of its last pods and bound nobody else; gangs that wait are "
    "planned before it, so that it shows whether that is about this gang alone"
)
_OWN_SILENCE = (
    "it stops no other gang until it runs or is edited: kube-scheduler served others and said "
    "nothing of it"
)
_SILENCE = (
    "it stops no other gang for minutes, or until others are served: kube-scheduler said nothing "
    "of any pods"
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
    last: float
    """The last plan of them."""
    ended: float
    """The end of the last of these starts."""
    is_own: bool
    """Others were served meanwhile: it is about this gang alone."""
    starts: int = 1
    """The number of these starts."""


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
            is_own = bool(move.start_failures)
            self.add_silence(job, move.silent_plan, now, is_own=is_own)
        elif move.phase != "Restarting":
            self._silent.pop(job.uid, None)

    def add_silence(
        self, gang: JobFacts | GroupFacts, planned: float, now: float, *, is_own: bool
    ) -> None:
        """Take note that kube-scheduler said nothing of pods planned then (POSIX seconds).

        ``is_own`` tells that it served others meanwhile.
        """
        known = self._silence_of(gang)
        silence = _Silence(gang.generation, planned, planned, now, is_own)
        if known is not None:  # the same start is judged again where a write has failed
            first, starts = min(known.planned, planned), known.starts + (planned != known.last)
            silence = replace(silence, planned=first, starts=starts)
        self._silent[gang.uid] = silence

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

    def _is_barred(self, known: _Silence, key: Key, now: float) -> bool:
        """Return whether nobody is stopped for a gang because of silence about its last pods."""
        if known.is_own:
            return True
        pause = pause_seconds(known.starts + _MORE_FAILURES)
        # The first plan stays known: another silence of a gang that others passed is its own.
        return 0 <= now - known.ended < pause and not self.state.serves_others(key, known.ended)

    def explained(self, hold: Hold, now: float) -> Hold:
        """Add to a hold why no other gang is stopped, where silence is the reason."""
        facts = self._facts_of(hold.gang)
        known = self._silence_of(facts) if facts is not None else None
        if known is None or hold.reason is not Reason.WAITING_FOR_CAPACITY:
            return hold
        if not self._is_barred(known, hold.gang.key, now):
            return hold
        words = _OWN_SILENCE if known.is_own else _SILENCE
        return replace(hold, message=f"{hold.message}; {words}")

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

    def may_preempt(self, gang: Gang, now: float) -> bool:
        """Return whether others may be stopped for a gang, whose last start may have failed.

        Else running gangs would be stopped in vain again and again. They may be once the spec has
        changed, which ends the count of failures, or what was in the way: the node that refused a
        replica is gone, its labels, its taints or what it offers have changed, or a pod of others
        that was on it is there no more (which may have had a port, room, or labels that a rule
        keeps others from). A pod that comes back to it under its name is in the way as before. A
        new leader does not know how it was, and waits for an edit, or until the gang has run.
        Silence of kube-scheduler about everybody counts until it serves others, or for minutes.
        """
        facts = self._facts_of(gang)
        if facts is None:
            return True
        silence = self._silence_of(facts)
        if silence is not None and self._is_barred(silence, gang.key, now):
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

    def _facts_of(self, gang: Gang) -> JobFacts | GroupFacts | None:
        known: Mapping[Key, JobFacts | GroupFacts]
        known = self.state.groups if gang.kind == "PodGroup" else self.state.jobs
        facts = known.get(gang.key)
        return facts if facts is not None and facts.uid == gang.uid else None

    def forget(self, uids: Container[str]) -> None:
        """Drop what is remembered of gangs that are gone; ``uids`` are those that exist."""
        self._blocked = {uid: known for uid, known in self._blocked.items() if uid in uids}
        self._silent = {uid: known for uid, known in self._silent.items() if uid in uids}


def _why(status: dict[str, object]) -> Rejection:
    for reason in _REASONS:
        if status.get("reason") == reason.value:
            return reason, str(status.get("message") or "")
    return Reason.UNSCHEDULABLE, f"its last start failed; tried again at {status['retryTime']}"
