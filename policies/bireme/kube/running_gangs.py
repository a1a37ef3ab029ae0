"""Gangs that hold places: of a plan, of leaving pods, or of pods that run without a plan."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bireme.core.gangs import Key
from bireme.core.nodes import NodeTable
from bireme.core.resources import Request
from bireme.core.running import RunningGang
from bireme.kube import allocations
from bireme.kube.allocations import Allocation, GangView, Orphans
from bireme.kube.changes import Change, Changes
from bireme.kube.gang_demands import GangDemands
from bireme.kube.gang_views import GangViews, Reserved
from bireme.kube.node_cache import NodeCache
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.pods import PodFacts
from bireme.kube.resuming import Resumability
from bireme.kube.run_times import RunTimes
from bireme.kube.tenancy import Tenancy
from bireme.kube.training_jobs import JobFacts
from bireme.kube.volume_objects import PodClaims
from bireme.kube.watched_objects import OnError, WatchedObjects


@dataclass(frozen=True, slots=True)
class _Basis:
    """All inputs of a gang's running state."""

    owner: JobFacts | GroupFacts | None = field(compare=False)
    view: GangView = field(compare=False)
    table: NodeTable = field(compare=False)
    priority: int = 0
    may_preempt: bool = True
    """For a PodGroup: whether other gangs may preempt it."""
    learned_seconds: float | None = None
    demands_revision: tuple[object, ...] = ()
    resume: Resumability | None = None

    def is_same(self, other: "_Basis") -> bool:
        """Return whether ``other`` gives the same result; a replaced object counts as new."""
        are_same = self.owner is other.owner and self.view is other.view
        return are_same and self.table is other.table and self == other


@dataclass(frozen=True, slots=True)
class GangUsage:
    """The contribution of one gang to a snapshot."""

    allocation: Allocation | None
    running: tuple[RunningGang, ...]
    has_strays: bool
    """It has pods that no plan names."""
    claims: tuple[tuple[str, PodClaims, Request], ...] = ()
    """Node, claims of volumes and request of every planned member that is on no node yet."""


