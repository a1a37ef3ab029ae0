"""The debug dump, its callers judged by the real API server, and its record replayed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bireme.cli import main
from testbed.controlplane.leader import SYSTEM, own_address, serve_leader
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import PATIENT, gpu_cluster
from testbed.scenario.helm import Helm, account_kubeconfig
from testbed.scenario.manifests import task, training_job
from testbed.scenario.tenant import Tenant

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    env = {
        "BIREME_DEBUG_DUMP": "true",
        "BIREME_LEASE_NAMESPACE": SYSTEM,
    }
    folder = tmp_path_factory.mktemp("stack")
    with (
        gpu_cluster("dump", 2, 8) as cluster,
        BiremeStack(cluster, folder, env, internals=PATIENT) as stack,
    ):
        operator = stack.operator()
        operator.env["BIREME_METRICS_ADDRESS"] = f"0.0.0.0:{operator.port}"  # as in a pod
        serve_leader(cluster, own_address(), operator.port)
        yield stack.start()


def asked(kubeconfig: Path, file: Path) -> tuple[int, dict[str, Any]]:
    """Return the status of ``bireme doctor --dump`` and what it wrote."""
    file.unlink(missing_ok=True)
    status = main(["doctor", f"--dump={file}", f"--kubeconfig={kubeconfig}"])
    return status, json.loads(file.read_text()) if file.exists() else {}


def test_it_goes_to_those_whom_the_api_server_allows_it_and_can_be_replayed(
    stack: BiremeStack, tenant: Tenant, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl, where = stack.cluster.kubectl, ("-n", tenant.namespace)
    for name in ("admin", "ann"):
        kubectl("create", "serviceaccount", name, *where)
    kubectl("create", "clusterrole", "dump", "--verb=get", "--non-resource-url=/debug/dump")
    account = f"--serviceaccount={tenant.namespace}:admin"
    kubectl("create", "clusterrolebinding", "dump", "--clusterrole=dump", account)
    ask = ("--verb=create,get,delete", "--resource=tickets.bireme.dev,services/proxy")
    kubectl("create", "role", "ask", *ask, "-n", SYSTEM)
    accounts = [f"--serviceaccount={tenant.namespace}:{name}" for name in ("admin", "ann")]
    kubectl("create", "rolebinding", "ask", "--role=ask", "-n", SYSTEM, *accounts)
    configs = {
        name: account_kubeconfig(stack.cluster, tenant.namespace, name, tmp_path / name)
        for name in ("admin", "ann")
    }
    dump = tmp_path / "dump.json"

    secret = [{"name": "KEY", "value": "hush-hush"}]
    spec = task()["template"]["spec"]
    spec["containers"][0]["env"] = secret
    tenant.create(training_job("runs", task(replicas=16, spec=spec)))
    tenant.await_phase("runs", "Running")
    tenant.create(training_job("waits", task(replicas=4, spec=spec)))
    tenant.await_reason("waits", "WaitingForCapacity")

    assert asked(configs["ann"], dump) == (1, {})
    assert "ask for that nonResourceURL" in capsys.readouterr().err
    status, body = asked(configs["admin"], dump)
    assert status == 0, capsys.readouterr().err
    assert (body["mode"], body["ready"]) == ("Apply", "yes")
    (held,) = body["decisions"]
    assert (held["do"], held["gang"]) == ("hold", f"{tenant.namespace}/waits")
    assert held["reason"] == "WaitingForCapacity"
    assert body["cycles"][-1]["actions"] == {"WaitingForCapacity": 1}
    assert 0 < body["cycles"][-1]["seconds"] < 60
    assert "hush-hush" not in json.dumps(body)

    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "record-00000001.jsonl").write_text(body["record"])
    assert main(["replay", str(folder), "--policy", "fifo"]) == 0
    assert capsys.readouterr().out


def test_the_chart_grants_reviews_where_it_is_served_alone(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    helm = Helm(tmp_path_factory.mktemp("helm"))
    assert "subjectaccessreviews" not in helm.template()
    for mode in ("Apply", "Observe"):
        text = helm.template(f"--set=operator.mode={mode},operator.settings.debugDump=true")
        assert "resources: [subjectaccessreviews]" in text
        assert "tokenreviews" not in text
        assert "debugDump: true" in text
