"""``bireme why``: why one job waits, or where it is; the dominant reason first."""

import argparse
import time
from collections.abc import Sequence
from contextlib import suppress

from bireme.console import options as common
from bireme.console.errors import ConsoleError
from bireme.console.gangs import in_line, line_of
from bireme.console.reading import Json, Reader, ask
from bireme.console.why import Explanation
from bireme.kube import names

_PLURALS = {
    name: names.PLURALS[kind]
    for kind in names.GANG_KINDS
    for name in (kind.lower(), names.PLURALS[kind], names.SHORT_NAMES[kind])
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Teach ``parser`` what ``bireme why`` understands."""
    parser.add_argument(
        "job", metavar="JOB", help="a TrainingJob's name; podgroup/NAME for a PodGroup"
    )
    common.add_target(parser)
    common.add_output(parser)


def run(options: argparse.Namespace, _arguments: Sequence[str]) -> int:
    """Explain; the exit status. Raises ConsoleError without such a job or the right to see it."""
    kind, _, name = options.job.rpartition("/")
    plural = _PLURALS.get(kind.lower() or "trainingjob")
    if plural is None or not name:
        raise ConsoleError(
            f"argument JOB: {options.job!r} is no job; write its name, or podgroup/NAME"
        )

    async def question(reader: Reader) -> Explanation:
        return await explained(reader, plural, name)

    found = ask(common.target(options), question)
    common.write(options.output, found.to_json(), found.text())
    return 0


async def explained(reader: Reader, plural: str, name: str) -> Explanation:
    """One gang and, as far as the caller may read them, all that wait and its queue."""
    gang = line_of(await reader.get(plural, name, reader.namespace))
    everyone = await waiting(reader)
    line = None if everyone is None else in_line(everyone)
    queue: Json | None = None
    with suppress(ConsoleError):  # it does not exist, as the reason says, or is not for the caller
        queue = await reader.get("queues", gang.queue)
    return Explanation(gang, line, queue, time.time())  # noqa: TID251  # a person asks now


async def waiting(reader: Reader, namespace: str | None = None) -> list[Json] | None:
    """All TrainingJobs and PodGroups; None where the caller may not list them."""
    found: list[Json] = []
    for kind in names.GANG_KINDS:
        listed = await reader.objects_if_allowed(names.path(names.PLURALS[kind], namespace))
        if listed is None:
            return None
        found += [{"kind": kind, **manifest} for manifest in listed]
    return found
