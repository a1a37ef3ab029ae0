"""Node pools that grow for gangs and forecasts and shrink when empty, by a real Karpenter."""

from collections.abc import Iterator

import pytest

from testbed.controlplane.karpenter import NODE_POOL_LABEL, dynamic_pool, static_pool
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.manifests import annotations, pod, pod_spec, task, training_job
from testbed.scenario.pools import (
    await_nodes,
    forecast_status,
    nodes_of_pool,
    pool_job,
    pool_scaler,
    pool_stack,
    replicas,
)
from testbed.scenario.tenant import Tenant, nodes_of
from testbed.scenario.waiting import always

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with pool_stack("pools", tmp_path_factory.mktemp("pools")) as stack:
        yield stack


def test_gang_that_fits_nowhere_says_which_pool_grows_for_it_and_runs_there(
    tenant: Tenant,
) -> None:
    name = f"wanted-{tenant.namespace[-6:]}"  # pools belong to the cluster: a rerun has another
    tenant.create(*static_pool(name, delay="6s"), pool_scaler(name))
    tenant.create(pool_job("large", name, nodes=3))
    status = tenant.await_reason("large", "ScalingUp")
    assert f"3 more nodes of pool {name}" in status["message"]
    tenant.await_phase("large", "Running")
    assert set(nodes_of(tenant.pods("large")).values()) == await_nodes(tenant, name, 3)
    assert replicas(tenant, name) == 3


def test_gang_larger_than_the_pool_may_grow_makes_it_grow_by_nothing(tenant: Tenant) -> None:
    tenant.create(*static_pool("small"), pool_scaler("small", most=2))
    tenant.create(pool_job("vast", "small", nodes=3))
    tenant.await_reason("vast", "NeverFits")
    always(lambda: replicas(tenant, "small"), lambda n: n == 0, 5, what="left alone")


def test_operator_that_is_killed_while_nodes_come_asks_for_no_more(
    stack: BiremeStack, tenant: Tenant
) -> None:
    tenant.create(*static_pool("slow", delay="15s"), pool_scaler("slow"))
    tenant.create(pool_job("patient", "slow", nodes=2))
    tenant.await_reason("patient", "ScalingUp")
    # The first write may meet a conflict with Karpenter's own, and is tried again.
    tenant.eventually(lambda: replicas(tenant, "slow") == 2)
    stack.operator().kill()
    stack.operator().start().wait_ready()
    tenant.await_phase("patient", "Running")
    assert replicas(tenant, "slow") == 2


def test_forecast_raises_the_floor_ahead_so_that_a_gang_starts_without_waiting(
    tenant: Tenant,
) -> None:
    tenant.create(*static_pool("ahead", delay="20s"), pool_scaler("ahead"))
    tenant.patch("NodePoolScaler", "ahead", {"status": forecast_status(2.3)}, "status")
    before = await_nodes(tenant, "ahead", 3)
    tenant.create(pool_job("morning", "ahead", nodes=3))
    tenant.await_phase("morning", "Running")
    assert set(nodes_of(tenant.pods("morning")).values()) == before


def test_nodes_go_only_when_they_are_empty_and_only_where_they_may(tenant: Tenant) -> None:
    at_night = {"policy": "WhenEmpty", "coolDownSeconds": 60}
    tenant.create(*static_pool("day"), pool_scaler("day", scaleIn=at_night))
    tenant.create(*static_pool("kept"), pool_scaler("kept"))
    for pool in ("day", "kept"):
        tenant.patch("NodePoolScaler", pool, {"status": forecast_status(3)}, "status")
    await_nodes(tenant, "day", 3)
    await_nodes(tenant, "kept", 3)
    tenant.create(pool_job("late", "day"))
    tenant.await_phase("late", "Running")
    for pool in ("day", "kept"):
        tenant.patch("NodePoolScaler", pool, {"status": forecast_status(0)}, "status")
    left = await_nodes(tenant, "day", 1, timeout_seconds=180)
    assert left == set(nodes_of(tenant.pods("late")).values())
    status = tenant.status("late")
    assert (status["phase"], status.get("interruptions", 0)) == ("Running", 0)
    assert replicas(tenant, "day") == 1
    assert len(nodes_of_pool(tenant, "kept")) == 3


def test_node_with_finished_pods_does_not_go_in_place_of_a_busy_one(tenant: Tenant) -> None:
    at_night = {"policy": "WhenEmpty", "coolDownSeconds": 60}
    tenant.create(*static_pool("mixed", 2), pool_scaler("mixed", scaleIn=at_night))
    await_nodes(tenant, "mixed", 2)
    spec = pod_spec(4, nodeSelector={NODE_POOL_LABEL: "mixed"})
    over = task(replicas=2, spec=spec, fake=annotations("1s"))
    tenant.create(pool_job("busy", "mixed"))
    tenant.await_phase("busy", "Running")
    tenant.create(training_job("over", over))
    tenant.await_phase("over", "Succeeded")
    always(
        lambda: tenant.status("busy").get("phase"),
        lambda phase: phase == "Running",
        80,
        what="left alone",
    )
    assert len(tenant.pods("over")) == 2
    assert (
        "1 empty nodes stay until the ended pods on them are deleted"
        in tenant.status("mixed", "NodePoolScaler")["why"]
    )
    tenant.delete("TrainingJob", "over")
    left = await_nodes(tenant, "mixed", 1, timeout_seconds=120)
    assert left == set(nodes_of(tenant.pods("busy")).values())


def test_karpenter_moves_no_gang_together_to_save_a_node(tenant: Tenant) -> None:
    # Where it is run again, the pool of the first run is still there.
    pool = f"packed-{tenant.namespace}"
    tenant.create(*dynamic_pool(pool))
    of_pool = {NODE_POOL_LABEL: pool}
    for name in ("first", "second"):
        tenant.create(pod(name, 5, nodeSelector=of_pool))
    both = await_nodes(tenant, pool, 2)
    # A node is there before its pod is bound, and would have room for both replicas until then.
    tenant.eventually(
        lambda: [tenant.get("Pod", name)["spec"].get("nodeName") for name in ("first", "second")],
        all,
    )
    spec = pod_spec(2, nodeSelector=of_pool)
    tenant.create(training_job("spread", task(replicas=2, spec=spec)))
    tenant.await_phase("spread", "Running")
    assert set(nodes_of(tenant.pods("spread")).values()) == both
    for name in ("first", "second"):
        tenant.delete("Pod", name)
    tenant.patch("NodePool", pool, {"spec": {"disruption": {"consolidateAfter": "1s"}}})
    always(
        lambda: {node["metadata"]["name"] for node in nodes_of_pool(tenant, pool)},
        lambda names: names == both,
        45,
        what="left alone",
    )
    assert tenant.status("spread").get("interruptions", 0) == 0, tenant.events("spread")
    # Without that word it does.
    moves = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "false"}}}
    for each in tenant.pods("spread"):
        tenant.patch("Pod", each["metadata"]["name"], moves)
    tenant.eventually(lambda: tenant.status("spread").get("interruptions", 0) > 0)
