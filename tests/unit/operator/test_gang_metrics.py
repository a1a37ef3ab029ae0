"""Metrics of gangs, and the bound on their number of series."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bireme.core.decision import Admit, Hold
from bireme.core.gpus import GPU, GPU_MODEL_LABEL
from bireme.core.placement import Placement
from bireme.core.policy import Ranked
from bireme.core.queue_tree import QueueTree
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.core.resources import CPU, MEMORY
from bireme.core.settings import SchedulingSettings
from bireme.core.usage import Holder, Lapse, Use
from bireme.kube.client import ApiError
from bireme.kube.cluster_state import ClusterState
from bireme.kube.plans import PlannedGang
from bireme.testing import a_gang, a_node, a_snapshot
from bireme_operator.lifecycle import Transition
from bireme_operator.metrics import (
    MAX_HOLDERS,
    MAX_NAMES,
    MAX_QUEUES,
    OTHER,
    GangMetrics,
    MetricMaker,
    OperatorMetrics,
    UsageMetrics,
    partial_ages,
    show,
)
from testbed.objects.facts import CREATED, a_job, a_plan, a_view, running, with_plan
from testbed.scenario.manifests import task

HOSTILE = [f"q{number:04d}" for number in range(1000)]


class Board:
    """Metrics about gangs, and what they say."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = GangMetrics(MetricMaker(self.registry))

    def says(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"bireme_{name}", labels)

    def values(self, name: str, label: str) -> list[str]:
        """The values of ``label`` that any series of this name has."""
        samples = (s for family in self.registry.collect() for s in family.samples)
        return sorted({s.labels[label] for s in samples if s.name == f"bireme_{name}"})


def held(name: str, queue: str, arrived: float, position: int | None = 1, **more: Any) -> Hold:
    reason = Reason.WAITING_FOR_CAPACITY if position is not None else Reason.QUEUE_NOT_FOUND
    return Hold(a_gang(name, queue=queue, arrived=arrived, **more), reason, "", position)


def show_waiting(board: Board, holds: Iterable[Hold], now: float = 100.0) -> None:
    queues = [Queue("default"), Queue("quick", wait_bound_seconds=30)]
    board.metrics.show_waiting(holds, a_snapshot([a_node("n0")], now=now, queues=queues))


def test_devices_are_shown_by_pool_and_of_too_many_pools_together() -> None:
    board, label = Board(), "bireme.dev/node-pool"
    nodes = [a_node(f"n{i:03}", labels={label: f"p{i:03}"}) for i in range(MAX_NAMES + 50)]
    board.metrics.show_devices((), a_snapshot(nodes))
    one = {"resource": "nvidia.com/gpu", "pool": "p007", "model": ""}
    assert board.says("devices", **one, state="free") == 8
    assert board.says("devices_scattered", **one) == 0
    rest = {"resource": "nvidia.com/gpu", "pool": OTHER, "model": OTHER}
    assert board.says("devices", **rest, state="free") == 50 * 8
    board.metrics.show_devices((), a_snapshot(nodes[:1]))
    assert board.values("devices", "pool") == ["p000"]


def test_queues_show_what_they_limit_and_guarantee_and_all_devices_they_hold() -> None:
    queues = {
        "org": Queue("org", limit={GPU: 8, CPU: 64_000}),
        "lab": Queue("lab", parent="org", guaranteed={GPU: 4}),
        "free": Queue("free"),
        "empty": Queue("empty"),
    }
    usage = {"lab": {GPU: 3, CPU: 6500, MEMORY: 1}, "free": {GPU: 2, CPU: 1000}}
    board = Board()
    board.metrics.show_limits(QueueTree(queues, usage, {GPU: 16, CPU: 128_000}), queues)
    shown = {
        (name.removeprefix("queue_"), queue, resource): value
        for name in ("queue_limit", "queue_guarantee", "queue_used")
        for queue in queues
        for resource in (GPU, CPU, MEMORY)
        if (value := board.says(name, queue=queue, resource=resource)) is not None
    }
    assert shown == {
        ("limit", "org", GPU): 8.0,
        ("limit", "org", CPU): 64.0,
        ("guarantee", "lab", GPU): 4.0,
        ("guarantee", "org", GPU): 4.0,
        ("used", "org", GPU): 3.0,
        ("used", "org", CPU): 6.5,
        ("used", "lab", GPU): 3.0,
        ("used", "free", GPU): 2.0,
    }


