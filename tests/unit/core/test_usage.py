"""Device-seconds by who held the devices, and whether they worked."""

from dataclasses import replace

from bireme.core.gpus import GPU
from bireme.core.usage import Holder, UsageMeter, Use, devices_held
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running
from tests.unit.core.preemption_cases import a_world, decide, runs

POOL = "bireme.dev/node-pool"


def test_devices_count_by_queue_namespace_pool_and_what_their_gang_does() -> None:
    world = a_snapshot([a_node("a", labels={POOL: "train"}), a_node("b"), a_node("c", 0)])
    wide = a_gang("wide", a_task(2, 2), queue="q", namespace="team")
    other = a_gang("other", a_task(1, 3), queue="q", namespace="else")
    both = a_running(wide, world.nodes, {"a": 1, "b": 1})
    starts = replace(a_running(other, world.nodes, {"a": 1}), is_starting=True)
    leaves = a_running(replace(other, uid="old"), world.nodes, {"b": 1}, is_leaving=True)
    assert devices_held(with_running(world, both, starts, leaves), ()) == {
        Holder(GPU, "q", "team", "train", Use.RUNNING): 2,
        Holder(GPU, "q", "team", "", Use.RUNNING): 2,
        Holder(GPU, "q", "else", "train", Use.STARTING): 3,
        Holder(GPU, "q", "else", "", Use.STOPPING): 3,
    }


def test_what_is_kept_for_a_gang_that_waits_counts_only_as_far_as_it_is_free() -> None:
    nodes = [a_node("part"), a_node("empty"), a_node("closed", is_cordoned=True)]
    world = runs(a_world(a_gang("big", a_task(2, 8)), nodes=nodes), "small", {"part": 3})
    held = devices_held(world, decide(world).held)
    by_use = {use: sum(n for h, n in held.items() if h.use == use) for use in Use}
    assert by_use == {Use.RUNNING: 3, Use.STARTING: 0, Use.STOPPING: 0, Use.RESERVED: 13}
    assert {h.namespace for h in held if h.use is Use.RESERVED} == {world.waiting[0].namespace}


def test_a_meter_counts_what_it_saw_until_it_looks_again() -> None:
    holder = Holder(GPU, "q", "team", "", Use.RUNNING)
    meter = UsageMeter()
    first = meter.look(1000.0, {holder: 8})
    assert (first.seconds, dict(first.device_seconds)) == (0.0, {}), "nobody saw what was before"
    assert dict(meter.look(1010.0, {holder: 2}).device_seconds) == {holder: 80.0}
    back = meter.look(1005.0, {holder: 4})
    assert (back.seconds, dict(back.device_seconds)) == (0.0, {holder: 0.0})
    assert dict(meter.look(1006.0, {}).device_seconds) == {holder: 4.0}
