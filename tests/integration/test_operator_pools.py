"""Node pools under a leading operator: gangs grow them, forecasts raise their floor."""

from pathlib import Path

from bireme.core.times import HOUR
from bireme.kube.api.node_pool_scaler import history_of
from bireme_operator.term import wall_clock
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.node_pools import (
    POOL,
    SCALERS,
    TARGETS,
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
from testbed.scenario.manifests import pod, training_job
from testbed.scenario.pools import pool_job
from testbed.trained_policies import metric


async def test_a_gang_that_fits_nowhere_gets_the_nodes_it_needs(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 0)
    put_target(api, 0)
    put_scaler(api)
    async with FakeKubelets(api, runs), leads(api, tmp_path) as term:
        submit(api, pool_job("train", POOL, nodes=3))
        await until(lambda: replicas(api) == 3)
        await until(lambda: status(api, "train").get("reason") == "ScalingUp")
        assert f"3 more nodes of pool {POOL}" in status(api, "train")["message"]
        await until(lambda: status_in(api)["conditions"].get("Scaling") == "True Raised")
        await silence(api)
        assert replicas(api) == 3, "nodes that are coming are not asked for again"
        FakeAutoscaler(api).follow()
        await until(lambda: phases(api) == ["Running"])
        await until(lambda: status_in(api).get("needed") == 3)
        await until(lambda: status_in(api)["conditions"]["Scaling"] == "True AtFloor")
        assert (status_in(api)["nodes"], status_in(api)["replicas"], status_in(api)["floor"]) == (
            3,
            3,
            3,
        )
        await until(lambda: metric(term, "pool_floor", pool=POOL) == 3.0)
        assert metric(term, "pool_scale_writes_total", outcome="written") == 1.0
    assert [event["reason"] for event in events(api)] == ["Raised"]


async def test_a_gang_uses_free_nodes_beside_the_new_ones(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler
) -> None:
    put_target(api, 2)
    pool.follow()
    put_scaler(api)
    async with FakeKubelets(api, runs), leads(api, tmp_path):
        submit(api, pool_job("train", POOL, nodes=3))
        await until(lambda: phases(api) == ["Running"])
    assert pool.most == 3


async def test_a_gang_for_other_nodes_grows_nothing(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler
) -> None:
    put_scaler(api)
    async with leads(api, tmp_path):
        submit(api, pool_job("train", "another", nodes=1))
        await until(lambda: status(api, "train").get("reason") == "NeverFits")
        await until(lambda: status_in(api).get("floor") == 0)
    assert pool.most == 0


async def test_a_forecast_has_the_nodes_there_before_the_gang_comes(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler
) -> None:
    put_scaler(api)
    async with FakeKubelets(api, runs), leads(api, tmp_path) as term:
        await until(lambda: status_in(api).get("floor") == 0)
        put_forecast(api, wall_clock(), [1.2] * 48)
        await until(lambda: status_in(api).get("nodes") == 2)
        assert metric(term, "pool_forecast_nodes", pool=POOL, quantile="0.9") == 1.2
        submit(api, pool_job("train", POOL, nodes=2))
        await until(lambda: phases(api) == ["Running"])
        await until(lambda: metric(term, "pool_demand_nodes", pool=POOL) == 2.0)
    assert pool.most == 2


async def test_a_pool_that_is_only_forecast_is_looked_at_and_never_touched(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler
) -> None:
    add_nodes(api, "n0")
    put_scaler(api, mode="ForecastOnly")
    async with leads(api, tmp_path):
        put_forecast(api, wall_clock(), [3.0] * 48)
        await until(lambda: status_in(api).get("floor") == 3)
        submit(api, pool_job("train", POOL, nodes=2))
        await until(lambda: status(api, "train").get("reason") == "NeverFits")
        assert status_in(api)["conditions"]["Scaling"] == "False ForecastOnly"
        assert (
            "mode ForecastOnly does not change the target; from 1 to 3 nodes"
            in status_in(api)["why"]
        )
        await silence(api)
    assert all(resource != TARGETS for _, resource in api.requests)
    assert pool.most == 0


async def test_empty_nodes_go_after_the_cool_down_and_busy_ones_stay(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 0)
    put_target(api, 3)
    later = 0.0
    used = {"n1"}
    pool = FakeAutoscaler(api, lambda node: node in used)
    add_nodes(api, "n1")
    put_scaler(api, scaleIn={"policy": "WhenEmpty", "coolDownSeconds": 300})
    async with (
        FakeKubelets(api, runs),
        leading(api, tmp_path, now=lambda: wall_clock() + later, status_refresh_seconds=0.3),
    ):
        submit(api, pool_job("train", POOL))
        await until(lambda: phases(api) == ["Running"])
        pool.follow()
        await until(lambda: status_in(api).get("nodes") == 3)
        await silence(api)
        assert pool.removed == [], "the cool-down is not over"
        later = 301.0
        await until(lambda: status_in(api).get("nodes") == 1)
        await until(lambda: status_in(api)["conditions"]["Scaling"] == "True AtFloor")
    assert pool.removed == [f"{POOL}-2", f"{POOL}-1"]
    assert phases(api) == ["Running"]


async def test_nothing_is_planned_on_nodes_that_may_be_about_to_go(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 0)
    put_target(api, 2)
    add_nodes(api, "n0", "n1")
    later = 0.0
    put_scaler(api, min=1, scaleIn={"policy": "WhenEmpty", "coolDownSeconds": 60})
    async with (
        FakeKubelets(api, runs),
        leading(api, tmp_path, now=lambda: wall_clock() + later, status_refresh_seconds=0.3),
    ):
        await until(lambda: status_in(api).get("nodes") == 2)
        later = 61.0
        await until(lambda: replicas(api) == 1)
        submit(api, training_job("small"))
        await until(lambda: status(api, "small").get("reason") == "ScalingUp")
        await silence(api)
        assert phases(api) == ["Pending"], "either node may be the one that goes"
        assert replicas(api) == 2, "and one more is enough"
        api.store.delete("/api/v1/nodes", ("", "n0"), {})
        await until(lambda: phases(api) == ["Running"])


async def test_a_node_on_which_a_pod_of_others_has_ended_stays(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 0)
    put_target(api, 2)
    add_nodes(api, "bare", "littered")
    ended = pod("over", nodeName="littered")
    api.put("/api/v1/namespaces/default/pods/over", ended | {"status": {"phase": "Succeeded"}})
    later = 0.0
    put_scaler(api, scaleIn={"policy": "WhenEmpty", "coolDownSeconds": 60})
    async with leading(api, tmp_path, now=lambda: wall_clock() + later, status_refresh_seconds=0.3):
        await until(lambda: status_in(api).get("nodes") == 2)
        later = 61.0
        await until(lambda: replicas(api) == 1)
        api.store.delete("/api/v1/nodes", ("", "bare"), {})
        await until(
            lambda: (
                "1 empty nodes stay until the ended pods on them are deleted"
                in status_in(api).get("why", "")
            )
        )
        await silence(api)
        assert replicas(api) == 1


async def test_hours_that_were_counted_survive_the_leader(
    api: FakeApi, tmp_path: Path, pool: FakeAutoscaler
) -> None:
    put_scaler(api)
    begin = wall_clock() // HOUR * HOUR - 2 * HOUR
    for hour, demand in ((begin, 1.5), (begin + HOUR, 2.25)):
        async with leads(api, tmp_path) as term:
            await until(lambda: term.pools.by_name.get(POOL))
            term.pools.by_name[POOL].hourly.over[hour] = (demand, 3.0)
            await until(lambda: not term.pools.by_name[POOL].hourly.over)
    history = history_of(api.store.get(SCALERS, ("", POOL))["status"])
    assert history.demand[-2:].tolist() == [1.5, 2.25]
    assert history.tasks[-2:].tolist() == [3.0, 3.0]
    assert history.end == begin + 2 * HOUR
