"""A planned job to the PodGroup and pods that carry it out: template, pin, labels, rendezvous.

What a tenant may not choose is set here whatever the template says: the scheduler, the priority
class of the job, Bireme's labels. What they may, is kept; two safer defaults apply where the
template is silent: pods are not restarted in place, and get no API token.
"""

from collections.abc import Iterator
from typing import Any

from bireme.kube import names, pods
from bireme.kube.gang_views import pod_name
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.progress_access import ANNOTATION, ProgressAccess
from bireme.kube.rendezvous import Rendezvous, owner_reference
from bireme.kube.training_jobs import JobFacts


class PodFactory:
    """Makes the pods of one planned job; ``progress`` is where they may report, if anywhere."""

    def __init__(
        self, job: JobFacts, plan: PlanFacts, progress: ProgressAccess | None = None
    ) -> None:
        self._job = job
        self._plan = plan
        self._progress = progress
        self._rendezvous = Rendezvous(job, plan)
        self._templates = {task["name"]: task["template"] for task in job.raw_tasks}
        self._priority = {task.name: task.priority for task in job.tasks}

    def in_order(self) -> Iterator[Member]:
        """All members, tasks with the highest intra-job priority first."""
        yield from sorted(
            self._plan.members, key=lambda m: (-self._priority.get(m.task, 0), m.task, m.index)
        )

    def manifest(self, member: Member) -> dict[str, Any]:
        """The pod of one member, ready to be created."""
        template = self._templates[member.task]
        namespace, job = self._job.key
        given = template.get("metadata") or {}
        name = pod_name(job, member.task, member.index)
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": namespace,
            "labels": {**(given.get("labels") or {}), **self._labels(member)},
            "ownerReferences": [owner_reference(self._job)],
        }
        if given.get("annotations"):
            metadata["annotations"] = given["annotations"]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": self._spec(template, member, name),
        }

    def _labels(self, member: Member) -> dict[str, str]:
        job = self._job.key[1]
        return {
            names.JOB_LABEL: job,
            names.POD_GROUP_LABEL: job,
            names.TASK_LABEL: member.task,
            names.ROLE_LABEL: self._plan.roles.get(member.task, ""),
            names.INDEX_LABEL: str(member.index),
            names.ATTEMPT_LABEL: str(self._plan.attempt),
            names.PLAN_LABEL: self._plan.label,
            names.QUEUE_LABEL: self._plan.queue,
        }

    def _spec(self, template: dict[str, Any], member: Member, name: str) -> dict[str, Any]:
        given = template["spec"]
        spec = dict(given)
        spec["schedulerName"] = names.SCHEDULER_NAME
        spec.setdefault("restartPolicy", "Never")
        spec.setdefault("automountServiceAccountToken", False)
        for chosen in ("nodeName", "priority", "priorityClassName", "schedulingGates"):
            spec.pop(chosen, None)
        if self._job.spec is not None and self._job.spec.priority_class_name:
            spec["priorityClassName"] = self._job.spec.priority_class_name
        if self._rendezvous.needs_service:
            spec["hostname"] = name
            spec["subdomain"] = self._job.key[1]
        environment = self._rendezvous.environment(member.task, member.index)
        if self._progress is not None and _may_report(template):
            spec = self._progress.mounted(spec)
            environment |= self._progress.environment(self._job.key)
        if environment:
            spec["containers"] = [_with(c, environment) for c in spec["containers"]]
        if self._plan.mode == "Pinned":
            spec["affinity"] = pods.pinned_affinity(given, member.node)
        return spec


def _may_report(template: dict[str, Any]) -> bool:
    metadata = template.get("metadata") or {}
    return (metadata.get("annotations") or {}).get(ANNOTATION) != "none"


def _with(container: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """The container with ``environment``; a variable it sets itself stays as it is."""
    given = container.get("env") or []
    if not (isinstance(given, list) and all(isinstance(variable, dict) for variable in given)):
        return container  # the API server will refuse it, and say why
    own = {variable.get("name") for variable in given}
    added = [{"name": k, "value": v} for k, v in environment.items() if k not in own]
    return {**container, "env": [*given, *added]}


def group_manifest(job: JobFacts) -> dict[str, Any]:
    """The PodGroup of a TrainingJob, made at its first admission."""
    namespace, name = job.key
    spec: dict[str, Any] = {"minMember": job.gang(0).at_minimum.replicas}
    if job.spec is not None:
        spec["queue"] = job.spec.queue
        if job.spec.priority_class_name:
            spec["priorityClassName"] = job.spec.priority_class_name
    return {
        "apiVersion": names.API_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {names.JOB_LABEL: name},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }
