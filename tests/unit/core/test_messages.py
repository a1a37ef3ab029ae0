"""Verdicts: why a gang does not fit now, and why it would not fit an empty cluster either."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.gangs import AffinityMode, Role, RoleAffinity, Task
from bireme.core.pod_constraints import Taint, Toleration
from bireme.core.policy import Policy
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import GPU, a_gang, a_node, a_snapshot, a_task, racks
from testbed.decisions import hold_of


def decide(snapshot: ClusterSnapshot) -> Decision:
    return run_cycle(snapshot, Policy(Fifo(), Packing()))


def test_the_verdict_of_a_gang_stopped_by_fragments_names_the_task_without_room() -> None:
    used = np.zeros((2, 5), dtype=np.int64)
    snapshot = a_snapshot(racks(1, 2), a_gang("job", a_task(2, 7)))
    used[:, snapshot.nodes.axis.names.index(GPU)] = [0, 6]
    blocked = replace(snapshot, used=used, waiting=(a_gang("job", a_task(2, 5)),))
    assert "5 nvidia.com/gpu missing" not in decide(blocked).held[0].message
    assert "no room left for 1 of 2 worker" in decide(blocked).held[0].message


def test_tasks_that_fit_singly_now_but_not_together_are_reported() -> None:
    gang = a_gang("job", a_task(1, 5, name="a"), a_task(1, 3, name="b", cpu_millis=90_000))
    used = np.zeros((2, 5), dtype=np.int64)
    snapshot = a_snapshot(racks(1, 2), gang, used=used)
    gpu = snapshot.nodes.axis.names.index(GPU)
    used[:, gpu] = [1, 8]
    # Six GPUs are asked and seven are free, on one node, which has not the cores for both.
    tight = replace(gang, tasks=(gang.tasks[0], a_task(1, 1, name="b", cpu_millis=96_000)))
    (hold,) = decide(replace(snapshot, waiting=(tight,))).held
    assert hold.reason is Reason.WAITING_FOR_CAPACITY
    assert "its replicas do not fit together" in hold.message


@pytest.mark.parametrize(
    ("tasks", "text"),
    [
        pytest.param(
            (a_task(40),),
            "asks 40 worker replicas; the empty cluster holds at most 32 beside",
            id="too-wide",
        ),
        pytest.param(
            (a_task(1, 9),),
            f"one worker replica asks 9 {GPU}; the largest node it may use offers 8 {GPU}",
            id="replica-too-large",
        ),
        pytest.param(
            (a_task(1, 8, cpu_millis=97_000),),
            "one worker replica asks 97 cpu; the largest node it may use offers 96 cpu",
            id="too-many-cores",
        ),
        pytest.param(
            (Task("worker", 1, (("example.com/fpga", 2), ("pods", 1))),),
            "asks 2 example.com/fpga; the largest node it may use offers 0 example.com/fpga",
            id="nobody-offers-it",
        ),
        pytest.param(
            (a_task(2, constraints=replace(a_task().constraints, node_selector=(("disk", "x"),))),),
            "no node matches the node selector, affinity and tolerations of task worker",
            id="no-node-matches",
        ),
        pytest.param(
            (a_task(1, 8), a_task(32, 1, name="big")),
            "asks 32 big replicas; the empty cluster holds at most 24 beside",
            id="largest-beside-the-others",
        ),
        pytest.param(
            (a_task(1, 8, name="a"), a_task(1, 8, name="b"), a_task(3, 8, name="c")),
            "asks 3 c replicas; the empty cluster holds at most 2 beside",
            id="largest-of-three",
        ),
    ],
)
def test_the_message_of_a_gang_too_large_for_the_empty_cluster_names_what_would_fit(
    tasks: tuple[Task, ...], text: str
) -> None:
    used = np.zeros((4, 5), dtype=np.int64)
    used[0, 0] = 1  # something runs, and the verdict is of the cluster without it
    (hold,) = decide(a_snapshot(racks(2, 2), a_gang("job", *tasks), used=used)).held
    assert hold.reason is Reason.NEVER_FITS
    assert hold.position is None
    assert text in hold.message


def test_the_largest_that_would_fit_indeed_fits_and_one_more_does_not() -> None:
    nodes = [a_node("a", 7), a_node("b", 5), a_node("c", 2)]
    for gpus, most in ((1, 14), (2, 6), (3, 3), (5, 2), (7, 1)):
        (hold,) = decide(a_snapshot(nodes, a_gang("job", a_task(50, gpus)))).held
        assert f"at most {most} beside" in hold.message
        assert len(decide(a_snapshot(nodes, a_gang("job", a_task(most, gpus)))).admitted) == 1


def test_tasks_that_fit_singly_but_never_together_are_reported() -> None:
    gang = a_gang("job", a_task(1, 8, name="a"), a_task(1, 8, name="b"))
    (hold,) = decide(a_snapshot([a_node("only")], gang)).held
    assert hold.message == "asks 1 a + 1 b; the empty cluster cannot hold them together"


def test_a_verdict_speaks_of_its_own_task_names() -> None:
    mine, theirs = a_gang("mine", a_task(9)), a_gang("theirs", a_task(9, name="secret"))
    decision = decide(a_snapshot([a_node("only")], theirs, mine))
    assert "9 worker replicas" in hold_of(decision, "mine").message
    assert "9 secret replicas" in hold_of(decision, "theirs").message


def test_a_cluster_without_nodes_says_so() -> None:
    (hold,) = decide(a_snapshot([], a_gang())).held
    assert (hold.reason, hold.message) == (Reason.NEVER_FITS, "the cluster has no nodes")


def test_required_affinity_that_cannot_be_kept_holds_the_gang() -> None:
    nodes = [a_node("cpu", 0), a_node("gpu", 8, cpu_millis=8000)]
    gang = a_gang(
        "job",
        a_task(8, 1),
        a_task(1, 0, role=Role.PS, cpu_millis=1000),
        role_affinity=RoleAffinity(AffinityMode.REQUIRED),
    )
    assert decide(a_snapshot(nodes, gang)).held[0].reason is Reason.NEVER_FITS


def test_what_closes_nodes_to_a_gang_that_never_fits_is_named_with_their_number() -> None:
    speech = Taint("dedicated", "speech", "NoSchedule")
    nodes = [
        a_node("open"),
        a_node("tainted", taints=[speech]),
        a_node("cordoned", is_cordoned=True),
        a_node("away", is_ready=False),
        a_node("going", is_leaving=True),
        a_node("elsewhere", taints=[speech], labels={"pool": "b"}),
    ]
    tolerant = replace(a_task().constraints, tolerations=(Toleration("dedicated", "Exists"),))
    in_b = replace(a_task().constraints, node_selector=(("pool", "b"),))
    shut = "1 node, being deleted; 1 node, cordoned; 1 node, not ready"
    for constraints, closed in (
        (a_task().constraints, f"{shut}; 2 nodes, taint dedicated=speech:NoSchedule"),
        (tolerant, shut),
        (in_b, "1 node, taint dedicated=speech:NoSchedule"),
    ):
        gang = a_gang("job", a_task(9, 8, constraints=constraints))
        (hold,) = decide(a_snapshot(nodes, gang)).held
        assert hold.reason is Reason.NEVER_FITS
        assert f"(closed to it: {closed})" in hold.message


@pytest.mark.parametrize(
    "state",
    [
        {"is_ready": False},
        {"taints": [Taint("node.kubernetes.io/not-ready", "", "NoSchedule")], "is_ready": False},
        {"taints": [Taint("node.cloudprovider.kubernetes.io/uninitialized", "true", "NoSchedule")]},
        {"taints": [Taint("karpenter.sh/unregistered", "", "NoExecute")]},
        {"taints": [Taint("node.cilium.io/agent-not-ready", "", "NoExecute")]},
        {"taints": [Taint("ebs.csi.aws.com/agent-not-ready", "", "NoExecute")]},
        {"taints": [Taint("startup-taint.cluster-autoscaler.kubernetes.io/gpu", "", "NoSchedule")]},
    ],
)
def test_a_gang_that_fits_once_nodes_have_started_is_not_told_never(state: dict[str, Any]) -> None:
    taints = state.pop("taints", ())
    nodes = [a_node("old"), a_node("new", taints=taints, **state)]
    (hold,) = decide(a_snapshot(nodes, a_gang("job", a_task(2, 8)))).held
    assert hold.reason is Reason.NODES_NOT_READY
    assert hold.message.startswith("fits only with nodes that have not started yet (closed to it: ")
    assert hold.is_parked, "it is no wait for capacity, stops nobody and keeps no places"
    (wide,) = decide(a_snapshot(nodes, a_gang("job", a_task(3, 8)))).held
    assert wide.reason is Reason.NEVER_FITS
    (small,) = decide(a_snapshot(nodes, a_gang("job", a_task(1, 8)))).admitted
    assert small.gang.name == "job"


@pytest.mark.parametrize(
    "state",
    [
        {"is_leaving": True},
        {"is_cordoned": True},
        {"taints": [Taint("node.kubernetes.io/disk-pressure", "", "NoSchedule")]},
        {"taints": [Taint("dedicated", "speech-startup-team", "NoSchedule")]},
    ],
)
def test_a_node_that_is_closed_for_another_reason_has_not_merely_to_start(
    state: dict[str, Any],
) -> None:
    taints = state.pop("taints", ())
    nodes = [a_node("old"), a_node("closed", taints=taints, **state)]
    (hold,) = decide(a_snapshot(nodes, a_gang("job", a_task(2, 8)))).held
    assert hold.reason is Reason.NEVER_FITS
