"""One pool's decision, and what its scaler says of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bireme.core.decision import Decision, NodeRequest
from bireme.core.nodes import NodeTable
from bireme.core.reasons import Reason
from bireme.core.times import HOUR
from bireme.kube import quantities
from bireme.kube.api.node_pool_scaler import NodePoolScalerSpec, ScaleTarget, history_of
from bireme.kube.node_pool_scalers import PoolFacts
from bireme.kube.scale import Scale, ScaleFault, ScaleTargets
from bireme.testing import a_gang, a_node
from bireme_operator.cluster_reports import pool_status
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.node_pools import ManagedPool, PoolInventory
from bireme_operator.scale_requests import ScaleOrder, ScaleRequester

NOW = 1_795_312_800.0
LABELS = {"pool": "p"}
REFERENCE = ScaleTarget(api_version="v1", kind="Pool", name="p")


class Asked(ScaleRequester):
    """A target that remembers what it was asked for, and does it on demand."""

    def __init__(self, replicas: int) -> None:
        nobody: Any = None
        super().__init__(
            "p", REFERENCE, ScaleTargets(nobody), OperatorMetrics().pools, lambda: 0.0, lambda: None
        )
        self.scale = Scale("/scale", replicas, "1")
        self.orders: list[ScaleOrder | None] = []

    def submit(self, order: ScaleOrder | None) -> bool:
        self.orders.append(order)
        return True

    def carry_out(self) -> None:
        order = self.orders[-1]
        assert order is not None
        self.scale = Scale("/scale", order.replicas, "2")
        self.finished_orders.append(order)


def a_pool(nodes: int, replicas: int | None = None, **spec: Any) -> ManagedPool:
    """A pool of so many nodes whose target asks for ``replicas``."""
    given = {"nodeSelector": {"matchLabels": LABELS}, "max": 9, "mode": "Apply", **spec}
    if given["mode"] == "Apply":
        given["scaleTargetRef"] = REFERENCE.to_manifest()
    read, fault = NodePoolScalerSpec.read(given)
    assert read is not None, fault
    facts = PoolFacts("p", "p-uid", 3, "1", "", read, "", {})
    pool = ManagedPool(facts, read, table(read, nodes))
    if replicas is not None:
        pool.requester = Asked(replicas)
    return pool


def table(spec: NodePoolScalerSpec, nodes: int) -> PoolInventory:
    names = [f"n{index}" for index in range(nodes)]
    found = NodeTable([a_node(name, labels=LABELS) for name in names], ())
    return PoolInventory.of("p", spec, found, lambda _: quantities.format_timestamp(NOW - HOUR))


def decide(
    pool: ManagedPool,
    now: float = NOW,
    busy: Sequence[int] = (),
    grows: int | None = None,
    **more: Any,
) -> list[int | None]:
    """The requests to the target in this decision, with replicas on the ``busy`` nodes."""
    needed = np.zeros(pool.nodes.count, dtype=np.bool_)
    needed[list(busy)] = True
    growth = () if grows is None else (NodeRequest("p", grows, a_gang("waits")),)
    pool.decide(needed, Decision(node_requests=growth), more.get("is_settled", True), now)
    target = pool.requester
    assert isinstance(target, Asked)
    return [None if target.orders[-1] is None else target.orders[-1].replicas]


def forecast(pool: ManagedPool, upper: float) -> None:
    hours = [{"hour": quantities.format_timestamp(NOW), "p50": upper / 2, "upper": upper}]
    pool.facts.status.update(forecast=hours, forecastTime=quantities.format_timestamp(NOW))


def status_of(pool: ManagedPool, now: float = NOW) -> dict[str, Any]:
    status = pool_status(pool.facts, pool, now)
    assert status is not None
    return {**status, "conditions": {c["type"]: c for c in status["conditions"]}}


def scaling(pool: ManagedPool) -> tuple[str, str]:
    found = status_of(pool)["conditions"]["Scaling"]
    return found["status"], found["reason"]


def empty_pool(**spec: Any) -> ManagedPool:
    """Three nodes that may go after a minute."""
    return a_pool(3, 3, scaleIn={"policy": "WhenEmpty", "coolDownSeconds": 60}, **spec)


def test_what_gangs_wait_for_comes_on_top_of_what_is_asked_for_already() -> None:
    pool = a_pool(3, 5)
    assert decide(pool, grows=2) == [7]
    assert decide(pool, grows=0) == [None], "those that are coming are enough"


def test_nodes_that_are_coming_are_counted_until_they_are_there() -> None:
    pool = a_pool(3, 5)
    growable = pool.growable(NOW)
    assert growable is not None
    assert (growable.coming, growable.room, growable.asked_at) == (2, 4, NOW)
    pool.nodes = table(pool.spec, 4)
    later = pool.growable(NOW + 30)
    assert later is not None
    assert (later.coming, later.asked_at) == (1, NOW + 30)


def test_a_pool_without_a_target_or_a_template_does_not_grow_for_gangs() -> None:
    assert a_pool(1, mode="ForecastOnly").growable(NOW) is None
    assert a_pool(0, 0).growable(NOW) is None
    pool = a_pool(1, 1)
    assert pool.requester is not None
    pool.requester.fault = ScaleFault(Reason.TARGET_FORBIDDEN, "no")
    assert pool.growable(NOW) is None


def test_empty_nodes_go_after_they_have_been_empty_for_the_cool_down() -> None:
    pool = empty_pool()
    assert decide(pool, busy=[0, 2]) == [None]
    assert decide(pool, NOW + 30, busy=[2]) == [None]
    assert decide(pool, NOW + 60, busy=[2]) == [2], "the other has been empty for half of it"


def test_a_node_that_was_used_meanwhile_begins_its_cool_down_anew() -> None:
    pool = empty_pool()
    decide(pool, NOW, busy=[0, 1])
    decide(pool, NOW + 59, busy=[0, 1, 2])
    assert decide(pool, NOW + 61, busy=[0, 1]) == [None]


@pytest.mark.parametrize("why", ["unbound", "coming", "forecast", "min"])
def test_no_node_goes_while(why: str) -> None:
    pool = empty_pool(min=3 if why == "min" else 0)
    if why == "coming":
        pool.requester = Asked(4)
    if why == "forecast":
        forecast(pool, 2.5)
    decide(pool)
    assert decide(pool, NOW + 61, is_settled=why != "unbound") == [None]


def test_while_nodes_go_no_other_is_given_up_and_those_asked_for_again_are_coming() -> None:
    pool = empty_pool()
    decide(pool)
    assert decide(pool, NOW + 60, busy=[0]) == [1]
    assert isinstance(pool.requester, Asked)
    pool.requester.carry_out()
    assert pool.is_shrinking(NOW + 61)
    assert decide(pool, NOW + 61) == [None]
    assert decide(pool, NOW + 62, busy=[0], grows=1) == [2]
    pool.requester.carry_out()
    assert pool.is_shrinking(NOW + 63)
    assert pool.coming(NOW + 63) == 1, "one of three stays"
    pool.nodes = table(pool.spec, 1)
    assert not pool.is_shrinking(NOW + 64)


def test_nodes_that_do_not_go_within_a_minute_may_be_used_again() -> None:
    pool = empty_pool()
    decide(pool)
    decide(pool, NOW + 60)
    assert isinstance(pool.requester, Asked)
    pool.requester.carry_out()
    assert pool.is_shrinking(NOW + 119)
    assert not pool.is_shrinking(NOW + 120)


def test_an_order_that_failed_gives_no_node_up() -> None:
    pool = empty_pool()
    decide(pool)
    decide(pool, NOW + 60)
    assert not pool.is_shrinking(NOW + 61)


def test_what_a_forecast_raised_counts_for_an_hour_against_the_step() -> None:
    pool = a_pool(0, 0, maxStep=2)
    forecast(pool, 9.0)
    assert decide(pool) == [2]
    assert isinstance(pool.requester, Asked)
    pool.requester.carry_out()
    assert decide(pool, NOW + 60) == [None]


def test_a_pool_says_what_it_has_what_it_needs_and_why() -> None:
    pool = a_pool(3, 3)
    decide(pool, busy=[0, 1])
    status = status_of(pool)
    numbers = [status[name] for name in ("nodes", "needed", "floor", "replicas")]
    assert numbers == [3, 2, 2, 3]
    assert status["observedGeneration"] == 3
    assert status["why"].startswith("3 nodes: 2 in use or kept, there is no forecast")
    assert scaling(pool) == ("True", "AtFloor")


def test_a_pool_says_raised_until_its_nodes_have_come() -> None:
    pool = a_pool(2, 5)
    decide(pool)
    assert scaling(pool) == ("True", "Raised")
    assert status_of(pool)["why"].endswith("; 3 nodes are coming")


def test_a_fault_of_the_target_goes_before_what_the_floor_would_be() -> None:
    pool = a_pool(2, 2, min=4)
    assert pool.requester is not None
    pool.requester.fault = ScaleFault(Reason.TARGET_FORBIDDEN, "ManagedPool p: no")
    decide(pool)
    assert scaling(pool) == ("False", "TargetForbidden")
    assert status_of(pool)["why"].startswith("ManagedPool p: no; the floor is 4: from 2 to 4 nodes")


def test_a_spec_that_cannot_be_read_is_reported() -> None:
    facts = PoolFacts("p", "u", 1, "1", "", None, "spec.max: too large", {"nodes": 2})
    status = pool_status(facts, None, NOW)
    assert status is not None
    assert (status["nodes"], status["why"]) == (2, "spec.max: too large")
    assert status["conditions"][0]["reason"] == "SpecInvalid"


def test_hours_that_are_over_join_those_that_were_written() -> None:
    pool = a_pool(1, 1)
    decide(pool)
    pool.facts.status["history"] = {"days": [{"date": "2026-11-20", "demand": "4", "tasks": "1"}]}
    assert "history" in status_of(pool)
    pool.hourly.over[NOW - HOUR] = (2.5, 7.0)
    history = history_of(status_of(pool))
    assert (history.demand[0], history.demand[-1], history.tasks[-1]) == (4.0, 2.5, 7.0)
    assert history.end == NOW


def test_a_forecast_that_is_a_day_old_and_no_newer_came_is_called_stale() -> None:
    pool = a_pool(1, 1)
    forecast(pool, 2.0)
    decide(pool)
    assert "Forecast" not in status_of(pool)["conditions"]
    condition = status_of(pool, NOW + 27 * HOUR)["conditions"]["Forecast"]
    assert (condition["status"], condition["reason"]) == ("False", "Stale")
    assert condition["message"].startswith("made 27 h ago and no longer used")


def test_a_forecast_that_cannot_be_read_in_part_is_used_in_part() -> None:
    pool = a_pool(1, 1)
    forecast(pool, 2.0)
    pool.facts.status["forecast"].insert(0, {"hour": "yesterday", "p50": 1, "upper": 1})
    assert [hour.upper for hour in pool.forecast] == [2.0]
    assert pool.forecast_demand(NOW + 60) == {"0.5": 1.0, "0.9": 2.0}
    assert pool.forecast_demand(NOW + HOUR) == {}
