"""TapFinger on a cluster: which gangs wait at which pool, at which sizes, and what is chosen."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.nodes import Node
from bireme.core.resources import FloatArray
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.sizing import CapacityPool
from bireme.onnx.sessions import Array, Ask
from bireme.rl.protocols import Choices
from bireme.testing import a_gang, a_node, a_running_gang, a_snapshot, a_task, with_running
from bireme_lab.encoders.tapfinger import MAX_SIZES, ChoiceState, TapfingerPools, options_of

POOLS = SchedulingSettings().node_pool_label


class Diminishing:
    """Steps a second: the square root of the replicas."""

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        return math.sqrt(sum(sizes.values()))


def node(name: str, pool: str, gpus: int = 8, *, is_ready: bool = True) -> Node:
    return a_node(name, gpus, labels={POOLS: pool}, is_ready=is_ready)


def elastic(name: str, most: int = 8, arrived: float = 0.0) -> Gang:
    gang = a_gang(
        name,
        a_task(2, min_replicas=1, max_replicas=most),
        arrived=arrived,
        is_elastic=True,
        estimated_seconds=600.0,
    )
    return replace(gang, speed=Diminishing(), remaining_steps=600.0)


def largest(arrays: Mapping[str, Array], moves: int) -> FloatArray:
    """A network that likes the first task and the largest size."""
    pools, slots, sizes, _ = arrays["sizes"].shape
    logits = np.zeros((pools, slots, 2 + sizes))
    logits[..., 0] = -np.arange(slots)
    logits[..., 2:] = 1.0 + np.arange(sizes)
    assert moves == logits.size
    return logits.ravel()


def nothing(arrays: Mapping[str, Array], moves: int) -> FloatArray:
    """A network that likes to wait."""
    pools, slots, sizes, _ = arrays["sizes"].shape
    logits = np.zeros((pools, slots, 2 + sizes))
    logits[..., 1] = 5.0
    return logits.ravel()


def chosen(snapshot: ClusterSnapshot, ask: Ask = largest) -> Choices:
    return TapfingerPools().chooses(ask, snapshot.waiting, snapshot)


def test_every_pool_starts_gangs_until_nothing_fits() -> None:
    nodes = [node("a", "left"), node("b", "right")]
    found = chosen(a_snapshot(nodes, *(elastic(f"j{place}", arrived=place) for place in range(4))))
    assert found.order[0] == "j0"
    assert found.sizes["j0"] == {"worker": 8}
    assert sum(size["worker"] for size in found.sizes.values()) == 16
    masks = np.stack(list(found.pools.values()))
    assert masks.sum(axis=1).tolist() == [1] * len(found.order)


def test_a_gang_waits_only_where_its_smallest_size_has_room() -> None:
    nodes = [node("a", "small", 2), node("b", "large", 8)]
    wide = a_gang("wide", a_task(4), estimated_seconds=60.0)
    found = chosen(a_snapshot(nodes, wide))
    assert found.pools["wide"].tolist() == [False, True]


def test_a_gang_that_no_pool_could_hold_is_left_to_the_rules() -> None:
    nodes = [node("a", "left"), node("b", "right")]
    found = chosen(a_snapshot(nodes, a_gang("huge", a_task(12)), elastic("small")))
    assert found.order == ("small",)


def test_what_a_pool_has_on_nodes_that_are_not_ready_does_not_count() -> None:
    nodes = [node("a", "left", is_ready=False), node("b", "left", 4)]
    found = chosen(a_snapshot(nodes, elastic("job")))
    assert found.sizes["job"] == {"worker": 4}


def test_nodes_without_the_label_are_one_pool() -> None:
    found = chosen(a_snapshot([a_node("a"), a_node("b")], elastic("job", most=16)))
    assert found.sizes["job"] == {"worker": 16}
    assert found.pools["job"].all()


def test_a_gang_nobody_has_measured_gets_at_most_what_it_asks_for() -> None:
    gang = a_gang("job", a_task(3, min_replicas=1, max_replicas=8), is_elastic=True)
    found = chosen(a_snapshot([node("a", "left")], gang))
    assert found.sizes["job"] == {"worker": 3}


def test_replicas_that_save_no_time_are_not_offered() -> None:
    class Flat(Diminishing):
        def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
            return min(float(sum(sizes.values())), 3.0)

    gang = replace(elastic("job"), speed=Flat())
    snapshot = a_snapshot([node("a", "left")], gang)
    offer = options_of(gang, CapacityPool((), snapshot), snapshot, 60.0)
    assert [size["worker"] for size in offer.sizes] == [1, 2, 3]
    assert offer.seconds.tolist() == [600.0, 300.0, 200.0]


def test_many_sizes_are_a_ladder_from_the_least_to_the_most() -> None:
    gang = elastic("job", most=64)
    snapshot = a_snapshot([node(f"n{row}", "left") for row in range(8)], gang)
    offer = options_of(gang, CapacityPool((), snapshot), snapshot, 60.0)
    sizes = [size["worker"] for size in offer.sizes]
    assert sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (1, 64)
    assert len(sizes) <= MAX_SIZES


def test_all_pools_may_wait_only_while_something_runs() -> None:
    snapshot = a_snapshot([node("a", "left")], elastic("job"))
    assert chosen(snapshot, nothing).order == ("job",)
    other = a_running_gang(a_gang("other"), snapshot.nodes)
    assert chosen(with_running(snapshot, other), nothing).order == ()


def test_what_runs_is_seen_in_its_pool_with_the_time_that_it_has_left() -> None:
    snapshot = a_snapshot([node("a", "left"), node("b", "right")], elastic("job"), now=100.0)
    gang = a_gang("other", a_task(4), estimated_seconds=300.0)
    busy = with_running(snapshot, a_running_gang(gang, snapshot.nodes, row=1, started=0.0))
    table = ChoiceState.of(busy.waiting, busy)
    assert table.run_left.tolist() == [[-1.0], [200.0]]
    assert table.run_shares[1, 0, 1] == 0.5
    assert table.pools.free[:, -1].tolist() == [8, 4]


def test_running_gangs_are_neither_ordered_nor_sized() -> None:
    snapshot = a_snapshot([node("a", "left")], elastic("job"))
    running = a_running_gang(elastic("running"), snapshot.nodes, sizes={"worker": 2})
    found = chosen(with_running(snapshot, running))
    assert set(found.sizes) == set(found.order) == {"job"}


def test_a_pool_without_devices_has_shares_of_what_is_scarcest() -> None:
    nodes = [node("a", "cores", 0), node("b", "gpus")]
    gang = a_gang("job", a_task(2, gpus=0, cpu_millis=24_000), estimated_seconds=60.0)
    table = ChoiceState.of((gang,), a_snapshot(nodes, gang))
    assert table.shares[0, 0, 0].tolist() == [0.5, 0.5]
    assert table.shares[1, 0, 0].tolist() == [0.5, 0.0]
