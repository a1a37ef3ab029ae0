"""Gangs that are moved to another queue: what waits moves at once, with its pods and its use."""

from pathlib import Path
from typing import Any

from bireme.kube import names
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import (
    GROUPS,
    JOBS,
    furnish,
    leading,
    make,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import GPU, pod_group, queue, task, training_job


def furnish_queues(api: FakeApi) -> None:
    """Create ``lab``, in which 4 GPUs may be used, and ``parking``, which is closed."""
    furnish(api, 2)
    for made in (queue("lab", limit={GPU: "4"}), queue("parking", state="Closed")):
        api.put(f"{names.path('queues')}/{made['metadata']['name']}", made)


def move(api: FakeApi, resource: str, name: str, to: str) -> None:
    stored: Any = api.store.get(resource, ("default", name))
    spec = {**stored["spec"], "queue": to}
    api.store.update(resource, ("default", name), {**stored, "spec": spec})


async def test_a_waiting_job_that_is_moved_starts_in_the_other_queue(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish_queues(api)
    submit(api, training_job("job", task(replicas=4), queue="parking"))
    submit(api, pod_group("group", 2, queue="parking"))
    make(api, "a", "b", gpus=1)
    async with FakeKubelets(api, runs), leading(api, tmp_path) as term:
        await until(lambda: status(api, "job").get("reason") == "QueueClosed")
        await until(lambda: status(api, "group", GROUPS).get("reason") == "QueueClosed")
        move(api, JOBS, "job", "lab")
        move(api, GROUPS, "group", "default")
        await until(lambda: status(api, "job").get("phase") == "Running")
        await until(lambda: status(api, "group", GROUPS).get("phase") == "Running")
        usage = term.state.snapshot(0).queue_usage
        assert {name: held[GPU] for name, held in usage.items()} == {"lab": 4, "default": 2}
        assert (status(api, "job")["queue"], status(api, "job")["plan"]["queue"]) == ("lab", "lab")
