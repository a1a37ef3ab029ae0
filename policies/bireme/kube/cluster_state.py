"""Cache of the watched objects. It builds the cluster snapshots of the core.

Watches call ``put_*`` and ``delete_*``; nothing here performs I/O or decides. The operator and the
extender have one cache each, filled with the kinds they need. A lost cache is rebuilt from the API
server. The cost of a snapshot grows with the changes: only nodes whose pods changed are summed
again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from bireme.core.estimates import apply_progress_report
from bireme.core.finished_runs import FinishedRun
from bireme.core.gangs import Gang, Key, Task
from bireme.core.nodes import NodeTable
from bireme.core.pod_constraints import PodKind
from bireme.core.pod_rules import NOBODY, KindIndex, Occupants, PodsOf
from bireme.core.preferences import kinds
from bireme.core.quotas import Quota
from bireme.core.reasons import Reason
from bireme.core.resources import IntArray, Request, add
from bireme.core.running import RunningGang
from bireme.core.service import ServiceLedger
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import (
    adoptions,
    allocations,
    names,
    pod_creation,
    pod_groups,
    pod_rules,
    pods,
    resuming,
    training_jobs,
    volume_objects,
    wire,
)
from bireme.kube.allocations import Allocation, AssumedPlan, GangView, Orphans, RunTimes
from bireme.kube.api.base import MAX_PLANNED_TASKS, MAX_REPLICAS, MAX_TASKS
from bireme.kube.changes import Change, Changes
from bireme.kube.devices import Devices
from bireme.kube.job_services import JobServices
from bireme.kube.mutations import Mutations
from bireme.kube.node_cache import NodeCache
from bireme.kube.node_usage import NodeUsage, PlannedUsage, add_members
from bireme.kube.plans import PlanFacts, PlannedGang
from bireme.kube.pod_groups import GroupFacts, Placed
from bireme.kube.pod_rules import PodRules
from bireme.kube.pods import PodFacts
from bireme.kube.policy_source import SchedulingPolicies
from bireme.kube.resource_quotas import ResourceQuotas
from bireme.kube.resuming import Resumability
from bireme.kube.tenancy import Tenancy
from bireme.kube.training_jobs import JobFacts
from bireme.kube.volume_objects import NO_CLAIMS, PodClaims
from bireme.kube.volumes import Attached, ResolvedClaims, Volumes

_PodClass = tuple[PodKind, str, bool, bool]
"""Kind of pods, uid of their gang, whether they never leave, whether they are leaving."""
Reserved = Mapping[Key, AssumedPlan]
"""Assumed plans of gangs that are being admitted."""
Fault = tuple[Reason, str]
OnError = Callable[[Key, Exception], None]
"""Called with a gang and the exception that it raised: a bug, which must not stop other gangs."""


@dataclass(frozen=True, slots=True)
class _Basis:
    """All inputs of a gang's running state."""

    owner: JobFacts | GroupFacts | None
    view: GangView
    table: NodeTable
    priority: int = 0
    may_preempt: bool = True
    """For a PodGroup: whether other gangs may preempt it."""
    learned_seconds: float | None = None
    claims_revision: int = 0
    quotas: object = None
    rules_revision: tuple[int, ...] = ()
    resume: Resumability | None = None

    def is_same(self, other: "_Basis") -> bool:
        """Return whether ``other`` gives the same result; a replaced object counts as new."""
        objects = self.owner is other.owner and self.view is other.view
        claims = self.claims_revision == other.claims_revision and self.quotas is other.quotas
        claims = claims and self.rules_revision == other.rules_revision
        facts = (self.priority, self.may_preempt, self.learned_seconds, self.resume)
        other_facts = (other.priority, other.may_preempt, other.learned_seconds, other.resume)
        return objects and claims and self.table is other.table and facts == other_facts


@dataclass(frozen=True, slots=True)
class _WaitBasis:
    """All inputs of a waiting job's gang."""

    job: JobFacts
    fault: Fault | None
    priority: int
    may_preempt: bool
    learned_seconds: float | None
    claims_revision: int
    quotas: object
    rules_revision: tuple[int, ...]
    images_revision: int
    resume: Resumability

    def is_same(self, other: "_WaitBasis") -> bool:
        """Return whether ``other`` gives the same result; a replaced job counts as new."""
        claims = self.claims_revision == other.claims_revision and self.quotas is other.quotas
        claims = claims and self.rules_revision == other.rules_revision
        claims = claims and self.images_revision == other.images_revision
        facts = (self.fault, self.priority, self.may_preempt, self.learned_seconds, self.resume)
        other_facts = (
            *(other.fault, other.priority, other.may_preempt, other.learned_seconds),
            other.resume,
        )
        return claims and self.job is other.job and facts == other_facts


@dataclass(frozen=True, slots=True)
class _GangUsage:
    """The contribution of one gang to a snapshot."""

    allocation: Allocation | None
    running: tuple[RunningGang, ...]
    has_strays: bool
    """It has pods that no plan names."""
    claims: tuple[tuple[str, PodClaims, Request], ...] = ()
    """Node, claims of volumes and request of every planned member that is on no node yet."""


def _put(plans: dict[Key, PlannedGang], key: Key, planned: PlannedGang | None) -> None:
    if planned is None:
        plans.pop(key, None)
    else:
        plans[key] = planned


def _kinds(tasks: Iterable[Task]) -> Iterator[PodKind]:
    return chain.from_iterable(map(kinds, tasks))


def _class_of(group: GroupFacts | None) -> str | None:
    """Return the name of a PodGroup's PriorityClass; None for the cluster's default class."""
    return group.spec.priority_class_name if group is not None and group.spec else None


def join_reasons(reasons: Iterable[str]) -> str:
    """Join the reasons why parts of a request are left to kube-scheduler."""
    return "; ".join(dict.fromkeys(filter(None, reasons)))


def _raise(_: Key, error: Exception) -> None:
    raise error


