"""History of the pods of gangs: the facts that outlive a pod.

A pod may be deleted before its gang is reconciled. Its success, its disruption and its place would
then be lost.
"""

from collections.abc import Container, Iterable, Mapping

from bireme.core.gangs import Key
from bireme.kube import names
from bireme.kube.api.base import MAX_REPLICAS, MAX_TASKS
from bireme.kube.plans import PlanFacts, PlannedGang
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.pods import PodFacts


class PodHistory:
    """Successes, disruptions, lent places and bindings of the pods of gangs, by gang."""

    def __init__(self) -> None:
        # Disruption messages of deleted pods of the job's current plan, by pod name.
        self._disruptions: dict[Key, dict[str, str]] = {}
        # Pods that were seen to succeed, by name: the uid of their job and the label of their plan.
        self._ended: dict[Key, dict[str, tuple[str, str]]] = {}
        # The same for pods of other controllers: pod uids by the uid of the controller.
        self._ended_guests: dict[Key, dict[str, dict[str, None]]] = {}
        # UIDs of external pods on lent places whose plan is gone. Another plan may adopt them.
        self._lent: set[str] = set()
        # Numbers of succeeded pods of a group, by uid of the Job that counts them.
        self._job_counts: dict[Key, dict[str, int]] = {}
        # Planning times of the two gangs that kube-scheduler served last.
        self._planned_at: dict[Key, float] = {}

    # --- pods -----------------------------------------------------------------------------

    def note_pod(
        self,
        gang: Key,
        previous: PodFacts | None,
        pod: PodFacts,
        planned: PlannedGang | None,
        group: GroupFacts | None,
    ) -> None:
        """Remember the end and the service of a new or changed ``pod`` of ``gang``.

        ``planned`` is the plan of the gang, and ``group`` its PodGroup.
        """
        self._disruptions.get(gang, {}).pop(pod.key[1], None)
        self._note_end(gang, pod, group)
        if previous is None:
            return
        if previous.uid != pod.uid:
            self._lent.discard(previous.uid)
        if planned is not None and pod.scheduler == names.SCHEDULER_NAME:
            self._note_service(gang, previous, pod, planned.plan)

    def note_deletion(self, gang: Key, pod: PodFacts, *, is_planned_job: bool) -> None:
        """Remember the disruption of a deleted pod of a job with a plan."""
        self._lent.discard(pod.uid)
        if pod.disruption and is_planned_job:
            self._disruptions.setdefault(gang, {})[pod.key[1]] = pod.disruption

    def _note_end(self, gang: Key, pod: PodFacts, group: GroupFacts | None) -> None:
        """Remember a replica that has succeeded. A deleted replica is a loss instead."""
        run = pod.job_uid, pod.labels.get(names.PLAN_LABEL, "")
        run_by_pod = self._ended.get(gang, {})
        if run_by_pod.get(pod.key[1], run) != run or pod.phase != "Succeeded":
            run_by_pod.pop(pod.key[1], None)
        elif all(run) and not pod.is_leaving:
            self._ended.setdefault(gang, {})[pod.key[1]] = run
        if pod.phase == "Succeeded" and not (pod.is_leaving or any(run)):
            self._note_guest_end(gang, pod, group)

    def _note_guest_end(self, gang: Key, pod: PodFacts, group: GroupFacts | None) -> None:
        """Remember a succeeded external pod, up to the bound of the status.

        A group may live for years.
        """
        if pod.scheduler != names.SCHEDULER_NAME or len(pod.owner_uids) != 1:
            return
        if group is not None and group.is_between_runs:
            return  # the pod belongs to an earlier run
        (owner,) = pod.owner_uids
        by_owner = self._ended_guests.setdefault(gang, {})
        of_owner = by_owner.setdefault(owner, {})
        spec = group.spec if group is not None else None
        if len(of_owner) < (MAX_REPLICAS if spec is None else spec.min_member):
            of_owner[pod.uid] = None
        if len(by_owner) > MAX_TASKS:
            del by_owner[next(iter(by_owner))]

    def _note_service(self, gang: Key, previous: PodFacts, pod: PodFacts, plan: PlanFacts) -> None:
        """Record the gang if kube-scheduler has just bound or rejected one of its pods."""
        is_bound = bool(pod.node) and not previous.node
        if not (is_bound or (pod.verdict and pod.verdict != previous.verdict)):
            return
        self._planned_at[gang] = max(plan.planned, plan.resized)
        # Two suffice for serves_others: one of them is another gang than the asking one.
        if len(self._planned_at) > 2:
            del self._planned_at[min(self._planned_at, key=lambda key: self._planned_at[key])]

    # --- gangs ----------------------------------------------------------------------------

    def forget_ends(self, gang: Key, planned: PlannedGang | None, members: Container[Key]) -> None:
        """Forget succeeded replicas of a job that are neither ``members`` nor ``planned``."""
        if (run_by_pod := self._ended.get(gang)) is None:
            return
        current = (planned.uid, planned.plan.label) if planned is not None else ("", "")
        for name in [n for n, run in run_by_pod.items() if run != current]:
            if (gang[0], name) not in members:
                del run_by_pod[name]
        if not run_by_pod:
            del self._ended[gang]

    def forget_guests(self, gang: Key) -> None:
        """Forget the succeeded pods of another controller."""
        self._ended_guests.pop(gang, None)

    def forget_disruptions(self, gang: Key) -> None:
        """Forget the disruptions of pods of an earlier plan."""
        self._disruptions.pop(gang, None)

    def note_lent(
        self, planned: PlannedGang, group: GroupFacts | None, pods: Iterable[PodFacts]
    ) -> None:
        """Remember ``pods`` on lent places whose plan is gone: their places stay lent.

        ``planned`` is the previous plan of the PodGroup, and ``group`` its next version.
        """
        plan = group.plan if group is not None and group.uid == planned.uid else None
        uids = planned.plan.member_by_uid.keys() - (plan.member_by_uid if plan else {}).keys()
        self._lent.update(pod.uid for pod in pods if not pod.is_gated and pod.uid in uids)

    def put_job_counts(self, group: Key, counts: Mapping[str, int]) -> bool:
        """Store how many pods of ``group`` succeeded by uid of a Job; return whether it is new."""
        cached = self._job_counts.get(group, {})
        earlier = [(uid, n) for uid, n in cached.items() if uid not in counts]
        # Bounded: a group may outlive thousands of Jobs.
        merged = {**dict(earlier[-MAX_TASKS:]), **counts}
        if cached == merged:
            return False
        self._job_counts[group] = merged
        return True

    def forget_job_counts(self, group: Key) -> None:
        """Forget the counts of the Jobs of a deleted PodGroup."""
        self._job_counts.pop(group, None)

    # --- queries --------------------------------------------------------------------------

    def disruptions_of(self, gang: Key) -> Mapping[str, str] | None:
        """Return the disruption messages of deleted pods by name; None without any."""
        return self._disruptions.get(gang)

    def names_of_succeeded(self, gang: Key, job_uid: str, plan: PlanFacts) -> frozenset[str]:
        """Return the names of the pods of a job's ``plan`` that were seen to succeed."""
        run_by_pod = self._ended.get(gang, {})
        return frozenset(name for name, run in run_by_pod.items() if run == (job_uid, plan.label))

    def ended_pods(self, group: GroupFacts) -> dict[str, str]:
        """Return the uid of the owner of every succeeded member, recorded or seen, by its uid."""
        uids_by_owner = self._ended_guests.get(group.key, {})
        owner_by_uid = {uid: owner for owner, uids in uids_by_owner.items() for uid in uids}
        return {**group.ended_pods, **owner_by_uid}

    def job_counts(self, group: Key) -> Mapping[str, int]:
        """Return the number of succeeded pods of ``group`` by uid of the Job that counts them."""
        return self._job_counts.get(group, {})

    def is_lent(self, pod: PodFacts) -> bool:
        """Return whether a pod without a plan got a place that is reserved for other gangs."""
        return pod.uid in self._lent

    def serves_others(self, gang: Key, since: float) -> bool:
        """Return whether kube-scheduler has bound or rejected a pod of another gang.

        Only gangs count that were planned at ``since`` (POSIX seconds) or later.
        """
        return any(
            planned_at >= since for key, planned_at in self._planned_at.items() if key != gang
        )
