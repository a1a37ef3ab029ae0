"""Job of ``batch/v1``.

It counts a deleted pod as a failure, of which it forgives ``backoffLimit``. A suspended Job deletes
its pods and counts none of them. It counts a succeeded pod before the API server deletes the pod,
and never creates that pod again.
"""

from typing import Final

import msgspec

from bireme.kube import wire
from bireme.kube.integrations.integration import (
    ExternalWorkload,
    Integration,
    Json,
    Recreation,
    has_condition,
)

_API_LABELS: Final = ("controller-uid", "job-name")
"""Labels that the API server gives the template of a Job, also with the prefix of its group."""


class _PodTemplate(wire.Wire, frozen=True):
    """The metadata of a pod template, which may have none."""

    metadata: wire.V1ObjectMeta = wire.V1ObjectMeta()


class JobSpec(wire.Wire, frozen=True):
    """The fields of a Job's spec that its suspension depends on."""

    suspend: bool | None = None
    managed_by: str | None = None
    template: _PodTemplate | None = None


class _Status(wire.Wire, frozen=True):
    conditions: tuple[wire.V1Condition, ...] | None = None
    succeeded: int | None = None


class _Job(wire.MetadataOnly, frozen=True):
    spec: JobSpec = JobSpec()
    status: _Status = _Status()


def _read(body: bytes) -> ExternalWorkload:
    job = msgspec.json.decode(body, type=_Job)
    return ExternalWorkload(
        job.metadata,
        is_suspended=bool(job.spec.suspend),
        managed_by=job.spec.managed_by,
        template_labels=labels_of((job.spec,)),
        has_acted=has_condition(job.status.conditions, "Suspended", "Complete", "Failed"),
        succeeded=job.status.succeeded or 0,
    )


def labels_of(jobs: tuple[JobSpec, ...]) -> tuple[dict[str, str], ...]:
    """Return the labels of the templates of ``jobs``."""
    templates = (job.template for job in jobs)
    return tuple(each.metadata.labels or {} for each in templates if each is not None)


def _pod_of(job: Json) -> Json:
    pod: Json = job["spec"]["template"]
    if job["spec"].get("manualSelector"):
        return pod
    job["spec"].pop("selector", None)
    api_labels = {*_API_LABELS, *(f"batch.kubernetes.io/{name}" for name in _API_LABELS)}
    for part in (job, pod):
        labels = part["metadata"].get("labels") or {}
        part["metadata"]["labels"] = {k: v for k, v in labels.items() if k not in api_labels}
    return pod


JOB: Final = Integration(
    api_version="batch/v1",
    kind="Job",
    plural="jobs",
    read=_read,
    suspend_field=("spec", "suspend"),
    controller="kubernetes.io/job-controller",
    bystanders=("CronJob",),
    counts_succeeded=True,
    release=Recreation(_pod_of),
)