def test_the_longest_wait_of_every_queue_is_shown_and_how_far_it_is_past_its_bound() -> None:
    board = Board()
    show_waiting(
        board,
        [
            held("c", "quick", 60.0, 1),
            held("a", "default", 10.0, 2),
            held("b", "default", 20.0, 3),
            held("ran", "quick", 5.0, 4, attained_seconds=30.0),
        ],
    )
    assert board.says("queue_oldest_wait_seconds", queue="default") == 90.0
    assert board.says("queue_overdue_seconds", queue="default") == 0.0
    assert board.says("queue_oldest_wait_seconds", queue="quick") == 95.0
    assert board.says("queue_overdue_seconds", queue="quick") == 10.0, "that one has run before"
    assert board.says("head_wait_seconds") == 40.0, "of the one that is next, not the oldest"


def test_a_gang_with_a_fault_is_in_no_line_and_counts_by_its_reason() -> None:
    board = Board()
    show_waiting(board, [held("a", "no such queue", 0.0, None)])
    assert board.says("gangs_waiting", reason="QueueNotFound") == 1.0
    assert board.values("queue_oldest_wait_seconds", "queue") == []


def test_who_waits_no_more_is_listed_no_more() -> None:
    board = Board()
    show_waiting(board, [held("a", "default", 0.0)])
    show_waiting(board, [])
    assert board.values("gangs_waiting", "reason") == []
    assert board.values("queue_oldest_wait_seconds", "queue") == []
    assert board.says("head_wait_seconds") == 0.0


def test_starts_and_ends_of_jobs_are_measured() -> None:
    board, job = Board(), a_job(queue="default")
    plan = a_plan(job, planned=CREATED + 10)
    view = a_view(job, plan, running(job, plan))
    runs = Transition("Running", Reason.GANG_RUNNING, "")
    ends = Transition("Succeeded", Reason.SUCCEEDED, "")
    board.metrics.count_move(job, runs, view, CREATED + 14)
    board.metrics.count_move(job, ends, view, CREATED + 500)
    assert board.says("start_seconds_sum") == 4.0
    labels = {"queue": "default", "phase": "Succeeded"}
    assert board.says("completion_seconds_sum", **labels) == 500.0
    assert board.says("job_transitions_total", phase="Running", reason="GangRunning") == 1.0


# --- gangs that are not whole -----------------------------------------------------------------


def ages(job: Any, **plan: Any) -> list[float]:
    """Of the gang of ``job``, none of whose pods exists, 100 s after its creation."""
    state, planned = ClusterState(SchedulingSettings()), replace(a_plan(job), **plan)
    state.objects.jobs[job.key] = with_plan(job, planned)
    state.objects.put_job_plan(job.key, PlannedGang(job.uid, True, planned))
    return list(partial_ages(state, CREATED + 100))


def test_a_gang_is_partial_from_its_plan_on_until_all_its_replicas_have_nodes() -> None:
    job = a_job(task("worker", 2), status={"phase": "Starting"})
    assert ages(job) == [100.0]
    assert ages(job, resized=CREATED + 70) == [30.0]


@pytest.mark.parametrize(
    "job",
    [
        a_job(status={"phase": "Restarting", "attempt": 1}),
        a_job(status={"phase": "Succeeded"}),
        a_job(runPolicy={"suspend": True}),
        a_job(metadata={"deletionTimestamp": "2026-11-22T00:00:00Z"}),
    ],
    ids=["starts again", "is over", "is suspended", "is deleted"],
)
def test_a_gang_that_gives_its_places_back_is_not_partial(job: Any) -> None:
    assert ages(job, attempt=0) == []


# --- bounds -----------------------------------------------------------------------------------


