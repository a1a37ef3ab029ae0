"""Run times learned from finished jobs: whose runs count, once each, and what is alike."""

import copy
import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.estimates import MIN_RUNS
from bireme.kube import quantities
from bireme.kube.run_times import RunTimes, run_seconds
from bireme.kube.training_jobs import JobFacts
from testbed.objects.cluster_state import PLAN, ClusterStateFeed
from testbed.objects.facts import CREATED, a_job, gated_pod
from testbed.scenario.manifests import GPU, Manifest, annotations, pod_spec, task

HOUR = 3600.0


def times(
    admitted: float | None = 0.0, started: float | None = 5.0, ended: float = HOUR
) -> Manifest:
    """The times of a status, in seconds after the creation of the job."""
    given = {"admittedTime": admitted, "startTime": started, "completionTime": ended}
    return {k: quantities.format_timestamp(CREATED + v) for k, v in given.items() if v is not None}


def finished(
    name: str = "job", phase: str = "Succeeded", namespace: str = "default", **of: Any
) -> JobFacts:
    where = {"namespace": namespace}
    return a_job(name=name, status={"phase": phase, **times(**of)}, metadata=where)


def taught(jobs: Iterable[JobFacts]) -> RunTimes:
    run_times = RunTimes()
    run_times.learn(jobs)
    return run_times


def a_few(**of: Any) -> list[JobFacts]:
    return [finished(f"j{index}", **of) for index in range(MIN_RUNS)]


# --- whose runs count -------------------------------------------------------------------------


def test_a_run_lasts_from_admission_to_the_end() -> None:
    assert run_seconds(finished(admitted=10.0, started=10.0, ended=70.0)) == 60.0


def test_a_run_that_ended_before_anybody_saw_it_run_counts() -> None:
    assert run_seconds(finished(started=None)) == HOUR


def test_a_run_that_ended_in_the_second_it_began_took_a_second() -> None:
    assert run_seconds(finished(started=0.0, ended=0.0)) == 1.0


@pytest.mark.parametrize("phase", ["Failed", "Running", "Pending", "Suspended"])
def test_only_success_teaches(phase: str) -> None:
    assert run_seconds(finished(phase=phase)) is None


@pytest.mark.parametrize("why", ["restarts", "interruptions", "preemptions", "suspend"])
def test_the_last_run_of_a_job_that_ran_before_is_no_run_time(why: str) -> None:
    counted = {} if why == "suspend" else {why: 1, "attempt": 1}
    status = {"phase": "Succeeded", **times(admitted=900.0, started=5.0), **counted}
    assert run_seconds(a_job(status=status)) is None


def test_a_gang_that_first_ran_in_its_second_start_teaches() -> None:
    """It was not bound in time before, say, so that the whole run lies in the last start."""
    status = {"phase": "Succeeded", "attempt": 1, **times(admitted=900.0, started=905.0)}
    assert run_seconds(a_job(status=status)) == HOUR - 900


def test_a_job_whose_status_somebody_emptied_teaches_nothing() -> None:
    assert run_seconds(a_job(status={"phase": "Succeeded"})) is None


def test_a_finished_job_that_cannot_be_read_teaches_nothing() -> None:
    broken = a_job(task(replicas=0), status={"phase": "Succeeded", **times()})
    assert run_seconds(broken) is None
    assert taught([broken] * MIN_RUNS).of_job(broken) is None


# --- once each ----------------------------------------------------------------------------------


def test_a_job_is_learned_from_once_however_often_it_is_seen() -> None:
    run_times = taught(a_few()[1:])
    for _ in range(3):
        run_times.learn(a_few()[1:])
    assert run_times.of_job(a_job()) is None, "one too few to say anything"
    run_times.learn(a_few())
    assert run_times.of_job(a_job()) == HOUR


def test_jobs_that_are_gone_are_no_longer_kept_in_mind_but_what_they_taught_is() -> None:
    run_times = taught(a_few())
    run_times.forget(set())
    assert run_times.of_job(a_job()) == HOUR


@given(st.permutations(range(100)))
def test_those_that_ended_last_count_whatever_the_order_in_which_they_are_listed(
    order: list[int],
) -> None:
    """The history keeps the last 64; the first 36 took a day."""
    jobs = []
    for number in range(100):
        seconds, ended = HOUR if number >= 36 else 24 * HOUR, 200_000.0 + number
        jobs.append(finished(f"j{number}", admitted=ended - seconds, started=None, ended=ended))
    assert taught(jobs[at] for at in order).of_job(a_job()) == HOUR


# --- estimates of jobs ------------------------------------------------------------------------


def test_the_word_of_the_owner_counts_for_more() -> None:
    assert taught(a_few()).of_job(a_job(estimatedDuration="5m")) is None
    gang = a_job(estimatedDuration="5m").gang(0, learned_seconds=HOUR)
    assert (gang.estimated_seconds, gang.is_learned_estimate) == (300.0, False)
    gang = a_job().gang(0, learned_seconds=HOUR)
    assert (gang.estimated_seconds, gang.is_learned_estimate) == (HOUR, True)


