"""JobSet of the JobSet operator: several Jobs, which it suspends with itself."""

from typing import Final

import msgspec

from bireme.kube import wire
from bireme.kube.integrations.integration import (
    ExternalWorkload,
    Integration,
    has_condition,
    label_of,
)
from bireme.kube.integrations.job import JobSpec, labels_of


class _JobTemplate(wire.Wire, frozen=True):
    spec: JobSpec = JobSpec()


class _ReplicatedJob(wire.Wire, frozen=True):
    template: _JobTemplate = _JobTemplate()


class _Spec(wire.Wire, frozen=True):
    suspend: bool | None = None
    managed_by: str | None = None
    replicated_jobs: tuple[_ReplicatedJob, ...] | None = None


class _Status(wire.Wire, frozen=True):
    conditions: tuple[wire.V1Condition, ...] | None = None


class _JobSet(wire.MetadataOnly, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


def _read(body: bytes) -> ExternalWorkload:
    job_set = msgspec.json.decode(body, type=_JobSet)
    jobs = tuple(job.template.spec for job in job_set.spec.replicated_jobs or ())
    return ExternalWorkload(
        job_set.metadata,
        is_suspended=bool(job_set.spec.suspend),
        managed_by=job_set.spec.managed_by,
        template_labels=labels_of(jobs),
        has_acted=has_condition(job_set.status.conditions, "Suspended", "Completed", "Failed"),
    )


def _creation_remedy(pod: wire.V1Pod) -> str:
    name = label_of(pod, "jobset.sigs.k8s.io/jobset-name")
    return name and (
        f"JobSet {name} creates one Job after the other, if it has startupPolicyOrder: InOrder;"
        " give it startupPolicyOrder: AnyOrder"
    )


JOB_SET: Final = Integration(
    api_version="jobset.x-k8s.io/v1alpha2",
    kind="JobSet",
    plural="jobsets",
    controls=("Job",),
    read=_read,
    suspend_field=("spec", "suspend"),
    controller="jobset.sigs.k8s.io/jobset-controller",
    creation_remedy=_creation_remedy,
)
