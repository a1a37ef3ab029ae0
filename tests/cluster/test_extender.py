"""The extender under a real kube-scheduler: what it lets through, what stays Pending, and why.

There is no operator here: jobs and their plans are written by hand, as an operator would.
"""

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pytest

from bireme.core.gpus import GPU
from bireme.kube import crd, names, pods
from bireme.kube.crd import KINDS
from bireme_extender.cache import PLANNED
from testbed.controlplane.api import Manifest
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.stack import BiremeStack
from testbed.controlplane.waiting import wait_until
from testbed.scenario.promises import judged

BY_HAND = dict.fromkeys(("job-lost", "places-kept"), "no operator sees to the jobs")
REQUESTS = {"cpu": "4", "memory": "16Gi", GPU: "1"}


@pytest.fixture(scope="module")
def nodes(cluster: Cluster) -> Iterator[list[str]]:
    made = fake_nodes(4, racks=2, prefix="extend")
    cluster.add_nodes(made)
    found = [node["metadata"]["name"] for node in made]
    yield found
    cluster.kubectl("delete", "node", "--wait=false", *found)


@pytest.fixture(scope="module")
def bireme(
    cluster: Cluster, nodes: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BiremeStack]:
    """Extender and second kube-scheduler, running; without an operator."""
    cluster.kubectl("apply", "--server-side", "-f", str(crd.DIRECTORY))
    served = [f"crd/{kind.plural}.{names.GROUP}" for kind in KINDS]
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", *served)
    folder = tmp_path_factory.mktemp("stack")
    with judged(cluster, not_judged=BY_HAND), BiremeStack(cluster, folder) as stack:
        for process in (stack.extender, stack.scheduler):
            process.start()
        for process in (stack.extender, stack.scheduler):
            process.wait_ready()
        yield stack


@pytest.fixture(autouse=True)
def running(bireme: BiremeStack) -> None:
    """Every test begins with both programs up."""
    for process in (bireme.extender, bireme.scheduler):
        if not process.running:
            process.start().wait_ready()


