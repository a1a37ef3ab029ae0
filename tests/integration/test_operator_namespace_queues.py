"""The queue of gangs that name none: a label of their namespace says it, else it is ``default``."""

from pathlib import Path

from bireme.kube import names
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import GROUPS, furnish, leading, make, status, submit, until
from testbed.scenario.manifests import GPU, pod_group, queue, task, training_job

WORKERS = task("worker", 4)


def furnish_queues(api: FakeApi, *others: str) -> None:
    """Create two nodes and the queues ``default``, which admits nothing, and ``others``."""
    furnish(api, 2)
    api.put(f"{names.path('queues')}/default", queue("default", limit={GPU: "0"}))
    for name in others:
        api.put(f"{names.path('queues')}/{name}", queue(name))


def label(api: FakeApi, value: str | None) -> None:
    """Set the label of the namespace ``default``, or take it away."""
    labels = {} if value is None else {names.DEFAULT_QUEUE_LABEL: value}
    api.put("/api/v1/namespaces/default", {"metadata": {"name": "default", "labels": labels}})


async def test_gangs_that_name_no_queue_count_in_that_of_their_namespace(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish_queues(api, "team")
    label(api, "team")
    submit(api, training_job("named", WORKERS, queue="default"), training_job("job", WORKERS))
    submit(api, pod_group("group", 2))
    make(api, "a", "b")
    async with FakeKubelets(api, runs), leading(api, tmp_path) as term:
        await until(lambda: status(api, "job").get("phase") == "Running")
        await until(lambda: status(api, "group", GROUPS).get("phase") == "Running")
        await until(lambda: status(api, "named").get("reason") == "NeverFits")
        assert term.state.snapshot(0).queue_usage["team"][GPU] == 8
    found = [status(api, "job"), status(api, "group", GROUPS)]
    assert [(each["queue"], each["plan"]["queue"]) for each in found] == [("team", "team")] * 2
    assert status(api, "named")["queue"] == "default"


async def test_a_waiting_gang_follows_the_label_and_a_running_one_stays(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish_queues(api, "team", "lab")
    label(api, None)
    submit(api, training_job("job", WORKERS), pod_group("group", 2))
    make(api, "a", "b")
    async with FakeKubelets(api, runs), leading(api, tmp_path) as term:
        await until(lambda: status(api, "job").get("reason") == "NeverFits")
        await until(lambda: status(api, "group", GROUPS).get("reason") == "NeverFits")
        label(api, "team")
        await until(lambda: status(api, "job").get("phase") == "Running")
        await until(lambda: status(api, "group", GROUPS).get("phase") == "Running")
        label(api, "lab")
        submit(api, training_job("later", WORKERS))
        await until(lambda: status(api, "later").get("phase") == "Running")
        usage = term.state.snapshot(0).queue_usage
        assert {name: held[GPU] for name, held in usage.items()} == {"team": 8, "lab": 4}


async def test_a_label_that_names_no_queue_is_named_with_its_value_and_the_remedy(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish_queues(api, "team")
    label(api, "taem")
    submit(api, training_job("job", WORKERS), training_job("own", WORKERS, queue="taem"))
    async with leading(api, tmp_path):
        await until(lambda: status(api, "job").get("reason") == "QueueNotFound")
        await until(lambda: status(api, "own").get("reason") == "QueueNotFound")
        assert status(api, "job")["message"] == (
            "queue 'taem', which label bireme.dev/default-queue of namespace 'default' names, does "
            "not exist; create it, correct the label, or set spec.queue to one of: default, team"
        )
        assert status(api, "own")["message"] == (
            "queue 'taem' does not exist; create it or set spec.queue to one of: default, team"
        )
        assert status(api, "job")["queue"] == "taem"
