"""``bireme doctor`` on a release that is well, and on one of which things are broken one by one.

The pods of the chart are bound to fake nodes and say that they are ready, of the images that the
chart names; the programs themselves run as local processes.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from bireme.cli import main
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.stack import BiremeStack
from testbed.scenario import helm as scenario_helm
from testbed.scenario.helm import NAMESPACE, Helm, container, install, running
from testbed.scenario.waiting import eventually

pytestmark = pytest.mark.cluster

POOL = "bireme.dev/node-pool=a"
SCHEDULER = ("deployment/bireme-scheduler", f"--namespace={NAMESPACE}")


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, helm: Helm) -> Iterator[BiremeStack]:
    with (
        scenario_helm.installed("doctor", fake_nodes(2, gpus=8, racks=2), helm) as cluster,
        running(cluster, tmp_path_factory.mktemp("stack")) as stack,
    ):
        yield stack


class Doctor:
    """Asks the cluster of ``stack``, and reads the answer as a program does."""

    def __init__(self, stack: BiremeStack, capsys: pytest.CaptureFixture[str]) -> None:
        self._stack, self._capsys = stack, capsys

    def __call__(self, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        self._capsys.readouterr()
        kubeconfig = f"--kubeconfig={self._stack.cluster.kubeconfig}"
        status = main(["doctor", "-o=json", kubeconfig, *arguments])
        printed = self._capsys.readouterr()
        found = json.loads(printed.out)
        assert (found["apiVersion"], found["kind"]) == ("cli.bireme.dev/v1", "Diagnosis"), printed
        assert found["healthy"] == (status == 0)
        return status, found["checks"]

    def wrong(self) -> dict[str, str]:
        """Message and remedy by check, of what is wrong."""
        _, found = self()
        return {f["check"]: f"{f['message']} {f['helps']}" for f in found if f["state"] == "wrong"}

    def await_health(self) -> None:
        eventually(self.wrong, lambda wrong: not wrong, 120)


@pytest.fixture
def doctor(stack: BiremeStack, capsys: pytest.CaptureFixture[str]) -> Doctor:
    found = Doctor(stack, capsys)
    found.await_health()
    return found


def test_of_a_sound_release_every_check_is_made(doctor: Doctor) -> None:
    def answers() -> list[dict[str, Any]]:
        status, found = doctor()
        assert status == 0
        return found

    # No pod is on a node for the first seconds, say, which is no fault yet.
    found = eventually(answers, lambda found: {each["state"] for each in found} == {"ok"}, 30)
    assert {each["check"] for each in found} >= {
        "API server", "kinds", "definitions", "operator", "kube-scheduler", "extender",
        "version of operator", "version of kube-scheduler", "version of extender",
        "operator leads", "kube-scheduler leads", "admission", "rights", "nodes", "queues",
        "policies", "gangs",
    }  # fmt: skip


def test_who_may_see_little_is_told_what_stays_unknown(doctor: Doctor) -> None:
    status, found = doctor("--as=ann", "--as-group=system:authenticated")
    assert status == 0
    states = {each["check"]: each["state"] for each in found}
    assert (states["API server"], states["kinds"]) == ("ok", "ok")
    hidden = {"definitions", "programs", "operator leads", "admission", "nodes", "queues", "gangs"}
    assert {check for check, state in states.items() if state == "unknown"} >= hidden
    (rights,) = (each["message"] for each in found if each["check"] == "rights")
    assert "you may not list trainingjobs in namespace default (list, why)" in rights


def test_an_operator_that_is_gone_is_missed(stack: BiremeStack, doctor: Doctor) -> None:
    stack.operator().terminate()
    try:
        wrong = doctor.wrong()
        assert set(wrong) == {"operator leads"}
        assert "nobody holds it" in wrong["operator leads"]
        assert f"kubectl -n {NAMESPACE} logs" in wrong["operator leads"]
    finally:
        stack.operator().start().wait_ready(60)
    doctor.await_health()


def test_a_scheduler_that_has_no_pod_and_another_version_is_named(
    stack: BiremeStack, doctor: Doctor
) -> None:
    kubectl, containers = stack.cluster.kubectl, ("kube-scheduler", "extender")
    images = [
        f"{name}={container(stack.cluster, 'bireme-scheduler', name)['image']}"
        for name in containers
    ]
    try:
        kubectl("set", "image", *SCHEDULER, "kube-scheduler=registry.k8s.io/kube-scheduler:v1.30.2")
        kubectl("set", "image", *SCHEDULER, "extender=bireme:0.0.9")
        kubectl("scale", *SCHEDULER, "--replicas=0")
        named = {*containers, *(f"version of {name}" for name in containers)}
        gone = "Deployment bireme-scheduler has no pod"
        wrong = eventually(doctor.wrong, lambda wrong: gone in wrong.get("extender", ""), 60)
        assert set(wrong) == named
        assert "scale deployment bireme-scheduler --replicas=1" in wrong["kube-scheduler"]
        assert "1.30.2, and the cluster is 1." in wrong["version of kube-scheduler"]
        assert "0.0.9, and this bireme is" in wrong["version of extender"]
    finally:
        kubectl("set", "image", *SCHEDULER, *images)
        kubectl("scale", *SCHEDULER, "--replicas=1")
    doctor.await_health()


def test_what_belongs_to_the_cluster_is_missed_where_it_is_gone(
    stack: BiremeStack, doctor: Doctor, helm: Helm
) -> None:
    kubectl = stack.cluster.kubectl
    binding = "validatingadmissionpolicybinding/bireme-status"
    try:
        kubectl("delete", binding)
        kubectl("delete", "crd", "nodepoolscalers.bireme.dev")
        kubectl("label", "node", "--all", POOL)
        kubectl("cordon", "-l", POOL)
        wrong = eventually(doctor.wrong, lambda wrong: "kinds" in wrong, 60)
        assert set(wrong) == {"admission", "kinds", "nodes"}
        assert "not served: nodepoolscalers install the chart" in wrong["kinds"]
        assert "policy bireme-status has no binding" in wrong["admission"]
        assert "pool a: no node takes pods; of 2, 2 are cordoned, 0 not ready" in wrong["nodes"]
    finally:
        kubectl("uncordon", "-l", POOL)
        install(stack.cluster, helm)
    doctor.await_health()