class ClusterState:
    """The watched objects in the form that the core uses.

    Attributes:
        jobs, groups: By (namespace, name).
        start_failed: Jobs whose last start failed.
        tenancy: Queues, namespaces and priority classes.
        policies: SchedulingPolicies, which decide instead of the settings or as shadows.
        run_times: Run times and nodes of finished jobs.
        mutations: Changes that admission makes to the pods of jobs.
        quotas: ResourceQuotas.
        members: Pods that carry the pod-group label, by (namespace, name).
        gated: Members that have Bireme's scheduling gate, as raw objects.
        other_gates: Foreign scheduling gates of gated pods. Such a pod is not planned.
        changes: What changed, for each reader.

    Args:
        on_change: Called after every change that can matter to a decision.
        policies: The SchedulingPolicies to share; by default a new, empty cache.
    """

    def __init__(
        self,
        settings: SchedulingSettings,
        on_change: Callable[[], None] = lambda: None,
        policies: SchedulingPolicies | None = None,
    ) -> None:
        self.settings = settings
        self.changes = Changes(on_change)
        self.jobs: dict[Key, JobFacts] = {}
        self.groups: dict[Key, GroupFacts] = {}
        self.members: dict[Key, PodFacts] = {}
        self.start_failed: set[Key] = set()
        self.tenancy = Tenancy(self.changes.note_tenancy)
        self.policies = policies or SchedulingPolicies()
        self.run_times = RunTimes()
        self._service = ServiceLedger(
            settings.service_half_life_seconds, settings.known_accelerators
        )
        self.volumes = Volumes(self.changes.note)
        self.devices = Devices(self.changes.note)
        self.nodes = NodeCache(settings, self.changes, self.volumes, self.devices)
        self.mutations = Mutations()
        self.quotas = ResourceQuotas(self.changes.note)
        self.services = JobServices(self.changes.requeue)
        self.gated: dict[Key, wire.V1Pod] = {}
        self.other_gates: dict[Key, tuple[str, ...]] = {}
        self._member_tasks: dict[Key, Task] = {}
        self._unreadable: dict[Key, str] = {}
        """Error message of every gated pod that cannot be planned."""
        # Gated pods with claims only.
        self._member_claims: dict[Key, PodClaims] = {}
        self._member_rules: dict[Key, tuple[str, ...]] = {}
        # The pod kinds of waiting gangs with rules, from the last cycles.
        self._kind_index = KindIndex()
        # It names pods by the keys of ``_usage``.
        self._rules = PodRules(self.tenancy.labels_of)
        self.tenancy.on_namespaces = self._namespaces_changed
        self.tenancy.on_default_queue = self._default_queue_changed
        self._members_of: dict[Key, dict[Key, None]] = {}  # in order, unlike a set
        # Planning times of the two gangs that kube-scheduler served last.
        self._planned_at: dict[Key, float] = {}
        # Disruption messages of deleted pods of the job's current plan, by pod name. A pod may be
        # deleted before its job is reconciled, and its message would be lost.
        self._disruptions: dict[Key, dict[str, str]] = {}
        # Pods that were seen to succeed, by name: the uid of their job and the label of their plan.
        # A pod may be deleted before its end is recorded in the status.
        self._ended: dict[Key, dict[str, tuple[str, str]]] = {}
        # The same for pods of other controllers: pod uids by the uid of the controller.
        self._ended_guests: dict[Key, dict[str, dict[str, None]]] = {}
        # UIDs of external pods on lent places whose plan is gone. Another plan may adopt them.
        self._lent: set[str] = set()
        # Numbers of succeeded pods of a group, by uid of the Job that counts them.
        self._job_counts: dict[Key, dict[str, int]] = {}
        self._job_plans: dict[Key, PlannedGang] = {}
        self._group_plans: dict[Key, PlannedGang] = {}
        self._views: dict[Key, GangView] = {}
        self._outdated_views: set[Key] | None = None
        self._assumed_views: dict[Key, tuple[AssumedPlan, GangView]] = {}
        self._allocations: dict[Key, tuple[_Basis, tuple[RunningGang, ...]]] = {}
        # The last snapshot: the usage of each gang, the assumed plans, and the inputs of both.
        self._gang_usages: dict[Key, _GangUsage] = {}
        self._reserved: Reserved = {}
        self._usage_basis: tuple[NodeTable, tuple[int, int]] | None = None
        self._stale: set[Key] | None = None
        self._waiting_jobs: dict[Key, tuple[_WaitBasis, Gang] | None] = {}
        self._usage = NodeUsage()
        # Created by the first query for usage: not every program needs it.
        self._planned: PlannedUsage | None = None
        # Usage of claims per node. Its key: the node table, the revision of the volumes and the
        # volumes that plans attach.
        self._claimed: tuple[tuple[NodeTable, int, frozenset[Attached]], IntArray] | None = None

    def _namespaces_changed(self) -> None:
        if self._rules.namespaces_changed():
            self.changes.note()

    def _default_queue_changed(self, namespace: str) -> None:
        """Move the gangs of ``namespace`` that name no queue to its new default queue."""
        queue = self.tenancy.default_queue(namespace)
        for key, job in self.jobs.items():
            if key[0] == namespace:
                changed = training_jobs.with_default_queue(job, queue)
                self.jobs[key] = self.mutations.apply(changed)
                self._rules.put_job(key, () if job.is_finished else _kinds(changed.tasks))
                self.changes.requeue(key)
        for key, group in self.groups.items():
            if key[0] == namespace:
                self.groups[key] = replace(group, default_queue=queue)
                self.changes.requeue(key)

    # --- nodes and pods -------------------------------------------------------------------

    def put_member(self, key: Key, pod: wire.V1Pod) -> None:
        facts = pods.from_manifest(pod)
        gated = self.gated.get(key)
        # Most changes of a pod concern fields that are not read here: they must cause no cycle.
        if self.members.get(key) == facts and (gated is None or gated.spec == pod.spec):
            return
        previous = self.members.get(key)
        self._forget_member(key)
        self.members[key] = facts
        group = (key[0], facts.labels.get(names.POD_GROUP_LABEL, ""))
        self._members_of.setdefault(group, {})[key] = None
        self._disruptions.get(group, {}).pop(key[1], None)
        self._note_end(group, facts)
        if previous is not None and previous.uid != facts.uid:
            self._lent.discard(previous.uid)
        if previous is not None and pod.spec.scheduler_name == names.SCHEDULER_NAME:
            self._note_service(group, previous, facts)
        self.changes.note_members(group)
        if facts.is_gated and pod.spec.scheduler_name == names.SCHEDULER_NAME:
            self._put_task(key, pod, facts)
            self.gated[key] = pod
            if gates := pods.other_gates(pod.spec):
                self.other_gates[key] = gates
            if rules := pod_rules.demands_for_scheduler(pod.spec):
                self._member_rules[key] = rules
        self._rules.put_pod(key, key[0], pod, facts.labels)
        task = self._member_tasks.get(key)
        self._rules.put_preferences(key, () if task is None else _kinds((task,)))
        used = volume_objects.of_pod(pod.spec, key[1])
        if used != NO_CLAIMS and key in self.gated:
            self._member_claims[key] = used
        if used.claims and not facts.is_gated and not facts.is_terminal:
            self.volumes.put_pod(key, facts.node, used.claims, key[0], group)
        else:
            self.volumes.delete_pod(key)
        self._usage.put(key, "" if facts.is_terminal else facts.node, facts.request)

    def _note_end(self, group: Key, facts: PodFacts) -> None:
        """Remember a replica that has succeeded. A deleted replica is a loss instead."""
        run = facts.job_uid, facts.labels.get(names.PLAN_LABEL, "")
        run_by_pod = self._ended.get(group, {})
        if run_by_pod.get(facts.key[1], run) != run or facts.phase != "Succeeded":
            run_by_pod.pop(facts.key[1], None)
        elif all(run) and not facts.is_leaving:
            self._ended.setdefault(group, {})[facts.key[1]] = run
        if facts.phase == "Succeeded" and not (facts.is_leaving or any(run)):
            self._note_guest_end(group, facts)

    def _note_guest_end(self, group: Key, pod: PodFacts) -> None:
        """Remember a succeeded external pod, up to the bound of the status.

        A group may live for years.
        """
        pod_group = self.groups.get(group)
        if pod.scheduler != names.SCHEDULER_NAME or len(pod.owner_uids) != 1:
            return
        if pod_group is not None and pod_group.is_between_runs:
            return  # the pod belongs to an earlier run
        (owner,) = pod.owner_uids
        by_owner = self._ended_guests.setdefault(group, {})
        of_owner = by_owner.setdefault(owner, {})
        spec = pod_group.spec if pod_group is not None else None
        if len(of_owner) < (MAX_REPLICAS if spec is None else spec.min_member):
            of_owner[pod.uid] = None
        if len(by_owner) > MAX_TASKS:
            del by_owner[next(iter(by_owner))]

    def _forget_ends(self, group: Key) -> None:
        """Forget succeeded replicas that neither exist nor are planned."""
        if (run_by_pod := self._ended.get(group)) is None:
            return
        planned = self._job_plans.get(group)
        current = (planned.uid, planned.plan.label) if planned is not None else ("", "")
        for name in [n for n, run in run_by_pod.items() if run != current]:
            if (group[0], name) not in self.members:
                del run_by_pod[name]
        if not run_by_pod:
            del self._ended[group]

    def _names_of_succeeded(self, key: Key, job_uid: str, plan: PlanFacts) -> frozenset[str]:
        """Return the names of the pods of a job's ``plan`` that were seen to succeed."""
        run_by_pod = self._ended.get(key, {})
        return frozenset(name for name, run in run_by_pod.items() if run == (job_uid, plan.label))

    def _note_service(self, group: Key, previous: PodFacts, pod: PodFacts) -> None:
        """Record the gang if kube-scheduler has just bound or rejected one of its pods."""
        is_bound = bool(pod.node) and not previous.node
        planned = self.plan_of(group)
        if planned is None or not (is_bound or (pod.verdict and pod.verdict != previous.verdict)):
            return
        self._planned_at[group] = max(planned.plan.planned, planned.plan.resized)
        # Two suffice for serves_others: one of them is another gang than the asking one.
        if len(self._planned_at) > 2:
            del self._planned_at[min(self._planned_at, key=lambda key: self._planned_at[key])]

    def serves_others(self, gang: Key, since: float) -> bool:
        """Return whether kube-scheduler has bound or rejected a pod of another gang.

        Only gangs count that were planned at ``since`` (POSIX seconds) or later.
        """
        return any(
            planned_at >= since for key, planned_at in self._planned_at.items() if key != gang
        )

    def waits_another(self, gang: Key) -> bool:
        """Return whether the cache has another gang than ``gang`` that waits for places."""
        if any(key != gang for key in self._waiting_jobs):
            return True
        groups = (g for key, g in self.groups.items() if key != gang and g.plan is None)
        return any(self.newcomers(group) for group in groups)

    def ended_pods(self, group: GroupFacts) -> dict[str, str]:
        """Return the uid of the owner of every succeeded member, recorded or seen, by its uid."""
        uids_by_owner = self._ended_guests.get(group.key, {})
        owner_by_uid = {uid: owner for owner, uids in uids_by_owner.items() for uid in uids}
        return {**group.ended_pods, **owner_by_uid}

    def put_job_counts(self, group: Key, counts: Mapping[str, int]) -> None:
        """Store how many pods of ``group`` succeeded, by uid of the Job that counts them."""
        cached = self._job_counts.get(group, {})
        earlier = [(uid, n) for uid, n in cached.items() if uid not in counts]
        # Bounded: a group may outlive thousands of Jobs.
        merged = {**dict(earlier[-MAX_TASKS:]), **counts}
        if group in self.groups and cached != merged:
            self._job_counts[group] = merged
            self.changes.note_members(group)

    def placement_of(self, group: GroupFacts, newcomers: Iterable[PodFacts]) -> Placed:
        """Return the members of ``group`` that need no place; ``newcomers`` wait for one."""
        pods, counts = self.members_of(group.key), self._job_counts.get(group.key, {})
        return Placed.of(group.plan, pods, newcomers, self.ended_pods(group), counts)

    def _put_task(self, key: Key, pod: wire.V1Pod, facts: PodFacts) -> None:
        try:
            self._member_tasks[key] = pod_groups.member_task(pod, facts)
        except ValueError as error:  # such as a selector operator of a later Kubernetes
            self._unreadable[key] = f"pod {key[1]}: {error}"

    def delete_member(self, key: Key) -> None:
        if (facts := self.members.get(key)) is not None:
            group = (key[0], facts.labels.get(names.POD_GROUP_LABEL, ""))
            self._lent.discard(facts.uid)
            if facts.disruption and group in self._job_plans:
                self._disruptions.setdefault(group, {})[key[1]] = facts.disruption
            self._forget_member(key)
            self._rules.delete_pod(key)
            self._rules.put_preferences(key, ())
            self._usage.put(key, "")
            self.volumes.delete_pod(key)

    def _forget_member(self, key: Key) -> None:
        facts = self.members.pop(key, None)
        self._member_tasks.pop(key, None)
        self._unreadable.pop(key, None)
        self._member_claims.pop(key, None)
        self._member_rules.pop(key, None)
        self.gated.pop(key, None)
        self.other_gates.pop(key, None)
        if facts is None:
            return
        group = (key[0], facts.labels.get(names.POD_GROUP_LABEL, ""))
        self._members_of[group].pop(key, None)
        if not self._members_of[group]:
            del self._members_of[group]
            if group not in self.groups:
                self._ended_guests.pop(group, None)
        self._forget_ends(group)
        self.changes.note_members(group)

    def put_other_pod(self, key: Key, pod: wire.V1Pod) -> None:
        """Store a pod without a gang; only its usage matters."""
        node = "" if pod.status.phase in pods.TERMINAL else pod.spec.node_name or ""
        request = pods.request_of_pod(pod)
        other = ("", f"{key[0]}/{key[1]}")
        if node:
            self._rules.put_pod(other, key[0], pod, pod.metadata.labels or {})
        else:
            self._rules.delete_pod(other)
        if self._usage.put(other, node, request):
            self.changes.note()
        if node and (claims := volume_objects.of_pod(pod.spec, key[1]).claims):
            self.volumes.put_pod(other, node, claims, key[0])
        else:
            self.volumes.delete_pod(other)
        self.nodes.put_fixed_pod(key, node if pods.never_leaves(pod) else "", request)

    def delete_other_pod(self, key: Key) -> None:
        other = ("", f"{key[0]}/{key[1]}")
        self._usage.put(other, "")
        self._rules.delete_pod(other)
        self.volumes.delete_pod(other)
        self.nodes.put_fixed_pod(key, "")
        self.changes.note()

    def node_of_other(self, pod: Key) -> str:
        """Return the node of a pod without a gang; empty if it is unbound or has ended."""
        return self._usage.node_of(("", f"{pod[0]}/{pod[1]}"))

    def members_of(self, group: Key) -> list[PodFacts]:
        """Return all pods with the label of ``group``. Anybody may set that label."""
        return [self.members[key] for key in self._members_of.get(group, ())]

    def pods_of(self, job: JobFacts) -> list[PodFacts]:
        """Return the pods of all starts of ``job``."""
        return [pod for pod in self.members_of(job.key) if job.uid in pod.owner_uids]

    def others_on(self, node: str, gang: Key) -> frozenset[Key]:
        """Return stable keys of the pods on ``node`` that do not belong to ``gang``."""
        gang_pods = self._members_of.get(gang, ())
        return frozenset(pod for pod in self._usage.pods_on(node) if pod not in gang_pods)

    def is_emptying(self, node: str) -> bool:
        """Return whether a pod of a gang is leaving ``node``; it scans all pods of gangs."""
        pods_of_gangs = self.members.values()
        return any(p.node == node and p.is_leaving and not p.is_terminal for p in pods_of_gangs)

    # --- jobs and groups ------------------------------------------------------------------

    def put_job(self, key: Key, job: wire.CustomObject) -> None:
        levels, previous = self.settings.topology_levels, self.jobs.get(key)
        default_queue = self.tenancy.default_queue(key[0])
        facts = training_jobs.from_manifest(job, levels, previous, default_queue)
        is_new = (
            previous is None or previous.generation != facts.generation or previous.uid != facts.uid
        )
        if is_new:
            facts = self.mutations.apply(facts)
        self.jobs[key] = facts
        self.run_times.note_checkpoint(facts)
        self._rules.put_job(key, () if facts.is_finished else _kinds(facts.tasks))
        plan = facts.plan
        if plan is None and not (facts.is_finished or facts.is_suspended or facts.is_leaving):
            self._waiting_jobs.setdefault(key, None)
            if is_new:
                self.changes.on_newcomer(key[0])
        else:
            self._waiting_jobs.pop(key, None)
        if facts.start_failures:
            self.start_failed.add(key)
        else:
            self.start_failed.discard(key)
        self.put_job_plan(key, None if plan is None else PlannedGang(facts.uid, True, plan))

    def learn(
        self,
        jobs: Iterable[JobFacts],
        about: Callable[[Key], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Learn the run time, nodes and speed of each finished job of ``jobs`` once.

        Its pods must still exist. ``about`` is as in :meth:`RunTimes.learn`.
        """
        self.run_times.learn(jobs, about, self._run_of)

    def _run_of(self, job: JobFacts, seconds: float) -> FinishedRun | None:
        return allocations.run_on_nodes(job, seconds, self.pods_of(job), self.nodes.table)

    def apply_mutations(self, namespace: str) -> None:
        """Plan the jobs of ``namespace`` with the current knowledge of admission's changes."""
        for key, job in self.jobs.items():
            if key[0] == namespace and (changed := self.mutations.apply(job)) is not job:
                self.jobs[key] = changed
                self._rules.put_job(key, _kinds(changed.tasks))
                self.changes.requeue(key)

    def delete_job(self, key: Key) -> None:
        self.jobs.pop(key, None)
        self._rules.put_job(key, ())
        self._waiting_jobs.pop(key, None)
        self.start_failed.discard(key)
        self.put_job_plan(key, None)

    def put_job_plan(self, key: Key, planned: PlannedGang | None) -> None:
        """Store the plan of a TrainingJob. The extender reads nothing else of it."""
        previous = self._job_plans.get(key)
        _put(self._job_plans, key, planned)
        # Most events change no plan: its cached view stays valid.
        if previous is None or planned is None or previous.plan is not planned.plan:
            if (
                previous is None
                or planned is None
                or not planned.plan.only_adds_ends(previous.plan)
            ):
                self._disruptions.pop(key, None)
            self._forget_ends(key)
            self.changes.note_members(key)
        else:
            self.changes.requeue(key)

    def put_group(self, key: Key, group: wire.CustomObject) -> None:
        default_queue = self.tenancy.default_queue(key[0])
        previous = self.groups.get(key)
        facts = pod_groups.from_manifest(group, previous, default_queue)
        self.groups[key] = facts
        self._note_lent(key, facts)
        plan = facts.plan
        if plan is None and (previous is None or previous.generation != facts.generation):
            self.changes.on_newcomer(key[0])
        _put(self._group_plans, key, None if plan is None else PlannedGang(facts.uid, False, plan))
        if facts.is_between_runs:
            self._ended_guests.pop(key, None)
        self.changes.note_members(key)

    def _note_lent(self, key: Key, group: GroupFacts | None) -> None:
        """Remember pods on lent places whose plan is gone: their places stay lent."""
        planned = self._group_plans.get(key)
        if planned is None or not planned.plan.is_opportunistic:
            return
        plan = group.plan if group is not None and group.uid == planned.uid else None
        uids = planned.plan.member_by_uid.keys() - (plan.member_by_uid if plan else {}).keys()
        ungated = (pod for pod in self.members_of(key) if not pod.is_gated)
        self._lent.update(pod.uid for pod in ungated if pod.uid in uids)

    def is_lent(self, pod: PodFacts) -> bool:
        """Return whether a pod without a plan got a place that is reserved for other gangs."""
        return pod.uid in self._lent

    def delete_group(self, key: Key) -> None:
        self._note_lent(key, None)
        self.groups.pop(key, None)
        self._job_counts.pop(key, None)
        if key not in self._members_of:
            self._ended_guests.pop(key, None)
        _put(self._group_plans, key, None)
        self.changes.note_members(key)

    # --- gangs ----------------------------------------------------------------------------

    def plan_of(self, key: Key) -> PlannedGang | None:
        """Return the plan of gang ``key``; None without one."""
        return self._job_plans.get(key) or self._group_plans.get(key)

    def views(self) -> Iterator[tuple[Key, GangView]]:
        """Yield every gang that has a plan."""
        for key in self._group_plans | self._job_plans:  # in order, unlike a set
            if (view := self.view(key)) is not None:
                yield key, view

    def view(self, key: Key) -> GangView | None:
        """Return the plan of a gang with its pods; None if it has no plan."""
        self._drop_outdated_views()
        view, planned = self._views.get(key), self.plan_of(key)
        if view is None and planned is not None:
            disruptions = self._disruptions.get(key)
            members = self.members_of(key)
            uid, plan = planned.job_uid, planned.plan
            succeeded = self._names_of_succeeded(key, uid, plan)
            view = allocations.view_of(key, uid, plan, members, disruptions, succeeded)
            self._views[key] = view
        return view

    def _drop_outdated_views(self) -> None:
        if self._outdated_views is None:
            self._outdated_views = self.changes.follow(Change.MEMBERS)
        while self._outdated_views:
            key = self._outdated_views.pop()
            self._views.pop(key, None)
            self._assumed_views.pop(key, None)

    def waiting(
        self,
        excluded: Iterable[Key] = (),
        faults: Mapping[str, Fault] | None = None,
        on_error: OnError = _raise,
    ) -> list[Gang]:
        """Return every waiting gang; ``faults`` adds faults that only the caller knows, by uid."""
        faults, skip = faults or {}, set(excluded)
        gangs: list[Gang | None] = []
        makers = (self._waiting_job, self._waiting_jobs), (self._waiting_group, self.groups)
        for make, keys in makers:
            for key in (key for key in keys if key not in skip):
                try:
                    gangs.append(make(key, faults))
                except Exception as error:  # noqa: BLE001  # affects this gang only
                    on_error(key, error)
        return [gang for gang in gangs if gang is not None]

    def _waiting_job(self, key: Key, faults: Mapping[str, Fault]) -> Gang | None:
        job = self.jobs[key]
        class_name = job.priority_class
        priority, missing = self.tenancy.priority(class_name)
        fault = faults.get(job.uid) or missing or job.admission_fault
        fault = fault or allocations.in_the_way(job, self.groups.get(key), self.members_of(key))
        may_preempt, learned = self.tenancy.may_preempt(class_name), self.run_times.of_job(job)
        volumes = self._claims_revision(job)
        basis, cached = (
            _WaitBasis(
                job,
                fault,
                priority,
                may_preempt,
                learned,
                volumes,
                self.quotas.rules(key[0]),
                self._rules.revision_of(job.label_pairs),
                self.nodes.images.revision if job.has_timed_out else 0,
                self.resume_of(job),
            ),
            self._waiting_jobs[key],
        )
        # Few of thousands of gangs change between two cycles.
        if cached is None or not cached[0].is_same(basis):
            gang = apply_progress_report(job.gang(priority, fault, may_preempt, learned))
            gang = self._with_claims(basis.resume.apply(gang), job)
            if job.has_timed_out:
                images = (pods_of_task.images for pods_of_task in job.pods)
                gang = replace(gang, tasks=self._with_image_preferences(gang.tasks, images))
            cached = self._waiting_jobs[key] = (basis, gang)
        return cached[1]

    def resume_of(self, job: JobFacts) -> Resumability:
        """Return whether ``job`` can resume after a stop, with the source of that answer."""
        return resuming.of_job(
            job,
            self.tenancy.assumes_resumable(job.queue),
            is_like_another=self.run_times.writes_checkpoints(job),
            is_assumed=self.settings.assume_resumable,
        )

    def _with_image_preferences(
        self, tasks: Iterable[Task], images: Iterable[tuple[str, ...]]
    ) -> tuple[Task, ...]:
        """Return ``tasks`` with a preference for nodes that have their ``images``."""
        image_sets = list(images)
        preference_of = {
            image_names: self.nodes.images.preference(image_names)
            for image_names in dict.fromkeys(image_sets)
        }
        return tuple(
            task
            if (preference := preference_of[image_names]) is None
            else replace(task, preferences=task.preferences.with_node(preference))
            for task, image_names in zip(tasks, image_sets, strict=True)
        )

    def _claims_revision(self, job: JobFacts) -> int:
        """Return the revision of volumes and devices for a job that uses claims; else 0."""
        if not (job.has_claims or self.devices.asks(job.tasks)):
            return 0
        return self.volumes.revision + self.devices.revision + 1

    def _with_claims(self, gang: Gang, job: JobFacts) -> Gang:
        """Return the gang of ``job`` with the constraints of its claims and its quota charges."""
        self._want_devices(gang.tasks)
        if self.quotas.rules(job.key[0]) is not None:
            gang = replace(gang, tasks=self._with_charges(gang.tasks, job))
        if not (job.has_claims or self.devices.asks(gang.tasks)):
            return replace(gang, tasks=self._with_pod_kinds(gang.tasks, job))
        resolved = self._resolve_claims(gang.key, tuple(zip(gang.tasks, job.claims, strict=True)))
        return replace(
            gang,
            tasks=self._with_pod_kinds(resolved.tasks, job),
            fault=gang.fault or resolved.fault,
            left_to_scheduler=join_reasons((gang.left_to_scheduler, *resolved.reasons)),
        )

    def _with_pod_kinds(self, tasks: tuple[Task, ...], job: JobFacts) -> tuple[Task, ...]:
        """Return the tasks of ``job`` with the labels that affinity rules select, as ``pod``."""
        if not self._rules.has_selectors:
            return tasks
        return tuple(
            replace(task, pod=self._rules.kind_of(job.key[0], job.labels_of(place), task.pod))
            for place, task in enumerate(tasks)
        )

    def are_seen_alike(self, job: JobFacts, other: JobFacts) -> bool:
        """Return whether affinity rules match the pods of two versions of a job alike."""
        return self._with_pod_kinds(job.tasks, job) == self._with_pod_kinds(other.tasks, other)

    def label_drift(self, job: JobFacts, view: GangView) -> dict[str, dict[str, str]]:
        """Return the labels, by task, of pods of ``job`` that change the match of affinity rules.

        Admission set them after the gang was planned.
        """
        if not self._rules.has_selectors:
            return {}
        drift: dict[str, dict[str, str]] = {}
        planned = {task.name: job.labels_of(place) for place, task in enumerate(job.tasks)}
        for member, pod in view.members:
            task_labels = planned.get(member.task)
            if pod is None or task_labels is None or member.task in drift:
                continue
            more = {
                key: value for key, value in pod.labels.items() if task_labels.get(key) != value
            }
            more = {key: value for key, value in more.items() if key not in names.POD_LABELS}
            pod_kinds = (
                self._rules.kind_of(job.key[0], labels, None)
                for labels in (task_labels, {**task_labels, **more})
            )
            if more and next(pod_kinds) != next(pod_kinds):
                drift[member.task] = more
        return drift

    def _with_charges(self, tasks: Iterable[Task], job: JobFacts) -> tuple[Task, ...]:
        charges_of, namespace = self.quotas.charges, job.key[0]
        return tuple(
            replace(task, charges=charges_of(namespace, task, pods.priority_class, pods.charges))
            for task, pods in zip(tasks, job.pods, strict=True)
        )

    def _quotas_left(self) -> dict[Key, Quota]:
        """Return all quotas. Planned pods that do not exist yet count as used."""
        promised: dict[Key, dict[str, int]] = {}
        for key, gang_usage in self._gang_usages.items() if self.quotas.namespaces else ():
            job, allocation = self.jobs.get(key), gang_usage.allocation
            if job is None or allocation is None or self.quotas.rules(key[0]) is None:
                continue
            if allocation.job_uid != job.uid or not allocation.view.missing:
                continue
            missing = Counter(member.task for member in allocation.view.missing)
            for task in self._with_charges(job.tasks, job):
                for quota, amounts in task.charges:
                    amounts_so_far = promised.get((key[0], quota), {})
                    promised[key[0], quota] = add(amounts_so_far, amounts, missing[task.name])
        return self.quotas.with_promised(promised)

    def _resolve_claims(self, key: Key, tasks: Sequence[tuple[Task, PodClaims]]) -> ResolvedClaims:
        """Return the tasks of a gang with the constraints of their volume and device claims."""
        volumes = self.volumes.fold(key, tasks)
        claims = (used for _, used in tasks)
        devices = self.devices.fold(key[0], tuple(zip(volumes.tasks, claims, strict=True)))
        fault = volumes.fault or devices.fault
        return ResolvedClaims(devices.tasks, fault, (*volumes.reasons, *devices.reasons))

    def _want_devices(self, tasks: Iterable[Task]) -> None:
        """Start to read devices once a task requests a resource that no node offers."""
        if self.devices.is_wanted:
            return
        axis = self.nodes.table.axis
        if any(axis.column(name) is None for task in tasks for name, _ in task.request):
            self.devices.want()

    def _members_with_claims(
        self, key: Key, gated: list[tuple[PodFacts, Task]]
    ) -> tuple[list[tuple[PodFacts, Task]], ResolvedClaims]:
        """Return gated pods of another controller with the constraints of their claims."""
        tasks = [(task, self._member_claims.get(pod.key, NO_CLAIMS)) for pod, task in gated]
        resolved = self._resolve_claims(key, tasks)
        with_claims = [(pod, task) for (pod, _), task in zip(gated, resolved.tasks, strict=True)]
        if (
            len({(t.name, t.request, t.constraints, t.pod) for t in resolved.tasks})
            <= MAX_PLANNED_TASKS
        ):
            return with_claims, resolved
        # Each pod may have its own volume: these are more kinds of pods than a plan can hold.
        reason = "volumes of their own, which are of too many kinds to be planned"
        return gated, replace(resolved, reasons=(reason, *resolved.reasons))

    def newcomers(self, group: GroupFacts) -> list[PodFacts]:
        """Return the pods of ``group`` that wait for a place."""
        planned = group.plan.member_by_uid if group.plan else {}
        return [
            self.members[pod]
            for pod in self._members_of.get(group.key, ())
            if pod in self._member_tasks and not self.members[pod].is_leaving
            if self.members[pod].uid not in planned and pod not in self.other_gates
        ]

    def _waiting_group(self, key: Key, faults: Mapping[str, Fault]) -> Gang | None:
        group = self.groups[key]
        if group.is_leaving:
            return None
        gated = [(pod, self._member_tasks[pod.key]) for pod in self.newcomers(group)]
        class_name = _class_of(group)
        priority, missing = self.tenancy.priority(class_name)
        newcomers = [pod for pod, _ in gated]
        placement = self.placement_of(group, newcomers)
        scheduler_reasons: tuple[str, ...] = ()
        fault = faults.get(group.uid) or missing
        self._want_devices(task for _, task in gated)
        if any(pod.key in self._member_claims for pod in newcomers) or self.devices.asks(
            task for _, task in gated
        ):
            gated, resolved = self._members_with_claims(key, gated)
            fault, scheduler_reasons = fault or resolved.fault, resolved.reasons
        if self._rules.has_selectors:
            pod_kind = self._rules.kind_of
            gated = [(p, replace(t, pod=pod_kind(key[0], p.labels, t.pod))) for p, t in gated]
        if group.has_timed_out:
            images = (pods.images_of_spec(self.gated[pod.key].spec) for pod in newcomers)
            tasks = self._with_image_preferences((task for _, task in gated), images)
            gated = list(zip(newcomers, tasks, strict=True))
        if self._member_rules:
            rules = (self._member_rules.get(pod.key, ()) for pod in newcomers)
            scheduler_reasons = (*scheduler_reasons, *chain.from_iterable(rules))
        if self._unreadable:
            messages = (self._unreadable.get(pod) for pod in self._members_of.get(key, ()))
            fault = next(((Reason.SPEC_INVALID, message) for message in messages if message), fault)
        if key in self._job_plans:  # pods name their gang by one label
            fault = Reason.SPEC_INVALID, f"a TrainingJob {key[1]!r} runs here; rename the PodGroup"
        may_preempt = self.tenancy.may_preempt(class_name)
        learned = self.run_times.of_group(key, newcomers)
        gang = pod_groups.waiting_gang(
            group, gated, placement, priority, fault, may_preempt, learned
        )
        if gang is not None and not self.tenancy.may_preempt_pod_groups(group.queue):
            gang = replace(gang, is_preemptible=False)
        if self.other_gates and gang is not None:
            gates_by_pod = {
                p: g for p in self._members_of.get(key, ()) if (g := self.other_gates.get(p))
            }
            gang = pod_groups.with_other_gates(gang, gates_by_pod)
        if gang is not None and gang.fault is not None:
            counted = adoptions.list_released_pods(None, self.members_of(key))
            strangers = (p for p in counted if p.labels[names.QUEUE_LABEL] != group.queue)
            gang = pod_groups.with_other_queues(gang, strangers)
            waiting = (self.gated[pod.key] for pod in newcomers)
            gang = pod_groups.with_remedy(gang, pod_creation.remedy_of(waiting))
        return (
            gang
            if gang is None or not scheduler_reasons
            else replace(gang, left_to_scheduler=join_reasons(scheduler_reasons))
        )

    def usage_without(self, gang: Key) -> IntArray:
        """Return the usage of all bound pods, and of planned members of all gangs but ``gang``.

        int64, shape (nodes, resources), rows as in ``nodes.table``; a fresh copy.
        """
        table = self.nodes.table
        used = self._usage.matrix(table)
        used += self._plan_usage(table)
        view = self.view(gang)
        if view is not None:
            planned = np.zeros_like(used)
            add_members(planned, table, view.usage())
            used -= planned
        return used

    def _plan_usage(self, table: NodeTable) -> IntArray:
        """Return the usage of planned members that are not bound, as in :meth:`usage_without`."""
        if self._planned is None:
            self._planned = PlannedUsage(self.changes.follow(Change.MEMBERS, Change.ASSUMED_PLAN))
            self._planned.changed.update(self._group_plans, self._job_plans, self._reserved)
        self._planned.update(self._effective_view)
        return self._planned.usage.matrix(table)

    def _claim_usage(self, table: NodeTable) -> IntArray:
        """Return the usage of bound claims, as in :meth:`usage_without`."""
        basis = table, self.volumes.revision, self._plan_attachments()
        if self._claimed is None or self._claimed[0] != basis:
            used = np.zeros_like(table.allocatable)
            add_members(used, table, self.volumes.usage(table.nodes, basis[2]))
            self._claimed = basis, used
        return self._claimed[1]

    def _plan_attachments(self) -> frozenset[Attached]:
        """Return the shared volumes of planned members, with the nodes of their plan."""
        if not self.volumes.has_limits:
            return frozenset()
        return frozenset(
            (node, *volume)
            for key, gang_usage in self._gang_usages.items()
            for node, used, request in gang_usage.claims
            for volume in self.volumes.attachments_of(key[0], used, request)
        )

    def _claims_of_plan(self, allocation: Allocation) -> Iterator[tuple[str, PodClaims, Request]]:
        """Yield node, claims and request of every planned member with claims."""
        job = self.jobs.get(allocation.key)
        used_by: dict[str, PodClaims] = {}
        if job is not None and job.uid == allocation.job_uid:
            if not job.has_claims:
                return
            used_by = {t.name: used for t, used in zip(job.tasks, job.claims, strict=True)}
        for node, member, pod in allocation.view.open_places():
            used = used_by.get(member.task)
            if used is None and pod is not None:
                used = self._member_claims.get(pod.key) or self.volumes.of_pod(pod.key)
            if used is not None and used.has_volumes:
                yield node, used, allocation.view.plan.requests.get(member.task, ())

    def _is_planned(self, pod: Key) -> bool:
        """Return whether a pod is a member of a gang and not bound yet."""
        facts = self.members.get(pod)
        return facts is not None and not facts.node

    def _effective_view(self, key: Key) -> GangView | None:
        """Return the view of a gang's assumed plan, or else of its written plan."""
        assumed = self._reserved.get(key)
        return self.view(key) if assumed is None else self._view_of_assumed(key, assumed)

    def _view_of_assumed(self, key: Key, assumed: AssumedPlan) -> GangView:
        self._drop_outdated_views()
        cached = self._assumed_views.get(key)
        if cached is None or cached[0] is not assumed:
            # Pods appear while the plan is being written: a bound pod holds its place itself.
            uid, plan = assumed.job_uid, assumed.plan
            members, succeeded = self.members_of(key), self._names_of_succeeded(key, uid, plan)
            view = allocations.view_of(key, uid, plan, members, succeeded=succeeded)
            cached = self._assumed_views[key] = (assumed, view)
        return cached[1]

    def snapshot(
        self,
        now: float,
        reserved: Reserved | None = None,
        waiting: Sequence[Gang] | None = None,
        on_error: OnError = _raise,
    ) -> ClusterSnapshot:
        """Return the cluster at ``now``; gangs that are being admitted count as placed.

        ``waiting`` are the gangs to decide on, by default all without an assumed plan.
        """
        reserved, table = reserved or {}, self.nodes.table
        self._renew(reserved, table, on_error)
        gang_usages, used = self._gang_usages.values(), self._usage.matrix(table)
        used += self._plan_usage(table)
        if self.volumes.is_known:
            used += self._claim_usage(table)
        if self.devices.is_known:
            add_members(used, table, self.devices.usage(self._is_planned))
        strays = {
            key: self._pods_without_plan(key)
            for key, s in self._gang_usages.items()
            if s.has_strays
        }
        if waiting is None:
            waiting = self.waiting(reserved, on_error=on_error)
        running = (
            *chain.from_iterable(gang_usage.running for gang_usage in gang_usages),
            *self._strays(strays),
            *self._orphan_gangs(),
        )
        return ClusterSnapshot(
            now=now,
            nodes=table,
            used=used,
            waiting=tuple(waiting),
            queues=dict(self.tenancy.queues),
            queue_usage=allocations.queue_usage(
                (
                    gang_usage.allocation
                    for gang_usage in gang_usages
                    if gang_usage.allocation is not None
                ),
                chain.from_iterable(strays.values()),
            ),
            settings=self.settings,
            running=running,
            quotas=self._quotas_left(),
            occupants=self._occupants(waiting, running, table),
            finished_runs=self.run_times.finished,
            service=self._service_at(now, running),
        )

    def _service_at(self, now: float, running: Sequence[RunningGang]) -> Mapping[str, float]:
        """Return the service of each namespace, which grows by ``running`` from ``now`` on."""
        if self._service.is_new:
            for job in self.jobs.values():
                device_seconds, ended_at = allocations.earlier_service(
                    job, now, self.settings.known_accelerators
                )
                self._service.add(job.key[0], device_seconds, ended_at, now)
        self._service.observe(running, now)
        return self._service.at(now)

    def _occupants(
        self, waiting: Iterable[Gang], running: Iterable[RunningGang], table: NodeTable
    ) -> Occupants:
        """Return the bound pods that affinity rules of schedulable gangs refer to."""
        growing = (running_gang.gang for running_gang in running if running_gang.gang.is_elastic)
        gangs = chain(waiting, growing)
        asking = (task for g in gangs if g.has_rules or g.has_preferences for task in g.tasks)
        kinds_with_rules = set(_kinds(asking))
        if not kinds_with_rules:
            return NOBODY  # the common case: no gang has rules
        index = self._index_of(kinds_with_rules)
        matters: dict[PodKind, bool] = {}
        rows: dict[_PodClass, list[int]] = {}
        for group, node in self._selectable_pods():
            kind = group[0]
            if kind not in matters:
                matters[kind] = not kinds_with_rules.isdisjoint(index.about(kind))
            if matters[kind] and node in table.row:
                rows.setdefault(group, []).append(table.row[node])
        occupants = [
            PodsOf(kind, np.array(node_rows, dtype=np.int64), owner, is_fixed, is_leaving)
            for (kind, owner, is_fixed, is_leaving), node_rows in rows.items()
        ]
        for volume, node_names in self._nodes_with(
            {v for kind in kinds_with_rules for v in kind.volumes}
        ):
            node_rows = sorted(table.row[name] for name in node_names if name in table.row)
            occupants.append(
                PodsOf(PodKind(volumes=(volume,)), np.array(node_rows, dtype=np.int64))
            )
        claims = {claim for kind in kinds_with_rules for claim in kind.alone}
        if claims and len(table):
            anywhere = np.zeros(1, dtype=np.int64)  # the rule is about all nodes
            for claim, owner in sorted(self._users_of(claims)):
                occupants.append(PodsOf(PodKind(alone=(claim,)), anywhere, owner))
        return Occupants(occupants)

    def _index_of(self, pod_kinds: Set[PodKind]) -> KindIndex:
        """Return an index of ``pod_kinds``, and maybe of kinds from earlier calls."""
        # Few of tens of thousands of kinds change between two cycles.
        if len(self._kind_index) > 2 * len(pod_kinds):
            self._kind_index = KindIndex()
        for kind in pod_kinds:
            self._kind_index.add(kind)
        return self._kind_index

    def _nodes_with(
        self, volumes: Set[tuple[str, str]]
    ) -> Iterator[tuple[tuple[str, str], Set[str]]]:
        """Yield each of ``volumes`` with the nodes of its pods and planned members."""
        planned: dict[tuple[str, str], set[str]] = {}
        for key, gang_usage in self._gang_usages.items() if volumes else ():
            for node, used, _ in gang_usage.claims:
                for name in used.claims:
                    planned.setdefault(self.volumes.of_claim((key[0], name)), set()).add(node)
        for volume in sorted(volumes):
            yield volume, self.volumes.nodes_with(volume) | planned.get(volume, frozenset())

    def _users_of(self, claims: Set[Key]) -> set[tuple[Key, str]]:
        """Return every user of ``claims``: the claim and the uid of the gang, empty for no gang."""
        users = {
            (claim, self._gang_of(self.members[pod]) if pod in self.members else "")
            for claim in claims
            for pod in self.volumes.users(claim)
        }
        for key, gang_usage in self._gang_usages.items():
            if gang_usage.allocation is None:
                continue
            for _, used, _ in gang_usage.claims:
                named = {(key[0], name) for name in used.claims}
                users.update(
                    (claim, self._uid_of(gang_usage.allocation)) for claim in named & claims
                )
        return users

    def _selectable_pods(self) -> Iterator[tuple[_PodClass, str]]:
        """Yield the class and the node of every pod that affinity rules can select."""
        for key, kind in self._rules.pods():
            if node := self._usage.node_of(key):
                is_member = key in self.members
                owner = self._gang_of(self.members[key]) if is_member else ""
                namespace, _, name = key[1].partition("/")
                is_fixed = not is_member and self.nodes.is_fixed((namespace, name))
                yield (kind, owner, is_fixed, key in self._rules.leaving), node
        for key, gang_usage in self._gang_usages.items():
            job = self.jobs.get(key)
            if gang_usage.allocation is None:
                continue
            # Planned members: pods that are not bound or do not exist yet.
            tasks = self._with_pod_kinds(job.tasks, job) if job is not None else ()
            kinds = {task.name: task.pod for task in tasks}
            uid = self._uid_of(gang_usage.allocation)
            for node, member, pod in gang_usage.allocation.view.open_places():
                pod_kind = (
                    self._rules.of_pod(pod.key) if pod is not None else kinds.get(member.task)
                )
                if pod_kind is not None:
                    yield (pod_kind, uid, False, False), node

    def _uid_of(self, allocation: Allocation) -> str:
        group = self.groups.get(allocation.key)
        return allocation.job_uid or (group.uid if group is not None else "")

    def _gang_of(self, pod: PodFacts) -> str:
        """Return the uid of the running gang of a bound pod; empty for none."""
        gang_usage = self._gang_usages.get((pod.key[0], pod.labels.get(names.POD_GROUP_LABEL, "")))
        if (
            gang_usage is None
            or gang_usage.allocation is None
            or pod.uid not in gang_usage.allocation.view.uids
        ):
            return f"{pod.job_uid}/leaving" if pod.job_uid else ""
        uid = self._uid_of(gang_usage.allocation)
        is_left = any(pod.key == leftover.key for leftover in gang_usage.allocation.view.leftovers)
        return f"{uid}/leaving" if is_left else uid

    def _renew(self, reserved: Reserved, table: NodeTable, on_error: OnError) -> None:
        """Update the usage of all gangs, with ``reserved`` as the assumed plans."""
        if self._stale is None:
            self._stale = self.changes.follow(Change.OBJECT, Change.ASSUMED_PLAN)
        previous, self._reserved = self._reserved, reserved
        for key in (*previous, *(key for key in reserved if key not in previous)):
            if previous.get(key) is not reserved.get(key):
                self.changes.note_assumed_plan(key)
        changes = self.changes.tenancy_revision, self.run_times.revision
        # Nodes, priority classes and learned run times can matter to every gang.
        if (
            self._usage_basis is None
            or self._usage_basis[0] is not table
            or (self._usage_basis[1] != changes)
        ):
            self._usage_basis = table, changes
            gangs = (
                self._gang_usages,
                self._group_plans,
                self._job_plans,
                reserved,
                self._members_of,
            )
            self._stale.update(*gangs)
        stale = sorted(self._stale)
        self._stale.clear()
        for key in stale:
            gang_usage = self._gang_usage(key, on_error)
            if gang_usage is None:
                self._gang_usages.pop(key, None)
                self._allocations.pop(key, None)
            else:
                self._gang_usages[key] = gang_usage

    def _gang_usage(self, key: Key, on_error: OnError) -> _GangUsage | None:
        """Return the usage of a gang; None if it holds nothing."""
        assumed, planned = self._reserved.get(key), self.plan_of(key)
        view = self._effective_view(key)
        members = len(self._members_of.get(key, ()))
        if view is None:
            self._allocations.pop(key, None)
            return _GangUsage(None, (), True) if members else None
        job_uid = assumed.job_uid if assumed is not None else planned.job_uid if planned else ""
        allocation = Allocation(key, job_uid, view)
        claims = tuple(self._claims_of_plan(allocation))
        return _GangUsage(
            allocation, self._running(allocation, on_error), members > len(view.uids), claims
        )

    def _pods_without_plan(self, key: Key) -> list[PodFacts]:
        """Return the pods with the label of a gang that no plan names."""
        allocation = self._gang_usages[key].allocation
        counted = allocation.view.uids if allocation is not None else frozenset()
        return [pod for pod in self.members_of(key) if pod.uid not in counted]

    def _running(self, allocation: Allocation, on_error: OnError) -> tuple[RunningGang, ...]:
        """Return a gang that holds places, and a second one of its leaving pods, if any."""
        basis = self._basis(allocation)
        cached = self._allocations.get(allocation.key)
        # Few of thousands of gangs change between two snapshots.
        if cached is None or not cached[0].is_same(basis):
            gangs = tuple(gang for gang in self._derive_gangs(allocation, basis, on_error) if gang)
            cached = self._allocations[allocation.key] = (basis, gangs)
        return cached[1]

    def _basis(self, allocation: Allocation) -> "_Basis":
        job, group = self.jobs.get(allocation.key), self.groups.get(allocation.key)
        # Compare uids: a new job may have the name of a deleted one.
        if job is None or not allocation.job_uid or job.uid != allocation.job_uid:
            learned = self.run_times.of_group(
                allocation.key, (pod for _, pod in allocation.view.members)
            )
            return _Basis(
                group,
                allocation.view,
                self.nodes.table,
                self.tenancy.priority(_class_of(group))[0],
                self.tenancy.may_preempt_pod_groups(allocation.queue),
                learned,
            )
        class_name = job.priority_class
        return _Basis(
            job,
            allocation.view,
            self.nodes.table,
            self.tenancy.priority(class_name)[0],
            self.tenancy.may_preempt(class_name),
            self.run_times.of_job(job),
            self._claims_revision(job),
            self.quotas.rules(allocation.key[0]),
            self._rules.revision_of(job.label_pairs),
            self.resume_of(job),
        )

    def _derive_gangs(
        self, allocation: Allocation, basis: "_Basis", on_error: OnError
    ) -> Iterator[RunningGang | None]:
        owner, table, learned = basis.owner, basis.table, basis.learned_seconds
        if isinstance(owner, JobFacts):
            try:
                gang = owner.gang(
                    basis.priority, may_preempt=basis.may_preempt, learned_seconds=learned
                )
                gang = self._with_claims(gang, owner)
                # A fault of its claims does not stop a running gang. The gang only cannot grow.
                is_elastic = gang.is_elastic and gang.fault is None
                gang = replace(gang, is_elastic=is_elastic, fault=owner.fault)
                gang = gang if basis.resume is None else basis.resume.apply(gang)
                yield allocations.job_allocation(owner, gang, allocation, table)
                yield allocations.of_leftovers(owner, allocation, table)
                return
            except Exception as error:  # noqa: BLE001  # affects this gang only
                on_error(allocation.key, error)
        if owner is not None:
            rights = basis.priority, basis.may_preempt
            yield allocations.of_others(owner, allocation, learned, table, *rights)

    def _strays(self, uncounted: Mapping[Key, Iterable[PodFacts]]) -> Iterator[RunningGang]:
        """Yield the pods of deleted jobs, which no plan names, as leaving gangs.

        Anybody can write a label, so only the owner counts: a pod with one owner, a TrainingJob.
        The garbage collector deletes it with that job; the operator deletes it if the job still
        exists. A pod that ``--cascade=orphan`` left behind has no owner, and stays.
        """
        key_by_uid: dict[str, Key] | None = None
        for key, pods_of_gang in uncounted.items():
            owned = [pod for pod in pods_of_gang if pod.job_uid]
            if not owned:
                continue
            if key_by_uid is None:
                key_by_uid = {job.uid: gang_key for gang_key, job in self.jobs.items()}
            strays = [pod for pod in owned if key_by_uid.get(pod.job_uid, key) == key]
            gang = allocations.of_strays(key, strays, self.nodes.table)
            if gang is not None:
                yield gang

    def orphans(self) -> Iterator[Orphans]:
        """Yield the pods that run without a plan, by gang and queue, as of the last snapshot."""
        for key in self._gang_usages:
            yield from self.orphans_of(key)

    def orphans_of(self, key: Key) -> list[Orphans]:
        """Return the pods of gang ``key`` that run without a plan, by queue."""
        gang_usage = self._gang_usages.get(key)
        if gang_usage is None or not gang_usage.has_strays:
            return []
        return allocations.orphans_of(key, self._pods_without_plan(key))

    def _orphan_gangs(self) -> Iterator[RunningGang]:
        """Yield the pods that run without a plan, as gangs that may be stopped.

        The pods of a deleted PodGroup keep running, but other gangs may preempt them. Otherwise
        a tenant could keep guaranteed places of others by deleting a PodGroup.
        """
        for orphans in self.orphans():
            priority, _ = self.tenancy.priority(_class_of(self.groups.get(orphans.key)))
            may_preempt = self.tenancy.may_preempt_pod_groups(orphans.queue)
            running = allocations.of_orphans(orphans, self.nodes.table, priority, may_preempt)
            if running is not None:
                yield running
