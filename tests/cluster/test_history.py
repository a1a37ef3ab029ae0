"""The recorder against a real API server: it misses nothing, and says so when it must have."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.controlplane.cluster import Cluster
from testbed.faultproxy import FaultProxy
from testbed.history.recorder import Recorder
from testbed.history.records import in_order, read
from testbed.scenario.clusters import gpu_cluster
from testbed.scenario.manifests import Manifest, queue

pytestmark = pytest.mark.cluster
QUEUES = "/apis/bireme.dev/v1alpha1/queues"
CHANGES = 30


@pytest.fixture(scope="module")
def gpus() -> Iterator[Cluster]:
    with gpu_cluster("history", nodes=2) as cluster:
        yield cluster


def change(cluster: Cluster, name: str, priority: int) -> None:
    found = cluster.api.get(f"{QUEUES}/{name}")
    body: Manifest = {**found, "spec": {"userPriority": priority}}
    assert cluster.api.request("PUT", f"{QUEUES}/{name}", body).status == 200


def test_every_revision_is_recorded_in_order(gpus: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with Recorder(gpus.kubeconfig, path) as recorder:
        gpus.api.post(QUEUES, queue("busy"))
        for priority in range(CHANGES):
            change(gpus, "busy", priority)
        assert gpus.api.request("DELETE", f"{QUEUES}/busy").status == 200
        recorder.settle()
        records = [r for r in in_order(recorder.records()) if r.key == ("", "busy")]
        assert len(recorder.objects("Node")) == 2
        assert [q["metadata"]["name"] for q in recorder.objects("Queue")] == ["default"]
    changes = [(r.change, r.manifest["spec"].get("userPriority")) for r in records]
    middle = [("MODIFIED", priority) for priority in range(CHANGES) if priority != 50]
    assert changes == [("ADDED", 50), *middle, ("DELETED", CHANGES - 1)]
    assert len({r.revision for r in records}) == len(records)
    assert all("managedFields" not in r.manifest["metadata"] for r in records)
    assert [r for r in read(path) if r.key == ("", "busy")] == records


def test_stopped_api_server_leaves_no_gap(gpus: Cluster, tmp_path: Path) -> None:
    gpus.api.post(QUEUES, queue("patient"))
    with Recorder(gpus.kubeconfig, tmp_path / "history.jsonl") as recorder:
        change(gpus, "patient", 1)
        recorder.settle()
        server = gpus.component("kube-apiserver")
        server.stop()
        server.start()
        change(gpus, "patient", 2)
        recorder.settle(30)
        versions = [r for r in in_order(recorder.records()) if r.key == ("", "patient")]
    assert [r.manifest["spec"]["userPriority"] for r in versions] == [50, 1, 2]


def test_expired_history_is_a_gap_and_deletions_in_it_are_reported(
    gpus: Cluster, tmp_path: Path
) -> None:
    gpus.api.post(QUEUES, queue("doomed"))
    with (
        FaultProxy(gpus.kubeconfig) as proxy,
        Recorder(proxy.kubeconfig, tmp_path / "history.jsonl") as recorder,
    ):
        # Seen by the watch, so it is open: one that opens later would see the deletion itself.
        change(gpus, "doomed", 1)
        recorder.settle()
        proxy.hold()
        proxy.cut_watches()
        assert gpus.api.request("DELETE", f"{QUEUES}/doomed").status == 200
        gpus.expire_watches()
        proxy.release()
        recorder.settle(30)
        records = recorder.records()
    changes = [r.change for r in records if r.key == ("", "doomed")]
    assert changes == ["ADDED", "MODIFIED", "DELETED"]
    assert "Queue" in {r.kind for r in records if r.change == "GAP"}


def test_server_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.history.recorder.START_SECONDS", 1.0)
    config = tmp_path / "kubeconfig"
    config.write_text(
        "clusters: [{cluster: {server: 'http://127.0.0.1:9'}}]\nusers: [{user: {}}]\n"
    )
    refused = pytest.raises(RuntimeError, match=r"could not list .*Node.* at http://127.0.0.1:9: ")
    with refused, Recorder(config, tmp_path / "history.jsonl"):
        pass
