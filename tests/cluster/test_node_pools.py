"""Node pools that grow for gangs and forecasts and shrink when empty, by a real Karpenter."""

import time
from collections.abc import Iterator

import pytest

from controlplane.karpenter import NODE_POOL_LABEL, static_pool
from controlplane.registration import is_usable
from controlplane.stack import BiremeStack
from scenario.manifests import Manifest
from scenario.pools import forecast_status, pool_job, pool_scaler, pool_stack
from scenario.tenant import Tenant, nodes_of
from scenario.waiting import always

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with pool_stack("pools", tmp_path_factory.mktemp("pools")) as stack:
        yield stack


@pytest.fixture
def tenant(stack: BiremeStack) -> Iterator[Tenant]:
    with Tenant.staying(stack.cluster, stack.operator().log_tail) as tenant:
        yield tenant


def replicas(tenant: Tenant, pool: str) -> int:
    found: int = tenant.get("NodePool", pool)["spec"]["replicas"]
    return found


def node_names(tenant: Tenant, pool: str) -> set[str]:
    return {n["metadata"]["name"] for n in tenant.all("Node", f"{NODE_POOL_LABEL}={pool}")}


def await_nodes(tenant: Tenant, pool: str, count: int, timeout_seconds: float = 60) -> set[str]:
    """Names of the pool's nodes once they are ``count`` and all usable."""
    nodes: list[Manifest] = tenant.eventually(
        lambda: tenant.all("Node", f"{NODE_POOL_LABEL}={pool}"),
        lambda found: len(found) == count and all(map(is_usable, found)),
        timeout_seconds,
    )
    return {node["metadata"]["name"] for node in nodes}


def set_status(tenant: Tenant, scaler: str, status: Manifest) -> None:
    """Writes fields of a NodePoolScaler's status, as the nightly job does."""
    tenant.patch("NodePoolScaler", scaler, {"status": status}, subresource="status")


def test_gang_that_fits_nowhere_says_which_pool_grows_for_it_and_runs_there(
    tenant: Tenant,
) -> None:
    tenant.create(*static_pool("wanted", delay="6s"), pool_scaler("wanted"))
    tenant.create(pool_job("large", "wanted", nodes=3))
    said = tenant.await_reason("large", "ScalingUp")
    assert "3 more nodes of pool wanted" in said["message"]
    tenant.await_phase("large", "Running")
    assert set(nodes_of(tenant.pods("large")).values()) == await_nodes(tenant, "wanted", 3)
    assert replicas(tenant, "wanted") == 3


def test_gang_larger_than_the_pool_may_grow_makes_it_grow_by_nothing(tenant: Tenant) -> None:
    tenant.create(*static_pool("small"), pool_scaler("small", most=2))
    tenant.create(pool_job("vast", "small", nodes=3))
    tenant.await_reason("vast", "NeverFits")
    always(lambda: replicas(tenant, "small"), lambda n: n == 0, 5, what="left alone")


def test_forecast_raises_the_floor_ahead_so_that_a_gang_starts_without_waiting(
    tenant: Tenant,
) -> None:
    delay_seconds = 20
    tenant.create(*static_pool("ahead", delay=f"{delay_seconds}s"), pool_scaler("ahead"))
    set_status(tenant, "ahead", forecast_status(2.3))
    before = await_nodes(tenant, "ahead", 3)
    began = time.monotonic()
    tenant.create(pool_job("morning", "ahead", nodes=3))
    tenant.await_phase("morning", "Running")
    assert time.monotonic() - began < delay_seconds, "no node was made for it"
    assert set(nodes_of(tenant.pods("morning")).values()) == before


def test_nodes_go_only_when_they_are_empty_and_only_where_they_may(tenant: Tenant) -> None:
    at_night = {"policy": "WhenEmpty", "coolDownSeconds": 60}
    tenant.create(*static_pool("day"), pool_scaler("day", scaleIn=at_night))
    tenant.create(*static_pool("kept"), pool_scaler("kept"))
    for pool in ("day", "kept"):
        set_status(tenant, pool, forecast_status(3))
    await_nodes(tenant, "day", 3)
    await_nodes(tenant, "kept", 3)
    tenant.create(pool_job("late", "day"))
    tenant.await_phase("late", "Running")
    for pool in ("day", "kept"):
        set_status(tenant, pool, forecast_status(0))
    left = await_nodes(tenant, "day", 1, timeout_seconds=180)
    assert left == set(nodes_of(tenant.pods("late")).values())
    assert tenant.status("late")["phase"] == "Running"
    assert (tenant.status("late")["interruptions"], replicas(tenant, "day")) == (0, 1)
    assert len(node_names(tenant, "kept")) == 3