class RunningGangs:
    """The gangs that hold places, as of the last snapshot; only changed gangs are derived again.

    Attributes:
        usages: The contribution of each gang with a plan or with pods.
    """

    def __init__(
        self,
        objects: WatchedObjects,
        views: GangViews,
        demands: GangDemands,
        nodes: NodeCache,
        tenancy: Tenancy,
        run_times: RunTimes,
        changes: Changes,
    ) -> None:
        self.usages: dict[Key, GangUsage] = {}
        self._objects = objects
        self._views = views
        self._demands = demands
        self._nodes = nodes
        self._tenancy = tenancy
        self._run_times = run_times
        self._changes = changes
        self._stale: set[Key] | None = None
        self._usage_basis: tuple[NodeTable, tuple[int, int]] | None = None
        self._derived: dict[Key, tuple[_Basis, tuple[RunningGang, ...]]] = {}

    # --- gangs ----------------------------------------------------------------------------

    def renew(self, reserved: Reserved, on_error: OnError) -> None:
        """Update the usage of all gangs, with ``reserved`` as the assumed plans."""
        if self._stale is None:
            self._stale = self._changes.follow(Change.OBJECT, Change.ASSUMED_PLAN)
        self._views.assume(reserved)
        table = self._nodes.table
        revisions = self._changes.tenancy_revision, self._run_times.revision
        # Nodes, priority classes and learned run times can matter to every gang.
        if (
            self._usage_basis is None
            or self._usage_basis[0] is not table
            or self._usage_basis[1] != revisions
        ):
            self._usage_basis = table, revisions
            objects = self._objects
            plans = objects.group_plans, objects.job_plans, reserved
            self._stale.update(self.usages, *plans, objects.gangs_with_members)
        stale = sorted(self._stale)
        self._stale.clear()
        for key in stale:
            gang_usage = self._gang_usage(key, on_error)
            if gang_usage is None:
                self.usages.pop(key, None)
                self._derived.pop(key, None)
            else:
                self.usages[key] = gang_usage

    def gangs(self, uncounted: Mapping[Key, Iterable[PodFacts]]) -> tuple[RunningGang, ...]:
        """Return every gang that holds places; ``uncounted`` is :meth:`pods_without_plan`."""
        return (
            *(gang for gang_usage in self.usages.values() for gang in gang_usage.running),
            *self._stray_gangs(uncounted),
            *self._orphan_gangs(),
        )

    @property
    def allocations(self) -> Iterator[Allocation]:
        """Every gang with a plan, written or assumed."""
        usages = self.usages.values()
        return (each.allocation for each in usages if each.allocation is not None)

    def _gang_usage(self, key: Key, on_error: OnError) -> GangUsage | None:
        """Return the usage of a gang; None if it holds nothing."""
        assumed, planned = self._views.reserved.get(key), self._objects.plan_of(key)
        view = self._views.effective(key)
        members = len(self._objects.keys_of_members(key))
        if view is None:
            self._derived.pop(key, None)
            return GangUsage(None, (), True) if members else None
        job_uid = assumed.job_uid if assumed is not None else planned.job_uid if planned else ""
        allocation = Allocation(key, job_uid, view)
        claims = tuple(self._demands.claims_of_places(allocation))
        running = self._running(allocation, on_error)
        return GangUsage(allocation, running, members > len(view.uids), claims)

    def _running(self, allocation: Allocation, on_error: OnError) -> tuple[RunningGang, ...]:
        """Return a gang that holds places, and a second one of its leaving pods, if any."""
        basis = self._basis(allocation)
        cached = self._derived.get(allocation.key)
        # Few of thousands of gangs change between two snapshots.
        if cached is None or not cached[0].is_same(basis):
            gangs = tuple(gang for gang in self._derive_gangs(allocation, basis, on_error) if gang)
            cached = self._derived[allocation.key] = (basis, gangs)
        return cached[1]

    def _basis(self, allocation: Allocation) -> _Basis:
        objects = self._objects
        job, group = objects.jobs.get(allocation.key), objects.groups.get(allocation.key)
        # Compare uids: a new job may have the name of a deleted one.
        if job is None or not allocation.job_uid or job.uid != allocation.job_uid:
            learned = self._run_times.of_group(
                allocation.key, (pod for _, pod in allocation.view.members)
            )
            return _Basis(
                group,
                allocation.view,
                self._nodes.table,
                self._priority_of(group),
                self._tenancy.may_preempt_pod_groups(allocation.queue),
                learned,
            )
        class_name = job.priority_class
        return _Basis(
            job,
            allocation.view,
            self._nodes.table,
            self._tenancy.priority(class_name)[0],
            self._tenancy.may_preempt(class_name),
            self._run_times.of_job(job),
            self._demands.revision_of(job),
            objects.resume_of(job),
        )

    def _priority_of(self, group: GroupFacts | None) -> int:
        """Return the priority of a PodGroup; without one that of the cluster's default class."""
        return self._tenancy.priority(group.priority_class if group is not None else None)[0]

    def _derive_gangs(
        self, allocation: Allocation, basis: _Basis, on_error: OnError
    ) -> Iterator[RunningGang | None]:
        owner, table, learned = basis.owner, basis.table, basis.learned_seconds
        if isinstance(owner, JobFacts):
            try:
                gang = owner.gang(
                    basis.priority, may_preempt=basis.may_preempt, learned_seconds=learned
                )
                gang = self._demands.of_job(gang, owner)
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

    # --- pods without a plan --------------------------------------------------------------

    def pods_without_plan(self) -> dict[Key, list[PodFacts]]:
        """Return the pods that no plan names, by the gang of their label."""
        return {key: self._strays_of(key) for key, each in self.usages.items() if each.has_strays}

    def _strays_of(self, key: Key) -> list[PodFacts]:
        allocation = self.usages[key].allocation
        counted = allocation.view.uids if allocation is not None else frozenset()
        return [pod for pod in self._objects.members_of(key) if pod.uid not in counted]

    def _stray_gangs(self, uncounted: Mapping[Key, Iterable[PodFacts]]) -> Iterator[RunningGang]:
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
                jobs = self._objects.jobs.items()
                key_by_uid = {job.uid: gang_key for gang_key, job in jobs}
            strays = [pod for pod in owned if key_by_uid.get(pod.job_uid, key) == key]
            gang = allocations.of_strays(key, strays, self._nodes.table)
            if gang is not None:
                yield gang

    def orphans(self) -> Iterator[Orphans]:
        """Yield the pods that run without a plan, by gang and queue, as of the last snapshot."""
        for key in self.usages:
            yield from self.orphans_of(key)

    def orphans_of(self, key: Key) -> list[Orphans]:
        """Return the pods of gang ``key`` that run without a plan, by queue."""
        gang_usage = self.usages.get(key)
        if gang_usage is None or not gang_usage.has_strays:
            return []
        return allocations.orphans_of(key, self._strays_of(key))

    def _orphan_gangs(self) -> Iterator[RunningGang]:
        """Yield the pods that run without a plan, as gangs that may be stopped.

        The pods of a deleted PodGroup keep running, but other gangs may preempt them. Otherwise
        a tenant could keep guaranteed places of others by deleting a PodGroup.
        """
        for orphans in self.orphans():
            priority = self._priority_of(self._objects.groups.get(orphans.key))
            may_preempt = self._tenancy.may_preempt_pod_groups(orphans.queue)
            running = allocations.of_orphans(orphans, self._nodes.table, priority, may_preempt)
            if running is not None:
                yield running
