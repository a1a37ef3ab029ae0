"""``operator.mode: Observe`` with the chart's own rights, beside another scheduler in charge.

Every request of the operator passes a proxy that counts what would change anything.
"""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from testbed.controlplane.api import kubeconfig
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.process import Process
from testbed.controlplane.stack import BiremeStack
from testbed.faultproxy import FaultProxy
from testbed.scenario.clusters import bare_cluster
from testbed.scenario.helm import NAMESPACE, Helm, config_map, install
from testbed.scenario.manifests import Manifest, pod, queue, task, training_job
from testbed.scenario.waiting import always, eventually

pytestmark = pytest.mark.cluster
CHANGES = ("POST", "PUT", "PATCH", "DELETE")
JOBS = "/apis/bireme.dev/v1alpha1/namespaces/default/trainingjobs"
PODS = "/api/v1/namespaces/default/pods"


@dataclass(frozen=True)
class Observed:
    """A cluster, the operator that observes it, and the proxy between them."""

    cluster: Cluster
    operator: Process
    proxy: FaultProxy

    def said(self) -> list[Manifest]:
        """Return the lines of the operator's log that say what it would do."""
        lines = self.operator.log_path.read_text().splitlines()
        return [line for line in map(json.loads, lines) if line["event"].startswith("would")]

    def metric(self, series: str) -> float | None:
        port = self.operator.port
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            found = [line.rpartition(" ") for line in answer.read().decode().splitlines()]
        return next((float(value) for name, _, value in found if name == f"bireme_{series}"), None)


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    folder = tmp_path_factory.mktemp("observe")
    helm = Helm(folder / "helm")
    with (
        bare_cluster("observe") as cluster,
        FaultProxy(cluster.kubeconfig, is_counted=lambda method, _: method in CHANGES) as proxy,
    ):
        cluster.add_nodes(fake_nodes(2, gpus=8, racks=2))
        install(cluster, helm, "--set=operator.mode=Observe,program.logLevel=debug")
        settings = folder / "settings.yaml"
        settings.write_text(config_map(cluster, "bireme-settings")["settings.yaml"])
        where = f"--namespace={NAMESPACE}"
        token = cluster.kubectl("create", "token", "bireme-operator", where).strip()
        own = folder / "kubeconfig"
        own.write_text(yaml.safe_dump(kubeconfig({"server": proxy.url}, {"token": token})))
        cluster.kubectl("apply", "-f", "-", input=json.dumps(queue("default")))
        env = {"BIREME_CONFIG": str(settings)}
        with BiremeStack(cluster, folder / "stack", env, {"operator-a": own}) as stack:
            operator = stack.operator()
            operator.start()
            operator.wait_ready(60.0)
            yield Observed(cluster, operator, proxy)


def of_volcano(name: str) -> Manifest:
    """Return a pod of eight GPUs in the group ``crew`` of a Volcano that is not here."""
    made = pod(name, gpus=8, schedulerName="volcano")
    made["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "crew"}
    return made


def bind(cluster: Cluster, name: str, node: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    cluster.api.post(f"{PODS}/{name}/binding", body)


def test_it_says_what_it_would_do_beside_the_scheduler_in_charge_and_writes_nothing(
    observed: Observed,
) -> None:
    cluster = observed.cluster
    for name in ("crew-0", "crew-1"):
        cluster.api.post(PODS, of_volcano(name))
    first = eventually(
        lambda: [s for s in observed.said() if "2 pod planned" in s.get("message", "")],
        explain=observed.operator.log_tail,
    )[0]
    assert (first["event"], first["gang"], first["queue"]) == (
        "would admit",
        "default/crew",
        "default",
    )
    assert observed.metric('observed_actions{action="admit"}') == 1.0

    for name, node in (("crew-0", "gpu-00"), ("crew-1", "gpu-01")):
        bind(cluster, name, node)
    same = 'observed_binds_total{outcome="same node"}'
    eventually(lambda: observed.metric(same) == 2.0, explain=observed.operator.log_tail)

    cluster.api.post(JOBS, training_job("job", task(replicas=8)))
    eventually(lambda: observed.metric('gangs_waiting{reason="WaitingForCapacity"}') == 1.0)
    cluster.kubectl("delete", "pod", "crew-0", "--force")
    eventually(
        lambda: [
            s for s in observed.said() if s["gang"] == "default/job" and "admit" in s["event"]
        ],
        explain=observed.operator.log_tail,
    )
    # Pods of the default scheduler run on, and take the room before Bireme's own job.
    cluster.api.post(PODS, pod("plain", gpus=8))
    eventually(lambda: observed.metric('gangs_waiting{reason="WaitingForCapacity"}') == 1.0)
    always(lambda: observed.proxy.writes, lambda writes: not writes, 3.0, what="without a write")
    assert observed.proxy.dry_runs == 0
    assert "status" not in cluster.api.get(f"{JOBS}/job")
    assert "status" not in cluster.api.get("/apis/bireme.dev/v1alpha1/queues/default")
    leases = cluster.api.get("/apis/coordination.k8s.io/v1/leases")["items"]
    assert not [x for x in leases if "bireme" in x["metadata"]["name"]]
    events = cluster.api.get("/api/v1/events")["items"]
    assert not [x for x in events if x["source"].get("component", "").startswith("bireme")]
    names = {x["metadata"]["name"] for x in cluster.api.get(PODS)["items"]}
    assert names == {"crew-1", "plain"}


@pytest.mark.parametrize(
    "what",
    [
        "create pods", "patch pods", "delete pods", "create pods/eviction", "create events",
        "update trainingjobs.bireme.dev/status", "update queues.bireme.dev/status",
        "create queues.bireme.dev", "delete trainingjobs.bireme.dev", "create services",
        "patch jobs.batch", "create leases.coordination.k8s.io", "patch leases.coordination.k8s.io",
        "create tokenreviews.authentication.k8s.io",
    ],
)  # fmt: skip
def test_its_account_may_change_nothing(observed: Observed, what: str) -> None:
    verb, _, resource = what.partition(" ")
    resource, _, sub = resource.partition("/")
    who = f"--as=system:serviceaccount:{NAMESPACE}:bireme-operator"
    flags = (who, "--all-namespaces", *([f"--subresource={sub}"] if sub else []))
    printed = observed.cluster.kubectl("auth", "can-i", verb, resource, *flags, check=False)
    assert printed.split()[0] == "no"


def test_nothing_else_of_the_chart_is_there(observed: Observed) -> None:
    kinds = "deployments,cronjobs,validatingadmissionpolicies"
    found = observed.cluster.kubectl("get", kinds, "-A", "-o", "name").split()
    assert found == ["deployment.apps/bireme-operator"]
