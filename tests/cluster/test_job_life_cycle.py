"""Promises of a job's run policy: retries, time limits, cleaning up, pausing, deletion."""

from collections.abc import Iterator

import pytest

from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import Manifest, annotations, task, torch_job, training_job
from testbed.scenario.tenant import Tenant, uids_of
from testbed.scenario.waiting import always

pytestmark = [pytest.mark.cluster, pytest.mark.embedded]

SHORT = annotations(duration="1s")
SUSPEND = {"spec": {"runPolicy": {"suspend": True}}}
RESUME = {"spec": {"runPolicy": {"suspend": False}}}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with gpu_stack("life", tmp_path_factory.mktemp("stack")) as stack:
        yield stack


def test_gang_that_fails_once_is_restarted_whole_and_succeeds(tenant: Tenant) -> None:
    def of_attempt(number: str) -> list[Manifest]:
        pods = tenant.pods("retried")
        return [p for p in pods if p["metadata"]["labels"]["bireme.dev/attempt"] == number]

    # Three seconds: the first attempt must still be there when a slow machine looks.
    fake = annotations(duration="3s", fail_attempts="0")
    tenant.create(torch_job("retried", workers=2, fake=fake))
    found = tenant.eventually(lambda: of_attempt("0"), lambda pods: len(pods) == 3)
    first = uids_of(found)
    done = tenant.await_phase("retried", "Succeeded")
    assert (done["restarts"], done["attempt"], done.get("interruptions", 0)) == (1, 1, 0)
    last = of_attempt("1")
    assert len(last) == len(tenant.pods("retried")) == 3
    assert set(first.values()).isdisjoint(uids_of(last).values())


def test_gang_that_keeps_failing_stops_at_its_backoff_limit(tenant: Tenant) -> None:
    fake = annotations(duration="500ms", fail_attempts="0,1,2,3", fail_message="CUDA out of memory")
    tenant.create(training_job("hopeless", task(fake=fake), runPolicy={"backoffLimit": 1}))
    done = tenant.await_phase("hopeless", "Failed")
    assert (done["reason"], done["restarts"]) == ("BackoffLimitExceeded", 1)
    assert done["message"] == (
        "replica 0 of worker: container train exited with 1 (Error): CUDA out of memory; "
        "it was restarted 1 of at most 1 times (backoffLimit)"
    )
    conditions = {c["type"]: c["status"] for c in done["conditions"]}
    assert (conditions["Finished"], conditions["Succeeded"]) == ("True", "False")
    tenant.eventually(lambda: tenant.plan("hopeless"), lambda plan: plan is None)


def test_job_past_its_active_deadline_fails_and_gives_its_room_back(tenant: Tenant) -> None:
    limit = {"activeDeadlineSeconds": 2}
    tenant.create(training_job("slow", task(replicas=16), runPolicy=limit))
    done = tenant.await_phase("slow", "Failed")
    assert done["reason"] == "DeadlineExceeded"
    assert "activeDeadlineSeconds 2" in done["message"]
    tenant.create(training_job("next", task(replicas=16)))
    tenant.await_phase("next", "Running")


def test_finished_job_is_deleted_after_its_time_to_live(tenant: Tenant) -> None:
    # Six seconds: a slow machine must see it finished.
    policy = {"ttlSecondsAfterFinished": 6, "cleanPodPolicy": "None"}
    tenant.create(torch_job("brief", workers=1, fake=SHORT, runPolicy=policy))
    tenant.await_phase("brief", "Succeeded")
    assert len(tenant.pods("brief")) == 2
    tenant.await_gone("TrainingJob", "brief")
    tenant.await_gone("Service", "brief")
    tenant.eventually(lambda: tenant.pods("brief"), lambda pods: pods == [])


