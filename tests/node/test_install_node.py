"""The chart as its users install it: its own pods, from its own images, on a real node."""

import http.client
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import pytest

from bireme.cli import main as bireme
from testbed.controlplane.process import answers, processes
from testbed.controlplane.waiting import wait_until
from testbed.scenario.helm import (
    NAMESPACE,
    RELEASE,
    Helm,
    account_kubeconfig,
    config_map,
    install,
    uninstall,
)
from testbed.scenario.manifests import Manifest, task, training_job
from testbed.scenario.pools import pool_scaler, recorded_status
from testbed.scenario.tenant import Tenant, uids_of
from tests.node.real_pods import is_ready, python_spec
from tools.images.archives import Images

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
LOOK_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class StartTime:
    """Seconds by the clock, and of one processor: those do not depend on who else runs."""

    clock_seconds: float
    processor_seconds: float

    @classmethod
    def of(cls, program: str, group: str, ready_url: str) -> Self:
        """Waits for ``ready_url`` to answer 200; returns what its program took until then.

        It is the last program started whose command names the file ``program``, in a control group
        whose path has ``group`` in it, such as a cluster's.

        Raises:
            ControlPlaneError: it is not ready in a minute.
        """
        wait_until(lambda: answers(ready_url), 60, ready_url, poll_seconds=LOOK_SECONDS)
        now_seconds = time.clock_gettime(time.CLOCK_BOOTTIME)
        found = [
            _times(pid)
            for pid, line in processes().items()
            if program in line and group in Path(f"/proc/{pid}/cgroup").read_text()
        ]
        began_seconds, processor_seconds = max(found)
        return cls(now_seconds - began_seconds, processor_seconds)


