"""How large one TrainingJob may be: read, or refused with the field, the number and the remedy."""

import tracemalloc
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.kube import envelopes, job_sizes, names, training_jobs, wire
from bireme.kube.cluster_state import ClusterState
from bireme.kube.mutations import Mutations
from bireme.kube.pod_builder import PodFactory, Rendezvous
from bireme.kube.training_jobs import JobFacts
from testbed.greedy_tenant import largest_job, largest_jobs, small_jobs
from testbed.objects.facts import a_job, a_plan, through_the_wire
from testbed.scenario.manifests import Manifest, pod_spec, task


def read(manifest: Manifest) -> JobFacts:
    return training_jobs.from_manifest(through_the_wire(manifest, wire.CustomObject))


def refusal(job: JobFacts) -> str:
    assert job.fault is not None
    reason, message = job.fault
    assert reason is Reason.TOO_LARGE
    assert job.tasks == ()  # so it is never placed
    return message


def test_a_spec_of_the_largest_size_is_read_and_one_byte_more_is_refused() -> None:
    fits = largest_job("job")
    assert len(msgspec.json.encode(fits["spec"])) == envelopes.MAX_SPEC_BYTES == 262144
    assert read(fits).fault is None
    message = refusal(read(largest_job("job", envelopes.MAX_SPEC_BYTES + 1)))
    assert "spec is 262145 bytes as JSON, more than the 262144" in message
    assert "images, ConfigMaps or volumes" in message


def test_templates_with_more_to_place_by_than_is_read_are_refused() -> None:
    message = refusal(read(largest_job("job", placing_bytes=job_sizes.MAX_PLACING_BYTES + 64)))
    assert message.startswith("spec.tasks[worker].template.spec has 655")
    assert "more than 65536; select nodes by labels" in message


def test_a_waiting_job_keeps_bytes_and_not_its_templates_as_objects() -> None:
    spec = pod_spec(1, unknown={"deep": [{"er": "x"}]})
    job = a_job(task(spec=spec))
    assert job.spec is not None
    assert "unknown" not in repr(job.spec)
    plan = a_plan(job)
    pod = PodFactory(job, plan).manifest(plan.members[0])
    assert pod["spec"]["unknown"] == {"deep": [{"er": "x"}]}


def tensorflow(replicas: int, **fields: Any) -> JobFacts:
    tasks = (task("chief"), task("worker", replicas), task("judge", 3, role="evaluator"))
    return a_job(*tasks, rendezvous="tensorflow", name="train", **fields)


@pytest.mark.parametrize("replicas", [1, 10, 11, 100, 999])
def test_the_size_of_tf_config_is_known_before_it_is_made(replicas: int) -> None:
    job = tensorflow(replicas)
    plan = a_plan(job)
    made = max(
        len(Rendezvous(job, plan).environment(member.task, member.index)["TF_CONFIG"])
        for member in plan.members
    )
    assert job.spec is not None
    shape = job_sizes._Shape(job.key, job.spec, (0, 0, 0))
    assert made <= shape.tf_config_bytes({}) <= made + 20


def test_addresses_that_no_program_could_start_with_are_refused_with_the_most_that_fit() -> None:
    message = refusal(tensorflow(5000))
    assert "spec.rendezvous tensorflow gives every pod" in message
    assert "a TF_CONFIG of 214008 bytes, more than the 98304" in message
    assert "at most 2309 replicas of task worker fit" in message
    most = 2309
    assert tensorflow(most).fault is None
    assert refusal(tensorflow(most + 1))


def test_torch_is_refused_nothing_at_any_number_of_replicas() -> None:
    job = a_job(task("master"), task("worker", 9999), rendezvous="torch")
    assert job.fault is None


def test_a_gang_whose_pods_would_fill_etcd_is_refused_with_the_most_that_fit() -> None:
    large = pod_spec(1, unknown="x" * 200_000)
    message = refusal(a_job(task("worker", 10_000, spec=large)))
    assert "all pods together are 1948 MiB, more than the 256 MiB" in message
    assert "at most 1314 replicas of task worker fit" in message
    assert a_job(task("worker", 1314, spec=large)).fault is None
    assert refusal(a_job(task("worker", 1315, spec=large)))


def bytes_for(jobs: Iterable[Manifest]) -> int:
    """Return the memory that a cache of jobs takes."""
    read = [through_the_wire(job, wire.CustomObject) for job in jobs]
    state = ClusterState(SchedulingSettings())
    tracemalloc.start()
    try:
        for job in read:
            state.objects.put_job((job.metadata.namespace, job.metadata.name), job)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_ten_jobs_of_the_largest_size_take_less_than_ten_mebibytes() -> None:
    assert bytes_for(largest_jobs(10)) < 10 * 1024**2


def test_a_thousand_small_jobs_take_less_than_eight_mebibytes() -> None:
    assert bytes_for(small_jobs(1000)) < 8 * 1024**2


def test_what_is_remembered_of_changed_pods_is_bounded_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bireme.kube.mutations._MAX_BYTES", 5 * envelopes.MAX_SPEC_BYTES)
    mutations = Mutations()
    jobs = [read(job) for job in largest_jobs(8)]
    for job in jobs:
        mutations.put_created(job, 0, (("cpu", 100_000),), {}, now=0.0)
    known = [job for job in jobs if not mutations.unknown(job, now=0.0)]
    assert known == jobs[-5:], "the oldest are forgotten"
    mutations.forget(known[0])
    assert mutations.unknown(known[0], now=0.0)


def test_an_annotation_that_waits_to_be_read_is_bounded_in_size() -> None:
    def waiting(value: str) -> bytes:
        metadata = {"name": "g", "annotations": {names.RESUMABLE: value, "theirs": "x"}}
        return envelopes.trim(msgspec.Raw(msgspec.json.encode({"metadata": metadata})))

    assert msgspec.json.decode(waiting("true"), type=wire.CustomObject).metadata.annotations == (
        wire.CustomAnnotations("true")
    )
    assert len(waiting("t" * 200_000)) < 300
