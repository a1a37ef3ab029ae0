"""Demands of gangs that other objects decide: claims, devices, quotas, affinity rules, images."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from bireme.core.gangs import Gang, Key, Task
from bireme.core.resources import Request
from bireme.kube import names, pods
from bireme.kube.allocations import Allocation, GangView
from bireme.kube.api.base import MAX_PLANNED_TASKS
from bireme.kube.claim_demands import ClaimDemands, ResolvedClaims
from bireme.kube.devices import Devices
from bireme.kube.node_cache import NodeCache
from bireme.kube.pods import PodFacts
from bireme.kube.resource_quotas import ResourceQuotas
from bireme.kube.training_jobs import JobFacts
from bireme.kube.volume_objects import NO_CLAIMS, PodClaims
from bireme.kube.volumes import Volumes
from bireme.kube.watched_objects import WatchedObjects


def join_reasons(reasons: Iterable[str]) -> str:
    """Join the reasons why parts of a request are left to kube-scheduler."""
    return "; ".join(dict.fromkeys(filter(None, reasons)))


class GangDemands:
    """The demands that volumes, devices, quotas, affinity rules and images add to tasks."""

    def __init__(
        self,
        objects: WatchedObjects,
        nodes: NodeCache,
        volumes: Volumes,
        devices: Devices,
        quotas: ResourceQuotas,
    ) -> None:
        self._objects = objects
        self._nodes = nodes
        self._volumes = volumes
        self._devices = devices
        self._quotas = quotas

    # --- jobs -----------------------------------------------------------------------------

    def revision_of(self, job: JobFacts) -> tuple[object, ...]:
        """Return a value that compares equal while other objects leave ``of_job`` as it is."""
        return (
            self._claims_revision(job),
            self._quotas.rules(job.key[0]),
            self._objects.rules.revision_of(job.label_pairs),
        )

    def _claims_revision(self, job: JobFacts) -> int:
        """Return the revision of volumes and devices for a job that uses claims; else 0."""
        if not (job.has_claims or self._devices.asks(job.tasks)):
            return 0
        return self._volumes.revision + self._devices.revision + 1

    def of_job(self, gang: Gang, job: JobFacts) -> Gang:
        """Return the gang of ``job`` with the constraints of its claims and its quota charges."""
        self._want_devices(gang.tasks)
        if self._quotas.rules(job.key[0]) is not None:
            gang = replace(gang, tasks=self.with_charges(gang.tasks, job))
        if not (job.has_claims or self._devices.asks(gang.tasks)):
            return replace(gang, tasks=self.with_pod_kinds(gang.tasks, job))
        resolved = self._resolve_claims(gang.key, tuple(zip(gang.tasks, job.claims, strict=True)))
        return replace(
            gang,
            tasks=self.with_pod_kinds(resolved.tasks, job),
            fault=gang.fault or resolved.fault,
            left_to_scheduler=join_reasons((gang.left_to_scheduler, *resolved.reasons)),
        )

    def with_charges(self, tasks: Iterable[Task], job: JobFacts) -> tuple[Task, ...]:
        """Return the tasks of ``job`` with their charges in the quotas of its namespace."""
        charges_of, namespace = self._quotas.charges, job.key[0]
        return tuple(
            replace(task, charges=charges_of(namespace, task, some.priority_class, some.charges))
            for task, some in zip(tasks, job.pods, strict=True)
        )

    def with_pod_kinds(self, tasks: tuple[Task, ...], job: JobFacts) -> tuple[Task, ...]:
        """Return the tasks of ``job`` with the labels that affinity rules select, as ``pod``."""
        rules = self._objects.rules
        if not rules.has_selectors:
            return tasks
        return tuple(
            replace(task, pod=rules.kind_of(job.key[0], job.labels_of(place), task.pod))
            for place, task in enumerate(tasks)
        )

    def are_seen_alike(self, job: JobFacts, other: JobFacts) -> bool:
        """Return whether affinity rules match the pods of two versions of a job alike."""
        return self.with_pod_kinds(job.tasks, job) == self.with_pod_kinds(other.tasks, other)

    def label_drift(self, job: JobFacts, view: GangView) -> dict[str, dict[str, str]]:
        """Return the labels, by task, of pods of ``job`` that change the match of affinity rules.

        Admission set them after the gang was planned.
        """
        rules = self._objects.rules
        if not rules.has_selectors:
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
                rules.kind_of(job.key[0], labels, None)
                for labels in (task_labels, {**task_labels, **more})
            )
            if more and next(pod_kinds) != next(pod_kinds):
                drift[member.task] = more
        return drift

    # --- gated pods of other controllers --------------------------------------------------

    def of_pods(
        self, gang: Key, gated: Sequence[tuple[PodFacts, Task]], *, prefers_images: bool
    ) -> ResolvedClaims:
        """Return the tasks of gated pods with their demands, in the same order."""
        resolved = self._claims_of_pods(gang, gated)
        tasks, reasons = resolved.tasks, resolved.reasons
        cached, rules = self._objects.gated, self._objects.rules
        if rules.has_selectors:
            tasks = tuple(
                replace(task, pod=rules.kind_of(gang[0], pod.labels, task.pod))
                for (pod, _), task in zip(gated, tasks, strict=True)
            )
        if prefers_images:
            manifests = (cached.manifests[pod.key] for pod, _ in gated)
            images = (pods.images_of_spec(manifest.spec) for manifest in manifests)
            tasks = self.with_images(tasks, images)
        if cached.scheduler_rules:
            by_pod = (cached.scheduler_rules.get(pod.key, ()) for pod, _ in gated)
            reasons = (*reasons, *chain.from_iterable(by_pod))
        return ResolvedClaims(tasks, resolved.fault, reasons)

    def _claims_of_pods(self, gang: Key, gated: Sequence[tuple[PodFacts, Task]]) -> ResolvedClaims:
        """Return the tasks of gated pods with the constraints of their claims."""
        tasks, claims = tuple(task for _, task in gated), self._objects.gated.claims
        self._want_devices(tasks)
        if not (any(pod.key in claims for pod, _ in gated) or self._devices.asks(tasks)):
            return ResolvedClaims(tasks)
        used = [(task, claims.get(pod.key, NO_CLAIMS)) for pod, task in gated]
        resolved = self._resolve_claims(gang, used)
        kinds = {(t.name, t.request, t.constraints, t.pod) for t in resolved.tasks}
        if len(kinds) <= MAX_PLANNED_TASKS:
            return resolved
        # Each pod may have its own volume: these are more kinds of pods than a plan can hold.
        reason = "volumes of their own, which are of too many kinds to be planned"
        return replace(resolved, tasks=tasks, reasons=(reason, *resolved.reasons))

    # --- both -----------------------------------------------------------------------------

    def with_images(
        self, tasks: Iterable[Task], images: Iterable[tuple[str, ...]]
    ) -> tuple[Task, ...]:
        """Return ``tasks`` with a preference for nodes that have their ``images``."""
        image_sets = list(images)
        preference_of = {
            image_names: self._nodes.images.preference(image_names)
            for image_names in dict.fromkeys(image_sets)
        }
        return tuple(
            task
            if (preference := preference_of[image_names]) is None
            else replace(task, preferences=task.preferences.with_node(preference))
            for task, image_names in zip(tasks, image_sets, strict=True)
        )

    def claims_of_places(self, allocation: Allocation) -> Iterator[tuple[str, PodClaims, Request]]:
        """Yield node, claims and request of every planned member with claims of volumes."""
        job = self._objects.jobs.get(allocation.key)
        used_by: Mapping[str, PodClaims] = {}
        if job is not None and job.uid == allocation.job_uid:
            if not job.has_claims:
                return
            used_by = {t.name: used for t, used in zip(job.tasks, job.claims, strict=True)}
        for node, member, pod in allocation.view.open_places():
            used = used_by.get(member.task)
            if used is None and pod is not None:
                used = self._objects.gated.claims.get(pod.key) or self._volumes.of_pod(pod.key)
            if used is not None and used.has_volumes:
                yield node, used, allocation.view.plan.requests.get(member.task, ())

    def _resolve_claims(self, key: Key, tasks: Sequence[tuple[Task, PodClaims]]) -> ResolvedClaims:
        """Return the tasks of a gang with the constraints of their volume and device claims."""
        volumes = ClaimDemands(self._volumes).fold(key, tasks)
        claims = (used for _, used in tasks)
        devices = self._devices.fold(key[0], tuple(zip(volumes.tasks, claims, strict=True)))
        fault = volumes.fault or devices.fault
        return ResolvedClaims(devices.tasks, fault, (*volumes.reasons, *devices.reasons))

    def _want_devices(self, tasks: Iterable[Task]) -> None:
        """Start to read devices once a task requests a resource that no node offers."""
        if self._devices.is_wanted:
            return
        axis = self._nodes.table.axis
        if any(axis.column(name) is None for task in tasks for name, _ in task.request):
            self._devices.want()
