"""What the devices of a snapshot do, by pool and model."""

from bireme.core.device_use import DeviceUse, device_uses, places_for_holds
from bireme.core.gpus import GPU, GPU_MODEL_LABEL
from bireme.testing import a_gang, a_node, a_task
from tests.unit.core.preemption_cases import a_world, decide, runs

POOL = "bireme.dev/node-pool"


def test_every_device_is_counted_once_by_what_it_does() -> None:
    h100 = {POOL: "train", GPU_MODEL_LABEL: "H100"}
    nodes = [
        a_node("part", labels=h100),
        a_node("empty", labels=h100),
        a_node("closed", labels=h100, is_cordoned=True),
        a_node("plain"),
        a_node("none", 0),
    ]
    world = a_world(a_gang("wide", a_task(3, 8)), nodes=nodes)
    world = runs(world, "small", {"part": 3})
    decision = decide(world)
    # The gang that is blocked keeps three nodes, of which one is not empty yet.
    assert list(device_uses(world, places_for_holds(world, decision.held))) == [
        DeviceUse(GPU, "", "", used=0, kept=8, free=0, closed=0, scattered=0),
        DeviceUse(GPU, "train", "H100", used=3, kept=13, free=0, closed=8, scattered=0),
    ]
    assert list(device_uses(world, places_for_holds(world, ()))) == [
        DeviceUse(GPU, "", "", used=0, kept=0, free=8, closed=0, scattered=0),
        DeviceUse(GPU, "train", "H100", used=3, kept=0, free=13, closed=8, scattered=5),
    ]


def test_a_node_with_more_in_use_than_it_has_counts_no_more() -> None:
    """Allocatable may shrink under pods that run."""
    world = runs(a_world(nodes=[a_node("n0", 4)]), "large", {"n0": 6})
    (use,) = device_uses(world, places_for_holds(world, ()))
    assert (use.used, use.free) == (4, 0)