@dataclass
class Desk:
    """Writes in one namespace what the operator would write."""

    cluster: Cluster
    namespace: str

    def path(self, plural: str, name: str = "") -> str:
        return names.path(plural, self.namespace, name or None)

    def pod_path(self, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods" + (f"/{name}" if name else "")

    def job(self, name: str = "job") -> Manifest:
        """A TrainingJob, not planned."""
        container = {"name": "main", "image": "train", "resources": {"requests": REQUESTS}}
        template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
        task = {"name": "worker", "role": "worker", "replicas": 2, "template": template}
        return self.cluster.api.post(
            self.path("trainingjobs"),
            {
                "apiVersion": names.API_VERSION,
                "kind": "TrainingJob",
                "metadata": {"name": name},
                "spec": {"tasks": [task]},
            },
        )

    def plan(self, places: dict[str, str], mode: str = "Pinned", *, attempt: int = 0) -> None:
        """Publish a plan of TrainingJob ``job``: node to replica indices."""
        task = {"name": "worker", "role": "worker", "replicas": 2}
        placements = [
            {"node": node, "task": "worker", "indices": indices} for node, indices in places.items()
        ]
        plan = {
            "epoch": 1,
            "attempt": attempt,
            "specHash": "0123456789abcdef",
            "queue": "default",
            "mode": mode,
            "plannedTime": "2030-01-01T00:00:00Z",
            "tasks": [{**task, "requests": {**REQUESTS, "pods": "1"}}],
            "placements": placements,
        }
        self.write_status({"plan": plan})

    def drop_plan(self) -> None:
        """Write a status without a plan, as an operator does when the last pod is gone."""
        self.write_status({"phase": "Pending"})

    def write_status(self, status: Manifest) -> Manifest:
        """Write the status of TrainingJob ``job`` as a whole; return the object."""
        path = self.path("trainingjobs", "job")
        job = {**self.cluster.api.get(path), "status": status}
        reply = self.cluster.api.request("PUT", f"{path}/status", job)
        assert reply.status == http.client.OK, reply.body
        return reply.json()

    def pod(
        self, owner: Manifest, index: int = 0, *, plan: str = "1.0", group: str = "", pin: str = ""
    ) -> str:
        """A replica's pod as the operator makes it; pinned to a node when one is given."""
        spec: dict[str, Any] = {
            "schedulerName": names.SCHEDULER_NAME,
            "containers": [{"name": "main", "image": "train", "resources": {"requests": REQUESTS}}],
            "restartPolicy": "Never",
        }
        spec["containers"][0]["resources"]["limits"] = {GPU: REQUESTS[GPU]}
        if pin:
            spec["affinity"] = pods.affinity_on_node(spec, pin)
        name = f"{owner['metadata']['name']}-worker-{index}"
        labels = {
            names.POD_GROUP_LABEL: group or owner["metadata"]["name"],
            names.JOB_LABEL: owner["metadata"]["name"],
            names.TASK_LABEL: "worker",
            names.INDEX_LABEL: str(index),
            names.PLAN_LABEL: plan,
        }
        meta = {"name": name, "labels": labels, "ownerReferences": [owned_by(owner)]}
        self.cluster.api.post(self.pod_path(), {"metadata": meta, "spec": spec})
        return name

    def node_of(self, pod: str) -> str:
        """The node the pod is bound to; empty while it is Pending."""
        found = self.cluster.api.get(self.pod_path(pod))["spec"].get("nodeName", "")
        return str(found)

    def bound(self, pod: str, timeout_seconds: float = 30.0) -> str:
        """The node the pod gets."""
        wait_until(
            lambda: bool(self.node_of(pod)),
            timeout_seconds,
            f"{pod} to be bound",
            lambda: "\n".join(self.events(pod)),
        )
        return self.node_of(pod)

    def events(self, pod: str) -> list[str]:
        """Messages of all FailedScheduling events of the pod."""
        listed = self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/events")["items"]
        return [
            str(event.get("message") or event.get("note"))
            for event in listed
            if event["involvedObject"]["name"] == pod and event["reason"] == "FailedScheduling"
        ]

    def refused(self, pod: str, reason: str) -> None:
        """Returns when an event of the pod carries ``reason``; the pod is Pending then."""
        wait_until(
            lambda: any(reason in message for message in self.events(pod)),
            30,
            f"an event of {pod} with {reason}",
            lambda: "\n".join(self.events(pod)),
        )
        assert self.node_of(pod) == ""


def owned_by(job: Manifest) -> Manifest:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "TrainingJob",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }


@pytest.fixture
def desk(cluster: Cluster, namespace: str, bireme: BiremeStack) -> Desk:
    return Desk(cluster, namespace)


def calls(stack: BiremeStack, line: str) -> float:
    """A counter of the extender by its whole line, as in ``requests_total{...}``."""
    connection = http.client.HTTPConnection("127.0.0.1", stack.extender_port, timeout=5)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found = [entry for entry in text.splitlines() if entry.startswith(f"bireme_extender_{line} ")]
    return float(found[0].split()[-1]) if found else 0.0


PINNED = 'requests_total{outcome="pinned",verb="filter"}'
SCORED = 'requests_total{outcome="scored",verb="prioritize"}'


def test_planned_pod_is_bound_to_its_planned_node(
    desk: Desk, bireme: BiremeStack, nodes: list[str]
) -> None:
    before = calls(bireme, PINNED)
    job = desk.job()
    desk.plan({nodes[2]: "0", nodes[1]: "1"})
    assert desk.bound(desk.pod(job, 0, pin=nodes[2])) == nodes[2]
    assert desk.bound(desk.pod(job, 1, pin=nodes[1])) == nodes[1]
    assert calls(bireme, PINNED) >= before + 2


def test_plan_decides_even_for_a_pod_without_a_pin(desk: Desk, nodes: list[str]) -> None:
    job = desk.job()
    desk.plan({nodes[3]: "0"})
    assert desk.bound(desk.pod(job)) == nodes[3]


def test_pod_of_a_stale_plan_stays_pending_and_its_event_says_why(
    desk: Desk, nodes: list[str]
) -> None:
    job = desk.job()
    desk.plan({nodes[0]: "0"}, attempt=1)
    pod = desk.pod(job, plan="1.0", pin=nodes[0])
    desk.refused(pod, "StalePlan: the pod was made from plan 1.0, the gang has plan 1.1")


