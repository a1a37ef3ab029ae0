"""``bireme convert``: Volcano's manifests as Bireme's, with a word on everything that differs.

Manifests go to standard output, remarks to standard error, so that the result can be piped to
``kubectl apply`` and still be read about.
"""

import argparse
import sys
from collections.abc import Sequence

import yaml

from bireme.command_line import STANDARD_OUTPUT, aligned, naming, write_text
from bireme.kube import manifest_files
from bireme.kube.api.training_job import Role
from bireme.migration.documents import convert
from bireme.migration.notes import Note
from bireme.migration.tasks import ROLES


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
