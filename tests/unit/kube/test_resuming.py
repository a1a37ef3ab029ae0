"""What says that a gang can resume: its owner, what it does, jobs like it, and at last others."""

from typing import Any

import pytest

from bireme.core.settings import SchedulingSettings
from bireme.kube import names
from bireme.kube.cluster_state import ClusterState
from bireme.kube.pod_groups import from_manifest as group_from_manifest
from bireme.kube.wire import CustomObject
from testbed.objects.facts import through_the_wire
from testbed.scenario.manifests import Manifest, pod_group, queue, task, training_job

REPORT = {"reportedTime": "2030-01-01T00:00:00Z", "checkpointStep": 400}


def put(state: ClusterState, manifest: Manifest, status: Manifest | None = None) -> None:
    metadata = {"namespace": "default", "uid": f"{manifest['metadata']['name']}-uid"}
    manifest = {**manifest, "metadata": {**metadata, **manifest["metadata"], "generation": 1}}
    manifest["status"] = status or {}
    put = {"TrainingJob": state.objects.put_job, "Queue": state.tenancy.put_queue}[manifest["kind"]]
    name = manifest["metadata"]["name"]
    put(("default", name), through_the_wire(manifest, CustomObject))


def resumes(state: ClusterState, name: str = "job") -> tuple[bool, str]:
    found = state.objects.resume_of(state.objects.jobs["default", name])
    return found.is_resumable, found.source


def test_a_checkpoint_speaks_for_its_job_and_for_jobs_like_it() -> None:
    state = ClusterState(SchedulingSettings())
    put(state, training_job("job", task(gpus=1)))
    assert not resumes(state)[0]
    put(state, training_job("like", task(gpus=1)), {"progress": REPORT})
    put(state, training_job("other", task(gpus=2)))
    assert resumes(state, "like") == (True, "it has reported a checkpoint")
    assert resumes(state) == (True, "a job of its template has reported a checkpoint")
    assert not resumes(state, "other")[0]
    state.objects.delete_job(("default", "like"))
    assert resumes(state)[0], "the leader remembers"
    denied = training_job("job", task(gpus=1), runPolicy={"resumable": False})
    state = ClusterState(SchedulingSettings(assume_resumable=True))
    put(state, denied, {"progress": REPORT})
    assert resumes(state) == (False, "spec.runPolicy.resumable is false")


def test_the_next_queue_upwards_that_assumes_something_decides() -> None:
    state = ClusterState(SchedulingSettings())
    put(state, queue("default", parent="team"))
    put(state, queue("team", assumeResumable=True))
    put(state, training_job("job", task(gpus=1)))
    assert resumes(state) == (True, "assumeResumable of queue team is true")
    put(state, queue("default", parent="team", assumeResumable=False))
    assert not resumes(state)[0]


def test_an_elastic_job_can_resume() -> None:
    state = ClusterState(SchedulingSettings())
    workers = task("worker", 2, gpus=1, minReplicas=1, maxReplicas=4)
    put(state, training_job("job", workers, rendezvous="torch"))
    assert resumes(state) == (True, "it is elastic")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, (False, "")), ("true", (True, "")), ("false", (False, "")), ("yes", (False, "yes"))],
)
def test_a_pod_group_says_so_by_an_annotation(
    value: str | None, expected: tuple[bool, str]
) -> None:
    given: dict[str, Any] = {} if value is None else {"annotations": {names.RESUMABLE: value}}
    manifest = pod_group("group", 1)
    metadata = {"namespace": "default", "uid": "u", **manifest["metadata"], **given}
    group = group_from_manifest(through_the_wire({**manifest, "metadata": metadata}, CustomObject))
    is_resumable, fault = expected
    assert (group.resumable == "true") is is_resumable
    assert bool(group.fault) is bool(fault)
    if group.fault:
        assert group.fault[1] == (
            "annotation bireme.dev/resumable is 'yes'; write true or false, or remove it"
        )
