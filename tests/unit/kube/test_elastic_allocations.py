"""Elastic gangs as the core sees them: when they may be resized, and what they have given up."""

import math
from dataclasses import replace
from typing import Any

import pytest

from bireme.core.running import RunningGang
from bireme.kube import plans, quantities
from bireme.kube.plans import PlanFacts
from testbed.objects.cluster_state import ClusterStateFeed
from testbed.objects.facts import CREATED, a_job, a_plan, pod_manifest
from testbed.scenario.manifests import GPU, task

WORKERS = task("worker", 3, minReplicas=1, maxReplicas=6, gpus=2)
JOB = a_job(WORKERS, rendezvous="torch")
PLAN = a_plan(JOB, ("n0", "n1"))
SHRUNK = plans.without_members(PLAN, PLAN.members[2:], CREATED + 5)
LEAVING = {"deletionTimestamp": quantities.format_timestamp(CREATED)}


def cluster(plan: PlanFacts = PLAN, phase: str = "Running") -> ClusterStateFeed:
    made = ClusterStateFeed()
    made.job(WORKERS, plan=plan, rendezvous="torch", status={"phase": phase})
    return made


def pod(index: int, phase: str = "Running", **options: Any) -> dict[str, Any]:
    return pod_manifest(JOB, PLAN, PLAN.members[index], phase, **options)


def running(made: ClusterStateFeed) -> dict[str, RunningGang]:
    return {running.gang.uid: running for running in made.snapshot().running}


def test_a_running_elastic_gang_with_all_its_replicas_may_be_resized() -> None:
    made = cluster()
    for index in range(3):
        made.member(pod(index))
    (gang,) = running(made).values()
    assert gang.gang.is_elastic
    assert gang.resized == -math.inf


@pytest.mark.parametrize(
    "last",
    [None, pod(2, "Pending", node=""), pod(2, "Succeeded"), pod(2, **LEAVING)],
    ids=["missing", "unbound", "ended", "leaving"],
)
def test_a_gang_in_which_somebody_comes_or_goes_keeps_its_size(last: dict[str, Any] | None) -> None:
    made = cluster()
    for manifest in (pod(0), pod(1), last):
        if manifest is not None:
            made.member(manifest)
    assert not running(made)["job-uid"].gang.is_elastic


@pytest.mark.parametrize("phase", ["Starting", "Restarting"])
def test_a_gang_that_does_not_run_yet_keeps_its_size(phase: str) -> None:
    made = cluster(phase=phase)
    for index in range(3):
        made.member(pod(index))
    assert not running(made)["job-uid"].gang.is_elastic


def test_a_gang_whose_template_was_edited_keeps_its_size() -> None:
    made = cluster(replace(PLAN, spec_hash="another"))
    for index in range(3):
        made.member(pod(index))
    assert not running(made)["job-uid"].gang.is_elastic


def test_what_a_gang_gave_up_counts_as_leaving_until_it_is_gone() -> None:
    made = cluster(SHRUNK)
    for index in range(3):
        made.member(pod(index, **(LEAVING if index == 2 else {})))
    known = running(made)
    assert known["job-uid"].sizes == {"worker": 2}
    assert known["job-uid"].resized == CREATED + 5
    left = known["job-uid/leaving"]
    assert (left.sizes, left.is_leaving, left.gang.is_elastic) == ({"worker": 1}, True, False)
    assert made.gpus() == [4, 2]
    assert made.snapshot().queue_usage["default"][GPU] == 6
    made.gone(pod(2))
    assert set(running(made)) == {"job-uid"}
    assert made.gpus() == [2, 2]
    assert made.snapshot().queue_usage["default"][GPU] == 4


def test_a_gang_shrinks_again_only_when_the_last_shrink_is_over() -> None:
    made = cluster(SHRUNK)
    for index in range(3):
        made.member(pod(index))
    assert not running(made)["job-uid"].gang.is_elastic
    made.gone(pod(2))
    assert running(made)["job-uid"].gang.is_elastic
