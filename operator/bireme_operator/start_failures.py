"""Failed starts: pauses of gangs after one, and limits on preemption for them afterwards.

A pause follows from the status of the gang alone (``startFailures`` and ``retryTime``), so a new
leader keeps it. A pausing gang is held like one with a fault: it is not admitted, reserves nothing
and preempts no gang.
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
from bireme.kube.training_jobs import JobFacts
from bireme.kube.waits import pause_seconds
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
# After a silent start, other waiting gangs are planned first for this long: only their pods can
# show whether the scheduler binds any pods at all.
_YIELD_SECONDS = 10.0

# Silence about all gangs is a fault of the scheduler. It counts against a gang until others are
# served, or for a pause of at least four minutes. This number is added to its count of silent
# starts for the length of that pause.
_MORE_FAILURES = 2

_YIELDING = (
    "kube-scheduler reported nothing about its last pods and bound no others; other waiting "
    "gangs are planned first, to see whether the fault is this gang's alone"
)
_OWN_SILENCE = (
    "it stops no other gang until it runs or is edited, because kube-scheduler served other "
    "gangs and reported nothing about this one"
)
_SILENCE = (
    "it stops no other gang for some minutes, or until kube-scheduler serves others, because "
    "kube-scheduler reported nothing about any pods"
)


@dataclass(frozen=True, slots=True)
class _Blocked:
    """The node of a failed start, as it was then, with the pods of other owners on it."""

    name: str
    node: Node | None
    other_pods: frozenset[Key]


@dataclass(frozen=True, slots=True)
class _Silence:
    """An unbroken series of starts without a verdict by the scheduler; times are POSIX seconds."""

    generation: int
    planned: float
    """Time of the first plan in the series."""
    last: float
    """Time of the latest plan in the series."""
    end_time: float
    """End of the latest start in the series."""
    is_own: bool
    """True if the scheduler served other gangs meanwhile, so the silence is about this gang."""
    starts: int = 1
    """Number of starts in the series."""


@dataclass(slots=True)
class StartFailures:
    """Gangs whose last start failed, and the possible obstacles."""

    state: ClusterState
    _blocked_nodes: dict[str, _Blocked] = field(default_factory=dict)
    _silences: dict[str, _Silence] = field(default_factory=dict)

    def observe(self, job: JobFacts, move: Transition, now: float) -> None:
        """Observe a change of phase that was recorded at ``now``, POSIX seconds."""
        if move.start_failures:
            self.add(job, move.node)
        elif move.phase != "Restarting":
            self._blocked_nodes.pop(job.uid, None)
        if move.silent_plan is not None:
            is_own = bool(move.start_failures)
            self.add_silence(job, move.silent_plan, now, is_own=is_own)
        elif move.phase != "Restarting":
            self._silences.pop(job.uid, None)

    def add_silence(
        self, gang: JobFacts | GroupFacts, planned: float, now: float, *, is_own: bool
    ) -> None:
        """Record that kube-scheduler reported nothing about pods planned then (POSIX seconds).

        ``is_own`` is true if it served other gangs meanwhile.
        """
        previous = self._silence_of(gang)
        silence = _Silence(gang.generation, planned, planned, now, is_own)
        if previous is not None:  # after a failed write the same start comes again
            first, starts = (
                min(previous.planned, planned),
                previous.starts + (planned != previous.last),
            )
            silence = replace(silence, planned=first, starts=starts)
        self._silences[gang.uid] = silence

    def end_silence(self, uid: str) -> None:
        """Record that all pods of a gang are bound."""
        self._silences.pop(uid, None)

    def _silence_of(self, gang: JobFacts | GroupFacts) -> _Silence | None:
        silence = self._silences.get(gang.uid)
        return silence if silence is not None and silence.generation == gang.generation else None

    def serves_others(self, gang: JobFacts | GroupFacts, plan: PlanFacts) -> bool:
        """Return whether kube-scheduler served others since the silence about ``gang`` began."""
        silence = self._silence_of(gang)
        since = plan.planned if silence is None else min(silence.planned, plan.planned)
        return self.state.objects.history.serves_others(gang.key, since)

    def _is_barred(self, silence: _Silence, key: Key, now: float) -> bool:
        """Return whether silence about its last pods bars a gang from preempting others."""
        if silence.is_own:
            return True
        pause = pause_seconds(silence.starts + _MORE_FAILURES)
        # Keep the time of the first plan: if others are served since, later silence is the gang's.
        return 0 <= now - silence.end_time < pause and not self.state.objects.history.serves_others(
            key, silence.end_time
        )

    def explain(self, hold: Hold, now: float) -> Hold:
        """Return ``hold`` with an explanation if silence bars the gang from preempting others."""
        facts = self._facts_of(hold.gang)
        silence = self._silence_of(facts) if facts is not None else None
        if silence is None or hold.reason is not Reason.WAITING_FOR_CAPACITY:
            return hold
        if not self._is_barred(silence, hold.gang.key, now):
            return hold
        explanation = _OWN_SILENCE if silence.is_own else _SILENCE
        return replace(hold, message=f"{hold.message}; {explanation}")

    def _yields(self, gang: JobFacts | GroupFacts, now: float) -> bool:
        silence = self._silence_of(gang)
        is_recent = silence is not None and 0 <= now - silence.end_time < _YIELD_SECONDS
        return is_recent and gang.plan is None and self.state.waiting.has_another(gang.key)

    def add(self, gang: JobFacts | GroupFacts, node: str) -> None:
        """Record a failed start on ``node``."""
        other_pods = self.state.objects.others_on(node, gang.key)
        self._blocked_nodes[gang.uid] = _Blocked(node, self.state.nodes.get(node), other_pods)

    def pauses(self, now: float) -> dict[str, Rejection]:
        """Return by uid the reason of every pause at ``now`` (POSIX seconds)."""
        jobs = (self.state.objects.jobs[key] for key in self.state.objects.start_failed)
        gangs: Iterable[JobFacts | GroupFacts] = chain(jobs, self.state.objects.groups.values())
        pauses = {gang.uid: _pause_reason(gang.status) for gang in gangs if gang.is_pausing(now)}
        if self._silences:
            all_gangs: Iterable[JobFacts | GroupFacts]
            all_gangs = chain(self.state.objects.jobs.values(), self.state.objects.groups.values())
            for gang in all_gangs:
                if (
                    gang.uid in self._silences
                    and gang.uid not in pauses
                    and self._yields(gang, now)
                ):
                    pauses[gang.uid] = Reason.GANG_NOT_BOUND_IN_TIME, _YIELDING
        return pauses

    def may_preempt(self, gang: Gang, now: float) -> bool:
        """Return whether a gang may preempt others, although its last start may have failed.

        After a failed start it may not, or running gangs would be stopped in vain again and again.
        It may again once its spec has changed, which resets the count of failures, or once the
        obstacle has changed. The obstacle changes if the refusing node is gone, or if its labels,
        taints or resources change. It also changes if another owner's pod leaves the node: the pod
        may have held a port, room, or labels that a rule excludes. A pod that returns under its
        old name is an obstacle as before. A new leader does not know the earlier state. It waits
        for an edit, or until the gang has run. Silence of kube-scheduler about all gangs bars a
        gang until others are served, or for minutes.
        """
        facts = self._facts_of(gang)
        if facts is None:
            return True
        silence = self._silence_of(facts)
        if silence is not None and self._is_barred(silence, gang.key, now):
            return False  # victims might stop in vain, again and again
        if not facts.start_failures:
            return True
        blocked = self._blocked_nodes.get(facts.uid)
        if blocked is None:
            return False
        if self.state.nodes.get(blocked.name) != blocked.node:
            return True
        return not blocked.other_pods <= self.state.objects.others_on(blocked.name, gang.key)

    def _facts_of(self, gang: Gang) -> JobFacts | GroupFacts | None:
        objects: Mapping[Key, JobFacts | GroupFacts]
        objects = self.state.objects.groups if gang.kind == "PodGroup" else self.state.objects.jobs
        facts = objects.get(gang.key)
        return facts if facts is not None and facts.uid == gang.uid else None

    def forget(self, uids: Container[str]) -> None:
        """Drop the records of deleted gangs; ``uids`` are those of the existing ones."""
        self._blocked_nodes = {
            uid: record for uid, record in self._blocked_nodes.items() if uid in uids
        }
        self._silences = {uid: record for uid, record in self._silences.items() if uid in uids}


def _pause_reason(status: dict[str, object]) -> Rejection:
    for reason in _REASONS:
        if status.get("reason") == reason.value:
            return reason, str(status.get("message") or "")
    return Reason.UNSCHEDULABLE, f"its last start failed; the next try is at {status['retryTime']}"
