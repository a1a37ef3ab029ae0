"""``bireme cancel``: delete TrainingJobs that have not ended, and say what that ends.

The garbage collector deletes their pods. A job that has ended stays as a record of its run.
"""

import argparse
import sys
import time

from bireme.cli import cluster as common
from bireme.cli.arguments import Json, UsageError
from bireme.cli.cluster import ClusterReader, ConsoleError, ask, refusal
from bireme.cli.gangs import ENDED_PHASES, GangLine, line_of
from bireme.cli.named_jobs import PLURAL, live_job
from bireme.core.times import duration
from bireme.kube import names
from bireme.kube.client import ApiError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("job", nargs="*", metavar="JOB", help="names of TrainingJobs")
    add(
        "-l",
        "--selector",
        metavar="LABELS",
        help="instead of names: all jobs of the namespace with these labels that have not ended",
    )
    add("--dry-run", action="store_true", help="list the jobs, and delete nothing")
    common.add_target(parser)


def run(options: argparse.Namespace) -> int:
    if bool(options.job) == bool(options.selector):
        raise UsageError("argument JOB: name the jobs or choose them with -l, but not both")
    ask(options, lambda reader: _cancel(reader, options))
    return 0


async def _cancel(reader: ClusterReader, options: argparse.Namespace) -> None:
    manifests = await _jobs_to_cancel(reader, options)
    if not manifests:
        sys.stdout.write("No job that has not ended has these labels.\n")
    now = time.time()  # noqa: TID251  # a person asks now
    for manifest in manifests:
        gang = line_of(manifest)
        done = "would be cancelled" if options.dry_run else "cancelled"
        if not options.dry_run and not await _delete(reader, gang, manifest["metadata"]["uid"]):
            done = "was gone already"
        sys.stdout.write(f"TrainingJob {gang.key} {done}: {_what_ends(gang, now)}\n")


async def _jobs_to_cancel(reader: ClusterReader, options: argparse.Namespace) -> list[Json]:
    if options.job:
        return [await live_job(reader, name, "cancelled") for name in options.job]
    path = names.path(PLURAL, reader.namespace)
    listed = await reader.objects(path, labelSelector=options.selector)
    return [
        {**manifest, "kind": "TrainingJob"}
        for manifest in listed
        if (manifest.get("status") or {}).get("phase") not in ENDED_PHASES
    ]


async def _delete(reader: ClusterReader, gang: GangLine, uid: str) -> bool:
    """Delete the job as it was read; return False if it was gone."""
    try:
        path = names.path(PLURAL, gang.namespace, gang.name)
        return await reader.client.delete(path, uid=uid, propagation="Background")
    except ApiError as error:
        if error.is_conflict:
            raise ConsoleError(
                f"TrainingJob {gang.key} was created again meanwhile; repeat the command to "
                "cancel the new one"
            ) from error
        raise refusal(error, f"delete {PLURAL}") from error


def _what_ends(gang: GangLine, now: float) -> str:
    asks = f" of {gang.gpus} GPUs" if gang.gpus else ""
    if gang.waits or gang.phase == "Suspended" or gang.since is None:
        return f"{gang.phase}{asks}, {duration(gang.waiting_seconds(now))} waited"
    done = f", {gang.progress:.0f} % done" if gang.progress is not None else ""
    nodes = f" on {gang.nodes}" if gang.nodes else ""
    return f"{gang.phase}{asks} for {duration(max(0.0, now - gang.since))}{done}{nodes}"
