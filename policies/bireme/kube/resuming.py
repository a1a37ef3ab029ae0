"""Decide whether a gang can resume after a stop, by what its owner and administrators say.

Consent comes from the owner first: ``spec.runPolicy.resumable`` of a TrainingJob, an annotation of
a PodGroup. A job that is elastic, or has reported a checkpoint, gives it by what it does. For other
jobs administrators may assume it, per queue or for all.
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
    """Whether a gang can resume, and the ``source`` that says so, in words."""

    is_resumable: bool
    source: str

    def apply(self, gang: Gang) -> Gang:
        """Return ``gang`` with it."""
        return replace(gang, is_resumable=self.is_resumable, resume_source=self.source)

    def status_fields(self) -> dict[str, Any]:
        """Return what a status says about it."""
        return {"resumable": self.is_resumable, "resumableBecause": cleaned(self.source)}


def of_job(
    job: JobFacts, queue: tuple[str, bool] | None, *, is_like_another: bool, is_assumed: bool
) -> Resumability:
    """Return whether ``job`` can resume.

    ``queue`` is the queue that assumes something, and what; None where none does.
    ``is_like_another`` tells whether a job of its template has reported a checkpoint,
    ``is_assumed`` what the operator assumes.
    """
    stated = job.spec.run_policy.resumable if job.spec is not None else None
    if stated is not None:
        return Resumability(stated, f"spec.runPolicy.resumable is {_spelled(stated)}")
    if job.spec is not None and job.spec.is_elastic:
        return Resumability(True, "it is elastic")
    if job.has_checkpoint:
        return Resumability(True, "it has reported a checkpoint")
    if is_like_another:
        return Resumability(True, "a job of its template has reported a checkpoint")
    if queue is not None:
        name, value = queue
        return Resumability(value, f"assumeResumable of queue {name} is {_spelled(value)}")
    if is_assumed:
        return Resumability(True, "the operator's setting assumeResumable is true")
    return Resumability(
        False,
        "it has neither said so (spec.runPolicy.resumable: true) nor reported a checkpoint",
    )


def of_group(annotation: str | None) -> Resumability:
    """Return whether the gang of a PodGroup can resume, by the value of its annotation."""
    name = names.RESUMABLE
    if annotation is None:
        return Resumability(False, f"annotation {name} does not say so")
    return Resumability(annotation == "true", f"annotation {name} is {cleaned(annotation)[:32]}")


def fault_of_annotation(annotation: str | None) -> tuple[Reason, str] | None:
    """Return what is wrong with the annotation of a PodGroup; None for nothing."""
    if annotation in (None, "true", "false"):
        return None
    return Reason.SPEC_INVALID, (
        f"annotation {names.RESUMABLE} is {annotation[:32]!r}; write true or false, or remove it"
    )


def status_fields(gang: Gang) -> dict[str, Any]:
    """Return what a status says about ``gang``; nothing where nobody asked."""
    if not gang.resume_source:
        return {}
    return Resumability(gang.is_resumable, gang.resume_source).status_fields()


def _spelled(value: bool) -> str:
    return "true" if value else "false"