def _times(pid: int) -> tuple[float, float]:
    """A process's start, in seconds since boot, and its processor seconds so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system, began = int(fields[11]), int(fields[12]), int(fields[19])
    return began / TICKS_PER_SECOND, (user + system) / TICKS_PER_SECOND


SLEEP = "import time; time.sleep(3600)"


def gang(name: str, program: str, pods: int = 2) -> Manifest:
    """A TrainingJob of real pods."""
    spec = python_spec(program, cpu="20m", restartPolicy="Never")
    return training_job(name, task("worker", pods, spec=spec))


def pod_of(release: Tenant, component: str) -> Manifest:
    """The one pod of a component that is not on its way out, once it is ready."""

    def ready() -> list[Manifest]:
        found = release.all("Pod", f"app.kubernetes.io/component={component}")
        return [p for p in found if is_ready(p) and "deletionTimestamp" not in p["metadata"]]

    (pod,) = release.eventually(ready, lambda found: len(found) == 1)
    return dict(pod)


def addressed(release: Tenant, component: str, other_than: str) -> Manifest:
    """The pod of a component that is not ``other_than``, as soon as it has an address."""

    def made() -> list[Manifest]:
        found = release.all("Pod", f"app.kubernetes.io/component={component}")
        return [
            p for p in found if p["metadata"]["name"] != other_than and p["status"].get("podIP")
        ]

    (pod,) = release.eventually(made)
    return dict(pod)


def container(pod: Manifest, name: str) -> Manifest:
    """The status of a container."""
    statuses: list[Manifest] = pod["status"]["containerStatuses"]
    return next(status for status in statuses if status["name"] == name)


@pytest.fixture
def running(release: Tenant, tenant: Tenant) -> Iterator[Tenant]:
    """A tenant with a gang that runs; it has been left alone when the test ends."""
    tenant.create(gang("long", SLEEP))
    tenant.await_phase("long", "Running")
    before = uids_of(tenant.pods("long"))
    yield tenant
    assert uids_of(tenant.pods("long")) == before, tenant.events("long")
    restarts = [p["status"]["containerStatuses"][0]["restartCount"] for p in tenant.pods("long")]
    assert restarts == [0, 0]


def test_all_of_it_runs_from_its_own_images_where_only_the_restricted_may(
    release: Tenant, images: Images
) -> None:
    operator, scheduler = pod_of(release, "operator"), pod_of(release, "scheduler")
    names = {c["image"] for pod in (operator, scheduler) for c in pod["spec"]["containers"]}
    assert len(names) == 2
    loaded = {image.name.removeprefix("docker.io/library/") for image in images.all}
    assert names <= loaded
    assert {operator["spec"]["nodeName"], scheduler["spec"]["nodeName"]} == {
        release.cluster.node.name
    }


def test_doctor_finds_nothing_wrong(release: Tenant, capsys: pytest.CaptureFixture[str]) -> None:
    for component in ("operator", "scheduler"):
        pod_of(release, component)
    asked = ["doctor", f"--kubeconfig={release.cluster.kubeconfig}"]
    release.eventually(lambda: bireme(asked), lambda status: status == 0, 60)
    assert "Nothing is wrong" in capsys.readouterr().out


def test_helm_test_passes(release: Tenant, helm: Helm) -> None:
    done = helm(
        "test", RELEASE, f"--namespace={NAMESPACE}", "--timeout=50s", cluster=release.cluster
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_gang_of_real_pods_runs_to_its_end_or_fails_by_its_exit_code(
    release: Tenant, tenant: Tenant
) -> None:
    tenant.create(gang("good", "print('done')"), gang("bad", "raise SystemExit(7)"))
    tenant.await_phase("good", "Succeeded")
    assert "7" in str(tenant.await_phase("bad", "Failed"))


@pytest.mark.parametrize(
    ("component", "name"),
    [("operator", "operator"), ("scheduler", "kube-scheduler"), ("scheduler", "extender")],
)
def test_a_program_that_is_killed_comes_back_and_jobs_run_on(
    release: Tenant, running: Tenant, component: str, name: str
) -> None:
    before = container(pod_of(release, component), name)
    release.cluster.node.kill_container(before["containerID"])
    release.eventually(
        lambda: container(pod_of(release, component), name)["restartCount"],
        lambda count: count == before["restartCount"] + 1,
    )
    running.create(gang("next", "print('done')"))
    running.await_phase("next", "Succeeded")


@pytest.mark.parametrize(
    ("component", "program", "port", "aim_seconds"),
    [("operator", "operator", 8080, 3.0), ("scheduler", "extender", 8889, 1.5)],
)
def test_a_pod_that_is_deleted_is_replaced_at_once_and_jobs_run_on(
    release: Tenant,
    running: Tenant,
    component: str,
    program: str,
    port: int,
    aim_seconds: float,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = pod_of(release, component)["metadata"]["name"]
    release.delete("Pod", before)
    running.create(gang("next", "print('done')"))
    pod = addressed(release, component, before)
    url = f"http://{pod['status']['podIP']}:{port}/readyz"
    took = StartTime.of(f"/opt/bireme/bin/bireme-{program}", f"bireme-{release.cluster.name}/", url)
    running.await_phase("next", "Succeeded")
    with capsys.disabled():
        sys.stdout.write(
            f"\n{program}: ready {took.clock_seconds:.2f} s after its start, "
            f"{took.processor_seconds:.2f} s of one processor\n"
        )
    # Who else runs counts for the clock, and a shared processor is a slower one.
    assert took.processor_seconds < 2 * aim_seconds


def record(tenant: Tenant, status: Manifest) -> None:
    """Write the status of the pool as the operator, who alone may."""
    head = {
        "Content-Type": "application/json",
        "Impersonate-User": f"system:serviceaccount:{NAMESPACE}:bireme-operator",
    }
    written = json.dumps({**tenant.get("NodePoolScaler", "pool"), "status": status})
    with closing(tenant.cluster.api.connect()) as connection:
        connection.request("PUT", f"{tenant.path('NodePoolScaler', 'pool')}/status", written, head)
        answer = connection.getresponse()
        assert answer.status == http.client.OK, answer.read()


def test_the_nightly_forecast_runs_in_its_image(release: Tenant, tenant: Tenant) -> None:
    tenant.create(pool_scaler("pool", mode="ForecastOnly"))
    job = "forecast-by-hand"
    create = ("create", "job", job, "--from=cronjob/bireme-forecast", f"--namespace={NAMESPACE}")
    try:
        status = recorded_status(lambda hour: 1.0 + (hour // 3600 % 24 < 8))
        record(tenant, status)
        release.cluster.kubectl(*create)
        release.eventually(lambda: release.status(job, "Job").get("succeeded"), lambda n: n == 1)
        assert len(tenant.status("pool", "NodePoolScaler")["forecast"]) == 48
    finally:  # a second attempt finds neither
        tenant.delete("NodePoolScaler", "pool")
        release.delete("Job", job)


def test_a_tenant_reads_the_outlook_and_asks_what_if_through_the_service(
    release: Tenant,
    tenant: Tenant,
    helm: Helm,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changes = ("--set=operator.settings.outlook=true",)
    install(release.cluster, helm, *changes, wait=True)
    kubectl, where = release.cluster.kubectl, ("-n", tenant.namespace)
    kubectl("create", "serviceaccount", "ann", *where)
    ann = f"--serviceaccount={tenant.namespace}:ann"
    allowed = ("--verb=list,create", "--resource=trainingjobs.bireme.dev")
    kubectl("create", "role", "asks", *allowed, *where)
    kubectl("create", "rolebinding", "asks", "--role=asks", ann, *where)
    way = ("--role=bireme-outlook", "-n", NAMESPACE)
    kubectl("create", "rolebinding", tenant.namespace, *way, ann)
    config = account_kubeconfig(release.cluster, tenant.namespace, "ann", tmp_path / "ann.yaml")
    tenant.create(training_job("large", task("worker", 1, spec=python_spec(SLEEP, cpu="9k"))))

    def told() -> list[str]:
        done = bireme(["queue", "--outlook", f"--kubeconfig={config}", "-o", "json"])
        printed = capsys.readouterr()
        return [] if done else [each["gang"]["name"] for each in json.loads(printed.out)["items"]]

    try:
        assert release.eventually(told, bool, 60) == ["large"]
        small = tmp_path / "small.json"
        small.write_text(json.dumps(gang("small", SLEEP)))
        asked = ["submit", str(small), "--dry-run", "-n", tenant.namespace, "-o", "json"]
        assert bireme([*asked, f"--kubeconfig={config}"]) == 0
        (found,) = json.loads(capsys.readouterr().out)["items"]
        assert found["begins"] == "AtOnce"
        assert found["nodes"] == {"worker": {release.cluster.node.name: 2}}
    finally:
        kubectl("delete", "rolebinding", tenant.namespace, "-n", NAMESPACE)


def test_an_upgrade_to_the_next_version_leaves_running_jobs_alone(
    release: Tenant, running: Tenant, images: Images, helm: Helm
) -> None:
    old = images.bireme.name
    repository, _, _ = old.rpartition(":")
    release.cluster.node.ctr("images", "tag", "--force", old, f"{repository}:next")
    changes = ("--set=image.tag=next", "--set=operator.settings.bindTimeoutSeconds=50")
    install(release.cluster, helm, *changes, wait=True)
    ours = [pod_of(release, "operator"), pod_of(release, "scheduler")]
    names = {container["image"] for pod in ours for container in pod["spec"]["containers"]}
    assert names == {"bireme:next", images.scheduler.name}
    settings = config_map(release.cluster, "bireme-settings")["settings.yaml"]
    assert "bindTimeoutSeconds: 50" in settings
    running.create(gang("next", "print('done')"))
    running.await_phase("next", "Succeeded")


def test_uninstalling_leaves_jobs_and_pods_and_installing_adopts_them(
    release: Tenant, running: Tenant, helm: Helm
) -> None:
    uninstall(release.cluster, helm)
    ours = f"app.kubernetes.io/instance={RELEASE}"
    release.eventually(lambda: release.all("Pod", ours), lambda pods: not pods)
    assert running.get("TrainingJob", "long")["status"]["phase"] == "Running"
    assert all(pod["status"]["phase"] == "Running" for pod in running.pods("long"))
    install(release.cluster, helm, wait=True)
    running.create(gang("next", "print('done')"))
    running.await_phase("next", "Succeeded")
