"""Bounds of the operator on a node pool, against forecasts, gangs and rivals, one by one."""

import random
from pathlib import Path

import pytest

from bireme.core.node_floor import STALE_AFTER_SECONDS
from bireme.core.times import HOUR
from bireme_operator import scale_requests
from bireme_operator.term import wall_clock
from testbed.fakeapi import FakeApi
from testbed.fakeapi.answers import owner
from testbed.fakeapi.faults import Fault
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.node_pools import (
    POOL,
    SCALERS,
    FakeAutoscaler,
    add_nodes,
    events,
    leads,
    put_forecast,
    put_scaler,
    put_target,
    replicas,
    status_in,
)
from testbed.operator_term.term import (
    furnish,
    leading,
    phases,
    silence,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import training_job
from testbed.scenario.pools import pool_job
from testbed.trained_policies import metric

APPLIED = owner("argocd", "Apply")
SCALED = owner("kubectl", subresource="scale")
CREATED = owner("kubectl-create")


async def scaling(api: FakeApi, expected: str, name: str = POOL) -> str:
    """The pool's ``why``, once its condition Scaling is as expected."""
    await until(lambda: status_in(api, name)["conditions"].get("Scaling") == expected)
    return str(status_in(api, name)["why"])


async def test_a_forecast_above_max_raises_to_max_and_says_so(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler
) -> None:
    put_scaler(api, most=3)
    async with leads(api, tmp_path):
        await scaling(api, "True AtFloor")
        put_forecast(api, wall_clock(), [50.0] * 48)
        assert "3 nodes, the maximum" in await scaling(api, "True AtMax")
    assert pool.most == 3


async def test_a_gang_that_needs_more_than_max_gets_no_node(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler
) -> None:
    put_scaler(api, most=2)
    async with leads(api, tmp_path):
        await scaling(api, "True AtFloor")
        submit(api, pool_job("big", POOL, nodes=3))
        await until(lambda: status(api, "big").get("reason") == "NeverFits")
        await silence(api)
    assert pool.most == 0


async def test_a_pool_is_never_below_its_min(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler
) -> None:
    put_scaler(api, min=2)
    async with leads(api, tmp_path):
        put_forecast(api, wall_clock(), [0.0] * 48)
        await until(lambda: status_in(api).get("nodes") == 2)


async def test_a_forecast_raises_by_no_more_than_a_step_an_hour(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler
) -> None:
    later = 0.0
    put_scaler(api, most=9, maxStep=2)
    async with leading(api, tmp_path, now=lambda: wall_clock() + later):
        await scaling(api, "True AtFloor")
        put_forecast(api, wall_clock(), [9.0] * 48)
        await until(lambda: status_in(api).get("nodes") == 2)
        await silence(api)
        assert replicas(api) == 2
        later = HOUR + 1
        await until(lambda: status_in(api).get("nodes") == 4)
    assert pool.most == 4


async def test_a_gang_that_waits_is_not_held_up_by_the_step(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler
) -> None:
    put_scaler(api, maxStep=1)
    async with FakeKubelets(api, runs), leads(api, tmp_path):
        submit(api, pool_job("train", POOL, nodes=3))
        await until(lambda: phases(api) == ["Running"])


@pytest.mark.parametrize("policy", ["Never", "WhenEmpty"])
async def test_a_forecast_alone_removes_no_node(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler, policy: str
) -> None:
    put_target(api, 3)
    pool.follow()
    put_scaler(api, scaleIn={"policy": policy, "coolDownSeconds": 600})
    async with leads(api, tmp_path):
        put_forecast(api, wall_clock(), [0.0] * 48)
        assert "is at most 0" in await scaling(api, "True AtFloor")
        await silence(api)
    assert (replicas(api), pool.removed) == (3, [])


@pytest.mark.parametrize("age", [STALE_AFTER_SECONDS + 60, -2 * HOUR])
async def test_a_forecast_that_is_stale_or_from_the_future_is_not_used(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler, age: float
) -> None:
    put_scaler(api)
    async with leads(api, tmp_path):
        await scaling(api, "True AtFloor")
        put_forecast(api, wall_clock(), [3.0] * 48, made=wall_clock() - age)
        await until(lambda: "not used" in status_in(api)["why"])
        if age > 0:
            await until(lambda: status_in(api)["conditions"].get("Forecast") == "False Stale")
        await silence(api)
    assert pool.most == 0


async def test_of_two_scalers_on_one_target_the_older_works(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler
) -> None:
    put_scaler(api, "old", min=1)
    put_scaler(api, "young", min=3)
    async with leads(api, tmp_path):
        await scaling(api, "True AtFloor", "old")
        why = await scaling(api, "False TargetShared", "young")
        assert why.startswith("NodePoolScaler old is older and scales it; delete one of them")
        assert pool.most == 1
        api.store.delete(SCALERS, ("", "old"), {})
        await until(lambda: replicas(api) == 3)


@pytest.mark.parametrize(("entry", "how"), [(APPLIED, "applies"), (SCALED, "has set")])
async def test_replicas_of_another_field_manager_are_left_alone(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler, entry: dict[str, str], how: str
) -> None:
    put_target(api, 0, managedFields=[entry])
    put_scaler(api, min=2)
    async with leads(api, tmp_path):
        why = await scaling(api, "False ReplicasOwnedByAnother")
        assert why.startswith(
            f"'{entry['manager']}' {how} spec.replicas, so Bireme does not write it; "
        )
        assert "--field-manager=bireme-operator" in why
        submit(api, pool_job("train", POOL))
        await until(lambda: status(api, "train").get("reason") == "NeverFits")
        put_target(api, 0, managedFields=[owner("bireme-operator", subresource="scale")])
        await until(lambda: replicas(api) == 2)
    recorded = {event["reason"]: event["type"] for event in events(api)}
    assert recorded == {"ReplicasOwnedByAnother": "Warning", "Raised": "Normal"}


async def test_creator_of_the_target_is_overruled_once_and_respected_when_taking_it_back(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale_requests, "READ_SECONDS", 0.5)
    put_target(api, 0, managedFields=[CREATED])
    put_scaler(api, min=2)
    async with leads(api, tmp_path) as term:
        await until(lambda: status_in(api).get("nodes") == 2)
        put_target(api, 0, managedFields=[CREATED])
        await scaling(api, "False ReplicasOwnedByAnother")
        assert replicas(api) == 0
        assert metric(term, "pool_scale_writes_total", outcome="refused") == 1.0
        put_scaler(api, min=1)
        await until(lambda: replicas(api) == 1)  # an edit of the scaler asks for it anew


@pytest.mark.parametrize(
    ("status_code", "why_not"),
    [(404, "TargetNotFound"), (403, "TargetForbidden"), (500, "TargetUnavailable")],
)
async def test_a_target_that_cannot_be_scaled_says_why_and_holds_nobody_up(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler, status_code: int, why_not: str
) -> None:
    add_nodes(api, "n0")
    put_scaler(api, min=2)
    fault = Fault(status=status_code, reason="Injected")
    api.faults.add(fault, lambda _, path, __: path.endswith("/scale"), times=None)
    async with FakeKubelets(api, runs), leads(api, tmp_path):
        why = await scaling(api, f"False {why_not}")
        assert "NodePool h200" in why
        submit(api, training_job("small"))
        await until(lambda: phases(api) == ["Running"])
        api.faults.clear()
        await until(lambda: replicas(api) == 2)


async def test_a_target_that_never_answers_holds_nobody_up(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler
) -> None:
    add_nodes(api, "n0")
    put_scaler(api, min=2)
    hangs = Fault(delay_seconds=600.0)
    api.faults.add(hangs, lambda _, path, __: path.endswith("/scale"), times=None)
    async with FakeKubelets(api, runs), leads(api, tmp_path):
        await until(lambda: status_in(api).get("floor") == 2)
        submit(api, training_job("small"))
        await until(lambda: phases(api) == ["Running"])
    assert pool.most == 0


async def test_a_scale_that_changed_meanwhile_is_decided_on_anew(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler
) -> None:
    put_scaler(api, min=2)
    conflict = Fault(status=409, reason="Conflict")
    api.faults.add(conflict, lambda method, path, _: method == "PATCH" and path.endswith("/scale"))
    async with leads(api, tmp_path):
        await until(lambda: replicas(api) == 2)
        await scaling(api, "True AtFloor")


async def test_a_target_of_a_kind_that_has_no_scale_is_not_found(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler
) -> None:
    target = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "x"}
    put_scaler(api, scaleTargetRef=target)
    async with leads(api, tmp_path):
        why = await scaling(api, "False TargetNotFound")
        assert why.startswith("NodeClaim has no /scale; name something that can be scaled")
        put_scaler(api, scaleTargetRef={**target, "kind": "NodePool", "namespace": "default"})
        await until(lambda: "NodePool has no namespace" in status_in(api)["why"])
        put_scaler(api, scaleTargetRef={**target, "apiVersion": "gone.example.com/v1"})
        await until(lambda: "gone.example.com/v1 is not served here" in status_in(api)["why"])


async def test_without_the_resource_gangs_are_scheduled_as_ever(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    api.remove(SCALERS)
    submit(api, training_job("small"))
    async with FakeKubelets(api, runs), leads(api, tmp_path):
        await until(lambda: phases(api) == ["Running"])


async def test_a_hostile_loop_never_passes_max(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler
) -> None:
    chance = random.Random(7)  # noqa: S311  # reproducible, not secret
    put_scaler(api, most=4, maxStep=5000)
    async with leads(api, tmp_path):
        await scaling(api, "True AtFloor")
        for turn in range(12):
            put_forecast(api, wall_clock(), [chance.choice((0.0, 5.0, 1e9))] * 48)
            submit(api, pool_job(f"gang-{turn}", POOL, nodes=chance.randint(1, 6)))
            if chance.random() < 0.3:
                put_target(api, chance.randint(0, 4), managedFields=[CREATED])
                put_scaler(api, most=4, maxStep=5000, leadSeconds=turn)
            await silence(api, 0.3)
    assert 1 <= pool.most <= 4
