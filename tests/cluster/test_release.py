"""``bireme migrate release``: what opted in is let go of while nothing of Bireme runs."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from bireme.cli import main
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.nodes import fake_nodes
from testbed.scenario import helm as scenario_helm
from testbed.scenario.helm import Helm, account_kubeconfig
from testbed.scenario.manifests import (
    Manifest,
    batch_job,
    member_template,
    pod,
    pod_group,
    stateful_set,
)
from testbed.scenario.tenant import Tenant, nodes_of, uids_of

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with the chart's policies and none of its programs."""
    helm = Helm(tmp_path_factory.mktemp("helm"))
    with scenario_helm.installed("release", fake_nodes(2, gpus=8, racks=2), helm) as cluster:
        yield cluster


@pytest.fixture
def tenant(installed: Cluster) -> Iterator[Tenant]:
    """A namespace that keeps its queues, with a gang that waits for Bireme for ever."""
    name = installed.create_namespace(f"team-{secrets.token_hex(3)}")
    installed.kubectl("label", "namespace", name, "bireme.dev/enforce=true")
    tenant = Tenant(installed, name)
    tenant.eventually(lambda: tenant.refusal(pod("loose", gpus=1)))
    yield tenant
    tenant.leave()


def member(name: str, group: str, gpus: int = 1) -> Manifest:
    made = {"apiVersion": "v1", "kind": "Pod", **member_template(group, gpus)}
    made["metadata"]["name"] = name
    return made


def release(tenant: Tenant, *arguments: str, kubeconfig: Path | None = None) -> int:
    known = f"--kubeconfig={kubeconfig or tenant.cluster.kubeconfig}"
    return main(["migrate", "release", known, f"--namespace={tenant.namespace}", *arguments])


def test_what_waits_for_a_dead_operator_runs_once_it_is_let_go_of(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    job = batch_job("crew", 2, member_template("crew", 1))
    ranks = stateful_set("ranks", 2, member_template("ranks", 1))
    tenant.create(pod_group("crew", 2), pod_group("ranks", 2), pod_group("solo", 1))
    tenant.create(member("solo", "solo"), job, ranks, pod("plain", gpus=0))
    tenant.eventually(lambda: len(tenant.pods()) == 6)
    tenant.eventually(lambda: "plain" in nodes_of(tenant.pods()))
    before = uids_of(tenant.pods())

    assert release(tenant, "--dry-run") == 0
    told = capsys.readouterr().out
    assert "would no longer enforce its queues" in told
    assert "Job crew, 2 waiting: would be created again" in told
    assert uids_of(tenant.pods()) == before
    assert tenant.refusal(pod("loose", gpus=1)) != ""

    assert release(tenant) == 0
    told = capsys.readouterr().out
    for what in ("Pod solo, 1 waiting", "Job crew, 2 waiting", "StatefulSet ranks, 2 waiting"):
        assert f"{what}: made anew, for the default-scheduler" in told
    tenant.eventually(lambda: len(nodes_of(tenant.pods())) == 6)
    assert uids_of(tenant.pods())["plain"] == before["plain"]
    assert tenant.refusal(pod("loose", gpus=1)) == ""

    assert release(tenant) == 0
    assert "nothing to release" in capsys.readouterr().out


def test_what_is_not_to_be_made_anew_is_left_and_named(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "strange"}}
    tenant.cluster.kubectl("create", "-n", tenant.namespace, "-f", "-", input=json.dumps(head))
    found = json.loads(
        tenant.cluster.kubectl("get", "configmap", "strange", "-n", tenant.namespace, "-o=json")
    )
    theirs = member("theirs", "theirs")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "strange", "controller": True}
    theirs["metadata"]["ownerReferences"] = [{**owner, "uid": found["metadata"]["uid"]}]
    tenant.create(pod_group("theirs", 1), theirs)
    assert release(tenant) == 1
    words = "ConfigMap strange, 1 waiting: left as it is: take schedulerName, gate and label out"
    assert words in capsys.readouterr().out
    assert nodes_of(tenant.pods()) == {}


def test_a_pod_that_would_not_come_back_is_not_deleted(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    tenant.create(pod_group("solo", 1), member("solo", "solo"))
    before = uids_of(tenant.pods())
    full = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}}
    full["spec"] = {"hard": {"pods": "1"}}
    where = ("-n", tenant.namespace, "-f", "-")
    tenant.cluster.kubectl("create", *where, input=json.dumps(full))
    tenant.eventually(lambda: tenant.refusal(pod("more", gpus=0)))
    assert release(tenant) == 1
    assert "left as it is: " in capsys.readouterr().out
    assert uids_of(tenant.pods()) == before


def test_who_may_not_let_go_of_a_namespace_is_told_so_and_nothing_is_touched(
    tenant: Tenant, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, where = tenant.cluster, f"--namespace={tenant.namespace}"
    cluster.kubectl("create", "serviceaccount", "owner", where)
    role = ("--clusterrole=cluster-admin", f"--serviceaccount={tenant.namespace}:owner")
    cluster.kubectl("create", "rolebinding", "owner", *role, where)
    known = account_kubeconfig(cluster, tenant.namespace, "owner", tmp_path / "kubeconfig")
    tenant.create(pod_group("solo", 1), member("solo", "solo"))
    before = uids_of(tenant.pods())
    tenant.eventually(
        lambda: (release(tenant, kubeconfig=known), capsys.readouterr().err)[1],
        lambda told: "ask for the verb enforce on queues.bireme.dev" in told,
    )
    assert uids_of(tenant.pods()) == before


def test_all_namespaces_are_those_that_enforce_or_have_pods_that_wait(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    tenant.create(pod_group("solo", 1), member("solo", "solo"))
    known = f"--kubeconfig={tenant.cluster.kubeconfig}"
    assert main(["migrate", "release", known, "--all-namespaces"]) == 0
    told = capsys.readouterr().out
    assert {line.partition(":")[0] for line in told.splitlines()} == {tenant.namespace}
    tenant.eventually(lambda: "solo" in nodes_of(tenant.pods()))
    assert main(["migrate", "release", known, "-A"]) == 0
    assert "no namespace has anything to release" in capsys.readouterr().out