def test_a_thousand_queues_are_counted_as_the_first_few_and_all_others() -> None:
    board = Board()
    show_waiting(board, [held(name, name, 0.0, 1) for name in HOSTILE])
    snapshot = a_snapshot([a_node("n0")], now=5.0)
    for name in HOSTILE:
        gang = a_gang(name, queue=name)
        admit = Admit(gang, Placement((), "", ""), Ranked(gang, 0.0), "")
        board.metrics.count_admission(admit, snapshot)
        ended = Transition("Failed", Reason.POD_FAILED, "")
        board.metrics.count_move(a_job(queue=name), ended, None, CREATED)
    board.metrics.show_queues({name: {"pending": 1, "admitted": 0} for name in HOSTILE})
    known = sorted([*HOSTILE[:MAX_QUEUES], OTHER])
    for name in ("gangs_admitted_total", "wait_seconds_count", "completion_seconds_count"):
        assert board.values(name, "queue") == known
    for name in ("queue_gangs", "queue_oldest_wait_seconds", "queue_overdue_seconds"):
        assert board.values(name, "queue") == known
    left = float(len(HOSTILE) - MAX_QUEUES)
    assert board.says("gangs_admitted_total", queue=OTHER) == left
    assert board.says("queue_gangs", queue=OTHER, state="pending") == left


def test_device_seconds_add_up_and_those_of_too_many_holders_are_counted_together() -> None:
    registry = CollectorRegistry()
    metrics = UsageMetrics(MetricMaker(registry))
    where = (GPU, "default", "team", "train")
    labels = dict(zip(("resource", "queue", "namespace", "pool"), where, strict=True))
    runs, says = Holder(*where, Use.RUNNING), registry.get_sample_value
    metrics.count(Lapse(0.0, {}), [runs])
    assert says("bireme_device_seconds_total", {**labels, "use": "stopping"}) == 0.0
    assert says("bireme_device_seconds_lost_total", labels) == 0.0, "there before it grows"
    for seconds in (10.0, 20.0):
        metrics.count(Lapse(seconds, {runs: 8 * seconds}), [runs])
    metrics.count_loss({runs: 80.0})
    metrics.count(Lapse(1.0, {Holder(GPU, n, n, "", Use.STARTING): 1.0 for n in HOSTILE}), [])
    assert says("bireme_usage_seconds_total") == 31.0
    assert says("bireme_device_seconds_total", {**labels, "use": "running"}) == 240.0
    assert says("bireme_device_seconds_lost_total", labels) == 80.0
    rest = {**dict.fromkeys(labels, OTHER), "resource": GPU, "use": "starting"}
    assert says("bireme_device_seconds_total", rest) == len(HOSTILE) - (MAX_HOLDERS - 1)


def test_a_thousand_pools_and_policies_are_counted_as_the_first_by_name() -> None:
    metrics = OperatorMetrics()
    show({metrics.pools.nodes: dict.fromkeys(HOSTILE, 1.0)})
    show({metrics.policies.regret: dict.fromkeys(HOSTILE, 1.0)})
    metrics.pools.show_forecast({name: {"0.5": 1.0, "0.9": 2.0} for name in HOSTILE})
    samples = [s for family in metrics.registry.collect() for s in family.samples]
    names = {s.labels.get("pool", s.labels.get("policy")) for s in samples} - {None}
    assert names == set(HOSTILE[:MAX_NAMES])


def test_any_status_of_an_answer_is_one_of_a_few_classes() -> None:
    classes = {ApiError(status, "", "").status_class for status in range(1000)}
    assert classes == {"none", "3xx", "4xx", "404", "409", "410", "429", "5xx", "other"}


def test_models_that_nobody_knows_are_shown_by_nodes_until_they_are_added() -> None:
    registry = CollectorRegistry()
    metrics = GangMetrics(MetricMaker(registry))
    nodes = [
        replace(a_node(name), labels={GPU_MODEL_LABEL: model} if model else {})
        for name, model in (("a", "R100"), ("b", "R100"), ("c", "Tesla-T4"), ("d", ""))
    ]

    def shown(settings: SchedulingSettings) -> float | None:
        metrics.show_devices([], a_snapshot(nodes, settings=settings))
        return registry.get_sample_value("bireme_unknown_gpu_models", {"model": "R100"})

    assert shown(SchedulingSettings()) == 2.0
    assert registry.get_sample_value("bireme_unknown_gpu_models", {"model": "Tesla-T4"}) is None
    assert shown(SchedulingSettings(gpu_models=("R100=9.5:20",))) is None
