"""Cache of the watched objects, from which cluster snapshots for the core are made.

Watches call ``put_*`` and ``delete_*``; nothing here performs I/O or decides. The operator and the
extender have one each, filled with the kinds they need. The cache can be lost at any time: it is
rebuilt from the API server. A snapshot costs what has changed, because only nodes whose pods
changed are summed again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from bireme.core.estimates import apply_progress_report
from bireme.core.finished_runs import FinishedRun
from bireme.core.gangs import Gang, Key, PodKind, Task
from bireme.core.gpus import read_gpu_models
from bireme.core.nodes import Node, NodeTable
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
    nodes,
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
from bireme.kube.devices import Devices
from bireme.kube.job_services import JobServices
from bireme.kube.mutations import Mutations
from bireme.kube.plans import PlanFacts, PlannedGang
from bireme.kube.pod_groups import GroupFacts, Placed
from bireme.kube.pod_rules import PodRules
from bireme.kube.pods import PodFacts
from bireme.kube.policy_source import SchedulingPolicies
from bireme.kube.preferences import NodeImages
from bireme.kube.resource_quotas import ResourceQuotas
from bireme.kube.resuming import Resumability
from bireme.kube.tenancy import Tenancy
from bireme.kube.training_jobs import JobFacts
from bireme.kube.volume_objects import NO_CLAIMS, PodClaims
from bireme.kube.volumes import Attached, Folded, Volumes


class NodeUsage:
    """Requests of pods by node, and their sums."""

    def __init__(self) -> None:
        self._node_of: dict[Key, str] = {}
        self._pods_on: dict[str, dict[Key, Request]] = {}
        self._changed: set[str] = set()
        self._table: NodeTable | None = None
        self._used: IntArray = np.zeros((0, 0), dtype=np.int64)

    def put(self, key: Key, node: str, request: Request = ()) -> bool:
        """Set what the pod uses on ``node``, "" for none; return whether that is new."""
        before = self._node_of.pop(key, "")
        if node:
            self._node_of[key] = node
        if before == node and (not node or self._pods_on[node].get(key) == request):
            return False
        if before:
            del self._pods_on[before][key]
            if not self._pods_on[before]:
                del self._pods_on[before]
            self._changed.add(before)
        if node:
            self._pods_on.setdefault(node, {})[key] = request
            self._changed.add(node)
        return True

    def node_of(self, key: Key) -> str:
        """Return the node on which the pod uses something; empty for none."""
        return self._node_of.get(key, "")

    def pods_on(self, node: str) -> Iterable[Key]:
        """Return the pods that use something on ``node``."""
        return self._pods_on.get(node, ())

    def on(self, node: str) -> dict[str, int]:
        """Return the sum of the requests on ``node``."""
        total: dict[str, int] = {}
        for request in self._pods_on.get(node, {}).values():
            total = add(total, request)
        return total

    def matrix(self, nodes: NodeTable) -> IntArray:
        """Return usage per node and resource: int64, shape (nodes, resources), a fresh copy."""
        if nodes is not self._table:
            self._table = nodes
            self._used = np.zeros_like(nodes.allocatable)
            self._changed = set(self._pods_on)
        # Summed anew, never incremented: a missed or doubled event leaves no wrong usage behind.
        for name in self._changed:
            row = nodes.row.get(name)
            if row is not None:
                self._used[row] = 0
                for request in self._pods_on.get(name, {}).values():
                    self._used[row] += nodes.axis.usage(request)
        self._changed = set()
        return self._used.copy()


class PlannedUsage:
    """What planned members use beside their pods; ``changed`` are the gangs to count anew."""

    def __init__(self, changed: set[Key]) -> None:
        self.changed = changed
        self.usage = NodeUsage()
        self._counted: dict[Key, int] = {}

    def update(self, view: Callable[[Key], GangView | None]) -> None:
        """Count the changed gangs anew."""
        for gang in self.changed:
            found = view(gang)
            usage = list(found.usage()) if found is not None else []
            name = f"{gang[0]}/{gang[1]}"
            for number, (node, request) in enumerate(usage):
                self.usage.put((name, str(number)), node, request)
            for number in range(len(usage), self._counted.pop(gang, 0)):
                self.usage.put((name, str(number)), "")
            if usage:
                self._counted[gang] = len(usage)
        self.changed.clear()


def add_members(used: IntArray, nodes: NodeTable, members: Iterable[tuple[str, Request]]) -> None:
    """Add the request of every (node, request) to ``used``, shape (nodes, resources), in place."""
    rows: dict[Request, list[int]] = {}
    for node, request in members:
        row = nodes.row.get(node)
        if row is not None:
            rows.setdefault(request, []).append(row)
    for request, taken in rows.items():  # thousands of members, but few distinct requests
        np.add.at(used, taken, nodes.axis.usage(request))


_Group = tuple[PodKind, str, bool, bool]
"""Kind of pods, uid of their gang, whether they never leave, and whether they are leaving."""
Reserved = Mapping[Key, AssumedPlan]
"""Assumed plans of gangs that are being admitted."""
Fault = tuple[Reason, str]
OnError = Callable[[Key, Exception], None]
"""Called with a gang and the exception it caused, which is a bug; it stops no other gang."""


@dataclass(frozen=True, slots=True)
class _Basis:
    """All that a gang's places follow from."""

    owner: JobFacts | GroupFacts | None
    view: GangView
    table: NodeTable
    priority: int = 0
    may_preempt: bool = True
    """Of a PodGroup, that others may preempt it."""
    learned_seconds: float | None = None
    claims_revision: int = 0
    quotas: object = None
    rules_revision: tuple[int, ...] = ()
    resume: Resumability | None = None

    def is_same(self, other: "_Basis") -> bool:
        """Return whether the same follows from ``other``; objects count as new when replaced."""
        objects = self.owner is other.owner and self.view is other.view
        claims = self.claims_revision == other.claims_revision and self.quotas is other.quotas
        claims = claims and self.rules_revision == other.rules_revision
        facts = (self.priority, self.may_preempt, self.learned_seconds, self.resume)
        others = (other.priority, other.may_preempt, other.learned_seconds, other.resume)
        return objects and claims and self.table is other.table and facts == others


@dataclass(frozen=True, slots=True)
class _WaitBasis:
    """All that a waiting job's gang follows from."""

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
        """Return whether the same follows from ``other``; a job counts as new when replaced."""
        claims = self.claims_revision == other.claims_revision and self.quotas is other.quotas
        claims = claims and self.rules_revision == other.rules_revision
        claims = claims and self.images_revision == other.images_revision
        facts = (self.fault, self.priority, self.may_preempt, self.learned_seconds, self.resume)
        others = (
            *(other.fault, other.priority, other.may_preempt, other.learned_seconds),
            other.resume,
        )
        return claims and self.job is other.job and facts == others


@dataclass(frozen=True, slots=True)
class _Share:
    """What one gang contributes to a snapshot."""

    held: Allocation | None
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


def words_of(left: Iterable[str]) -> str:
    """Return what is left to kube-scheduler as one text."""
    return "; ".join(dict.fromkeys(filter(None, left)))


