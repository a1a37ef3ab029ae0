"""helm upgrade and rollback of a busy cluster touch nothing that runs; nobody loses a place."""

import shutil
from pathlib import Path

import pytest
import yaml

from testbed.controlplane.nodes import fake_nodes
from testbed.scenario.helm import CHART, NAMESPACE, RELEASE, Helm, install, installed, running
from testbed.scenario.manifests import task, training_job
from testbed.scenario.tenant import Tenant, uids_of

pytestmark = pytest.mark.cluster

NODES, GPUS = 13, 8
RUNNING, WAITING = NODES * GPUS, 100


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    return Helm(tmp_path / "helm")


def earlier_chart(folder: Path) -> Path:
    """The chart under an earlier version."""
    chart = Path(shutil.copytree(CHART, folder / "chart"))
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    earlier = yaml.safe_dump({**about, "version": "0.0.9", "appVersion": "0.0.9"})
    (chart / "Chart.yaml").write_text(earlier)
    return chart


def phases(tenant: Tenant) -> dict[str, str]:
    """Phase of every job by name."""
    jobs = tenant.all("TrainingJob")
    return {job["metadata"]["name"]: job.get("status", {}).get("phase", "") for job in jobs}


def count(tenant: Tenant, phase: str) -> int:
    return list(phases(tenant).values()).count(phase)


def one_that_runs(tenant: Tenant) -> str:
    return next(name for name, phase in phases(tenant).items() if phase == "Running")


def line(tenant: Tenant) -> list[str]:
    """Names of those that wait, in their order; empty while it is being written."""
    jobs = tenant.all("TrainingJob")
    places = {j.get("status", {}).get("queuePosition"): j["metadata"]["name"] for j in jobs}
    places.pop(None, None)
    whole = sorted(places) == list(range(1, len(places) + 1))
    return [places[place] for place in sorted(places)] if whole else []


def test_upgrade_and_rollback_touch_nothing_that_runs(tmp_path: Path, helm: Helm) -> None:
    nodes = fake_nodes(NODES, gpus=GPUS, racks=1)
    with installed("upgrade", nodes, helm, chart=earlier_chart(tmp_path)) as cluster:
        tenant = Tenant(cluster, cluster.create_namespace("team"))
        with running(cluster, tmp_path / "earlier"):
            for number in range(RUNNING + WAITING):
                tenant.create(training_job(f"job-{number:03}", task("worker", 1, gpus=1)))
            tenant.eventually(lambda: count(tenant, "Running"), lambda n: n == RUNNING, 120)
            tenant.eventually(lambda: len(line(tenant)), lambda n: n == WAITING, 120)
            pods, order = uids_of(tenant.pods()), line(tenant)
        install(cluster, helm)
        with running(cluster, tmp_path / "upgraded"):
            tenant.delete("TrainingJob", one_that_runs(tenant))
            tenant.await_phase(order[0], "Running")
            kept = uids_of(tenant.pods())
            assert len(pods.items() & kept.items()) == RUNNING - 1
            tenant.eventually(lambda: line(tenant), lambda now: now == order[1:])
        done = helm("rollback", RELEASE, f"--namespace={NAMESPACE}", cluster=cluster)
        assert done.returncode == 0, done.stderr
        with running(cluster, tmp_path / "rolled-back"):
            tenant.delete("TrainingJob", one_that_runs(tenant))
            tenant.await_phase(order[1], "Running")
            assert len(kept.items() & uids_of(tenant.pods()).items()) == RUNNING - 1
