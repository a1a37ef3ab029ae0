"""Gangs that the core plans bind as planned, and what it holds could not have been placed whole.

Many sequences of gangs are judged by kube-scheduler's plugins alone; a few are bound by the real
one, which must also say what the plugins say.
"""

import time
from collections.abc import Iterator, Mapping, Sequence

import pytest

from testbed.controlplane.cluster import Cluster
from testbed.controlplane.nodes import KWOK_ANNOTATION
from testbed.controlplane.waiting import wait_until
from testbed.filters.comparison import PLANNED
from testbed.filters.drawing import NAMESPACE, Gangs, gangs_of
from testbed.filters.judge import Judge
from testbed.filters.sequences import Course, JudgedCluster, followed
from testbed.scenario.clusters import bare_cluster
from testbed.scenario.manifests import Manifest

JUDGED = range(150)
BOUND = range(1000, 1004)
QUIET_SECONDS = 2.5
"""After so long without another binding kube-scheduler has tried every pod again."""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge() as judge:
        yield judge


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster whose nodes come and go, with a namespace of a plain name."""
    with bare_cluster("verdicts") as borrowed:
        borrowed.create_namespace(NAMESPACE)
        yield borrowed


class RealCluster:
    """The nodes of one sequence in a real cluster, whose kube-scheduler binds the pods."""

    def __init__(self, cluster: Cluster, judge: Judge, gangs: Gangs) -> None:
        self._api = cluster.api
        self._judge = judge
        self.unplanned = 0
        """Planned gangs that a plugin the planner does not plan for kept from binding."""
        nodes = [made for made in gangs.objects if made["kind"] == "Node"]
        for made in nodes:
            meta = {k: v for k, v in made["metadata"].items() if k in ("name", "labels")}
            meta["annotations"] = {KWOK_ANNOTATION: "fake"}
            self._api.post("/api/v1/nodes", {**made, "metadata": meta})
        self._names = {made["metadata"]["name"] for made in nodes}
        wait_until(self._are_settled, 30, "nodes that are ready and say so")

    def _are_settled(self) -> bool:
        found = [node for node in self.objects() if _is_settled(node)]
        return {node["metadata"]["name"] for node in found} == self._names

    def objects(self) -> Sequence[Manifest]:
        return self._all("/api/v1/nodes", "Node")

    def pods(self) -> Sequence[Manifest]:
        found = self._all(f"/api/v1/namespaces/{NAMESPACE}/pods", "Pod")
        return [pod for pod in found if pod["spec"].get("nodeName")]

    def _all(self, path: str, kind: str) -> list[Manifest]:
        items = self._api.get(path)["items"]
        return [{"apiVersion": "v1", "kind": kind, **each} for each in items]

    def bind(self, pods: Sequence[Manifest]) -> Mapping[str, str]:
        for pod in pods:
            spec = {**pod["spec"], "schedulerName": "default-scheduler"}
            # The garbage collector would look for its job.
            meta = {k: v for k, v in pod["metadata"].items() if k != "ownerReferences"}
            path = f"/api/v1/namespaces/{NAMESPACE}/pods"
            self._api.post(path, {**pod, "metadata": meta, "spec": spec})
        lost = self._unbound({pod["metadata"]["name"] for pod in pods})
        if not lost:
            return {}
        there = [*self.objects(), *self.pods()]
        tried = [pod for pod in pods if pod["metadata"]["name"] in lost]
        is_planned = False
        for verdict in self._judge.ask(there, tried).tried:
            refusals = verdict.refusals.values()
            name = verdict.pod["metadata"]["name"]
            assert all(refusals), f"the judge takes {name}, kube-scheduler says {lost[name]}"
            is_planned |= all(
                any(each.plugin in PLANNED for each in against) for against in refusals
            )
        is_pinned = all(pod["spec"].get("schedulerName") == "bireme" for pod in pods)
        if is_pinned and not is_planned:
            self.unplanned += 1
            self.remove(pods)
            return {}
        return lost

    def _unbound(self, names: set[str]) -> dict[str, str]:
        """Return kube-scheduler's words on the pods that still have no node when all is quiet."""
        since, before = time.monotonic(), len(names)
        lost = dict.fromkeys(names, "")
        while lost and time.monotonic() - since < QUIET_SECONDS:
            time.sleep(0.1)
            found = self._all(f"/api/v1/namespaces/{NAMESPACE}/pods", "Pod")
            lost = {
                pod["metadata"]["name"]: _scheduler_words(pod)
                for pod in found
                if pod["metadata"]["name"] in names and not pod["spec"].get("nodeName")
            }
            if len(lost) < before or not all(lost.values()):
                since, before = time.monotonic(), len(lost)
        return lost

    def remove(self, pods: Sequence[Manifest]) -> None:
        names = {pod["metadata"]["name"] for pod in pods}
        self._delete(f"/api/v1/namespaces/{NAMESPACE}/pods", names)

    def close(self) -> None:
        self.remove(self._all(f"/api/v1/namespaces/{NAMESPACE}/pods", "Pod"))
        self._delete("/api/v1/nodes", self._names)

    def _delete(self, path: str, names: set[str]) -> None:
        for name in names:
            self._api.request("DELETE", f"{path}/{name}?gracePeriodSeconds=0")
        wait_until(
            lambda: not names & {each["metadata"]["name"] for each in self._api.get(path)["items"]},
            30,
            f"the end of {', '.join(sorted(names))}",
        )


def _scheduler_words(pod: Manifest) -> str:
    conditions = pod["status"].get("conditions", [])
    return next((c["message"] for c in conditions if c["type"] == "PodScheduled"), "")


def _is_settled(node: Manifest) -> bool:
    """Return whether the controllers have made the node's taints follow from its state."""
    keys = {taint["key"] for taint in node["spec"].get("taints", [])}
    ready = any(
        c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"]
    )
    cordon = "node.kubernetes.io/unschedulable"
    return (
        ready
        and "node.kubernetes.io/not-ready" not in keys
        and (cordon in keys or not node["spec"].get("unschedulable"))
    )


def test_gangs_are_judged_as_planned(judge: Judge) -> None:
    drawn = [gangs_of(seed, volumes=bool(seed % 2)) for seed in JUDGED]
    courses = [followed(gangs, JudgedCluster(judge, gangs.objects), judge) for gangs in drawn]
    assert_agreed(courses)
    assert sum(course.held for course in courses) > 0.2 * sum(c.admitted for c in courses)


@pytest.mark.parametrize("seed", BOUND)
def test_kube_scheduler_binds_gangs_as_planned(cluster: Cluster, judge: Judge, seed: int) -> None:
    gangs = gangs_of(seed)
    real = RealCluster(cluster, judge, gangs)
    try:
        course = followed(gangs, real, judge)
    finally:
        real.close()
    assert_agreed([course])
    assert real.unplanned < course.admitted, "none was bound"


def assert_agreed(courses: Sequence[Course]) -> None:
    disputes = [str(dispute) for course in courses for dispute in course.disputes]
    assert not disputes, "\n".join(disputes[:20])
