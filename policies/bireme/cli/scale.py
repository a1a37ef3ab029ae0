"""``bireme scale``: change how many replicas an elastic TrainingJob asks for when it starts.

While a job holds places, the operator chooses its size between ``minReplicas`` and ``maxReplicas``,
and the API server refuses a change of the request. So only a job that waits or is suspended can be
scaled.
"""

import argparse
import sys
from functools import partial

import pydantic

from bireme.cli import cluster as common
from bireme.cli.arguments import Json, whole
from bireme.cli.cluster import ClusterReader, ConsoleError, ask, refusal
from bireme.cli.gangs import line_of
from bireme.cli.named_jobs import PLURAL, live_job
from bireme.kube import names
from bireme.kube.api.training_job import TrainingJobSpec
from bireme.kube.client import ApiError

_KEEPS_ITS_SHAPE = frozenset({"Starting", "Running", "Restarting"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help="the name of an elastic TrainingJob")
    parser.add_argument(
        "--replicas",
        type=partial(whole, minimum=1),
        required=True,
        metavar="N",
        help="replicas of its elastic task, from minReplicas to maxReplicas",
    )
    common.add_target(parser)


def run(options: argparse.Namespace) -> int:
    ask(options, lambda reader: _scale(reader, options.job, options.replicas))
    return 0


async def _scale(reader: ClusterReader, job: str, replicas: int) -> None:
    manifest = await live_job(reader, job, "scaled")
    about, key = manifest["metadata"], line_of(manifest).key
    index, min_replicas, max_replicas = _elastic_task(manifest, key)
    task = manifest["spec"]["tasks"][index]
    if not min_replicas <= replicas <= max_replicas:
        raise ConsoleError(
            f"argument --replicas: {replicas} is not from {min_replicas} to {max_replicas}, between"
            f" which task {task['name']} of {key} is elastic; change minReplicas or maxReplicas, or"
            " N"
        )
    phase = line_of(manifest).phase
    if phase in _KEEPS_ITS_SHAPE:
        raise ConsoleError(
            f"argument JOB: {key} is {phase}, and while it holds places Bireme chooses its size, "
            f"from {min_replicas} to {max_replicas}; to change its request: bireme suspend, "
            "scale, resume"
        )
    change = [
        # A job of the same name that was created since is another one.
        {"op": "test", "path": "/metadata/uid", "value": about["uid"]},
        {"op": "test", "path": f"/spec/tasks/{index}/name", "value": task["name"]},
        {"op": "replace", "path": f"/spec/tasks/{index}/replicas", "value": replicas},
    ]
    try:
        path = names.path(PLURAL, about["namespace"], about["name"])
        await reader.client.json_patch(path, change)
    except ApiError as error:
        raise refusal(error, f"patch {PLURAL}") from error
    sys.stdout.write(
        f"TrainingJob {key} asks for {replicas} replicas of task {task['name']}, instead of "
        f"{task['replicas']}\n"
    )


def _elastic_task(manifest: Json, key: str) -> tuple[int, int, int]:
    """Return the elastic task's index in ``spec.tasks``, and its minimum and maximum replicas."""
    try:
        spec = TrainingJobSpec.model_validate(manifest["spec"])
    except pydantic.ValidationError as error:
        raise ConsoleError(
            f"this bireme does not know all fields of {key}; use the version of the operator"
        ) from error
    if spec.is_elastic:
        for index, task in enumerate(spec.tasks):
            min_replicas, max_replicas = (
                task.min_replicas or task.replicas,
                task.max_replicas or task.replicas,
            )
            if min_replicas < max_replicas:
                return index, min_replicas, max_replicas
    raise ConsoleError(
        f"argument JOB: {key} is not elastic, so its size is fixed; with rendezvous: torch and"
        " minReplicas below maxReplicas in its task of role worker it would be (docs/elastic.md)"
    )
