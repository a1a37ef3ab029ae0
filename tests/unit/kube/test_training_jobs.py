"""TrainingJobs to facts and gangs, whatever the object holds."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import AffinityMode, Role
from bireme.core.reasons import Reason
from bireme.kube import plans, quantities, training_jobs, wire
from bireme.kube.training_jobs import JobFacts
from testbed.objects.facts import CREATED, a_job, a_plan, served, through_the_wire
from testbed.scenario.manifests import GPU, pod_spec, task, training_job


def test_a_job_becomes_a_gang_with_everything_that_decides() -> None:
    job = a_job(
        task("ps", spec=pod_spec(0, cpu="2")),
        task("worker", 4, minReplicas=2, priority=7, gpus=2),
        queue="research",
        minAvailable=4,
        roleAffinity={"mode": "Required", "topologyKey": "rack"},
    )
    gang = job.gang(500)
    assert (gang.uid, gang.name, gang.namespace) == ("job-uid", "job", "default")
    assert (gang.queue, gang.priority, gang.min_available) == ("research", 500, 4)
    assert (gang.role_affinity.mode, gang.role_affinity.topology_key) == (
        AffinityMode.REQUIRED,
        "rack",
    )
    servers, workers = gang.tasks
    assert (servers.role, servers.priority, servers.minimum) == (Role.PS, 90, 1)
    assert (workers.replicas, workers.minimum, workers.priority) == (4, 2, 7)
    assert dict(workers.request) == {"cpu": 1000, GPU: 2, "pods": 1}
    assert (gang.arrived, gang.fault, gang.interrupted) == (CREATED, None, False)


def test_the_least_that_starts_is_the_fewest_replicas_unless_the_job_says_otherwise() -> None:
    tasks = task("ps"), task("worker", 6, minReplicas=3, maxReplicas=9)
    assert a_job(*tasks).gang(0).at_minimum.replicas == 4
    assert a_job(*tasks, minAvailable=6).gang(0).at_minimum.replicas == 6


def test_what_a_job_says_of_its_run_reaches_the_core() -> None:
    run = {"minRuntimeSeconds": 600}
    gang = a_job(task("worker"), estimatedDuration="1h30m", runPolicy=run).gang(0)
    assert (gang.estimated_seconds, gang.min_runtime_seconds) == (5400.0, 600)
    silent = a_job(task("worker")).gang(0, may_preempt=False)
    assert (silent.estimated_seconds, silent.min_runtime_seconds) == (None, None)
    assert (gang.may_preempt, silent.may_preempt) == (True, False)


WIDER: dict[str, Any] = {"minReplicas": 2, "maxReplicas": 6}


@pytest.mark.parametrize(
    ("rendezvous", "tasks", "is_elastic"),
    [
        pytest.param("torch", [task("worker", 4, **WIDER)], True, id="workers"),
        pytest.param("torch", [task("master"), task("worker", 4, **WIDER)], True, id="and-master"),
        pytest.param("torch", [task("worker", 4, minReplicas=2)], True, id="shrinks-only"),
        pytest.param("torch", [task("worker", 4)], False, id="of-one-size"),
        pytest.param(
            "torch",
            [task("worker", 4, **WIDER), task("more", 4, role="worker", **WIDER)],
            False,
            id="two-elastic-tasks",
        ),
        pytest.param("tensorflow", [task("worker", 4, **WIDER)], False, id="tensorflow"),
        pytest.param("none", [task("worker", 4, **WIDER)], False, id="no-rendezvous"),
    ],
)
def test_only_torch_jobs_with_one_elastic_task_of_workers_change_size_while_they_run(
    rendezvous: str, tasks: list[Any], is_elastic: bool
) -> None:
    gang = a_job(*tasks, rendezvous=rendezvous).gang(0)
    assert gang.is_elastic is is_elastic
    assert [t.maximum for t in gang.tasks] == [t.get("maxReplicas", t["replicas"]) for t in tasks]


def test_a_job_that_waited_before_keeps_the_time_it_waited() -> None:
    queued = quantities.format_timestamp(CREATED + 500)
    job = a_job(status={"phase": "Restarting", "queuedTime": queued, "waitSeconds": 40})
    gang = job.gang(0)
    assert gang.arrived == CREATED + 460
    assert gang.interrupted


@pytest.mark.parametrize(
    ("phase", "why", "is_displaced"),
    [
        ("Restarting", "NodeLost", True),
        ("Restarting", "PodLost", False),
        ("Restarting", "Preempted", False),
        ("Starting", "NodeLost", False),
    ],
)
def test_a_job_that_lost_a_node_owns_the_hole_until_it_is_placed_again(
    phase: str, why: str, is_displaced: bool
) -> None:
    running = {"type": "Running", "status": "False", "reason": why}
    waits = {"type": "Admitted", "status": "False", "reason": "WaitingForCapacity"}
    job = a_job(status={"phase": phase, "conditions": [waits, running]})
    assert job.gang(0).displaced is is_displaced


def test_a_verdict_of_the_spec_wins_over_one_from_outside() -> None:
    given_fault = (Reason.PRIORITY_CLASS_NOT_FOUND, "no class")
    assert a_job().gang(0, given_fault).fault == given_fault
    broken = a_job(task(replicas=0)).gang(0, given_fault)
    assert broken.fault is not None
    assert broken.fault[0] is Reason.SPEC_INVALID


def fault(job: JobFacts) -> tuple[Reason, str]:
    assert job.fault is not None
    assert job.tasks == ()
    assert job.gang(0).fault == job.fault
    return job.fault


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"tasks": []}, ["spec.tasks", "[]"]),
        ({"tasks": [task(replicas=0)]}, ["spec.tasks.0.replicas", "is 0"]),
        ({"tasks": [task(replicas=10**9)]}, ["spec.tasks.0.replicas", "1000000000"]),
        ({"tasks": [task(role="boss")]}, ["spec.tasks.0.role", "'boss'"]),
        ({"tasks": [task()], "queue": "NO\x00"}, ["spec.queue", r"\x00"]),
        ({"tasks": "many"}, ["spec.tasks", "'many'"]),
        ({}, ["spec.tasks", "Field required"]),
        ({"tasks": [1, {}]}, ["spec.tasks.0", "more)"]),
        (
            {"tasks": [task()], "estimatedDuration": "soon"},
            ["spec.estimatedDuration", "'soon' is no duration above zero", "2h30m"],
        ),
    ],
)
def test_a_spec_nobody_can_read_names_the_field_and_the_value(
    spec: dict[str, Any], words: list[str]
) -> None:
    manifest = {"metadata": {"name": "job", "uid": "u"}, "spec": spec}
    job = training_jobs.from_manifest(through_the_wire(manifest, wire.CustomObject))
    reason, message = fault(job)
    assert reason is Reason.SPEC_INVALID
    for word in words:
        assert word in message
    assert message.isascii()
    assert message.isprintable()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (pod_spec(1, restartPolicy="Always"), ["restartPolicy", "use Never or OnFailure"]),
        (pod_spec(1, nodeSelector=["a"]), ["nodeSelector", "array"]),
        (pod_spec(1, tolerations={"a": "b"}), ["tolerations"]),
        (pod_spec(1, overhead={"cpu": "many"}), ["cpu", "'many'"]),
        (pod_spec(1, affinity={"nodeAffinity": []}), ["nodeAffinity"]),
        (
            pod_spec(
                1,
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "a", "operator": "Near"}]}
                            ]
                        }
                    }
                },
            ),
            ["Near"],
        ),
    ],
)
def test_a_template_no_pod_can_have_names_its_task_and_the_problem(
    spec: dict[str, Any], words: list[str]
) -> None:
    reason, message = fault(a_job(task("trainer", role="worker", spec=spec)))
    assert reason is Reason.TEMPLATE_INVALID
    assert message.startswith("spec.tasks[trainer].template.spec")
    for word in words:
        assert word in message
    assert len(message) <= 512


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                (
                    "tasks",
                    "name",
                    "role",
                    "replicas",
                    "template",
                    "spec",
                    "containers",
                    "queue",
                    "x",
                )
            )
            | st.text(max_size=5),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(spec=st.dictionaries(st.sampled_from(("tasks", "queue", "minAvailable")), JSON))
def test_no_spec_whatsoever_raises(spec: dict[str, Any]) -> None:
    manifest = {"metadata": {"name": "job"}, "spec": spec}
    job = training_jobs.from_manifest(
        wire.CustomObject(metadata=wire.CustomMeta(name="job"), spec=raw(spec))
    )
    assert (job.fault is None) == bool(job.tasks), manifest
    assert job.gang(0).name == "job"
    assert len(job.spec_hash) == 16


@given(template=JSON)
def test_no_template_whatsoever_raises(template: Any) -> None:
    given_task = {"name": "w", "role": "worker", "replicas": 1, "template": template}
    named = wire.CustomMeta(name="job")
    custom = wire.CustomObject(metadata=named, spec=raw({"tasks": [given_task]}))
    job = training_jobs.from_manifest(custom)
    assert (job.fault is None) == bool(job.tasks)


def test_the_digest_changes_with_the_tasks_and_with_nothing_else() -> None:
    job = a_job(task("worker", 2))
    same = a_job(task("worker", 2), queue="other", status={"phase": "Running"})
    assert job.spec_hash == same.spec_hash
    assert job.spec_hash != a_job(task("worker", 3)).spec_hash


def test_a_status_that_is_missing_means_a_fresh_job() -> None:
    job = a_job()
    assert (job.phase, job.attempt, job.wait.earlier_seconds, job.is_finished) == (
        "Pending",
        0,
        0.0,
        False,
    )
    assert job.queue_time == CREATED
    assert a_job(status={"queuedTime": "rubbish"}).queue_time == CREATED


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:10Z", 10.0),
        ("1970-01-01T00:00:10.500000Z", 10.5),
        ("1970-01-01T01:00:10+01:00", 10.0),
        ("", None),
        (None, None),
        ("soon", None),
    ],
)
def test_times_are_read_in_every_form_kubernetes_writes(
    text: str | None, seconds: float | None
) -> None:
    assert quantities.parse_timestamp(text) == seconds


def test_times_are_written_as_kubernetes_does() -> None:
    assert quantities.format_timestamp(0.9) == "1970-01-01T00:00:00Z"


# --- versions of one object -------------------------------------------------------------------


def version(
    before: JobFacts | None, replicas: int, generation: int, uid: str = "job-uid", **status: Any
) -> JobFacts:
    """The facts of a job of ``replicas`` workers, read after those of its last version."""
    made = training_job("job", task("worker", replicas))
    manifest = {**served(made, uid, generation=generation), "status": status}
    return training_jobs.from_manifest(through_the_wire(manifest, wire.CustomObject), (), before)


def test_a_spec_that_has_not_changed_is_not_read_again() -> None:
    first = version(None, 2, 1)
    known = (first.spec, first.tasks, first.templates, first.spec_hash, first.template)
    plan = plans.to_manifest(a_plan(first))
    second = version(first, 2, 1, phase="Starting", plan=plan)
    again = (second.spec, second.tasks, second.templates, second.spec_hash, second.template)
    assert all(now is before for now, before in zip(again, known, strict=True))
    assert (second.phase, second.plan) == ("Starting", a_plan(first))
    third = version(second, 2, 1, phase="Running", plan=plan, ready="2/2")
    assert third.plan is second.plan
    assert (third.phase, third.status["ready"]) == ("Running", "2/2")
    assert version(third, 2, 1, phase="Pending").plan is None


def test_an_edited_spec_and_a_new_job_of_the_same_name_are_read_anew() -> None:
    first = version(None, 2, 1)
    hashed = first.spec_hash
    edited = version(first, 3, 2)
    assert [t.replicas for t in edited.tasks] == [3]
    assert edited.spec_hash != hashed
    renewed = version(edited, 4, 2, uid="next-uid")
    assert (renewed.uid, [t.replicas for t in renewed.tasks]) == ("next-uid", [4])
