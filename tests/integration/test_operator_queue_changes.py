"""Queues that change while gangs run in them: limits lowered, closed, deleted, made anew."""

from pathlib import Path
from typing import Any

from bireme.kube import names
from bireme_operator.leader import LeaderTerm
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import (
    furnish,
    leading,
    status,
    submit,
    until,
    with_conditions,
)
from testbed.scenario.manifests import GPU, queue, task, training_job

QUEUES = names.path("queues")
WORKERS = task("worker", 4)


def put_queue(api: FakeApi, name: str, **spec: Any) -> None:
    api.put(f"{QUEUES}/{name}", queue(name, **spec))


def admitting(api: FakeApi, name: str) -> tuple[str, str]:
    """Return the condition Admitting of a queue as ``status reason``, and its message."""
    found = api.store.get(QUEUES, ("", name)).get("status") or {}
    (given,) = found.get("conditions") or [{"message": ""}]
    return with_conditions(api, QUEUES, name)["conditions"].get("Admitting", ""), given["message"]


def metric(term: LeaderTerm, name: str, **labels: str) -> float | None:
    return term.metrics.registry.get_sample_value(f"bireme_{name}", labels)


async def test_a_limit_below_what_runs_stops_nothing_and_is_said_on_the_queue(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 2)
    put_queue(api, "org", limit={GPU: "8", "cpu": "64"})
    put_queue(api, "lab", parent="org")
    submit(api, training_job("a", WORKERS, queue="lab"))
    async with FakeKubelets(api, runs) as kubelets, leading(api, tmp_path) as term:
        await until(lambda: status(api, "a").get("phase") == "Running")
        await until(lambda: admitting(api, "lab") == ("True Admitting", "gangs start in it"))
        put_queue(api, "org", limit={GPU: "2", "cpu": "64"})
        await until(lambda: admitting(api, "org")[0] == "False OverQueueLimit")
        uses = "uses 4 nvidia.com/gpu of limit 2 nvidia.com/gpu"
        left = "no gang starts until it uses less, and running gangs continue"
        assert admitting(api, "org")[1] == f"{uses}: {left}"
        await until(lambda: admitting(api, "lab")[0] == "False OverQueueLimit")
        assert admitting(api, "lab")[1] == f"queue 'org' above it {uses}: {left}"
        found = [metric(term, m, queue="org", resource=GPU) for m in ("queue_used", "queue_limit")]
        assert found == [4.0, 2.0]
        assert metric(term, "queue_limit", queue="org", resource="cpu") == 64.0
        submit(api, training_job("b", task("worker", 1), queue="lab"))
        await until(lambda: status(api, "b").get("reason") == "OverQueueLimit")
        assert (status(api, "a")["phase"], status(api, "a").get("attempt")) == ("Running", 0)
        for index in range(4):
            kubelets.end(f"a-worker-{index}", "Succeeded")
        await until(lambda: status(api, "b").get("phase") == "Running")
        await until(lambda: admitting(api, "org")[0] == "True Admitting")


async def test_a_deleted_queue_keeps_what_runs_and_takes_its_jobs_back_when_made_anew(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 2)
    put_queue(api, "org")
    put_queue(api, "lab", parent="org", limit={GPU: "4"})
    submit(api, training_job("a", WORKERS, queue="lab"))
    submit(api, training_job("b", WORKERS, queue="lab"))
    async with FakeKubelets(api, runs), leading(api, tmp_path) as term:
        await until(lambda: status(api, "a").get("phase") == "Running")
        await until(lambda: status(api, "b").get("reason") == "OverQueueLimit")
        api.store.delete(QUEUES, ("", "lab"), {})
        await until(lambda: status(api, "b").get("reason") == "QueueNotFound")
        assert status(api, "b")["message"] == (
            "queue 'lab' does not exist; create it or set spec.queue to one of: default, org"
        )
        submit(api, training_job("c", WORKERS))
        await until(lambda: status(api, "c").get("phase") == "Running")
        assert term.state.snapshot(0).queue_usage["lab"][GPU] == 4
        await until(lambda: metric(term, "queue_used", queue="lab", resource=GPU) is None)
        put_queue(api, "lab", limit={GPU: "4"})
        await until(lambda: status(api, "b").get("reason") == "OverQueueLimit")
        await until(lambda: api.store.get(QUEUES, ("", "lab")).get("status"))
        counted = api.store.get(QUEUES, ("", "lab"))["status"]
        assert (counted["admitted"], counted["pending"], counted["usage"][GPU]) == (1, 1, "4")
        assert (status(api, "a")["phase"], status(api, "a").get("attempt")) == ("Running", 0)
        api.store.delete(QUEUES, ("", "org"), {})
        put_queue(api, "lab", parent="org", limit={GPU: "64"})
        await until(lambda: status(api, "b").get("reason") == "QueueInvalid")
        await until(lambda: admitting(api, "lab")[0] == "False QueueInvalid")
        assert "parent of queue 'lab' is 'org', which does not exist" in admitting(api, "lab")[1]
        put_queue(api, "org")
        await until(lambda: status(api, "b").get("phase") == "Running")


async def test_a_closed_queue_says_so_and_admits_what_waited_once_it_is_open_again(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 2)
    put_queue(api, "lab", state="Closed")
    put_queue(api, "wrong", limit={GPU: "many"})
    submit(api, training_job("a", WORKERS, queue="lab"))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: admitting(api, "lab")[0] == "False QueueClosed")
        await until(lambda: admitting(api, "wrong")[0] == "False QueueInvalid")
        assert "spec.limit" in admitting(api, "wrong")[1]
        await until(lambda: status(api, "a").get("reason") == "QueueClosed")
        put_queue(api, "lab")
        await until(lambda: status(api, "a").get("phase") == "Running")
        await until(lambda: admitting(api, "lab")[0] == "True Admitting")
