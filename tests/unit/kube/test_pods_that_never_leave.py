"""A gang that fits only beside pods that will never leave gets that reason, instead of waiting."""

import msgspec

from bireme.core.cycle import run_cycle
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.kube import wire
from bireme.kube.cluster_state import ClusterState
from bireme.registry import make_policy
from bireme.testing import a_node
from testbed.objects.facts import node_manifest

SETTINGS = SchedulingSettings()


def a_pod(owner_kind: str, gpus: int) -> wire.V1Pod:
    pod = {
        "metadata": {
            "name": "p",
            "namespace": "kube-system",
            "ownerReferences": [{"kind": owner_kind, "name": "x", "uid": "u"}],
        },
        "spec": {
            "nodeName": "n0",
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": gpus}}}],
        },
        "status": {"phase": "Running"},
    }
    return msgspec.json.decode(msgspec.json.encode(pod), type=wire.V1Pod)


def a_state() -> ClusterState:
    state = ClusterState(SETTINGS)
    node = msgspec.json.decode(msgspec.json.encode(node_manifest(a_node("n0"))), type=wire.V1Node)
    state.nodes.put(("", "n0"), node)
    queue = {"metadata": {"name": "default"}, "spec": {}}
    state.tenancy.put_queue(
        ("", "default"), msgspec.json.decode(msgspec.json.encode(queue), type=wire.CustomObject)
    )
    template = {
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 8}}}]}
    }
    job = {
        "metadata": {"name": "j", "namespace": "default", "uid": "j"},
        "spec": {"tasks": [{"name": "w", "role": "worker", "replicas": 1, "template": template}]},
    }
    state.objects.put_job(
        ("default", "j"), msgspec.json.decode(msgspec.json.encode(job), type=wire.CustomObject)
    )
    return state


def verdict(state: ClusterState) -> Reason:
    (action,) = run_cycle(state.snapshot(0.0), make_policy(SETTINGS)).actions
    return action.reason


def test_whole_node_gang_never_fits_beside_a_daemon_that_uses_a_gpu() -> None:
    state = a_state()
    state.objects.put_other_pod(("kube-system", "p"), a_pod("DaemonSet", 1))

    assert verdict(state) is Reason.NEVER_FITS


def test_whole_node_gang_waits_for_a_pod_that_can_end() -> None:
    state = a_state()
    state.objects.put_other_pod(("kube-system", "p"), a_pod("Job", 1))

    assert verdict(state) is Reason.WAITING_FOR_CAPACITY


def test_gang_is_admitted_once_the_daemon_is_gone() -> None:
    state = a_state()
    daemon = a_pod("DaemonSet", 1)
    state.objects.put_other_pod(("kube-system", "p"), daemon)
    verdict(state)
    state.objects.delete_other_pod(("kube-system", "p"))

    assert verdict(state) is Reason.ADMITTED
