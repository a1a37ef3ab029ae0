"""Cache of the jobs, PodGroups and pods of a cluster, as read from the API server.

Watches call ``put_*`` and ``delete_*``; every change is told to :class:`Changes`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain

from bireme.core.finished_runs import FinishedRun
from bireme.core.gangs import Key, Task
from bireme.core.pod_constraints import PodKind
from bireme.core.preferences import kinds
from bireme.core.settings import SchedulingSettings
from bireme.kube import (
    names,
    pod_groups,
    pods,
    resuming,
    training_jobs,
    volume_objects,
    wire,
)
from bireme.kube.changes import Changes
from bireme.kube.gated_pods import GatedPods
from bireme.kube.mutations import Mutations
from bireme.kube.node_cache import NodeCache
from bireme.kube.node_usage import NodeUsage
from bireme.kube.plans import PlannedGang
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.pod_history import PodHistory
from bireme.kube.pod_rules import PodRules
from bireme.kube.pods import PodFacts
from bireme.kube.resuming import Resumability
from bireme.kube.run_times import RunTimes, run_on_nodes
from bireme.kube.tenancy import Tenancy
from bireme.kube.training_jobs import JobFacts
from bireme.kube.volumes import Volumes

OnError = Callable[[Key, Exception], None]
"""Called with a gang and the exception that it raised: a bug, which must not stop other gangs."""


def raise_error(_: Key, error: Exception) -> None:
    """Raise ``error``, as an :data:`OnError`."""
    raise error


def kinds_of(tasks: Iterable[Task]) -> Iterator[PodKind]:
    """Yield the kinds of pods that the rules and preferences of ``tasks`` are about."""
    return chain.from_iterable(map(kinds, tasks))


class WatchedObjects:
    """Jobs, PodGroups, their plans, and pods.

    A pod without a gang has the key ("", "<namespace>/<name>") among the pods of all kinds.

    Attributes:
        jobs, groups: By (namespace, name).
        waiting_jobs: Jobs without a plan that wait for one, in the order of their arrival.
        start_failed: Jobs whose last start failed.
        job_plans, group_plans: Plans of jobs and of PodGroups, by (namespace, name).
        members: Pods that carry the pod-group label, by (namespace, name).
        gated: Members that wait at Bireme's scheduling gate.
        history: Facts of deleted members.
        usage: Usage of all pods on nodes.
        rules: Affinity rules, and the pods that they select.
    """

    def __init__(
        self,
        settings: SchedulingSettings,
        changes: Changes,
        nodes: NodeCache,
        tenancy: Tenancy,
        volumes: Volumes,
        mutations: Mutations,
        run_times: RunTimes,
    ) -> None:
        self.jobs: dict[Key, JobFacts] = {}
        self.groups: dict[Key, GroupFacts] = {}
        self.waiting_jobs: dict[Key, None] = {}
        self.start_failed: set[Key] = set()
        self.job_plans: dict[Key, PlannedGang] = {}
        self.group_plans: dict[Key, PlannedGang] = {}
        self.members: dict[Key, PodFacts] = {}
        self.gated = GatedPods()
        self.history = PodHistory()
        self.usage = NodeUsage()
        self.rules = PodRules(tenancy.labels_of)
        self._members_of: dict[Key, dict[Key, None]] = {}  # in order, unlike a set
        self._settings = settings
        self._changes = changes
        self._nodes = nodes
        self._tenancy = tenancy
        self._volumes = volumes
        self._mutations = mutations
        self._run_times = run_times
        tenancy.on_namespaces = self._update_namespaces
        tenancy.on_default_queue = self._update_default_queue

    # --- pods -----------------------------------------------------------------------------

    def put_member(self, key: Key, pod: wire.V1Pod) -> None:
        facts = pods.from_manifest(pod)
        gated = self.gated.manifests.get(key)
        # Most changes of a pod concern fields that are not read here: they must cause no cycle.
        if self.members.get(key) == facts and (gated is None or gated.spec == pod.spec):
            return
        previous = self.members.get(key)
        self._forget_member(key)
        gang = facts.gang
        self.members[key] = facts
        self._members_of.setdefault(gang, {})[key] = None
        self.history.note_pod(gang, previous, facts, self.plan_of(gang), self.groups.get(gang))
        self._changes.note_members(gang)
        claims = volume_objects.of_pod(pod.spec, key[1])
        if facts.is_gated and facts.scheduler == names.SCHEDULER_NAME:
            self.gated.put(key, pod, facts, claims)
        self.rules.put_pod(key, key[0], pod, facts.labels)
        task = self.gated.tasks.get(key)
        self.rules.put_preferences(key, () if task is None else kinds_of((task,)))
        if claims.claims and not facts.is_gated and not facts.is_terminal:
            self._volumes.put_pod(key, facts.node, claims.claims, key[0], gang)
        else:
            self._volumes.delete_pod(key)
        self.usage.put(key, "" if facts.is_terminal else facts.node, facts.request)

    def delete_member(self, key: Key) -> None:
        if (facts := self.members.get(key)) is not None:
            is_planned_job = facts.gang in self.job_plans
            self.history.note_deletion(facts.gang, facts, is_planned_job=is_planned_job)
            self._forget_member(key)
            self.rules.delete_pod(key)
            self.rules.put_preferences(key, ())
            self.usage.put(key, "")
            self._volumes.delete_pod(key)

    def _forget_member(self, key: Key) -> None:
        facts = self.members.pop(key, None)
        self.gated.forget(key)
        if facts is None:
            return
        gang = facts.gang
        self._members_of[gang].pop(key, None)
        if not self._members_of[gang]:
            del self._members_of[gang]
            if gang not in self.groups:
                self.history.forget_guests(gang)
        self.history.forget_ends(gang, self.job_plans.get(gang), self.members)
        self._changes.note_members(gang)

    def put_other_pod(self, key: Key, pod: wire.V1Pod) -> None:
        """Store a pod without a gang; only its usage matters."""
        node = "" if pod.status.phase in pods.TERMINAL else pod.spec.node_name or ""
        request = pods.request_of_pod(pod)
        other = ("", f"{key[0]}/{key[1]}")
        if node:
            self.rules.put_pod(other, key[0], pod, pod.metadata.labels or {})
        else:
            self.rules.delete_pod(other)
        if self.usage.put(other, node, request):
            self._changes.note()
        if node and (claims := volume_objects.of_pod(pod.spec, key[1]).claims):
            self._volumes.put_pod(other, node, claims, key[0])
        else:
            self._volumes.delete_pod(other)
        self._nodes.put_fixed_pod(key, node if pods.never_leaves(pod) else "", request)

    def delete_other_pod(self, key: Key) -> None:
        other = ("", f"{key[0]}/{key[1]}")
        self.usage.put(other, "")
        self.rules.delete_pod(other)
        self._volumes.delete_pod(other)
        self._nodes.put_fixed_pod(key, "")
        self._changes.note()

    def put_nominated_pod(self, key: Key, pod: wire.V1Pod) -> None:
        """Store a pod without a gang for which another scheduler has made room on a node.

        A gang that took the room would lose it: the scheduler preempts for the pod again.
        """
        is_leaving = pod.metadata.deletion_timestamp is not None  # it will never be bound
        node = "" if is_leaving else pod.status.nominated_node_name or ""
        if self.usage.put(_nomination(key), node, pods.request_of_pod(pod)):
            self._changes.note()

    def delete_nominated_pod(self, key: Key) -> None:
        if self.usage.put(_nomination(key), ""):
            self._changes.note()

    def node_of_other(self, pod: Key) -> str:
        """Return the node of a pod without a gang; empty if it is unbound or has ended."""
        return self.usage.node_of(("", f"{pod[0]}/{pod[1]}"))

    def others_on(self, node: str, gang: Key) -> frozenset[Key]:
        """Return stable keys of the pods on ``node`` that do not belong to ``gang``."""
        members = self._members_of.get(gang, ())
        return frozenset(pod for pod in self.usage.pods_on(node) if pod not in members)

    def is_emptying(self, node: str) -> bool:
        """Return whether a pod of a gang is leaving ``node``; it scans all pods of gangs."""
        members = self.members.values()
        return any(p.node == node and p.is_leaving and not p.is_terminal for p in members)

    @property
    def gangs_with_members(self) -> Iterable[Key]:
        """The keys that the labels of members name."""
        return self._members_of

    def keys_of_members(self, gang: Key) -> Mapping[Key, None]:
        """Return the keys of all pods with the label of ``gang``, in order."""
        return self._members_of.get(gang, {})

    def members_of(self, gang: Key) -> list[PodFacts]:
        """Return all pods with the label of ``gang``. Anybody may set that label."""
        return [self.members[key] for key in self._members_of.get(gang, ())]

    def pods_of(self, job: JobFacts) -> list[PodFacts]:
        """Return the pods of all starts of ``job``."""
        return [pod for pod in self.members_of(job.key) if job.uid in pod.owner_uids]

    # --- jobs -----------------------------------------------------------------------------

    def put_job(self, key: Key, job: wire.CustomObject) -> None:
        levels, previous = self._settings.topology_levels, self.jobs.get(key)
        default_queue = self._tenancy.default_queue(key[0])
        facts = training_jobs.from_manifest(job, levels, previous, default_queue)
        is_new = (
            previous is None or previous.generation != facts.generation or previous.uid != facts.uid
        )
        if is_new:
            facts = self._mutations.apply(facts)
        self.jobs[key] = facts
        self._run_times.note_checkpoint(facts)
        self.rules.put_job(key, () if facts.is_finished else kinds_of(facts.tasks))
        plan = facts.plan
        if plan is None and not (facts.is_finished or facts.is_suspended or facts.is_leaving):
            self.waiting_jobs.setdefault(key, None)
            if is_new:
                self._changes.on_newcomer(key[0])
        else:
            self.waiting_jobs.pop(key, None)
        if facts.start_failures:
            self.start_failed.add(key)
        else:
            self.start_failed.discard(key)
        self.put_job_plan(key, None if plan is None else PlannedGang(facts.uid, True, plan))

    def delete_job(self, key: Key) -> None:
        self.jobs.pop(key, None)
        self.rules.put_job(key, ())
        self.waiting_jobs.pop(key, None)
        self.start_failed.discard(key)
        self.put_job_plan(key, None)

    def put_job_plan(self, key: Key, planned: PlannedGang | None) -> None:
        """Store the plan of a TrainingJob. The extender reads nothing else of it."""
        previous = self.job_plans.get(key)
        _put(self.job_plans, key, planned)
        # Most events change no plan: its cached view stays valid.
        if previous is not None and planned is not None and previous.plan is planned.plan:
            self._changes.requeue(key)
            return
        if previous is None or planned is None or not planned.plan.only_adds_ends(previous.plan):
            self.history.forget_disruptions(key)
        self.history.forget_ends(key, planned, self.members)
        self._changes.note_members(key)

    def apply_mutations(self, namespace: str) -> None:
        """Plan the jobs of ``namespace`` with the current knowledge of admission's changes."""
        for key, job in self.jobs.items():
            if key[0] == namespace and (changed := self._mutations.apply(job)) is not job:
                self.jobs[key] = changed
                self.rules.put_job(key, kinds_of(changed.tasks))
                self._changes.requeue(key)

    def learn(
        self,
        jobs: Iterable[JobFacts],
        about: Callable[[Key], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Learn the run time, nodes and speed of each finished job of ``jobs`` once.

        Its pods must still exist. ``about`` is as in :meth:`RunTimes.learn`.
        """
        self._run_times.learn(jobs, about, self._run_of)

    def _run_of(self, job: JobFacts, seconds: float) -> FinishedRun | None:
        return run_on_nodes(job, seconds, self.pods_of(job), self._nodes.table)

    def resume_of(self, job: JobFacts) -> Resumability:
        """Return whether ``job`` can resume after a stop, with the source of that answer."""
        return resuming.of_job(
            job,
            self._tenancy.assumes_resumable(job.queue),
            is_like_another=self._run_times.writes_checkpoints(job),
            is_assumed=self._settings.assume_resumable,
        )

    # --- PodGroups ------------------------------------------------------------------------

    def put_group(self, key: Key, group: wire.CustomObject) -> None:
        default_queue = self._tenancy.default_queue(key[0])
        previous = self.groups.get(key)
        facts = pod_groups.from_manifest(group, previous, default_queue)
        self.groups[key] = facts
        self._note_lent(key, facts)
        plan = facts.plan
        if plan is None and (previous is None or previous.generation != facts.generation):
            self._changes.on_newcomer(key[0])
        _put(self.group_plans, key, None if plan is None else PlannedGang(facts.uid, False, plan))
        if facts.is_between_runs:
            self.history.forget_guests(key)
        self._changes.note_members(key)

    def delete_group(self, key: Key) -> None:
        self._note_lent(key, None)
        self.groups.pop(key, None)
        self.history.forget_job_counts(key)
        if key not in self._members_of:
            self.history.forget_guests(key)
        _put(self.group_plans, key, None)
        self._changes.note_members(key)

    def _note_lent(self, key: Key, group: GroupFacts | None) -> None:
        planned = self.group_plans.get(key)
        if planned is not None and planned.plan.is_opportunistic:
            self.history.note_lent(planned, group, self.members_of(key))

    def put_job_counts(self, group: Key, counts: Mapping[str, int]) -> None:
        """Store how many pods of ``group`` succeeded, by uid of the Job that counts them."""
        if group in self.groups and self.history.put_job_counts(group, counts):
            self._changes.note_members(group)

    # --- all gangs ------------------------------------------------------------------------

    def plan_of(self, key: Key) -> PlannedGang | None:
        """Return the plan of gang ``key``; None without one."""
        return self.job_plans.get(key) or self.group_plans.get(key)

    def _update_namespaces(self) -> None:
        if self.rules.namespaces_changed():
            self._changes.note()

    def _update_default_queue(self, namespace: str) -> None:
        """Move the gangs of ``namespace`` that name no queue to its new default queue."""
        queue = self._tenancy.default_queue(namespace)
        for key, job in self.jobs.items():
            if key[0] == namespace:
                changed = training_jobs.with_default_queue(job, queue)
                self.jobs[key] = self._mutations.apply(changed)
                self.rules.put_job(key, () if job.is_finished else kinds_of(changed.tasks))
                self._changes.requeue(key)
        for key, group in self.groups.items():
            if key[0] == namespace:
                self.groups[key] = replace(group, default_queue=queue)
                self._changes.requeue(key)


def _nomination(pod: Key) -> Key:
    """Return a key that no pod has."""
    return "", f"{pod[0]}/{pod[1]}/nominated"


def _put(plans: dict[Key, PlannedGang], key: Key, planned: PlannedGang | None) -> None:
    if planned is None:
        plans.pop(key, None)
    else:
        plans[key] = planned
