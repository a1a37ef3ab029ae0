"""An elastic job on the real control plane: it starts small, grows, makes room, and never stops."""

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from testbed.controlplane.stack import BiremeStack
from testbed.history.observed import planned_nodes
from testbed.history.observer import check
from testbed.history.recorder import Recorder
from testbed.history.records import Record, in_order
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import Manifest, priority_class, task, training_job
from testbed.scenario.tenant import Tenant, environment, nodes_of, uids_of
from testbed.scenario.waiting import always

pytestmark = [pytest.mark.cluster, pytest.mark.embedded]

LEAST, ASKED, MOST = 2, 4, 6
SETTLE_SECONDS = 3
ENV = {"BIREME_RESIZE_SETTLE_SECONDS": str(SETTLE_SECONDS)}
FIRST = ("worker", "0")
OWN = ("PET_LOCAL_ADDR", "PET_RDZV_CONF")
"""Variables that say who a replica is; all others are those of the gang."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    """Eight GPUs on two nodes."""
    with gpu_stack("elastic", tmp_path_factory.mktemp("stack"), ENV, gpus=4) as stack:
        yield stack


def elastic() -> Manifest:
    workers = task("worker", ASKED, minReplicas=LEAST, maxReplicas=MOST)
    return training_job("elastic", workers, rendezvous="torch")


def planned(plan: Manifest | None) -> int:
    return sum(int(task["replicas"]) for task in plan["tasks"]) if plan else 0


def await_size(tenant: Tenant, size: int) -> dict[str, str]:
    """Pod name to uid of the elastic job, once it runs with ``size`` replicas and no pod more."""

    def found() -> tuple[int, int, str]:
        pods = tenant.pods("elastic")
        ready = str(tenant.status("elastic").get("ready"))
        return planned(tenant.plan("elastic")), len(nodes_of(pods)), ready

    tenant.eventually(found, lambda seen: seen == (size, size, f"{size}/{size}"))
    return uids_of(tenant.pods("elastic"))


def plans(records: list[Record]) -> list[Manifest]:
    """The plans of the elastic job, one after the other."""
    seen: list[Manifest] = []
    for record in in_order(records):
        if record.kind == "TrainingJob" and record.key[1] == "elastic":
            plan = record.manifest.get("status", {}).get("plan")
            if plan and seen[-1:] != [plan]:
                seen.append(plan)
    return seen


def members(plan: Manifest) -> set[Any]:
    return set(planned_nodes(plan))


def environments(records: list[Record]) -> dict[str, dict[str, str]]:
    """Pod name of the elastic job to its variables."""
    return {
        r.key[1]: environment(r.manifest)
        for r in in_order(records)
        if r.kind == "Pod" and r.key[1].startswith("elastic-")
    }


def meeting_point(tenant: Tenant) -> tuple[str, Any]:
    service = tenant.get("Service", "elastic")
    return service["metadata"]["uid"], service["spec"]


def assert_resized_as_promised(records: list[Record]) -> None:
    """In one write each, settled in between, around the first replica and its address."""
    written = plans(records)
    sizes = [len(members(plan)) for plan in written]
    assert sizes == [LEAST, MOST, ASKED, LEAST], "pods come and go in one write of the plan"
    assert all(FIRST in members(plan) for plan in written)
    for before, after in pairwise(written):
        assert members(before) <= members(after) or members(after) <= members(before)
    resized = [datetime.fromisoformat(plan["resizedTime"]) for plan in written[1:]]
    settled = [(later - before).total_seconds() for before, later in pairwise(resized)]
    assert min(settled) >= SETTLE_SECONDS
    by_pod = environments(records)
    assert len(by_pod) == MOST
    first, *others = (
        {name: value for name, value in env.items() if name not in OWN} for env in by_pod.values()
    )
    assert others == [first] * (MOST - 1), "an added pod gets the environment of the others"
    assert first["PET_RDZV_ENDPOINT"].startswith("elastic-worker-0.elastic.")
    hosts = [name for name, env in by_pod.items() if "is_host=1" in env["PET_RDZV_CONF"]]
    assert hosts == ["elastic-worker-0"]


def test_elastic_job_grows_shrinks_and_runs_on(tenant: Tenant, tmp_path: Path) -> None:
    tenant.create(priority_class("elastic-high", 1000))
    with Recorder(tenant.cluster.kubeconfig, tmp_path / "history.jsonl") as recorder:
        tenant.create(training_job("first", task(replicas=6)))
        tenant.await_phase("first", "Running")
        tenant.create(elastic())
        small = await_size(tenant, LEAST)
        met = meeting_point(tenant)

        tenant.delete("TrainingJob", "first")
        large = await_size(tenant, MOST)
        assert small.items() <= large.items(), "who ran before the growth runs on"

        tenant.create(training_job("equal", task(replicas=4)))
        tenant.await_phase("equal", "Running")
        medium = await_size(tenant, ASKED)
        assert medium.items() <= large.items()

        urgent = training_job("urgent", task(replicas=2), priorityClassName="elastic-high")
        tenant.create(urgent)
        tenant.await_phase("urgent", "Running")
        last = await_size(tenant, LEAST)
        assert last.items() <= medium.items()
        assert "elastic-worker-0" in last

        tenant.create(training_job("next", task(), priorityClassName="elastic-high"))
        tenant.await_reason("next", "WaitingForCapacity")
        always(lambda: len(tenant.pods("elastic")), lambda n: n == LEAST, 3.0, what="the minimum")
        assert meeting_point(tenant) == met
        recorder.settle()
        records = recorder.records()
    assert_resized_as_promised(records)
    assert check(records, removed={(tenant.namespace, "first")}) == []
    status = tenant.status("elastic")
    assert (status["phase"], status["attempt"], status["gpus"]) == ("Running", 0, LEAST)
    assert {"restarts", "interruptions", "preemptions"}.isdisjoint({k for k in status if status[k]})
    reasons = {reason for _, reason, _ in tenant.events("elastic")}
    assert {"Grown", "Shrunk"} <= reasons


def test_elastic_job_outlives_a_replica_that_is_deleted(tenant: Tenant) -> None:
    tenant.create(elastic())
    before = await_size(tenant, MOST)
    tenant.delete("Pod", "elastic-worker-3", grace_seconds=0)
    tenant.eventually(
        lambda: uids_of(tenant.pods("elastic")),
        lambda now: len(now) == MOST and now != before,
    )
    now = await_size(tenant, MOST)
    assert {name for name, uid in before.items() if now.get(name) != uid} == {"elastic-worker-3"}
    assert tenant.status("elastic")["attempt"] == 0
