"""Requests of gangs' pods that are raised while they run count at once.

The chart is installed with its policies; ann has every right there is, in a namespace.
"""

import json
from collections.abc import Iterator

import pytest

from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.stack import BiremeStack
from testbed.scenario import helm as scenario_helm
from testbed.scenario.helm import Helm, running
from testbed.scenario.manifests import queue, task, training_job
from testbed.scenario.tenant import Tenant

pytestmark = pytest.mark.cluster

ANN = ("--as=ann", "--as-group=system:authenticated")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    helm = Helm(tmp_path_factory.mktemp("helm"))
    with scenario_helm.installed("resize", fake_nodes(2, gpus=8, racks=2), helm) as cluster:
        made = queue("open", limit={"cpu": "8"})
        cluster.kubectl("apply", "-f", "-", input=json.dumps(made))
        rule = ("--verb=resize", "--resource=queues.bireme.dev", "--resource-name=open")
        cluster.kubectl("create", "clusterrole", "resize-open", *rule)
        cluster.kubectl(
            "create", "clusterrolebinding", "r", "--clusterrole=resize-open", "--user=ann"
        )
        with running(cluster, tmp_path_factory.mktemp("stack")) as stack:
            yield stack


@pytest.fixture
def tenant(installed: BiremeStack) -> Iterator[Tenant]:
    cluster = installed.cluster
    with Tenant.staying(cluster, installed.log_tails) as tenant:
        where = f"--namespace={tenant.namespace}"
        everything = ("--verb=*", "--resource=*.*")
        cluster.kubectl("create", "role", "everything", *everything, where)
        cluster.kubectl("create", "rolebinding", "ann", "--role=everything", "--user=ann", where)
        asked = ("auth", "can-i", "patch", "pods", "--subresource=resize", where, *ANN)
        tenant.eventually(lambda: cluster.kubectl(*asked, check=False), lambda s: s[:3] == "yes")
        yield tenant


def resized(tenant: Tenant, name: str, **requests: str) -> str:
    """The API server's answer when ann has the pod ``name`` ask for ``requests``."""
    asked = {"containers": [{"name": "train", "resources": {"requests": requests}}]}
    where = (f"--namespace={tenant.namespace}", *ANN, "--subresource=resize")
    change = json.dumps({"spec": asked})
    return tenant.cluster.kubectl("patch", "pod", name, *where, "-p", change, check=False)


def running_pod(tenant: Tenant, name: str) -> None:
    """Return once the pod runs, and its status has what a kubelet writes of its resources."""
    found = tenant.eventually(
        lambda: tenant.find("Pod", name) or {"status": {}},
        lambda pod: pod["status"].get("phase") == "Running",
    )
    resources = found["spec"]["containers"][0]["resources"]
    (status,) = found["status"]["containerStatuses"]
    there = {**status, "resources": resources, "allocatedResources": resources["requests"]}
    tenant.patch("Pod", name, {"status": {"containerStatuses": [there]}}, "status")


def test_what_was_raised_by_leave_counts_in_its_queue_at_once(tenant: Tenant) -> None:
    tenant.create(training_job("first", task("worker", 1), queue="open"))
    running_pod(tenant, "first-worker-0")
    assert "patched" in resized(tenant, "first-worker-0", cpu="8")
    tenant.create(training_job("second", task("worker", 1), queue="open"))
    waits = tenant.eventually(
        lambda: tenant.status("second"), lambda s: s.get("reason") == "OverQueueLimit"
    )
    assert "asks 1 cpu, 8 cpu of 8 cpu in use" in waits["message"]
    assert "patched" in resized(tenant, "first-worker-0", cpu="7")
    running_pod(tenant, "second-worker-0")
