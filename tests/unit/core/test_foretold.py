"""Requests of a gang once all its pods are there: refused at once where they would come in vain."""

from dataclasses import replace

import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Hold
from bireme.core.policy import Policy
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.core.resources import Request
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import GPU, a_gang, a_pool, a_snapshot, a_task, racks


def hold_on(snapshot: ClusterSnapshot) -> Hold:
    (hold,) = run_cycle(snapshot, Policy(Fifo(), Packing())).held
    return hold


QUEUES = {
    "default": Queue("default", parent="lab"),
    "lab": Queue("lab", limit={GPU: 12}),
    "free": Queue("free"),
}


@pytest.mark.parametrize(
    ("queue", "foretold", "message"),
    [
        pytest.param(
            "default",
            ((GPU, 13),),
            f"minResources asks for more than queue 'lab' may ever hold: 13 {GPU}, its limit is 12",
            id="beyond-the-limit-of-a-queue-above",
        ),
        pytest.param(
            "free",
            (("cpu", 1000), (GPU, 17)),
            f"minResources asks for more than the cluster may ever offer: 17 {GPU}, all nodes "
            f"together offer 16 {GPU}",
            id="beyond-all-nodes",
        ),
        pytest.param(
            "free",
            (("example.com/quantum", 1),),
            "minResources asks for more than the cluster may ever offer: 1 example.com/quantum, "
            "all nodes together offer 0 example.com/quantum",
            id="what-no-node-offers",
        ),
        pytest.param("default", ((GPU, 12),), "1 of 3", id="at-the-limit"),
        pytest.param("free", ((GPU, 16),), "1 of 3", id="all-nodes"),
        pytest.param("free", (), "1 of 3", id="nothing-foretold"),
    ],
)
def test_a_gang_whose_pods_would_come_in_vain_is_reported_while_it_waits_for_them(
    queue: str, foretold: Request, message: str
) -> None:
    fault = (Reason.WAITING_FOR_PODS, "1 of 3")
    gang = replace(a_gang("few", a_task(1)), fault=fault, foretold=foretold, queue=queue)
    hold = hold_on(replace(a_snapshot(racks(1, 2), gang), queues=QUEUES))
    assert hold.message.startswith(message)
    assert hold.reason is (fault[0] if message == fault[1] else Reason.NEVER_FITS)
    assert hold.position is None


def test_nodes_that_pools_may_still_get_count_for_what_is_foretold() -> None:
    fault = (Reason.WAITING_FOR_PODS, "1 of 3")
    gang = replace(a_gang("few", a_task(1)), fault=fault, foretold=((GPU, 40),))
    snapshot = a_snapshot(racks(1, 2), gang)
    enough, little = a_pool(room=2, coming=1), a_pool(room=1, coming=1)
    assert hold_on(replace(snapshot, growable=(enough,))).reason is fault[0]
    hold = hold_on(replace(snapshot, growable=(little,)))
    assert hold.reason is Reason.NEVER_FITS
    assert hold.message.endswith(f"all nodes together offer 32 {GPU}")