def test_like_runs_of_the_same_namespace_weigh_more_than_those_of_others() -> None:
    run_times = taught(a_few(ended=100 * HOUR))
    mine = [finished(f"m{n}", namespace="mine") for n in range(30)]
    run_times.learn(mine)
    other = run_times.of_job(a_job())
    assert other is not None
    expected = run_times.of_job(mine[0])
    assert expected is not None
    assert expected < other


@pytest.mark.parametrize(
    ("policies", "seconds"),
    [
        pytest.param(("Never", "OnFailure"), HOUR, id="end"),
        pytest.param(("Never", "Always"), None, id="one-goes-on"),
        pytest.param((None,), None, id="the-default-goes-on"),
    ],
)
def test_pods_of_others_are_judged_by_their_namespace_if_they_end_by_themselves(
    policies: tuple[str | None, ...], seconds: float | None
) -> None:
    cluster = ClusterStateFeed()
    cluster.state.run_times.learn(a_few())
    cluster.group()
    for number, policy in enumerate(policies):
        fields: Manifest = {} if policy is None else {"restartPolicy": policy}
        cluster.member(gated_pod(f"p{number}", **fields))
    (gang,) = cluster.waiting()
    assert (gang.kind, gang.user, gang.estimated_seconds) == ("PodGroup", "default", seconds)
    assert gang.is_learned_estimate is (seconds is not None)


def test_gangs_that_run_are_judged_too() -> None:
    cluster = ClusterStateFeed()
    cluster.job(plan=PLAN, status={"phase": "Running"})
    assert [r.gang.estimated_seconds for r in cluster.snapshot().running] == [None]
    cluster.state.run_times.learn(a_few())
    assert [r.gang.estimated_seconds for r in cluster.snapshot().running] == [HOUR]


# --- what is alike ----------------------------------------------------------------------------


def a_spec(**fields: Any) -> Manifest:
    container = {
        "name": "train",
        "image": "trainer:1",
        "command": ["train"],
        "args": ["--epochs", "3"],
        "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {GPU: "1"}},
    }
    return pod_spec(containers=[{**container, **fields}])


def template(worker: Manifest | None = None, **task_fields: Any) -> str:
    return a_job(task("worker", 2, spec=worker or a_spec(), **task_fields)).template


WORDS = st.dictionaries(st.sampled_from("abc"), st.text("xyz", max_size=3), max_size=2)


@given(
    name=st.sampled_from(("job", "run-17", "other")),
    marks=WORDS,
    environment=WORDS,
    queue=st.sampled_from(("default", "research")),
    duration=st.sampled_from((None, "2h")),
    selector=WORDS,
    cpu=st.sampled_from(("2", "2000m", 2)),
    memory=st.sampled_from(("1Gi", "1024Mi", "1073741824")),
    seed=st.integers(0, 100),
)
def test_who_submits_the_same_again_under_other_names_has_the_same_template(
    name: str,
    marks: dict[str, str],
    environment: dict[str, str],
    queue: str,
    duration: str | None,
    selector: dict[str, str],
    cpu: str | int,
    memory: str,
    seed: int,
) -> None:
    spec = a_spec(
        name=f"c-{name}",
        env=[{"name": key, "value": value} for key, value in environment.items()],
        resources={"requests": {"memory": memory, "cpu": cpu}, "limits": {GPU: "1"}},
    )
    spec = shuffled({**spec, "nodeSelector": selector}, random.Random(seed))  # noqa: S311
    wanted = task(f"w{seed}", 2, role="worker", spec=spec, fake=annotations("5s"), priority=seed)
    metadata = {"labels": marks, "annotations": marks}
    duration_field: Manifest = {} if duration is None else {"estimatedDuration": duration}
    job = a_job(wanted, name=name, metadata=metadata, queue=queue, **duration_field)
    assert job.fault is None
    assert job.template == template()


def shuffled(given: Any, chance: random.Random) -> Any:
    """``given`` with the keys of every object in another order."""
    if isinstance(given, list):
        return [shuffled(item, chance) for item in given]
    if not isinstance(given, dict):
        return given
    keys = list(given)
    chance.shuffle(keys)
    return {key: shuffled(given[key], chance) for key in keys}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(template(a_spec(image="trainer:2")), id="image"),
        pytest.param(template(a_spec(command=["train", "more"])), id="command"),
        pytest.param(template(a_spec(args=["--epochs", "4"])), id="args"),
        pytest.param(template(a_spec(args=["--epochs 3"])), id="args-joined"),
        pytest.param(template(a_spec(resources={"limits": {GPU: "2"}})), id="resources"),
        pytest.param(a_job(task("worker", 3, spec=a_spec())).template, id="replicas"),
        pytest.param(a_job(task("w", 2, role="ps", spec=a_spec())).template, id="role"),
        pytest.param(template({**a_spec(), "initContainers": a_spec()["containers"]}), id="init"),
        pytest.param(
            a_job(*(task(f"w{n}", role="worker", spec=a_spec()) for n in "12")).template, id="tasks"
        ),
    ],
)
def test_who_runs_something_else_has_another_template(other: str) -> None:
    assert other != template()


def test_a_template_is_read_and_not_changed() -> None:
    job = a_job(task("worker", 2, spec=a_spec()))
    before = copy.deepcopy(job.templates)
    assert len(job.template) == 16
    assert job.templates == before
