"""Guards of a NodePoolScaler that no request can pass, on node pools of Karpenter."""

import json
from collections.abc import Iterator

import pytest

from testbed.controlplane.karpenter import static_pool
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.pools import (
    await_scaling,
    forecast_status,
    nodes_of_pool,
    pool_job,
    pool_scaler,
    pool_stack,
    replicas,
)
from testbed.scenario.tenant import Tenant
from testbed.scenario.waiting import always

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with pool_stack("guards", tmp_path_factory.mktemp("guards")) as stack:
        yield stack


def test_hostile_loop_never_passes_max(tenant: Tenant) -> None:
    tenant.create(*static_pool("flood"), pool_scaler("flood", most=3))
    tenant.patch("NodePoolScaler", "flood", {"status": forecast_status(4000)}, "status")

    def is_within_max() -> bool:
        return max(replicas(tenant, "flood"), len(nodes_of_pool(tenant, "flood"))) <= 3

    for number in range(1, 101):
        tenant.create(pool_job(f"flood-{number}", "flood", nodes=1 + number % 3))
        if number % 4 == 0:
            tenant.delete("TrainingJob", f"flood-{number - 2}")
        always(is_within_max, bool, 0.2, what="within max")
    tenant.eventually(lambda: replicas(tenant, "flood"), lambda count: count == 3)
    await_scaling(tenant, "flood", "AtMax")
    assert is_within_max()


def test_pool_that_only_forecasts_shows_what_it_would_be_and_stays_as_it_is(
    tenant: Tenant,
) -> None:
    tenant.create(*static_pool("watched"), pool_scaler("watched", mode="ForecastOnly"))
    tenant.patch("NodePoolScaler", "watched", {"status": forecast_status(2)}, "status")
    await_scaling(tenant, "watched", "ForecastOnly")
    tenant.eventually(lambda: tenant.status("watched", "NodePoolScaler")["floor"] == 2)
    tenant.create(pool_job("waits", "watched"))
    tenant.await_reason("waits", "NeverFits")
    assert replicas(tenant, "watched") == 0


def test_second_scaler_of_a_target_is_refused_and_the_first_works_on(tenant: Tenant) -> None:
    tenant.create(*static_pool("shared"), pool_scaler("shared", most=1))
    tenant.eventually(lambda: tenant.status("shared", "NodePoolScaler").get("conditions"))
    tenant.create(pool_scaler("younger", "shared", most=4, min=4))
    assert "shared" in await_scaling(tenant, "younger", "TargetShared")
    tenant.create(pool_job("one", "shared"))
    tenant.await_phase("one", "Running")
    assert replicas(tenant, "shared") == 1


def test_replicas_that_another_applies_are_respected_until_it_lets_go(tenant: Tenant) -> None:
    node_class, pool = static_pool("owned", 0)
    tenant.create(node_class)
    by = ("--server-side", "--field-manager=terraform")
    tenant.cluster.kubectl("apply", *by, "-f", "-", input=json.dumps(pool))
    tenant.create(pool_scaler("owned", min=1))
    assert "terraform" in await_scaling(tenant, "owned", "ReplicasOwnedByAnother")
    always(lambda: replicas(tenant, "owned"), lambda n: n == 0, 3, what="left alone")


def test_target_that_is_not_there_is_named_and_used_once_it_is(tenant: Tenant) -> None:
    tenant.create(pool_scaler("early", min=1))
    assert "early" in await_scaling(tenant, "early", "TargetNotFound")
    tenant.create(*static_pool("early"))
    tenant.eventually(lambda: replicas(tenant, "early") == 1)