def _raise(_: Key, error: Exception) -> None:
    raise error


class ClusterState:
    """The watched objects, in the form that the core uses.

    Attributes:
        jobs, groups: By (namespace, name).
        start_failed: Jobs whose last start failed.
        tenancy: Queues, namespaces and priority classes.
        policies: SchedulingPolicies, which decide instead of the settings or as shadows.
        run_times: Run times learned from finished jobs, and where these ran.
        mutations: What the API server makes of the pods of jobs.
        quotas: ResourceQuotas.
        members: Pods that carry the pod-group label, by (namespace, name).
        gated: Those of them that have Bireme's scheduling gate, as raw objects.
        other_gates: Gates of others on gated pods, which are left alone until these are gone.
        node_created: Creation times of nodes by name, as the API server writes them.
        changed: Gangs whose job, group or pods changed; the consumer clears it.
        on_newcomer: Called with the namespace of every gang that comes, or was edited, without a
            plan.
        revision: Number of changes that can matter to a decision.

    Args:
        on_change: Called after every change that can matter to a decision.
        policies: The SchedulingPolicies to share; by default an own, empty cache.
    """

    def __init__(
        self,
        settings: SchedulingSettings,
        on_change: Callable[[], None] = lambda: None,
        policies: SchedulingPolicies | None = None,
    ) -> None:
        self.settings = settings
        self._on_change = on_change
        self.on_newcomer: Callable[[str], None] = lambda _: None
        self.revision = 0
        self.changed: set[Key] = set()
        self.jobs: dict[Key, JobFacts] = {}
        self.groups: dict[Key, GroupFacts] = {}
        self.members: dict[Key, PodFacts] = {}
        self.start_failed: set[Key] = set()
        self.tenancy = Tenancy(self._tenancy_changed)
        self.policies = policies or SchedulingPolicies()
        self.run_times = RunTimes()
        self._service = ServiceLedger(
            settings.service_half_life_seconds, settings.known_accelerators
        )
        self.volumes = Volumes(self._notice)
        self.devices = Devices(self._notice)
        self.mutations = Mutations()
        self.quotas = ResourceQuotas(self._notice)
        self.services = JobServices(self.requeue)
        self.gated: dict[Key, wire.V1Pod] = {}
        self.other_gates: dict[Key, tuple[str, ...]] = {}
        self.node_created: dict[str, str | None] = {}
        self._member_tasks: dict[Key, Task] = {}
        self._unreadable: dict[Key, str] = {}
        """Why a gated pod cannot be planned."""
        # Of gated pods that name claims.
        self._member_claims: dict[Key, PodClaims] = {}
        self._member_rules: dict[Key, tuple[str, ...]] = {}
        # What rules of waiting gangs see, of the last cycles.
        self._asked = KindIndex()
        # Its pods by their key in the usage.
        self._rules = PodRules(self.tenancy.labels_of)
        self.tenancy.on_namespaces = self._namespaces_changed
        self.tenancy.on_default_queue = self._default_queue_changed
        self._members_of: dict[Key, dict[Key, None]] = {}  # in order, unlike a set
        # Of the gangs that kube-scheduler has served: when the two latest of them were planned.
        self._served: dict[Key, float] = {}
        # Of the plan that a job follows: what was said of pods that are gone, by their names. A pod
        # may have gone before its job is reconciled, and its last words with it.
        self._disruptions: dict[Key, dict[str, str]] = {}
        # UID of the job and label of the plan, by name, of pods that were seen to have ended well.
        # A pod may go before the record of its end is written, which follows from here until then.
        self._ended: dict[Key, dict[str, tuple[str, str]]] = {}
        # Likewise of pods of other controllers: their uids, by those of their controllers.
        self._ended_guests: dict[Key, dict[str, dict[str, None]]] = {}
        # UIDs of pods of others in lent places whose plan has gone: another one may take them over.
        self._lent: set[str] = set()
        # Numbers of pods of a group that ended well, by uid of the Job that counts them.
        self._job_counts: dict[Key, dict[str, int]] = {}
        self._job_plans: dict[Key, PlannedGang] = {}
        self._group_plans: dict[Key, PlannedGang] = {}
        self._views: dict[Key, GangView] = {}
        self._assumed_views: dict[Key, tuple[AssumedPlan, GangView]] = {}
        self._allocations: dict[Key, tuple[_Basis, tuple[RunningGang, ...]]] = {}
        # Of the last snapshot: the share of each gang, the assumed plans, and what all follow from.
        self._shares: dict[Key, _Share] = {}
        self._reserved: Reserved = {}
        self._shares_of: tuple[NodeTable, tuple[int, int]] | None = None
        self._stale: set[Key] = set()
        self._tenancy_changes = 0
        self._waiting_jobs: dict[Key, tuple[_WaitBasis, Gang] | None] = {}
        self._nodes: dict[str, Node] = {}
        self._images = NodeImages()
        self._table: NodeTable | None = None
        self._usage = NodeUsage()
        # Usage of pods that never leave their node: DaemonSets and static pods.
        self._fixed = NodeUsage()
        # Kept from the first question about usage on, which not every program asks.
        self._planned: PlannedUsage | None = None
        # What claims use of the nodes of a table, at a revision of the volumes and with what plans
        # attach.
        self._claimed: tuple[tuple[NodeTable, int, frozenset[Attached]], IntArray] | None = None
        self._offers_of = (0, 0)

    def _notice(self) -> None:
        self.revision += 1
        self._on_change()

    def _tenancy_changed(self) -> None:
        self._tenancy_changes += 1
        self._on_change()

    def _namespaces_changed(self) -> None:
        if self._rules.namespaces_changed():
            self._notice()

    def _default_queue_changed(self, namespace: str) -> None:
        """Have the gangs of ``namespace`` that name no queue counted in its new one."""
        queue = self.tenancy.default_queue(namespace)
        for key, job in self.jobs.items():
            if key[0] == namespace:
                changed = training_jobs.with_default_queue(job, queue)
                self.jobs[key] = self.mutations.applied_to(changed)
                self._rules.put_job(key, () if job.is_finished else _kinds(changed.tasks))
                self.requeue(key)
        for key, group in self.groups.items():
            if key[0] == namespace:
                self.groups[key] = replace(group, default_queue=queue)
                self.requeue(key)

    def requeue(self, gang: Key) -> None:
        """Have the gang reconciled again, although nothing that is watched has changed."""
        self.changed.add(gang)
        self._stale.add(gang)
        self._notice()

    def _touch(self, gang: Key) -> None:
        self._views.pop(gang, None)
        self._assumed_views.pop(gang, None)
        self._plan_changed(gang)
        self.requeue(gang)

    def _plan_changed(self, gang: Key) -> None:
        if self._planned is not None:
            self._planned.changed.add(gang)

    # --- nodes and pods -------------------------------------------------------------------

    def put_node(self, key: Key, node: wire.V1Node) -> None:
        facts = nodes.from_manifest(node)
        self.node_created[facts.name] = node.metadata.creation_timestamp
        self._images.put(facts.name, node.status.images)
        if self._nodes.get(facts.name) != facts:  # a heartbeat changes no fact
            self._nodes[facts.name] = facts
            self._table = None
            self._notice()

    def delete_node(self, key: Key) -> None:
        self.node_created.pop(key[1], None)
        self._images.delete(key[1])
        if self._nodes.pop(key[1], None) is not None:
            self._table = None
            self._notice()

    def node_label(self, name: str, key: str) -> str:
        """Return the value of a node's label; empty without the label or the node."""
        node = self._nodes.get(name)
        return node.labels.get(key, "") if node is not None else ""

    @property
    def node_table(self) -> NodeTable:
        """All nodes as arrays; the same object until a node changes."""
        offers_of = self.volumes.offers_revision, self.devices.offers_revision
        if self._table is None or self._offers_of != offers_of:
            self._offers_of = offers_of
            facts = [replace(n, fixed=self._fixed.on(n.name)) for n in self._nodes.values()]
            for offers in (self.volumes.offers(facts), self.devices.offers(facts)):
                if offers:
                    facts = [
                        replace(n, allocatable={**n.allocatable, **offers.get(n.name, {})})
                        for n in facts
                    ]
            self._table = NodeTable(
                facts,
                self.settings.topology_levels,
                read_gpu_models(self.settings.gpu_models),
                self.settings.known_accelerators,
            )
        return self._table

    def node(self, name: str) -> Node | None:
        return self._nodes.get(name)

    def put_member(self, key: Key, pod: wire.V1Pod) -> None:
        facts = pods.from_manifest(pod)
        gated = self.gated.get(key)
        # Much of what changes in a pod is not read here, and must not make another cycle.
        if self.members.get(key) == facts and (gated is None or gated.spec == pod.spec):
            return
        before = self.members.get(key)
        self._forget_member(key)
        self.members[key] = facts
        group = (key[0], facts.labels.get(names.POD_GROUP_LABEL, ""))
        self._members_of.setdefault(group, {})[key] = None
        self._disruptions.get(group, {}).pop(key[1], None)
        self._note_end(group, facts)
        if before is not None and before.uid != facts.uid:
            self._lent.discard(before.uid)
        if before is not None and pod.spec.scheduler_name == names.SCHEDULER_NAME:
            self._note_service(group, before, facts)
        self._touch(group)
        if facts.is_gated and pod.spec.scheduler_name == names.SCHEDULER_NAME:
            self._put_task(key, pod, facts)
            self.gated[key] = pod
            if others := pods.other_gates(pod.spec):
                self.other_gates[key] = others
            if rules := pod_rules.left_to_scheduler(pod.spec):
                self._member_rules[key] = rules
        self._rules.put_pod(key, key[0], pod, facts.labels)
        task = self._member_tasks.get(key)
        self._rules.put_wishes(key, () if task is None else _kinds((task,)))
        used = volume_objects.of_pod(pod.spec, key[1])
        if used != NO_CLAIMS and key in self.gated:
            self._member_claims[key] = used
        if used.claims and not facts.is_gated and not facts.is_terminal:
            self.volumes.put_pod(key, facts.node, used.claims, key[0], group)
        else:
            self.volumes.delete_pod(key)
        self._usage.put(key, "" if facts.is_terminal else facts.node, facts.request)

    def _note_end(self, group: Key, facts: PodFacts) -> None:
        """Remember a replica that has ended well by itself: one that was deleted is a loss."""
        of = facts.job_uid, facts.labels.get(names.PLAN_LABEL, "")
        ended = self._ended.get(group, {})
        if ended.get(facts.key[1], of) != of or facts.phase != "Succeeded":
            ended.pop(facts.key[1], None)
        elif all(of) and not facts.is_leaving:
            self._ended.setdefault(group, {})[facts.key[1]] = of
        if facts.phase == "Succeeded" and not (facts.is_leaving or any(of)):
            self._note_guest_end(group, facts)

    def _note_guest_end(self, group: Key, pod: PodFacts) -> None:
        """Remember as many ends as the status of a group records: it may live for years."""
        known = self.groups.get(group)
        if pod.scheduler != names.SCHEDULER_NAME or len(pod.owner_uids) != 1:
            return
        if known is not None and known.is_between_runs:
            return  # it is of an earlier one
        (owner,) = pod.owner_uids
        by_owner = self._ended_guests.setdefault(group, {})
        of_owner = by_owner.setdefault(owner, {})
        spec = known.spec if known is not None else None
        if len(of_owner) < (MAX_REPLICAS if spec is None else spec.min_member):
            of_owner[pod.uid] = None
        if len(by_owner) > MAX_TASKS:
            del by_owner[next(iter(by_owner))]

    def _forget_ends(self, group: Key) -> None:
        """Drop what is remembered of ended replicas that neither exist nor are planned."""
        if (ended := self._ended.get(group)) is None:
            return
        planned = self._job_plans.get(group)
        current = (planned.uid, planned.plan.label) if planned is not None else ("", "")
        for name in [n for n, of in ended.items() if of != current]:
            if (group[0], name) not in self.members:
                del ended[name]
        if not ended:
            del self._ended[group]

    def _ended_of(self, key: Key, job_uid: str, plan: PlanFacts) -> frozenset[str]:
        """Return the names of the pods of a job's ``plan`` that were seen to have ended well."""
        ended = self._ended.get(key, {})
        return frozenset(name for name, of in ended.items() if of == (job_uid, plan.label))

    def _note_service(self, group: Key, before: PodFacts, pod: PodFacts) -> None:
        """Take note of the gang if kube-scheduler has just bound or judged a pod of it."""
        is_bound = bool(pod.node) and not before.node
        planned = self.planned(group)
        if planned is None or not (is_bound or (pod.verdict and pod.verdict != before.verdict)):
            return
        self._served[group] = max(planned.plan.planned, planned.plan.resized)
        if len(self._served) > 2:  # the latest two tell of any gang whether another was served
            del self._served[min(self._served, key=lambda served: self._served[served])]

    def serves_others(self, gang: Key, since: float) -> bool:
        """Return whether kube-scheduler has bound or judged a pod of another gang.

        Only gangs count that were planned at ``since`` (POSIX seconds) or later.
        """
        return any(at >= since for served, at in self._served.items() if served != gang)

    def waits_another(self, gang: Key) -> bool:
        """Return whether another gang than ``gang`` waits for places, as far as is known."""
        if any(key != gang for key in self._waiting_jobs):
            return True
        groups = (g for key, g in self.groups.items() if key != gang and g.plan is None)
        return any(self.newcomers(group) for group in groups)

    def ended_pods(self, group: GroupFacts) -> dict[str, str]:
        """Return the uids of members that have ended well, recorded or only seen, and of owners."""
        seen = self._ended_guests.get(group.key, {})
        found = {uid: owner for owner, uids in seen.items() for uid in uids}
        return {**group.ended_pods, **found}

    def put_job_counts(self, group: Key, counts: Mapping[str, int]) -> None:
        """Take in how many pods of ``group`` ended well, by uid of the Job that counts them."""
        known = self._job_counts.get(group, {})
        earlier = [(uid, n) for uid, n in known.items() if uid not in counts]
        merged = {**dict(earlier[-MAX_TASKS:]), **counts}  # a group may outlive thousands of Jobs
        if group in self.groups and known != merged:
            self._job_counts[group] = merged
            self._touch(group)

    def placed(self, group: GroupFacts, newcomers: Iterable[PodFacts]) -> Placed:
        """Return the part of ``group`` that needs no place, where ``newcomers`` wait for one."""
        pods, counts = self.members_of(group.key), self._job_counts.get(group.key, {})
        return Placed.of(group.plan, pods, newcomers, self.ended_pods(group), counts)

    def _put_task(self, key: Key, pod: wire.V1Pod, facts: PodFacts) -> None:
        try:
            self._member_tasks[key] = pod_groups.member_task(pod, facts)
        except ValueError as error:  # such as an operator that only a later Kubernetes knows
            self._unreadable[key] = f"pod {key[1]}: {error}"

    def delete_member(self, key: Key) -> None:
        if (facts := self.members.get(key)) is not None:
            group = (key[0], facts.labels.get(names.POD_GROUP_LABEL, ""))
            self._lent.discard(facts.uid)
            if facts.disruption and group in self._job_plans:
                self._disruptions.setdefault(group, {})[key[1]] = facts.disruption
            self._forget_member(key)
            self._rules.delete_pod(key)
            self._rules.put_wishes(key, ())
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
        self._touch(group)

    def put_other_pod(self, key: Key, pod: wire.V1Pod) -> None:
        """Take in a pod of no gang; only its usage matters."""
        node = "" if pod.status.phase in pods.TERMINAL else pod.spec.node_name or ""
        request = pods.request_of_pod(pod)
        other = ("", f"{key[0]}/{key[1]}")
        if node:
            self._rules.put_pod(other, key[0], pod, pod.metadata.labels or {})
        else:
            self._rules.delete_pod(other)
        if self._usage.put(other, node, request):
            self._notice()
        if node and (claims := volume_objects.of_pod(pod.spec, key[1]).claims):
            self.volumes.put_pod(other, node, claims, key[0])
        else:
            self.volumes.delete_pod(other)
        if self._fixed.put(key, node if pods.never_leaves(pod) else "", request):
            self._table = None

    def delete_other_pod(self, key: Key) -> None:
        other = ("", f"{key[0]}/{key[1]}")
        self._usage.put(other, "")
        self._rules.delete_pod(other)
        self.volumes.delete_pod(other)
        if self._fixed.put(key, ""):
            self._table = None
        self._notice()

    def node_of_other(self, pod: Key) -> str:
        """Return the node of a pod of no gang; empty where it is on none, or over."""
        return self._usage.node_of(("", f"{pod[0]}/{pod[1]}"))

    def members_of(self, group: Key) -> list[PodFacts]:
        """Return all pods with the label of ``group``, trusted or not."""
        return [self.members[key] for key in self._members_of.get(group, ())]

    def pods_of(self, job: JobFacts) -> list[PodFacts]:
        """Return the pods that ``job`` owns, of all its starts."""
        return [pod for pod in self.members_of(job.key) if job.uid in pod.owner_uids]

    def others_on(self, node: str, gang: Key) -> frozenset[Key]:
        """Return the pods on ``node`` that are not of ``gang``, under names that stay theirs."""
        own = self._members_of.get(gang, ())
        return frozenset(pod for pod in self._usage.pods_on(node) if pod not in own)

    def is_emptying(self, node: str) -> bool:
        """Return whether a pod of a gang is leaving ``node``. It looks at all pods of gangs."""
        pods_of_gangs = self.members.values()
        return any(p.node == node and p.is_leaving and not p.is_terminal for p in pods_of_gangs)

    # --- jobs and groups ------------------------------------------------------------------

    def put_job(self, key: Key, job: wire.CustomObject) -> None:
        levels, before = self.settings.topology_levels, self.jobs.get(key)
        default_queue = self.tenancy.default_queue(key[0])
        facts = training_jobs.from_manifest(job, levels, before, default_queue)
        is_new = before is None or before.generation != facts.generation or before.uid != facts.uid
        if is_new:
            facts = self.mutations.applied_to(facts)
        self.jobs[key] = facts
        self.run_times.note_checkpoint(facts)
        self._rules.put_job(key, () if facts.is_finished else _kinds(facts.tasks))
        plan = facts.plan
        if plan is None and not (facts.is_finished or facts.is_suspended or facts.is_leaving):
            self._waiting_jobs.setdefault(key, None)
            if is_new:
                self.on_newcomer(key[0])
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
        """Learn from each finished job of ``jobs`` once: how long it ran, where and how fast.

        Its pods must not have been deleted yet. ``about`` is as in :meth:`RunTimes.learn`.
        """
        self.run_times.learn(jobs, about, self._run_of)

    def _run_of(self, job: JobFacts, seconds: float) -> FinishedRun | None:
        return allocations.run_on_nodes(job, seconds, self.pods_of(job), self.node_table)

    def apply_mutations(self, namespace: str) -> None:
        """Have the jobs of ``namespace`` planned with what is known by now of their pods."""
        for key, job in self.jobs.items():
            if key[0] == namespace and (changed := self.mutations.applied_to(job)) is not job:
                self.jobs[key] = changed
                self._rules.put_job(key, _kinds(changed.tasks))
                self.requeue(key)

    def delete_job(self, key: Key) -> None:
        self.jobs.pop(key, None)
        self._rules.put_job(key, ())
        self._waiting_jobs.pop(key, None)
        self.start_failed.discard(key)
        self.put_job_plan(key, None)

    def put_job_plan(self, key: Key, planned: PlannedGang | None) -> None:
        """Take in the plan of a TrainingJob, which is all that the extender reads of it."""
        before = self._job_plans.get(key)
        _put(self._job_plans, key, planned)
        # Most events leave the plan as it is, and its view with the pods with it.
        if before is None or planned is None or before.plan is not planned.plan:
            self._views.pop(key, None)
            self._assumed_views.pop(key, None)
            if before is None or planned is None or not planned.plan.only_adds_ends(before.plan):
                self._disruptions.pop(key, None)
            self._forget_ends(key)
            self._plan_changed(key)
        self.requeue(key)

    def put_group(self, key: Key, group: wire.CustomObject) -> None:
        default_queue = self.tenancy.default_queue(key[0])
        before = self.groups.get(key)
        facts = pod_groups.from_manifest(group, before, default_queue)
        self.groups[key] = facts
        self._note_lent(key, facts)
        plan = facts.plan
        if plan is None and (before is None or before.generation != facts.generation):
            self.on_newcomer(key[0])
        _put(self._group_plans, key, None if plan is None else PlannedGang(facts.uid, False, plan))
        if facts.is_between_runs:
            self._ended_guests.pop(key, None)
        self._touch(key)

    def _note_lent(self, key: Key, after: GroupFacts | None) -> None:
        """Remember pods in lent places whose plan is no more: their places stay lent."""
        planned = self._group_plans.get(key)
        if planned is None or not planned.plan.is_opportunistic:
            return
        kept = after.plan if after is not None and after.uid == planned.uid else None
        uids = planned.plan.member_by_uid.keys() - (kept.member_by_uid if kept else {}).keys()
        there = (pod for pod in self.members_of(key) if not pod.is_gated)
        self._lent.update(pod.uid for pod in there if pod.uid in uids)

    def is_lent(self, pod: PodFacts) -> bool:
        """Return whether a pod that no plan names got a place that is reserved for others."""
        return pod.uid in self._lent

    def delete_group(self, key: Key) -> None:
        self._note_lent(key, None)
        self.groups.pop(key, None)
        self._job_counts.pop(key, None)
        if key not in self._members_of:
            self._ended_guests.pop(key, None)
        _put(self._group_plans, key, None)
        self._touch(key)

    # --- gangs ----------------------------------------------------------------------------

    def planned(self, key: Key) -> PlannedGang | None:
        """Return the plan that gang ``key`` follows; None without one."""
        return self._job_plans.get(key) or self._group_plans.get(key)

    def views(self) -> Iterator[tuple[Key, GangView]]:
        """Yield every gang that has a plan."""
        for key in self._group_plans | self._job_plans:  # in order, unlike a set
            if (view := self.view(key)) is not None:
                yield key, view

    def view(self, key: Key) -> GangView | None:
        """Return the plan of a gang with its pods; None if it has no plan."""
        view, planned = self._views.get(key), self.planned(key)
        if view is None and planned is not None:
            disruptions = self._disruptions.get(key)
            found = self.members_of(key)
            uid, plan = planned.job_uid, planned.plan
            ended = self._ended_of(key, uid, plan)
            view = allocations.view_of(key, uid, plan, found, disruptions, ended)
            self._views[key] = view
        return view

    def waiting(
        self,
        excluded: Iterable[Key] = (),
        faults: Mapping[str, Fault] | None = None,
        on_error: OnError = _raise,
    ) -> list[Gang]:
        """Return every waiting gang; ``faults`` adds, by uid, what only the caller knows."""
        faults, skip = faults or {}, set(excluded)
        gangs: list[Gang | None] = []
        makers = (self._waiting_job, self._waiting_jobs), (self._waiting_group, self.groups)
        for make, known in makers:
            for key in (key for key in known if key not in skip):
                try:
                    gangs.append(make(key, faults))
                except Exception as error:  # noqa: BLE001  # affects this gang only
                    on_error(key, error)
        return [gang for gang in gangs if gang is not None]

    def _waiting_job(self, key: Key, faults: Mapping[str, Fault]) -> Gang | None:
        job = self.jobs[key]
        class_name = job.priority_class
        priority, missing = self.tenancy.priority(class_name)
        fault = faults.get(job.uid) or missing or job.altered
        fault = fault or allocations.in_the_way(job, self.groups.get(key), self.members_of(key))
        may_preempt, learned = self.tenancy.may_preempt(class_name), self.run_times.of_job(job)
        volumes = self._claims_revision(job)
        basis, known = (
            _WaitBasis(
                job,
                fault,
                priority,
                may_preempt,
                learned,
                volumes,
                self.quotas.rules(key[0]),
                self._rules.revision_of(job.label_pairs),
                self._images.revision if job.has_timed_out else 0,
                self.resume_of(job),
            ),
            self._waiting_jobs[key],
        )
        # Of thousands of gangs few change between two cycles.
        if known is None or not known[0].is_same(basis):
            gang = apply_progress_report(job.gang(priority, fault, may_preempt, learned))
            gang = self._with_claims(basis.resume.applied_to(gang), job)
            if job.has_timed_out:
                images = (pods_of_task.images for pods_of_task in job.pods)
                gang = replace(gang, tasks=self._near_images(gang.tasks, images))
            known = self._waiting_jobs[key] = (basis, gang)
        return known[1]

    def resume_of(self, job: JobFacts) -> Resumability:
        """Return whether ``job`` can resume after a stop, and what says so."""
        return resuming.of_job(
            job,
            self.tenancy.assumes_resumable(job.queue),
            is_like_another=self.run_times.writes_checkpoints(job),
            is_assumed=self.settings.assume_resumable,
        )

    def _near_images(
        self, tasks: Iterable[Task], images: Iterable[tuple[str, ...]]
    ) -> tuple[Task, ...]:
        """Return ``tasks``, whose pods would rather be where their ``images`` are."""
        given = list(images)
        wishes = {names: self._images.preference(names) for names in dict.fromkeys(given)}
        return tuple(
            task
            if (wish := wishes[names]) is None
            else replace(task, preferences=task.preferences.with_node(wish))
            for task, names in zip(tasks, given, strict=True)
        )

    def _claims_revision(self, job: JobFacts) -> int:
        """Return the revision of what claims follow from, for a job that uses any; else 0."""
        if not (job.has_claims or self.devices.asks(job.tasks)):
            return 0
        return self.volumes.revision + self.devices.revision + 1

    def _with_claims(self, gang: Gang, job: JobFacts) -> Gang:
        """Return the gang of ``job`` with what its claims ask and what quotas count of it."""
        self._want_devices(gang.tasks)
        if self.quotas.rules(job.key[0]) is not None:
            gang = replace(gang, tasks=self._charged(gang.tasks, job))
        if not (job.has_claims or self.devices.asks(gang.tasks)):
            return replace(gang, tasks=self._ruled(gang.tasks, job))
        found = self._folded(gang.key, tuple(zip(gang.tasks, job.claims, strict=True)))
        return replace(
            gang,
            tasks=self._ruled(found.tasks, job),
            fault=gang.fault or found.fault,
            left_to_scheduler=words_of((gang.left_to_scheduler, *found.left)),
        )

    def _ruled(self, tasks: tuple[Task, ...], job: JobFacts) -> tuple[Task, ...]:
        """Return the tasks of ``job`` with what rules over pods see of their pods."""
        if not self._rules.has_selectors:
            return tasks
        return tuple(
            replace(task, pod=self._rules.seen(job.key[0], job.labels_of(place), task.pod))
            for place, task in enumerate(tasks)
        )

    def are_seen_alike(self, job: JobFacts, other: JobFacts) -> bool:
        """Return whether rules over pods see the same in the pods of two versions of a job."""
        return self._ruled(job.tasks, job) == self._ruled(other.tasks, other)

    def unplanned_labels(self, job: JobFacts, view: GangView) -> dict[str, dict[str, str]]:
        """Return by task labels of pods of ``job`` by which rules see them other than planned."""
        if not self._rules.has_selectors:
            return {}
        found: dict[str, dict[str, str]] = {}
        planned = {task.name: job.labels_of(place) for place, task in enumerate(job.tasks)}
        for member, pod in view.members:
            known = planned.get(member.task)
            if pod is None or known is None or member.task in found:
                continue
            more = {key: value for key, value in pod.labels.items() if known.get(key) != value}
            more = {key: value for key, value in more.items() if key not in names.POD_LABELS}
            seen = (self._rules.seen(job.key[0], each, None) for each in (known, {**known, **more}))
            if more and next(seen) != next(seen):
                found[member.task] = more
        return found

    def _charged(self, tasks: Iterable[Task], job: JobFacts) -> tuple[Task, ...]:
        counted, namespace = self.quotas.counted, job.key[0]
        return tuple(
            replace(task, charges=counted(namespace, task, pods.priority_class, pods.charges))
            for task, pods in zip(tasks, job.pods, strict=True)
        )

    def _quotas_left(self) -> dict[Key, Quota]:
        """Return all quotas, with the pods of plans that do not exist yet counted as used."""
        promised: dict[Key, dict[str, int]] = {}
        for key, share in self._shares.items() if self.quotas.namespaces else ():
            job, held = self.jobs.get(key), share.held
            if job is None or held is None or self.quotas.rules(key[0]) is None:
                continue
            if held.job_uid != job.uid or not held.view.missing:
                continue
            missing = Counter(member.task for member in held.view.missing)
            for task in self._charged(job.tasks, job):
                for quota, amounts in task.charges:
                    known = promised.get((key[0], quota), {})
                    promised[key[0], quota] = add(known, amounts, missing[task.name])
        return self.quotas.left(promised)

    def _folded(self, key: Key, tasks: Sequence[tuple[Task, PodClaims]]) -> Folded:
        """Return the tasks of a gang with what their claims of volumes and of devices ask."""
        volumes = self.volumes.fold(key, tasks)
        claims = (used for _, used in tasks)
        devices = self.devices.fold(key[0], tuple(zip(volumes.tasks, claims, strict=True)))
        fault = volumes.fault or devices.fault
        return Folded(devices.tasks, fault, (*volumes.left, *devices.left))

    def _want_devices(self, tasks: Iterable[Task]) -> None:
        """Have devices read where a task asks for a resource that no node seems to offer."""
        if self.devices.is_wanted:
            return
        axis = self.node_table.axis
        if any(axis.column(name) is None for task in tasks for name, _ in task.request):
            self.devices.want()

    def _members_with_claims(
        self, key: Key, gated: list[tuple[PodFacts, Task]]
    ) -> tuple[list[tuple[PodFacts, Task]], Folded]:
        """Return gated pods of another controller with what their claims ask."""
        tasks = [(task, self._member_claims.get(pod.key, NO_CLAIMS)) for pod, task in gated]
        found = self._folded(key, tasks)
        with_claims = [(pod, task) for (pod, _), task in zip(gated, found.tasks, strict=True)]
        if (
            len({(t.name, t.request, t.constraints, t.pod) for t in found.tasks})
            <= MAX_PLANNED_TASKS
        ):
            return with_claims, found
        # More kinds of pods than a plan can hold, where each has a volume of its own.
        words = "volumes of their own, which are of too many kinds to be planned"
        return gated, replace(found, left=(words, *found.left))

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
        class_name = group.spec.priority_class_name if group.spec else None
        priority, missing = self.tenancy.priority(class_name)
        newcomers = [pod for pod, _ in gated]
        there = self.placed(group, newcomers)
        left: tuple[str, ...] = ()
        fault = faults.get(group.uid) or missing
        self._want_devices(task for _, task in gated)
        if any(pod.key in self._member_claims for pod in newcomers) or self.devices.asks(
            task for _, task in gated
        ):
            gated, found = self._members_with_claims(key, gated)
            fault, left = fault or found.fault, found.left
        if self._rules.has_selectors:
            seen = self._rules.seen
            gated = [(p, replace(t, pod=seen(key[0], p.labels, t.pod))) for p, t in gated]
        if group.has_timed_out:
            images = (pods.images_of_spec(self.gated[pod.key].spec) for pod in newcomers)
            tasks = self._near_images((task for _, task in gated), images)
            gated = list(zip(newcomers, tasks, strict=True))
        if self._member_rules:
            rules = (self._member_rules.get(pod.key, ()) for pod in newcomers)
            left = (*left, *chain.from_iterable(rules))
        if self._unreadable:
            words = (self._unreadable.get(pod) for pod in self._members_of.get(key, ()))
            fault = next(((Reason.SPEC_INVALID, said) for said in words if said), fault)
        if key in self._job_plans:  # pods name their gang by one label
            fault = Reason.SPEC_INVALID, f"a TrainingJob {key[1]!r} runs here; rename the PodGroup"
        may_preempt = self.tenancy.may_preempt(class_name)
        learned = self.run_times.of_group(key, newcomers)
        gang = pod_groups.waiting_gang(group, gated, there, priority, fault, may_preempt, learned)
        if gang is not None and not self.tenancy.may_preempt_pod_groups(group.queue):
            gang = replace(gang, is_preemptible=False)
        if self.other_gates and gang is not None:
            behind = {p: g for p in self._members_of.get(key, ()) if (g := self.other_gates.get(p))}
            gang = pod_groups.with_other_gates(gang, behind)
        if gang is not None and gang.fault is not None:
            counted = adoptions.released_pods(None, self.members_of(key))
            others = (p for p in counted if p.labels[names.QUEUE_LABEL] != group.queue)
            gang = pod_groups.with_other_queues(gang, others)
            waiting = (self.gated[pod.key] for pod in newcomers)
            gang = pod_groups.with_remedy(gang, pod_creation.remedy_of(waiting))
        return gang if gang is None or not left else replace(gang, left_to_scheduler=words_of(left))

    def used(self, without: Key) -> IntArray:
        """Return the usage of bound pods and of planned members of all gangs but ``without``.

        int64, shape (nodes, resources), rows as in ``node_table``; a fresh copy.
        """
        table = self.node_table
        used = self._usage.matrix(table)
        used += self._planned_usage(table)
        own = self.view(without)
        if own is not None:
            planned = np.zeros_like(used)
            add_members(planned, table, own.usage())
            used -= planned
        return used

    def _planned_usage(self, table: NodeTable) -> IntArray:
        """Return the usage of planned members that no pod uses yet, as in :meth:`used`."""
        if self._planned is None:
            self._planned = PlannedUsage({*self._group_plans, *self._job_plans, *self._reserved})
        self._planned.update(self._view_held)
        return self._planned.usage.matrix(table)

    def _claimed_usage(self, table: NodeTable) -> IntArray:
        """Return what claims that have their volumes use, as in :meth:`used`."""
        basis = table, self.volumes.revision, self._attached_by_plans()
        if self._claimed is None or self._claimed[0] != basis:
            used = np.zeros_like(table.allocatable)
            add_members(used, table, self.volumes.usage(table.nodes, basis[2]))
            self._claimed = basis, used
        return self._claimed[1]

    def _attached_by_plans(self) -> frozenset[Attached]:
        """Return the volumes that planned members share, on the nodes they are planned on."""
        if not self.volumes.has_limits:
            return frozenset()
        return frozenset(
            (node, *volume)
            for key, share in self._shares.items()
            for node, used, request in share.claims
            for volume in self.volumes.shared(key[0], used, request)
        )

    def _planned_claims(self, held: Allocation) -> Iterator[tuple[str, PodClaims, Request]]:
        """Yield what a share has of the claims of planned members."""
        job = self.jobs.get(held.key)
        used_by: dict[str, PodClaims] = {}
        if job is not None and job.uid == held.job_uid:
            if not job.has_claims:
                return
            used_by = {t.name: used for t, used in zip(job.tasks, job.claims, strict=True)}
        for node, member, pod in held.view.kept():
            used = used_by.get(member.task)
            if used is None and pod is not None:
                used = self._member_claims.get(pod.key) or self.volumes.of_pod(pod.key)
            if used is not None and used.has_volumes:
                yield node, used, held.view.plan.requests.get(member.task, ())

    def _is_planned(self, pod: Key) -> bool:
        """Return whether a pod counts as planned: a member of a gang that is on no node yet."""
        facts = self.members.get(pod)
        return facts is not None and not facts.node

    def _view_held(self, key: Key) -> GangView | None:
        """Return the view by which a gang holds places: of its assumed plan, or a written one."""
        assumed = self._reserved.get(key)
        return self.view(key) if assumed is None else self._assumed_view(key, assumed)

    def _assumed_view(self, key: Key, assumed: AssumedPlan) -> GangView:
        known = self._assumed_views.get(key)
        if known is None or known[0] is not assumed:
            # Its pods appear while it is written: what is bound holds its room as a pod.
            uid, plan = assumed.job_uid, assumed.plan
            found, ended = self.members_of(key), self._ended_of(key, uid, plan)
            view = allocations.view_of(key, uid, plan, found, ended=ended)
            known = self._assumed_views[key] = (assumed, view)
        return known[1]

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
        reserved, table = reserved or {}, self.node_table
        self._renew(reserved, table, on_error)
        shares, used = self._shares.values(), self._usage.matrix(table)
        used += self._planned_usage(table)
        if self.volumes.is_known:
            used += self._claimed_usage(table)
        if self.devices.is_known:
            add_members(used, table, self.devices.usage(self._is_planned))
        strays = {key: self._uncounted(key) for key, s in self._shares.items() if s.has_strays}
        if waiting is None:
            waiting = self.waiting(reserved, on_error=on_error)
        running = (
            *chain.from_iterable(share.running for share in shares),
            *self._strays(strays),
            *self._orphans(strays),
        )
        return ClusterSnapshot(
            now=now,
            nodes=table,
            used=used,
            waiting=tuple(waiting),
            queues=dict(self.tenancy.queues),
            queue_usage=allocations.queue_usage(
                (share.held for share in shares if share.held is not None),
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
        """Return the service of each namespace, of which ``running`` get more from now on."""
        if self._service.is_new:
            for job in self.jobs.values():
                device_seconds, ended = allocations.earlier_service(
                    job, now, self.settings.known_accelerators
                )
                self._service.add(job.key[0], device_seconds, ended, now)
        self._service.observe(running, now)
        return self._service.at(now)

    def _occupants(
        self, waiting: Iterable[Gang], running: Iterable[RunningGang], table: NodeTable
    ) -> Occupants:
        """Return the pods on nodes that rules of gangs which may get places are about."""
        growing = (held.gang for held in running if held.gang.is_elastic)
        gangs = chain(waiting, growing)
        asking = (task for g in gangs if g.has_rules or g.has_preferences for task in g.tasks)
        asked = set(_kinds(asking))
        if not asked:
            return NOBODY  # as in nearly every cluster
        index = self._index_of(asked)
        matters: dict[PodKind, bool] = {}
        rows: dict[_Group, list[int]] = {}
        for group, node in self._ruled_pods():
            kind = group[0]
            if kind not in matters:
                matters[kind] = not asked.isdisjoint(index.about(kind))
            if matters[kind] and node in table.row:
                rows.setdefault(group, []).append(table.row[node])
        there = [
            PodsOf(kind, np.array(at, dtype=np.int64), owner, is_fixed, is_leaving)
            for (kind, owner, is_fixed, is_leaving), at in rows.items()
        ]
        for volume, where in self._nodes_with({v for kind in asked for v in kind.volumes}):
            at = sorted(table.row[name] for name in where if name in table.row)
            there.append(PodsOf(PodKind(volumes=(volume,)), np.array(at, dtype=np.int64)))
        claims = {claim for kind in asked for claim in kind.alone}
        if claims and len(table):
            anywhere = np.zeros(1, dtype=np.int64)  # the rule is about all nodes
            for claim, owner in sorted(self._users_of(claims)):
                there.append(PodsOf(PodKind(alone=(claim,)), anywhere, owner))
        return Occupants(there)

    def _index_of(self, asked: Set[PodKind]) -> KindIndex:
        """Return an index of ``asked``, and maybe of others that were asked about before."""
        # Of tens of thousands of kinds few change between two cycles.
        if len(self._asked) > 2 * len(asked):
            self._asked = KindIndex()
        for kind in asked:
            self._asked.add(kind)
        return self._asked

    def _nodes_with(
        self, volumes: Set[tuple[str, str]]
    ) -> Iterator[tuple[tuple[str, str], Set[str]]]:
        """Yield the nodes on which a pod uses each of ``volumes``, or is planned to."""
        planned: dict[tuple[str, str], set[str]] = {}
        for key, share in self._shares.items() if volumes else ():
            for node, used, _ in share.claims:
                for name in used.claims:
                    planned.setdefault(self.volumes.of_claim((key[0], name)), set()).add(node)
        for volume in sorted(volumes):
            yield volume, self.volumes.nodes_with(volume) | planned.get(volume, frozenset())

    def _users_of(self, claims: Set[Key]) -> set[tuple[Key, str]]:
        """Return which of ``claims`` are in use, and by pods of which gang; empty for none."""
        found = {
            (claim, self._gang_of(self.members[pod]) if pod in self.members else "")
            for claim in claims
            for pod in self.volumes.users(claim)
        }
        for key, share in self._shares.items():
            if share.held is None:
                continue
            for _, used, _ in share.claims:
                named = {(key[0], name) for name in used.claims}
                found.update((claim, self._uid_of(share.held)) for claim in named & claims)
        return found

    def _ruled_pods(self) -> Iterator[tuple[_Group, str]]:
        """Yield the group and the node of every pod that rules see."""
        for key, kind in self._rules.pods():
            if node := self._usage.node_of(key):
                is_member = key in self.members
                owner = self._gang_of(self.members[key]) if is_member else ""
                namespace, _, name = key[1].partition("/")
                is_fixed = not is_member and bool(self._fixed.node_of((namespace, name)))
                yield (kind, owner, is_fixed, key in self._rules.leaving), node
        for key, share in self._shares.items():
            job = self.jobs.get(key)
            if share.held is None:
                continue
            # Planned members: pods that are on no node yet, or do not exist yet.
            tasks = self._ruled(job.tasks, job) if job is not None else ()
            kinds = {task.name: task.pod for task in tasks}
            uid = self._uid_of(share.held)
            for node, member, pod in share.held.view.kept():
                there = self._rules.of_pod(pod.key) if pod is not None else kinds.get(member.task)
                if there is not None:
                    yield (there, uid, False, False), node

    def _uid_of(self, held: Allocation) -> str:
        group = self.groups.get(held.key)
        return held.job_uid or (group.uid if group is not None else "")

    def _gang_of(self, pod: PodFacts) -> str:
        """Return the uid of the running gang that a pod on a node belongs to; empty for none."""
        share = self._shares.get((pod.key[0], pod.labels.get(names.POD_GROUP_LABEL, "")))
        if share is None or share.held is None or pod.uid not in share.held.view.uids:
            return f"{pod.job_uid}/leaving" if pod.job_uid else ""
        uid = self._uid_of(share.held)
        is_left = any(pod.key == left.key for left in share.held.view.leftovers)
        return f"{uid}/leaving" if is_left else uid

    def _renew(self, reserved: Reserved, table: NodeTable, on_error: OnError) -> None:
        """Bring the shares of all gangs up to date, with ``reserved`` as the assumed plans."""
        before, self._reserved = self._reserved, reserved
        for key in (*before, *(key for key in reserved if key not in before)):
            if before.get(key) is not reserved.get(key):
                self._stale.add(key)
                self._plan_changed(key)
        changes = self._tenancy_changes, self.run_times.revision
        # Nodes, priority classes and what was learned can matter to every gang.
        if (
            self._shares_of is None
            or self._shares_of[0] is not table
            or (self._shares_of[1] != changes)
        ):
            self._shares_of = table, changes
            known = self._shares, self._group_plans, self._job_plans, reserved, self._members_of
            self._stale.update(*known)
        stale, self._stale = self._stale, set()
        for key in sorted(stale):
            share = self._share(key, on_error)
            if share is None:
                self._shares.pop(key, None)
                self._allocations.pop(key, None)
            else:
                self._shares[key] = share

    def _share(self, key: Key, on_error: OnError) -> _Share | None:
        """Return the share of a gang; None of one that holds nothing."""
        assumed, planned = self._reserved.get(key), self.planned(key)
        view = self._view_held(key)
        members = len(self._members_of.get(key, ()))
        if view is None:
            self._allocations.pop(key, None)
            return _Share(None, (), True) if members else None
        job_uid = assumed.job_uid if assumed is not None else planned.job_uid if planned else ""
        held = Allocation(key, job_uid, view)
        claims = tuple(self._planned_claims(held))
        return _Share(held, self._running(held, on_error), members > len(view.uids), claims)

    def _uncounted(self, key: Key) -> list[PodFacts]:
        """Return the pods with the label of a gang that no plan names."""
        held = self._shares[key].held
        counted = held.view.uids if held is not None else frozenset()
        return [pod for pod in self.members_of(key) if pod.uid not in counted]

    def _running(self, held: Allocation, on_error: OnError) -> tuple[RunningGang, ...]:
        """Return a gang that holds places, and its pods that are about to go; at most two."""
        basis = self._basis(held)
        known = self._allocations.get(held.key)
        # Of thousands of gangs few change between two snapshots.
        if known is None or not known[0].is_same(basis):
            found = tuple(gang for gang in self._worked_out(held, basis, on_error) if gang)
            known = self._allocations[held.key] = (basis, found)
        return known[1]

    def _basis(self, held: Allocation) -> "_Basis":
        job, group = self.jobs.get(held.key), self.groups.get(held.key)
        # A plan is its job's by uid: a new job may have the name of one that was deleted.
        if job is None or not held.job_uid or job.uid != held.job_uid:
            learned = self.run_times.of_group(held.key, (pod for _, pod in held.view.members))
            class_name = group.spec.priority_class_name if group and group.spec else None
            return _Basis(
                group,
                held.view,
                self.node_table,
                self.tenancy.priority(class_name)[0],
                self.tenancy.may_preempt_pod_groups(held.queue),
                learned,
            )
        class_name = job.priority_class
        return _Basis(
            job,
            held.view,
            self.node_table,
            self.tenancy.priority(class_name)[0],
            self.tenancy.may_preempt(class_name),
            self.run_times.of_job(job),
            self._claims_revision(job),
            self.quotas.rules(held.key[0]),
            self._rules.revision_of(job.label_pairs),
            self.resume_of(job),
        )

    def _worked_out(
        self, held: Allocation, basis: "_Basis", on_error: OnError
    ) -> Iterator[RunningGang | None]:
        owner, table, learned = basis.owner, basis.table, basis.learned_seconds
        if isinstance(owner, JobFacts):
            try:
                gang = owner.gang(
                    basis.priority, may_preempt=basis.may_preempt, learned_seconds=learned
                )
                gang = self._with_claims(gang, owner)
                # It runs, whatever has become of its claims; it cannot grow by them.
                is_elastic = gang.is_elastic and gang.fault is None
                gang = replace(gang, is_elastic=is_elastic, fault=owner.fault)
                gang = gang if basis.resume is None else basis.resume.applied_to(gang)
                yield allocations.job_allocation(owner, gang, held, table)
                yield allocations.of_leftovers(owner, held, table)
                return
            except Exception as error:  # noqa: BLE001  # affects this gang only
                on_error(held.key, error)
        if owner is not None:
            given = basis.priority, basis.may_preempt
            yield allocations.of_others(owner, held, learned, table, *given)

    def _strays(self, uncounted: Mapping[Key, Iterable[PodFacts]]) -> Iterator[RunningGang]:
        """Yield the pods that no plan names, of jobs that are gone, as gangs about to go.

        Anybody can write a label. A pod goes with the TrainingJob that alone owns it: the garbage
        collector deletes it once there is no such job, and the operator where its gang is that
        job. What a deletion left behind on purpose (``--cascade=orphan``) has no owner, and stays.
        """
        known: dict[str, Key] | None = None
        for key, pods_of_gang in uncounted.items():
            owned = [pod for pod in pods_of_gang if pod.job_uid]
            if not owned:
                continue
            if known is None:
                known = {job.uid: at for at, job in self.jobs.items()}
            strays = [pod for pod in owned if known.get(pod.job_uid, key) == key]
            gang = allocations.of_strays(key, strays, self.node_table)
            if gang is not None:
                yield gang

    def orphans_of(self, key: Key) -> list[Orphans]:
        """Return the pods of gang ``key`` that run on without a plan, by queue."""
        share = self._shares.get(key)
        if share is None or not share.has_strays:
            return []
        return allocations.orphans_of(key, self._uncounted(key))

    def _orphans(self, uncounted: Mapping[Key, Iterable[PodFacts]]) -> Iterator[RunningGang]:
        """Yield the pods that run on without a plan, as gangs that may be stopped.

        Who deletes a PodGroup keeps its pods, and no more than others keep: else a guarantee would
        end where its places are taken by a tenant who deletes one.
        """
        for key, pods_of_gang in uncounted.items():
            group = self.groups.get(key)
            class_name = group.spec.priority_class_name if group and group.spec else None
            priority = self.tenancy.priority(class_name)[0]
            for orphans in allocations.orphans_of(key, pods_of_gang):
                may_preempt = self.tenancy.may_preempt_pod_groups(orphans.queue)
                found = allocations.of_orphans(orphans, self.node_table, priority, may_preempt)
                if found is not None:
                    yield found
