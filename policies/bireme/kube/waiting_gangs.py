"""Gangs that wait for places: jobs without a plan, and PodGroups with pods at the gate."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from bireme.core.estimates import apply_progress_report
from bireme.core.gangs import Gang, Key
from bireme.core.reasons import Reason
from bireme.kube import adoptions, allocations, names, pod_creation, pod_groups
from bireme.kube.claim_demands import Fault
from bireme.kube.gang_demands import GangDemands, join_reasons
from bireme.kube.node_cache import NodeCache
from bireme.kube.pod_groups import GroupFacts, Placed
from bireme.kube.pods import PodFacts
from bireme.kube.resuming import Resumability
from bireme.kube.run_times import RunTimes
from bireme.kube.tenancy import Tenancy
from bireme.kube.training_jobs import JobFacts
from bireme.kube.watched_objects import OnError, WatchedObjects, raise_error


@dataclass(frozen=True, slots=True)
class _Basis:
    """All inputs of a waiting job's gang."""

    job: JobFacts = field(compare=False)
    fault: Fault | None
    priority: int
    may_preempt: bool
    learned_seconds: float | None
    demands_revision: tuple[object, ...]
    images_revision: int
    resume: Resumability

    def is_same(self, other: "_Basis") -> bool:
        """Return whether ``other`` gives the same result; a replaced job counts as new."""
        return self.job is other.job and self == other


