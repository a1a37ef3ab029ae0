"""``bireme convert``: turn a stream of Volcano's manifests into Bireme's.

Other kinds pass unchanged. Manifests go to standard output and remarks to standard error, so that
the result can be piped to ``kubectl apply``. Everything is checked against Bireme's models first.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import pydantic
import yaml

from bireme.cli import conversion, manifest_files
from bireme.cli.arguments import STANDARD_OUTPUT, naming, write_text
from bireme.cli.conversion import ROLES, ConversionError, Json, Note, Notes
from bireme.kube.api.base import ApiModel
from bireme.kube.api.pod_group import PodGroup
from bireme.kube.api.queues import QueueResource
from bireme.kube.api.training_job import Role, TrainingJob
from bireme.tables import aligned

_MODELS: Final[Mapping[str, type[ApiModel]]] = {
    "TrainingJob": TrainingJob,
    "PodGroup": PodGroup,
    "Queue": QueueResource,
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
        return [conversion.joined(document, notes)]
    if kind == "Job":
        return conversion.converted(document, given, notes)
    if kind == "PodGroup":
        return conversion.pod_group(document, notes)
    if kind == "Queue":
        return conversion.queues(document, known, notes)
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Teach ``parser`` what ``bireme convert`` understands."""
    add = parser.add_argument
    add("manifest", nargs="+", metavar="MANIFEST", help="YAML files; - for standard input")
    add(
        "--role",
        type=_role,
        action="append",
        default=[],
        metavar="TASK=ROLE",
        help=f"what a task is to the training, where its name does not say: {', '.join(ROLES)}",
    )
    add("--out", default=STANDARD_OUTPUT, metavar="FILE", help="where to; default: standard output")


def run(options: argparse.Namespace, _arguments: Sequence[str]) -> int:
    """Convert; the exit status.

    Raises:
        ConversionError: a manifest cannot be converted.
        UsageError: a file cannot be read or written.
    """
    documents = []
    for name in options.manifest:
        with naming("MANIFEST"):
            documents += manifest_files.read(name)
    made, notes = convert(documents, dict(options.role))
    text = yaml.safe_dump_all(made, sort_keys=False, allow_unicode=True, width=100)
    with naming("--out"):
        write_text(options.out, text)
    if notes:
        sys.stderr.write("\n".join(_listed(notes)) + "\n")
    return 0


def _listed(notes: Sequence[Note]) -> list[str]:
    rows = [[note.effect.value, note.subject, note.field, note.text] for note in notes]
    return aligned(rows, left=4)


def _role(text: str) -> tuple[str, Role]:
    task, _, role = text.partition("=")
    for known in ROLES:
        if task and role == known:
            return task, known
    raise argparse.ArgumentTypeError(
        f"{text!r} is no TASK=ROLE with a role of {', '.join(ROLES)}, such as launcher=master"
    )
