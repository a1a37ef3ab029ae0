"""Commands that change jobs, and whom they ask as, against a real API server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bireme.cli import main
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import task, training_job
from testbed.scenario.promises import history_of
from testbed.scenario.tenant import Tenant

pytestmark = pytest.mark.cluster
EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with gpu_stack("commands", tmp_path_factory.mktemp("stack")) as stack:
        yield stack


def bireme(tenant: Tenant, *arguments: str) -> int:
    return main([*arguments, f"--kubeconfig={tenant.cluster.kubeconfig}", f"-n={tenant.namespace}"])


def test_jobs_are_suspended_resumed_and_listed(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    tenant.create(training_job("one", task("worker", 1)), training_job("two", task("worker", 1)))
    for name in ("one", "two"):
        tenant.await_phase(name, "Running")
    assert bireme(tenant, "suspend", "one", "missing") == 1
    assert tenant.status("one")["phase"] == "Running", "all or none"
    assert bireme(tenant, "suspend", "one") == 0
    tenant.await_phase("one", "Suspended")
    capsys.readouterr()
    assert bireme(tenant, "list", "--sort-by=phase", "-o=name") == 0
    names = ["trainingjob.bireme.dev/two", "trainingjob.bireme.dev/one"]
    assert capsys.readouterr().out.splitlines() == names
    assert bireme(tenant, "resume", "one") == 0
    tenant.await_phase("one", "Running")
    # A user without rights sees nothing, and is told which right it lacks.
    assert bireme(tenant, "list", "--as=ann") == 1
    assert 'User "ann" cannot list' in capsys.readouterr().err


def test_an_elastic_job_is_scaled_while_it_waits_and_cancelled_while_it_runs(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = task("worker", 2, minReplicas=1, maxReplicas=3)
    tenant.create(training_job("e", shape, rendezvous="torch", runPolicy={"suspend": True}))
    tenant.await_phase("e", "Suspended")
    assert bireme(tenant, "scale", "e", "--replicas=3") == 0, capsys.readouterr().err
    assert tenant.get("TrainingJob", "e")["spec"]["tasks"][0]["replicas"] == 3
    assert bireme(tenant, "resume", "e") == 0
    tenant.await_phase("e", "Running")
    assert len(tenant.pods("e")) == 3
    assert bireme(tenant, "scale", "e", "--replicas=2") == 1
    assert "bireme suspend, scale, resume" in capsys.readouterr().err
    # Fake nodes have no logs: the API server understands, and says that it reaches no kubelet.
    assert bireme(tenant, "logs", "e", "--tail=1") == 1
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(" is missing or ended")[0] for line in said] == [
        f"bireme: the log of worker-{index}" for index in range(3)
    ]
    assert not any("NotAcceptable" in line or "media type" in line for line in said)
    if history := history_of(tenant.cluster):
        history.forgive(tenant.namespace, "e")
    assert bireme(tenant, "cancel", "e") == 0
    assert "e cancelled: Running of 3 GPUs for " in capsys.readouterr().out
    tenant.await_gone("TrainingJob", "e")
    tenant.eventually(lambda: tenant.pods("e"), lambda pods: not pods)


def test_manifests_of_other_kinds_are_checked_and_sent(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(EXAMPLES / name) for name in ("07-scheduling-policies.yaml", "12-node-pool.yaml")]
    assert bireme(tenant, "submit", *files, "--check") == 0, capsys.readouterr().err
    assert "checked, nothing sent" in capsys.readouterr().out
    assert not tenant.all("SchedulingPolicy")