class WaitingGangCache:
    """The waiting gangs of a snapshot. The gangs of jobs are cached until their inputs change."""

    def __init__(
        self,
        objects: WatchedObjects,
        demands: GangDemands,
        nodes: NodeCache,
        tenancy: Tenancy,
        run_times: RunTimes,
    ) -> None:
        self._objects = objects
        self._demands = demands
        self._nodes = nodes
        self._tenancy = tenancy
        self._run_times = run_times
        self._jobs: dict[Key, tuple[_Basis, Gang]] = {}

    def gangs(
        self,
        excluded: Iterable[Key] = (),
        faults: Mapping[str, Fault] | None = None,
        on_error: OnError = raise_error,
    ) -> list[Gang]:
        """Return every waiting gang; ``faults`` adds faults that only the caller knows, by uid."""
        faults, skip = faults or {}, set(excluded)
        gangs: list[Gang | None] = []
        makers: tuple[tuple[Callable[..., Gang | None], Iterable[Key]], ...] = (
            (self._job, self._objects.waiting_jobs),
            (self._group, self._objects.groups),
        )
        for make, keys in makers:
            for key in (key for key in keys if key not in skip):
                try:
                    gangs.append(make(key, faults))
                except Exception as error:  # noqa: BLE001  # affects this gang only
                    on_error(key, error)
        if len(self._jobs) > len(self._objects.waiting_jobs):
            waiting = self._objects.waiting_jobs
            self._jobs = {key: cached for key, cached in self._jobs.items() if key in waiting}
        return [gang for gang in gangs if gang is not None]

    def has_another(self, gang: Key) -> bool:
        """Return whether the cache has another gang than ``gang`` that waits for places."""
        if any(key != gang for key in self._objects.waiting_jobs):
            return True
        groups = (g for key, g in self._objects.groups.items() if key != gang and g.plan is None)
        return any(self.newcomers(group) for group in groups)

    def newcomers(self, group: GroupFacts) -> list[PodFacts]:
        """Return the pods of ``group`` that wait for a place."""
        planned = group.plan.member_by_uid if group.plan else {}
        members, gated = self._objects.members, self._objects.gated
        return [
            members[pod]
            for pod in self._objects.keys_of_members(group.key)
            if pod in gated.tasks and not members[pod].is_leaving
            if members[pod].uid not in planned and pod not in gated.other_gates
        ]

    def placement_of(self, group: GroupFacts, newcomers: Iterable[PodFacts]) -> Placed:
        """Return the members of ``group`` that need no place; ``newcomers`` wait for one."""
        pods, history = self._objects.members_of(group.key), self._objects.history
        counts = history.job_counts(group.key)
        return Placed.of(group.plan, pods, newcomers, history.ended_pods(group), counts)

    def _job(self, key: Key, faults: Mapping[str, Fault]) -> Gang:
        objects, job = self._objects, self._objects.jobs[key]
        class_name = job.priority_class
        priority, missing = self._tenancy.priority(class_name)
        fault = faults.get(job.uid) or missing or job.admission_fault
        fault = fault or allocations.in_the_way(
            job, objects.groups.get(key), objects.members_of(key)
        )
        basis = _Basis(
            job,
            fault,
            priority,
            self._tenancy.may_preempt(class_name),
            self._run_times.of_job(job),
            self._demands.revision_of(job),
            self._nodes.images.revision if job.has_timed_out else 0,
            objects.resume_of(job),
        )
        cached = self._jobs.get(key)
        # Few of thousands of gangs change between two cycles.
        if cached is None or not cached[0].is_same(basis):
            cached = self._jobs[key] = (basis, self._derive_gang(basis))
        return cached[1]

    def _derive_gang(self, basis: _Basis) -> Gang:
        job, learned = basis.job, basis.learned_seconds
        gang = job.gang(basis.priority, basis.fault, basis.may_preempt, learned)
        gang = basis.resume.apply(apply_progress_report(gang))
        gang = self._demands.of_job(gang, job)
        if job.has_timed_out:
            images = (pods_of_task.images for pods_of_task in job.pods)
            gang = replace(gang, tasks=self._demands.with_images(gang.tasks, images))
        return gang

    def _group(self, key: Key, faults: Mapping[str, Fault]) -> Gang | None:
        group = self._objects.groups[key]
        if group.is_leaving:
            return None
        newcomers = self.newcomers(group)
        placement = self.placement_of(group, newcomers)
        tasks = self._objects.gated.tasks
        resolved = self._demands.of_pods(
            key, [(pod, tasks[pod.key]) for pod in newcomers], prefers_images=group.has_timed_out
        )
        class_name = group.priority_class
        priority, missing = self._tenancy.priority(class_name)
        fault = faults.get(group.uid) or missing or resolved.fault
        gang = pod_groups.waiting_gang(
            group,
            list(zip(newcomers, resolved.tasks, strict=True)),
            placement,
            priority,
            self._fault_of_pods(key) or fault,
            self._tenancy.may_preempt(class_name),
            self._run_times.of_group(key, newcomers),
        )
        if gang is None:
            return None
        if not self._tenancy.may_preempt_pod_groups(group.queue):
            gang = replace(gang, is_preemptible=False)
        gang = self._with_remedies(gang, group, newcomers)
        if not resolved.reasons:
            return gang
        return replace(gang, left_to_scheduler=join_reasons(resolved.reasons))

    def _fault_of_pods(self, key: Key) -> Fault | None:
        """Return the fault of the pods of a PodGroup, which comes before all others."""
        if key in self._objects.job_plans:  # pods name their gang by one label
            return Reason.SPEC_INVALID, f"a TrainingJob {key[1]!r} runs here; rename the PodGroup"
        errors = self._objects.gated.errors
        pods = self._objects.keys_of_members(key) if errors else ()
        message = next((errors[pod] for pod in pods if pod in errors), None)
        return None if message is None else (Reason.SPEC_INVALID, message)

    def _with_remedies(self, gang: Gang, group: GroupFacts, newcomers: Iterable[PodFacts]) -> Gang:
        """Return the gang of a PodGroup with the faults and remedies that its pods show."""
        gated = self._objects.gated
        if gated.other_gates:
            pods = self._objects.keys_of_members(group.key)
            gates_by_pod = {pod: gates for pod in pods if (gates := gated.other_gates.get(pod))}
            gang = pod_groups.with_other_gates(gang, gates_by_pod)
        if gang.fault is not None:
            released = adoptions.list_released_pods(None, self._objects.members_of(group.key))
            strangers = (p for p in released if p.labels[names.QUEUE_LABEL] != group.queue)
            gang = pod_groups.with_other_queues(gang, strangers)
            waiting = (gated.manifests[pod.key] for pod in newcomers)
            gang = pod_groups.with_remedy(gang, pod_creation.remedy_of(waiting))
        return gang