@pytest.mark.parametrize(
    ("policy", "left"), [("Running", ["worker"]), ("All", []), ("None", ["ps", "worker"])]
)
def test_clean_pod_policy_says_which_pods_stay(
    tenant: Tenant, policy: str, left: list[str]
) -> None:
    tasks = (task("ps"), task("worker", fake=SHORT))
    tenant.create(training_job("cleaned", *tasks, runPolicy={"cleanPodPolicy": policy}))
    tenant.await_phase("cleaned", "Succeeded")

    def roles() -> list[str]:
        pods = tenant.pods("cleaned")
        return sorted(p["metadata"]["labels"]["bireme.dev/role"] for p in pods)

    tenant.eventually(roles, lambda found: found == left)
    if policy == "None":  # the ps runs on, so its place is not anybody else's
        always(lambda: tenant.plan("cleaned"), lambda plan: plan is not None, 1.0, what="plan")
        tenant.delete("Pod", "cleaned-ps-0")
        left = ["worker"]
    tenant.eventually(lambda: tenant.plan("cleaned"), lambda plan: plan is None)
    always(roles, lambda found: found == left, 1.0, what="what cleanPodPolicy keeps")


def test_job_suspended_while_waiting_leaves_the_queue_and_comes_back(tenant: Tenant) -> None:
    tenant.create(training_job("busy", task(replicas=16)))
    tenant.await_phase("busy", "Running")
    tenant.create(training_job("paused", task(replicas=16)))
    tenant.await_reason("paused", "WaitingForCapacity")
    tenant.patch("TrainingJob", "paused", SUSPEND)
    assert "queuePosition" not in tenant.await_phase("paused", "Suspended")
    tenant.delete("TrainingJob", "busy")
    tenant.await_gone("Pod", "busy-worker-15")
    always(lambda: tenant.pods("paused"), lambda pods: pods == [], 1.0, what="suspended")
    tenant.patch("TrainingJob", "paused", RESUME)
    tenant.await_phase("paused", "Running")


def test_job_suspended_while_running_stops_and_runs_again_when_resumed(tenant: Tenant) -> None:
    tenant.create(torch_job("stopped", workers=2))
    tenant.await_phase("stopped", "Running")
    first = uids_of(tenant.pods("stopped"))
    tenant.patch("TrainingJob", "stopped", SUSPEND)
    tenant.await_phase("stopped", "Suspended")
    tenant.eventually(lambda: tenant.pods("stopped"), lambda pods: pods == [])
    tenant.eventually(lambda: tenant.plan("stopped"), lambda plan: plan is None)
    tenant.patch("TrainingJob", "stopped", RESUME)
    again = tenant.await_phase("stopped", "Running")
    assert again.get("restarts", 0) == 0, "a pause is no failure"
    assert set(first.values()).isdisjoint(uids_of(tenant.pods("stopped")).values())


def waits(tenant: Tenant) -> None:
    tenant.create(training_job("gone", task(replicas=16), queue="nowhere"))
    tenant.await_reason("gone", "QueueNotFound")


def starts(tenant: Tenant) -> None:
    tenant.create(torch_job("gone", workers=3))
    tenant.eventually(lambda: tenant.plan("gone"))


def runs(tenant: Tenant) -> None:
    tenant.create(torch_job("gone", workers=3))
    tenant.await_phase("gone", "Running")


def restarts(tenant: Tenant) -> None:
    fake = annotations(duration="500ms", fail_attempts="0,1,2,3,4,5,6,7,8,9,10,11")
    tenant.create(torch_job("gone", workers=3, fake=fake, runPolicy={"backoffLimit": 12}))
    tenant.eventually(lambda: tenant.status("gone").get("restarts"))


def succeeds(tenant: Tenant) -> None:
    policy = {"cleanPodPolicy": "None"}
    tenant.create(torch_job("gone", workers=3, fake=SHORT, runPolicy=policy))
    tenant.await_phase("gone", "Succeeded")


def is_suspended(tenant: Tenant) -> None:
    job: Manifest = torch_job("gone", workers=3, runPolicy={"suspend": True})
    tenant.create(job)
    tenant.await_phase("gone", "Suspended")


@pytest.mark.parametrize("phase", [waits, starts, runs, restarts, succeeds, is_suspended])
def test_job_deleted_at_any_phase_takes_everything_with_it(tenant: Tenant, phase: object) -> None:
    assert callable(phase)
    phase(tenant)
    tenant.delete("TrainingJob", "gone")
    for kind in ("TrainingJob", "Service"):
        tenant.await_gone(kind, "gone")
    tenant.eventually(lambda: tenant.pods("gone"), lambda pods: pods == [])
    tenant.create(torch_job("gone", workers=15))
    assert tenant.await_phase("gone", "Running")["ready"] == "16/16", "all room is free again"
