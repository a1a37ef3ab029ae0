"""Preemption by the scheduler of the embedded cluster: its choice and words are the real ones."""

from functools import partial
from typing import Any, Final

import pytest

from testbed.controlplane.cluster import Cluster
from testbed.scenario.clusters import embedded, gpu_cluster
from testbed.scenario.manifests import Manifest, pod_spec
from testbed.scenario.waiting import eventually

pytestmark = pytest.mark.cluster

PODS: Final = "/api/v1/namespaces/rivals/pods"
CLASSES: Final = (("urgent", 2000, "PreemptLowerPriority"), ("meek", 1500, "Never"))
WAITING: Final = ("too-large", "equal", "meek", "elsewhere", "too-large-and-urgent")


def pod(name: str, gpus: int = 8, **spec: Any) -> Manifest:
    scheduled = {**pod_spec(gpus), "schedulerName": "default-scheduler", **spec}
    return {"metadata": {"name": name}, "spec": scheduled}


def course(cluster: Cluster) -> dict[str, Any]:
    """Fill a cluster, let pods of all sorts wait, preempt one; return the words and who is left."""
    post = cluster.api.post
    cluster.create_namespace("rivals")
    for name, value, policy in CLASSES:
        made = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
        post("/apis/scheduling.k8s.io/v1/priorityclasses", made)

    def status(name: str) -> Manifest:
        found: Manifest = cluster.api.get(f"{PODS}/{name}")["status"]
        return found

    def words(name: str) -> str:
        conditions = status(name).get("conditions") or ()
        return next((str(c.get("message", "")) for c in conditions), "")

    def is_running(name: str) -> bool:
        return bool(status(name)["phase"] == "Running")

    for name in ("first", "second"):
        post(PODS, pod(name))
        eventually(partial(is_running, name))
    post(PODS, pod("too-large", 16))
    post(PODS, pod("equal"))
    post(PODS, pod("meek", priorityClassName="meek"))
    post(PODS, pod("elsewhere", priorityClassName="urgent", nodeSelector={"x": "y"}))
    post(PODS, pod("too-large-and-urgent", 16, priorityClassName="urgent"))
    said = {name: eventually(partial(words, name)) for name in WAITING}

    post(PODS, pod("urgent", priorityClassName="urgent"))
    eventually(partial(is_running, "urgent"))
    assert "nominatedNodeName" not in status("urgent")
    uid = cluster.api.get(f"{PODS}/urgent")["metadata"]["uid"]
    events = cluster.api.get("/api/v1/namespaces/rivals/events")["items"]
    texts = {
        (e["reason"], e["message"].replace(uid, "UID").replace("gpu-01", "gpu-00")) for e in events
    }
    return {
        "said": said,
        "events": {text for text in texts if text[0] in ("Preempted", "FailedScheduling")},
        "left": len(cluster.api.get(PODS)["items"]),
    }


def test_a_pod_of_higher_priority_takes_a_node_as_on_a_real_cluster() -> None:
    courses = []
    for is_embedded in (True, False):
        with embedded(is_embedded), gpu_cluster("rivals", nodes=2) as cluster:
            courses.append(course(cluster))
    assert courses[0] == courses[1]
    assert courses[0]["left"] == len(WAITING) + 2
