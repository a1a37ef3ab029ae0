"""Decide whether a gang can resume after a stop.

The owner decides first: ``spec.runPolicy.resumable`` of a TrainingJob, an annotation of a PodGroup.
Otherwise a job that is elastic, or has reported a checkpoint, is resumable. For other jobs
administrators may assume it, per queue or for all.
"""

from dataclasses import dataclass, replace
from typing import Any

from bireme.core.gangs import Gang
from bireme.core.reasons import Reason
from bireme.kube import names
from bireme.kube.conditions import cleaned
from bireme.kube.training_jobs import JobFacts


@dataclass(frozen=True, slots=True)
class Resumability:
    """Whether a gang can resume, and the ``source`` of that answer as text."""

    is_resumable: bool
    source: str

    def apply(self, gang: Gang) -> Gang:
        """Return ``gang`` with this resumability."""
        return replace(gang, is_resumable=self.is_resumable, resume_source=self.source)

    def status_fields(self) -> dict[str, Any]:
        """Return the fields of a status."""
        return {"resumable": self.is_resumable, "resumableBecause": cleaned(self.source)}


def of_job(
    job: JobFacts, queue: tuple[str, bool] | None, *, is_like_another: bool, is_assumed: bool
) -> Resumability:
    """Return whether ``job`` can resume.

    ``queue`` has the name and the assumption of the queue that assumes something; None without
    one. ``is_like_another`` tells whether a job of its template has reported a checkpoint.
    ``is_assumed`` is the assumption of the operator.
    """
    stated = job.spec.run_policy.resumable if job.spec is not None else None
    if stated is not None:
        return Resumability(stated, f"spec.runPolicy.resumable is {_bool_text(stated)}")
    if job.spec is not None and job.spec.is_elastic:
        return Resumability(True, "it is elastic")
    if job.has_checkpoint:
        return Resumability(True, "it has reported a checkpoint")
    if is_like_another:
        return Resumability(True, "a job of its template has reported a checkpoint")
    if queue is not None:
        name, value = queue
        return Resumability(value, f"assumeResumable of queue {name} is {_bool_text(value)}")
    if is_assumed:
        return Resumability(True, "the operator's setting assumeResumable is true")
    return Resumability(
        False,
        "spec.runPolicy.resumable is not set, and it has reported no checkpoint",
    )


def of_group(annotation: str | None) -> Resumability:
    """Return whether the gang of a PodGroup can resume, by the value of its annotation."""
    name = names.RESUMABLE
    if annotation is None:
        return Resumability(False, f"annotation {name} is not set")
    return Resumability(annotation == "true", f"annotation {name} is {cleaned(annotation)[:32]}")


def fault_of_annotation(annotation: str | None) -> tuple[Reason, str] | None:
    """Return the fault of an invalid annotation of a PodGroup; None for a valid one."""
    if annotation in (None, "true", "false"):
        return None
    return Reason.SPEC_INVALID, (
        f"annotation {names.RESUMABLE} is {annotation[:32]!r}; write true or false, or remove it"
    )


def status_fields(gang: Gang) -> dict[str, Any]:
    """Return the status fields of ``gang``; empty if its resumability was not determined."""
    if not gang.resume_source:
        return {}
    return Resumability(gang.is_resumable, gang.resume_source).status_fields()


def _bool_text(value: bool) -> str:
    return "true" if value else "false"