def test_pod_pinned_elsewhere_than_planned_stays_pending(desk: Desk, nodes: list[str]) -> None:
    job = desk.job()
    desk.plan({nodes[0]: "0"})
    pod = desk.pod(job, pin=nodes[1])
    desk.refused(pod, f"PlannedNodeNotOffered: planned node {nodes[0]}")


def test_pod_of_a_gang_that_is_not_planned_stays_pending_until_it_is(
    desk: Desk, nodes: list[str]
) -> None:
    job = desk.job()
    pod = desk.pod(job)
    desk.refused(pod, "NoPlan: gang job is not planned yet")
    desk.plan({nodes[0]: "0"})
    desk.cluster.kubectl("annotate", "pod", pod, "-n", desk.namespace, "retry=now")
    assert desk.bound(pod) == nodes[0]


def test_pod_of_a_gang_whose_plan_is_dropped_stays_pending(desk: Desk, nodes: list[str]) -> None:
    job = desk.job()
    desk.plan({nodes[0]: "0", nodes[1]: "1"})
    assert desk.bound(desk.pod(job, 0, pin=nodes[0])) == nodes[0]
    desk.drop_plan()
    desk.refused(desk.pod(job, 1, pin=nodes[1]), "NoPlan: gang job is not planned yet")


def test_watch_of_planned_jobs_is_sent_a_job_while_it_has_a_plan(
    desk: Desk, nodes: list[str]
) -> None:
    """The field selector of the extender's watch, as the API server understands it."""
    path = f"{desk.path('trainingjobs')}?{urlencode(PLANNED)}"
    start = desk.cluster.api.get(path)["metadata"]["resourceVersion"]
    desk.job()
    desk.job("waits")
    assert desk.cluster.api.get(path)["items"] == []
    desk.plan({nodes[0]: "0"})
    assert [job["metadata"]["name"] for job in desk.cluster.api.get(path)["items"]] == ["job"]
    desk.plan({nodes[1]: "0"}, "Score")
    desk.drop_plan()
    desk.plan({nodes[2]: "0"})
    since = f"watch=true&resourceVersion={start}&timeoutSeconds=2"
    lines = desk.cluster.api.request("GET", f"{path}&{since}").body.splitlines()
    events = [json.loads(line) for line in lines]
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
        ("ADDED", "job"),
        ("MODIFIED", "job"),
        ("DELETED", "job"),
        ("ADDED", "job"),
    ]


def test_pod_of_another_job_cannot_join_by_its_labels(desk: Desk, nodes: list[str]) -> None:
    desk.job()
    desk.plan({nodes[0]: "0"})
    pod = desk.pod(desk.job("other"), group="job", pin=nodes[0])
    desk.refused(pod, "ForeignPod: the pod is not owned by TrainingJob job")


def test_score_mode_pod_is_bound_on_a_feasible_node_beside_its_gang(
    desk: Desk, bireme: BiremeStack, nodes: list[str]
) -> None:
    before = calls(bireme, SCORED)
    job = desk.job()
    desk.plan({nodes[0]: "0-1"}, "Score")
    first = desk.bound(desk.pod(job, 0))
    assert first in nodes
    wait_until(lambda: calls(bireme, SCORED) > before, 10, "a scored call")
    assert desk.bound(desk.pod(job, 1)) == first


def test_planned_pod_is_bound_while_the_extender_is_gone(
    desk: Desk, bireme: BiremeStack, nodes: list[str]
) -> None:
    job = desk.job()
    desk.plan({nodes[1]: "0", nodes[2]: "1"})
    bireme.extender.kill()
    assert desk.bound(desk.pod(job, 0, pin=nodes[1])) == nodes[1]
    bireme.extender.start().wait_ready()
    before = calls(bireme, PINNED)
    assert desk.bound(desk.pod(job, 1, pin=nodes[2])) == nodes[2]
    assert calls(bireme, PINNED) > before


def test_extender_ends_cleanly_and_logs_nothing_but_json(
    bireme: BiremeStack,
) -> None:
    assert bireme.extender.terminate() == 0
    lines = bireme.extender.log_path.read_text().splitlines()
    assert all(line.startswith("{") and line.endswith("}") for line in lines)
