"""TrainingJobs that a command changes, by name: each must exist and must not have ended.

A command reads all of them before it changes the first, so that a wrong name changes none.
"""

from bireme.cli.arguments import Json
from bireme.cli.cluster import ClusterReader, ConsoleError
from bireme.cli.gangs import ENDED_PHASES, line_of
from bireme.kube import names

PLURAL = names.PLURALS["TrainingJob"]


async def live_job(reader: ClusterReader, argument: str, done: str) -> Json:
    """Return the manifest of the job; ``done`` names the action, as a participle, in errors.

    Raises:
        ConsoleError: the job does not exist, is of another kind, or has ended.
    """
    kind, _, name = argument.rpartition("/")
    if kind.lower() not in ("", "trainingjob", PLURAL, names.SHORT_NAMES["TrainingJob"]):
        raise ConsoleError(
            f"argument JOB: {argument!a} is no TrainingJob, and only TrainingJobs can be {done}; "
            "for others use their own controller"
        )
    manifest = {**await reader.get(PLURAL, name, reader.namespace), "kind": "TrainingJob"}
    gang = line_of(manifest)
    if gang.phase in ENDED_PHASES:
        raise ConsoleError(
            f"argument JOB: {gang.key} has ended ({gang.phase}), so it cannot be {done}; create "
            "it again to run it again"
        )
    return manifest
