"""TrainingJobs that a command changes, by name: each must be there and must not have ended.

A command reads all of them before it changes the first, so that it changes all or none where one of
the names is wrong.
"""

from bireme.cli.arguments import Json
from bireme.cli.cluster import ConsoleError, Reader
from bireme.cli.gangs import ENDED, line_of
from bireme.kube import names

PLURAL = names.PLURALS["TrainingJob"]


async def live_job(reader: Reader, argument: str, done: str) -> Json:
    """Return the manifest of the job; ``done`` says in errors what cannot be done with another.

    Raises:
        ConsoleError: there is none, it is of another kind, or it has ended.
    """
    kind, _, name = argument.rpartition("/")
    if kind.lower() not in ("", "trainingjob", PLURAL, names.SHORT_NAMES["TrainingJob"]):
        raise ConsoleError(
            f"argument JOB: {argument!a} is no TrainingJob, which alone can be {done}; for others"
            " ask their own controller"
        )
    manifest = {**await reader.get(PLURAL, name, reader.namespace), "kind": "TrainingJob"}
    gang = line_of(manifest)
    if gang.phase in ENDED:
        raise ConsoleError(
            f"argument JOB: {gang.key} has ended ({gang.phase}), so it cannot be {done}; create it"
            " anew to run it again"
        )
    return manifest
