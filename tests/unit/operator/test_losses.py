"""What is lost where a gang that runs is stopped."""

from typing import Any

import pytest

from bireme.core.gpus import GPU
from bireme.core.nodes import NodeTable
from bireme.core.usage import Holder, Use
from bireme.kube import quantities
from bireme.testing import a_node
from bireme_operator.losses import lost_device_seconds
from testbed.objects.facts import CREATED, a_job, a_plan, a_view, running
from testbed.scenario.manifests import task

POOL = "bireme.dev/node-pool"


def stamp(after_seconds: float) -> str:
    return quantities.format_timestamp(CREATED + after_seconds)


def a_status(*, runs_after: float | None, reported_after: float | None = None) -> dict[str, Any]:
    """The status of a job by when it began to run and last reported, in seconds from CREATED on."""
    runs = {"type": "Running", "status": "True", "lastTransitionTime": stamp(runs_after or 0)}
    stopped = {**runs, "status": "False"}
    status: dict[str, Any] = {"conditions": [stopped if runs_after is None else runs]}
    if reported_after is not None:
        status["progress"] = {"reportedTime": stamp(reported_after), "step": 7}
    return status


@pytest.mark.parametrize(
    ("status", "seconds"),
    [
        (a_status(runs_after=100), 900.0),
        (a_status(runs_after=100, reported_after=940), 60.0),
        # Of the run before.
        (a_status(runs_after=100, reported_after=40), 900.0),
        (a_status(runs_after=None), 990.0),
    ],
    ids=["never reported", "reported", "not since it started again", "unknown when it ran"],
)
def test_what_came_after_the_last_report_of_the_run_is_lost(
    status: dict[str, Any], seconds: float
) -> None:
    job = a_job(task("worker", 3), status=status)
    plan = a_plan(job, ("n0", "n1", "gone"), planned=CREATED + 10)
    nodes = NodeTable([a_node("n0", labels={POOL: "train"}), a_node("n1")], ())
    view = a_view(job, plan, running(job, plan))
    lost = lost_device_seconds(job, status, view, nodes, POOL, CREATED + 1000)
    gpus = dict(job.tasks[0].request)[GPU]
    train, other = (Holder(GPU, "default", "default", p, Use.RUNNING) for p in ("train", ""))
    assert lost == {train: gpus * seconds, other: 2 * gpus * seconds}


def test_a_replica_that_has_succeeded_has_given_its_devices_back() -> None:
    status = a_status(runs_after=0)
    job = a_job(task("worker", 2), status=status)
    plan = a_plan(job, ("n0",))
    view = a_view(job, plan, running(job, plan, worker_0="Succeeded"))
    lost = lost_device_seconds(
        job, a_status(runs_after=0), view, NodeTable([], ()), POOL, CREATED + 10
    )
    assert list(lost.values()) == [10.0 * dict(job.tasks[0].request)[GPU]]
