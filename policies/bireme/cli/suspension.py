"""``bireme suspend`` and ``bireme resume``: take the places of jobs away, and let them start again.

Both write ``spec.runPolicy.suspend`` of TrainingJobs, with the caller's own right to patch them.
"""

import argparse
import sys
from collections.abc import Sequence

from bireme.cli import cluster as common
from bireme.cli.cluster import ClusterReader, ask, refusal
from bireme.cli.named_jobs import PLURAL, live_job
from bireme.kube import names
from bireme.kube.client import ApiError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="+", metavar="JOB", help="names of TrainingJobs")
    common.add_target(parser)


def run(options: argparse.Namespace) -> int:
    suspends = options.asked == "suspend"
    ask(options, lambda reader: _change(reader, options.job, suspends=suspends))
    return 0


async def _change(reader: ClusterReader, jobs: Sequence[str], *, suspends: bool) -> None:
    """Suspend or resume all jobs, or none if one is missing or has ended."""
    done = "suspended" if suspends else "resumed"
    manifests = [await live_job(reader, name, done) for name in jobs]
    for manifest in manifests:
        about = manifest["metadata"]
        key = f"{about['namespace']}/{about['name']}"
        policy = (manifest.get("spec") or {}).get("runPolicy") or {}
        if bool(policy.get("suspend")) == suspends:
            state = "suspended already" if suspends else "not suspended"
            sys.stdout.write(f"TrainingJob {key} is {state}\n")
            continue
        path = names.path(PLURAL, about["namespace"], about["name"])
        change = {
            # A job of the same name that was created since is another one.
            "metadata": {"uid": about["uid"]},
            "spec": {"runPolicy": {"suspend": suspends}},
        }
        try:
            await reader.client.merge_patch(path, change)
        except ApiError as error:
            raise refusal(error, f"patch {PLURAL}") from error
        sys.stdout.write(f"TrainingJob {key} {done}; see: bireme why {about['name']}\n")
