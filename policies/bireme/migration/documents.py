"""A stream of manifests, converted: Volcano's kinds become Bireme's, all others stay.

Everything that comes out is checked against Bireme's models before anybody applies it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import pydantic

from bireme.kube.api.model import Model
from bireme.kube.api.pod_group import PodGroup
from bireme.kube.api.queues import Queue
from bireme.kube.api.training_job import Role, TrainingJob
from bireme.migration import groups, jobs, pods
from bireme.migration.errors import ConversionError
from bireme.migration.notes import Note, Notes
from bireme.migration.tasks import Json

_MODELS: Final[Mapping[str, type[Model]]] = {
    "TrainingJob": TrainingJob,
    "PodGroup": PodGroup,
    "Queue": Queue,
}
_REFUSED: Final = {
    "CronJob": "use a CronJob of Kubernetes that creates a TrainingJob",
    "JobFlow": "use a workflow engine that creates TrainingJobs",
    "JobTemplate": "convert the Job it holds",
}


def convert(
    documents: Sequence[Json], given: Mapping[str, Role]
) -> tuple[list[Json], tuple[Note, ...]]:
    """All documents as Bireme wants them, in their order, and what to know about them.

    Raises ConversionError for a manifest that cannot be converted; it names object and field.
    """
    made: list[Json] = []
    remarks: list[Note] = []
    queues = {_name(d) for d in documents if d["kind"] == "Queue"}
    for document in documents:
        notes = Notes(f"{document['kind']} {_name(document)}")
        try:
            results = _one(document, given, queues, notes)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConversionError(
                f"{notes.subject}: is not as Volcano has it: {error!r}"
            ) from error
        for result in results:
            _check(result, notes)
        queues |= {_name(result) for result in results if result["kind"] == "Queue"}
        made += results
        remarks += notes.notes
    return made, tuple(remarks)


def _one(document: Json, given: Mapping[str, Role], known: set[str], notes: Notes) -> list[Json]:
    group, kind = str(document.get("apiVersion", "")).partition("/")[0], document["kind"]
    if not group.endswith("volcano.sh"):
        return [pods.joined(document, notes)]
    if kind == "Job":
        return jobs.converted(document, given, notes)
    if kind == "PodGroup":
        return groups.pod_group(document, notes)
    if kind == "Queue":
        return groups.queues(document, known, notes)
    notes.to_do("kind", f"left out: {_REFUSED.get(kind, 'Bireme has nothing like it')}")
    return []


def _name(document: Json) -> str:
    about = document.get("metadata") or {}
    name = about.get("name") or about.get("generateName") or "(without a name)"
    return f"{about['namespace']}/{name}" if about.get("namespace") else str(name)


def _check(result: Json, notes: Notes) -> None:
    model = _MODELS.get(result["kind"])
    if model is None or not str(result.get("apiVersion", "")).startswith("bireme.dev/"):
        return
    try:
        model.model_validate(result)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        raise ConversionError(
            f"{notes.subject}: as a {result['kind']} its {path} would be {first['input']!r}:"
            f" {first['msg']}; change it before converting"
        ) from error
