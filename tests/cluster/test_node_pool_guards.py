"""What a NodePoolScaler never does, whoever asks for it; tried on Karpenter's node pools."""

from collections.abc import Iterator

import pytest

from controlplane.karpenter import static_pool
from controlplane.stack import BiremeStack
from scenario.manifests import Manifest
from scenario.pools import forecast_status, pool_job, pool_scaler, pool_stack
from scenario.tenant import Tenant
from scenario.waiting import always

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with pool_stack("guards", tmp_path_factory.mktemp("guards")) as stack:
        yield stack


@pytest.fixture
def tenant(stack: BiremeStack) -> Iterator[Tenant]:
    with Tenant.staying(stack.cluster, stack.operator().log_tail) as tenant:
        yield tenant


def replicas(tenant: Tenant, pool: str) -> int:
    found: int = tenant.get("NodePool", pool)["spec"]["replicas"]
    return found


def await_scaling(tenant: Tenant, scaler: str, reason: str) -> Manifest:
    """The condition Scaling of a NodePoolScaler once ``reason`` is its reason."""

    def condition() -> Manifest:
        found = tenant.status(scaler, "NodePoolScaler").get("conditions", ())
        return next((c for c in found if c["type"] == "Scaling"), {})

    said: Manifest = tenant.eventually(condition, lambda c: c.get("reason") == reason)
    return said


def test_hostile_loop_never_passes_max(tenant: Tenant) -> None:
    tenant.create(*static_pool("flood"), pool_scaler("flood", most=3))
    tenant.patch_status("NodePoolScaler", "flood", forecast_status(4000))
    number = 0

    def flood() -> tuple[int, int]:
        nonlocal number
        number += 1
        tenant.create(pool_job(f"flood-{number}", "flood", nodes=1 + number % 3))
        if number % 4 == 0:
            tenant.delete("TrainingJob", f"flood-{number - 2}")
        return replicas(tenant, "flood"), len(tenant.all("Node", "karpenter.sh/nodepool=flood"))

    always(flood, lambda counts: max(counts) <= 3, 20, what="within max")
    assert number > 20
    assert replicas(tenant, "flood") == 3
    await_scaling(tenant, "flood", "AtMax")


def test_pool_that_only_forecasts_is_told_what_it_would_be_and_stays_as_it_is(
    tenant: Tenant,
) -> None:
    tenant.create(*static_pool("watched"), pool_scaler("watched", mode="ForecastOnly"))
    tenant.patch_status("NodePoolScaler", "watched", forecast_status(2))
    await_scaling(tenant, "watched", "ForecastOnly")
    tenant.eventually(lambda: tenant.status("watched", "NodePoolScaler")["floor"] == 2)
    tenant.create(pool_job("waits", "watched"))
    tenant.await_reason("waits", "NeverFits")
    assert replicas(tenant, "watched") == 0


def test_second_scaler_of_a_target_is_refused_and_the_first_works_on(tenant: Tenant) -> None:
    tenant.create(*static_pool("shared"), pool_scaler("shared", most=1))
    tenant.eventually(lambda: tenant.status("shared", "NodePoolScaler").get("conditions"))
    tenant.create(pool_scaler("younger", "shared", most=4, min=4))
    assert "shared" in await_scaling(tenant, "younger", "TargetShared")["message"]
    tenant.create(pool_job("one", "shared"))
    tenant.await_phase("one", "Running")
    assert replicas(tenant, "shared") == 1


def test_replicas_that_another_applies_are_respected_until_it_lets_go(tenant: Tenant) -> None:
    node_class, pool = static_pool("owned", 0)
    tenant.create(node_class)
    tenant.cluster.apply(pool, manager="terraform")
    tenant.create(pool_scaler("owned", min=1))
    assert "terraform" in await_scaling(tenant, "owned", "ReplicasOwnedByAnother")["message"]
    always(lambda: replicas(tenant, "owned"), lambda n: n == 0, 3, what="left alone")


def test_target_that_is_not_there_is_said_and_used_once_it_is(tenant: Tenant) -> None:
    tenant.create(pool_scaler("early", min=1))
    assert "early" in await_scaling(tenant, "early", "TargetNotFound")["message"]
    tenant.create(*static_pool("early"))
    tenant.eventually(lambda: replicas(tenant, "early") == 1)
