"""Inputs of DAS in clusters that are not those of its world."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.finished_runs import NO_RUNS, FinishedRuns, make_finished_run
from bireme.core.gangs import Gang, Role
from bireme.core.gpus import GPU_MODEL_LABEL, GPU_MODELS
from bireme.core.nodes import Node
from bireme.core.placement import FreeCapacity
from bireme.core.resources import IntArray
from bireme.onnx.errors import AnswerError
from bireme.onnx.sessions import Array
from bireme.testing import a_gang, a_node, a_snapshot, a_task
from bireme_lab.builtin import DasPlacement
from bireme_lab.encoders.das import MAX_GANGS, DasJobs, DasMachines, UnawareDasMachines
from bireme_lab.encoders.das_inputs import FEE_WEIGHTS, TRAINED_MODELS, within_training

ROOM, PACE, IN_FASTEST, HEALTH = 0, 2, 8, -1


def machine(name: str, product: str = "V100", *, gpus: int = 4, rack: str = "r0") -> Node:
    return a_node(name, gpus, rack=rack, labels={GPU_MODEL_LABEL: product})


def places(
    gang: Gang,
    nodes: list[Node],
    peers: dict[Role, IntArray] | None = None,
    encoder: DasMachines | None = None,
    finished: FinishedRuns = NO_RUNS,
) -> Array:
    table = a_snapshot(nodes).nodes
    capacity = FreeCapacity(table, np.zeros_like(table.allocatable))
    encoder = encoder or DasMachines()
    found = encoder.encode(gang, gang.tasks[0], capacity, peers or {}, finished)
    return found["machines"]


def test_listing_gangs_otherwise_lists_what_is_seen_otherwise() -> None:
    gangs = [a_gang(f"g{n}", a_task(n), arrived=9.0 - n, estimated_seconds=n) for n in range(1, 6)]
    snapshot = a_snapshot([machine("a"), machine("b", "T4")], *gangs, now=50.0)
    plain, turned = (DasJobs().encode(listed, snapshot) for listed in (gangs, gangs[::-1]))
    np.testing.assert_array_equal(plain["jobs"], turned["jobs"][::-1])
    assert plain["places"].tolist() == [4.0, 3.0, 2.0, 1.0, 0.0]
    assert turned["places"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_line_too_long_to_be_compared_is_left_to_the_rules() -> None:
    gangs = [a_gang("g")] * (MAX_GANGS + 1)
    with pytest.raises(AnswerError, match="3001 gangs are more than das-jobs/1 compares"):
        DasJobs().encode(gangs, a_snapshot([machine("a")]))


def test_gang_without_an_estimate_is_seen_as_the_middle_one() -> None:
    gangs = [a_gang(f"g{n}", estimated_seconds=s) for n, s in enumerate((60, 600, 6000, None))]
    seen = DasJobs().encode(gangs, a_snapshot([machine("a")], *gangs))["jobs"]
    np.testing.assert_array_equal(seen[3], seen[1])


@pytest.mark.parametrize("products", [("", ""), ("V100", "unheard-of")])
def test_nodes_of_unknown_models_are_machines_like_any(products: tuple[str, str]) -> None:
    seen = places(a_gang("g", a_task(2)), [machine("a", products[0]), machine("b", products[1])])
    np.testing.assert_array_equal(seen[0], seen[1])


def test_cluster_without_gpus_and_racks_can_be_seen() -> None:
    gang = a_gang("g", a_task(2, 0))
    nodes = [a_node("a", 0), a_node("b", 0)]
    jobs = DasJobs().encode([gang], a_snapshot(nodes, gang))
    for array in (*jobs.values(), places(gang, nodes)):
        assert np.isfinite(array).all()
    assert places(gang, nodes)[:, ROOM].tolist() == [1.0, 1.0]


def test_replica_is_best_placed_where_the_others_of_its_gang_are() -> None:
    nodes = [machine(f"{rack}{n}", rack=rack) for rack in "xy" for n in range(2)]
    rest = a_gang("g", a_task(1))
    alone = places(rest, nodes)[:, IN_FASTEST]
    assert alone.tolist() == [1.0, 1.0, 1.0, 1.0]
    three_on_y1 = {Role.WORKER: np.array([3, 3, 3])}
    assert places(rest, nodes, three_on_y1)[:, IN_FASTEST].tolist() == [0.0, 0.0, 0.0, 1.0]
    one_each_on_y = {Role.WORKER: np.array([2, 3])}
    assert places(rest, nodes, one_each_on_y)[:, IN_FASTEST].tolist() == [0.0, 0.0, 1.0, 1.0]


def test_finished_runs_slow_a_machine_down_for_policies_that_see_them() -> None:
    nodes, gang = [machine("a"), machine("b")], a_gang("g", a_task(2))
    finished = runs_on(nodes, {"a": 1200.0, "b": 600.0})
    seen = places(gang, nodes, finished=finished)
    assert seen[0, HEALTH] < -0.1 < 0.1 < seen[1, HEALTH]
    assert seen[0, PACE] < seen[1, PACE]
    plain = places(gang, nodes, encoder=UnawareDasMachines(), finished=finished)
    np.testing.assert_array_equal(plain, places(gang, nodes))
    np.testing.assert_array_equal(plain[0], plain[1])


def test_what_owners_or_gpus_have_in_common_slows_no_machine_down() -> None:
    """In a cluster of H100s alone, times are stated for an H100; and owners exaggerate."""
    nodes, gang = [machine(name, "H100") for name in "abcd"], a_gang("g", a_task(2))
    finished = runs_on(nodes, {"a": 600.0, "b": 600.0}, stated=660.0)
    assert np.abs(places(gang, nodes, finished=finished)[:, HEALTH]).max() < 0.02


def runs_on(
    nodes: list[Node], seconds: dict[str, float], stated: float | None = None
) -> FinishedRuns:
    """Twenty runs on each node that is named, which took so long there."""
    table, finished = a_snapshot(nodes).nodes, NO_RUNS
    for _ in range(20):
        for name, took in seconds.items():
            finished = finished.plus(make_finished_run({name: 1}, table, took, stated, "u", "t"))
    return finished


def test_worth_of_the_best_site_is_the_last_that_is_seen_of_a_gang() -> None:
    gangs = [a_gang("fits", a_task(4)), a_gang("does-not", a_task(9))]
    seen = DasJobs().encode(gangs, a_snapshot([machine("a", "A100")], *gangs))["jobs"]
    assert seen[0, -len(FEE_WEIGHTS)] == pytest.approx(np.log(1.7))
    assert (seen[1, -len(FEE_WEIGHTS) :] == np.float32(np.log(0.05))).all()


# --- GPU models that no training has seen -----------------------------------------------------


def test_a_free_h100_is_taken_before_a_free_a100() -> None:
    products = {"a": "NVIDIA-A100-SXM4-80GB", "h": "NVIDIA-H100-80GB-HBM3"}
    nodes = [machine(f"{p}{n}", name, rack=p) for p, name in products.items() for n in range(2)]
    capacity = FreeCapacity(a_snapshot(nodes).nodes, np.zeros_like(a_snapshot(nodes).used))
    for replicas, estimate in ((1, 600.0), (4, None), (8, 7200.0)):
        gang = a_gang("g", a_task(replicas), estimated_seconds=estimate)
        placement = DasPlacement().place(gang, capacity)
        assert placement is not None
        taken = {capacity.nodes.names[row] for row in placement.tasks[0].rows}
        assert {name[0] for name in taken} == {"h"}, replicas


def test_models_of_training_are_seen_as_they_are() -> None:
    speed = np.array([model.speed for model in TRAINED_MODELS])
    rent = np.array([model.dollars_per_hour for model in TRAINED_MODELS])
    seen = within_training(speed[1:], rent[1:])
    np.testing.assert_array_equal(seen[0], speed[1:])
    np.testing.assert_array_equal(seen[1], rent[1:])


@given(st.sets(st.floats(0.05, 50.0), min_size=1, max_size=9))
def test_other_models_are_moved_into_the_range_of_training_in_their_order(
    speeds: set[float],
) -> None:
    given_speed = np.array(sorted(speeds))
    seen, rent = within_training(given_speed, np.ones_like(given_speed))
    assert seen.min() >= TRAINED_MODELS[0].speed
    assert seen.max() <= TRAINED_MODELS[-1].speed
    assert (np.diff(seen) >= 0).all()
    assert (np.diff(seen)[np.diff(np.log(given_speed)) > 1e-6] > 0).all()
    np.testing.assert_array_equal(rent, np.ones_like(rent))


def test_every_model_of_the_table_is_within_the_range_beside_every_other() -> None:
    for model in GPU_MODELS:
        nodes = [machine("a", model.name), machine("b", "A100"), machine("c", "T4")]
        seen = DasJobs().encode([a_gang("g")], a_snapshot(nodes))["machines"]
        speed, rent = seen[:, 2], 4 * seen[:, 3]
        assert speed.min() >= np.float32(TRAINED_MODELS[0].speed)
        assert speed.max() <= np.float32(TRAINED_MODELS[-1].speed)
        assert rent.max() <= np.float32(TRAINED_MODELS[-1].dollars_per_hour) + 1e-6
