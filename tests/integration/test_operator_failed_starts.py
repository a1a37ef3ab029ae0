"""Gangs that kube-scheduler or a kubelet will not take: their places go back, and others start."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from bireme.core.settings import SchedulingSettings
from bireme.kube import names, quantities
from bireme_operator.term import wall_clock
from testbed.fakeapi import FakeApi
from testbed.fakeapi.store import Key, Object
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import (
    GROUPS,
    JOBS,
    endings,
    events_about,
    furnish,
    leading,
    make,
    pods,
    silence,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import (
    Manifest,
    pod_group,
    priority_class,
    queue,
    task,
    training_job,
)
from testbed.simcluster.objects import PODS

WORDS = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
WHOLE = task("worker", 8)


class Pulling(FakeKubelets):
    """The image of one gang cannot be pulled."""

    def __init__(self, api: FakeApi) -> None:
        super().__init__(api, runs)
        self._store = api.store
        self.odd = "odd"

    def _step(self, key: Key, pod: Object) -> None:
        is_odd = pod["metadata"]["labels"].get(names.POD_GROUP_LABEL) == self.odd
        if not (is_odd and pod["spec"].get("nodeName")):
            super()._step(key, pod)
        elif "containerStatuses" not in pod.get("status", {}):
            waiting = {"reason": "ErrImagePull", "message": "no such image"}
            containers = [{"name": "train", "state": {"waiting": waiting}}]
            said = {"phase": "Pending", "containerStatuses": containers}
            self._store.update(PODS, key, {"status": said}, "status")


class Refusing(FakeKubelets):
    """Of pods of gang ``odd`` the scheduler says no to one; or its kubelet does, if it is bound."""

    def __init__(self, api: FakeApi, *, binds_odd: bool = False, node: str = "") -> None:
        super().__init__(api, runs)
        self._store = api.store
        self._binds_odd = binds_odd
        self._node = node

    def _step(self, key: Key, pod: Object) -> None:
        is_odd = pod["metadata"]["labels"].get(names.POD_GROUP_LABEL) == "odd"
        is_it = is_odd and key[1].endswith("-0")
        bound = pod["spec"].get("nodeName")
        if is_it and not self._binds_odd and not bound:
            if not pod.get("status", {}).get("conditions"):
                condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                self._put(
                    key, {"phase": "Pending", "conditions": [{**condition, "message": WORDS}]}
                )
            return
        if is_it and bound and bound == self._node:
            if pod.get("status", {}).get("phase") != "Failed":
                words = {"reason": "UnexpectedAdmissionError", "message": "no device is left"}
                self._put(key, {"phase": "Failed", **words})
            return
        super()._step(key, pod)

    def _put(self, key: Key, said: dict[str, Any]) -> None:
        self._store.update(PODS, key, {"status": said}, "status")


class Silent(FakeKubelets):
    """The scheduler says nothing of pods of the gang ``odd``, as if they were not its own."""

    def __init__(self, api: FakeApi) -> None:
        super().__init__(api, runs)

    def _step(self, key: Key, pod: Object) -> None:
        if pod["metadata"]["labels"].get(names.POD_GROUP_LABEL) != "odd":
            super()._step(key, pod)


async def test_silence_about_one_job_while_others_are_bound_is_its_own_failed_start(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 2)
    async with Silent(api), leading(api, tmp_path, bind_timeout_seconds=2.0):
        submit(api, training_job("odd", WHOLE), training_job("other", WHOLE))
        await until(lambda: status(api, "odd").get("startFailures") == 1)
        paused = status(api, "odd")
        assert (paused["phase"], paused["reason"]) == ("Restarting", "GangNotBoundInTime")
        assert (
            "reports nothing about them, although it serves gangs that were planned later"
            in paused["message"]
        )
        assert paused["retryTime"]
        submit(api, training_job("equal", WHOLE))
        await until(lambda: status(api, "equal").get("phase") == "Running")
        assert "plan" not in status(api, "odd")


async def test_silence_about_a_group_while_others_are_bound_is_its_own_failed_start(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 2)
    async with Silent(api), leading(api, tmp_path, bind_timeout_seconds=2.0):
        submit(api, pod_group("odd", 2), pod_group("other", 2))
        make(api, "a", "b", group="odd", gpus=4)
        make(api, "c", "d", group="other", gpus=4)
        await until(lambda: status(api, "odd", GROUPS).get("startFailures") == 1)
        paused = status(api, "odd", GROUPS)
        assert (paused["phase"], paused["reason"]) == ("Interrupted", "GangNotBoundInTime")
        assert "2 of 2 pods are not on their nodes" in paused["message"]


def is_stopped(api: FakeApi, times: int) -> bool:
    return bool(status(api, "low").get("preemptions") == times)


async def test_a_job_that_nobody_binds_stops_another_twice_at_most_and_lets_it_run_again(
    api: FakeApi, tmp_path: Path
) -> None:
    """The first silence may be about all gangs; after the second, others were served between."""
    furnish(api, 1)
    api.put("/apis/scheduling.k8s.io/v1/priorityclasses/high", priority_class("high", 1000))
    eager = SchedulingSettings(min_runtime_seconds=0, service_threshold=0)
    ahead = [0.0]
    async with (
        Silent(api),
        leading(
            *(api, tmp_path),
            scheduling=eager,
            bind_timeout_seconds=2.0,
            now=lambda: wall_clock() + ahead[0],
        ),
    ):
        submit(api, training_job("low", WHOLE))
        await until(lambda: status(api, "low").get("phase") == "Running")
        ahead[0] += 2.0  # plan times are whole seconds: nobody is served after this one
        submit(api, training_job("odd", WHOLE, priorityClassName="high"))
        for stops in (1, 2):
            await until(partial(is_stopped, api, stops))
            await until(lambda: status(api, "low").get("phase") == "Running")
            ahead[0] += 3600.0
        for _ in range(2):
            await silence(api, 3.0)
            ahead[0] += 3600.0
        await silence(api, 3.0)
        assert status(api, "low")["preemptions"] == 2
        assert status(api, "low")["phase"] == "Running"
        assert "plan" not in status(api, "odd")


async def test_a_gang_that_the_scheduler_refuses_holds_nothing_and_an_equal_one_starts(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, training_job("odd", WHOLE))
    ahead = [0.0]
    async with Refusing(api) as kubelets:
        async with leading(api, tmp_path, now=lambda: wall_clock() + ahead[0]):
            await until(lambda: len(pods(api)) == 8, 9.0)
            submit(api, training_job("equal", WHOLE))
            await until(lambda: status(api, "equal").get("phase") == "Running", 10.0)
            paused = status(api, "odd")
            assert (paused["phase"], paused["reason"]) == ("Restarting", "Unschedulable")
            assert WORDS in paused["message"]
            assert paused["startFailures"] == 1
            assert {"plan", "queuePosition"}.isdisjoint(paused)
            for replica in range(8):
                kubelets.end(f"equal-worker-{replica}")
            await until(lambda: status(api, "equal").get("phase") == "Succeeded")
        before = dict(kubelets.created)
        # The next leader knows the pause from the status alone; when it is over, kube-scheduler
        # may choose the nodes.
        async with leading(api, tmp_path, epoch=2, now=lambda: wall_clock() + ahead[0]):
            submit(api, training_job("small", task("worker", 1)))
            await until(lambda: status(api, "small").get("phase") == "Running")
            kubelets.end("small-worker-0")
            assert kubelets.created["odd-worker-0"] == before["odd-worker-0"]
            assert status(api, "odd")["reason"] == "Unschedulable"
            ahead[0] = 61.0
            await until(lambda: status(api, "odd").get("startFailures") == 2)
        assert kubelets.created["odd-worker-0"] == before["odd-worker-0"] + 1


async def test_a_gang_whose_image_cannot_be_pulled_gives_its_places_back_in_time(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, training_job("odd", WHOLE, runPolicy={"startTimeoutSeconds": 3}))
    async with Pulling(api), leading(api, tmp_path):
        await until(lambda: len(pods(api)) == 8)
        submit(api, training_job("equal", WHOLE))
        await until(lambda: status(api, "equal").get("phase") == "Running", 10.0)
    paused = status(api, "odd")
    assert (paused["reason"], paused["startFailures"]) == ("StartTimedOut", 1)
    assert "container train is in ErrImagePull: no such image" in paused["message"]


async def test_pods_of_others_that_do_not_run_in_time_go_back_and_an_equal_gang_starts(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    api.put(f"{names.path('queues')}/default", queue("default", startTimeoutSeconds=3))
    submit(api, pod_group("odd", 2), pod_group("equal", 2))
    ended = endings(api)
    ahead = [0.0]
    async with Pulling(api), leading(api, tmp_path, now=lambda: wall_clock() + ahead[0]):
        make(api, "a", "b", group="odd", gpus=4)
        await until(lambda: status(api, "odd", GROUPS).get("phase") == "Inqueue")
        make(api, "c", "d", group="equal", gpus=4)
        await until(lambda: status(api, "equal", GROUPS).get("phase") == "Running", 10.0)
        paused = status(api, "odd", GROUPS)
        assert (paused["phase"], paused["reason"]) == ("Interrupted", "StartTimedOut")
        assert paused["message"].startswith(
            "2 of 2 pods did not run within startTimeoutSeconds 3; pod a on node n0: container "
            "train is in ErrImagePull: no such image; the next try is at "
        )
        assert paused["startFailures"] == 1
        assert ended == dict.fromkeys("ab", "EvictionByEvictionAPI: Eviction API: evicting")
        # Its controller makes them anew: they wait for the end of the pause, which then doubles.
        make(api, "a", "b", group="odd", gpus=4)
        await until(lambda: status(api, "odd", GROUPS)["phase"] == "Interrupted")
        api.store.delete(PODS, ("default", "c"), {})
        api.store.delete(PODS, ("default", "d"), {})
        await until(lambda: status(api, "equal", GROUPS)["phase"] == "Completed")
        await silence(api)
        assert status(api, "odd", GROUPS)["reason"] == "StartTimedOut"
        assert "plan" not in status(api, "odd", GROUPS)
        ahead[0] = 61.0
        await until(lambda: status(api, "odd", GROUPS).get("startFailures") == 2)
        left = retry_seconds(status(api, "odd", GROUPS), wall_clock() + ahead[0])
        assert 60 < left <= 120


def retry_seconds(body: Object, now: float) -> float:
    return (quantities.parse_timestamp(body["retryTime"]) or 0.0) - now


async def test_pods_of_others_that_have_run_are_not_bound_by_the_limit_on_starts(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    api.put(f"{names.path('queues')}/default", queue("default", startTimeoutSeconds=2))
    submit(api, pod_group("ran", 2))
    async with Pulling(api) as kubelets, leading(api, tmp_path):
        make(api, "a", "b", group="ran", gpus=4)
        await until(lambda: status(api, "ran", GROUPS).get("phase") == "Running")
        kubelets.odd = "ran"
        api.store.delete(PODS, ("default", "a"), {})
        make(api, "a", group="ran", gpus=4)
        await until(lambda: status(api, "ran", GROUPS).get("phase") == "Inqueue")
        await asyncio.sleep(3.0)
        await silence(api)
        assert status(api, "ran", GROUPS)["reason"] == "Admitted"
        assert [pod["spec"].get("nodeName") for pod in pods(api)] == ["n0", "n0"]


async def test_an_edit_ends_the_pause_of_a_gang_that_was_refused(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, training_job("odd", task("worker", 2)))
    async with Refusing(api) as kubelets, leading(api, tmp_path):
        await until(lambda: status(api, "odd").get("startFailures") == 1)
        edited = api.store.get(names.path("trainingjobs"), ("default", "odd"))
        spec = {**edited["spec"], "runPolicy": {"backoffLimit": 7}}
        meta = {**edited["metadata"], "generation": 2}
        api.store.update(
            names.path("trainingjobs"),
            ("default", "odd"),
            {**edited, "spec": spec, "metadata": meta},
        )
        await until(lambda: kubelets.created["odd-worker-0"] == 2, 10.0)


async def test_pods_that_a_kubelet_refuses_cost_no_retry_and_go_elsewhere(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 2)
    refused = training_job("odd", task("worker", 2), runPolicy={"backoffLimit": 0})
    submit(api, refused)
    async with Refusing(api, binds_odd=True, node="n0"), leading(api, tmp_path):
        await until(lambda: status(api, "odd").get("phase") == "Running", 20.0)
    done = status(api, "odd")
    assert (done["restarts"], done["interruptions"]) == (0, 1)
    assert "startFailures" not in done


async def test_a_kubelet_that_refuses_has_its_gang_back_where_there_is_no_other(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, training_job("odd", task("worker", 2)))
    async with Refusing(api, binds_odd=True, node="n0"), leading(api, tmp_path):
        await until(lambda: status(api, "odd").get("startFailures") == 1, 20.0)
    words = "node n0 refused replica 0 of worker: UnexpectedAdmissionError: no device is left"
    assert words in status(api, "odd")["message"]
    assert status(api, "odd")["rejectedBy"] == ["n0"]


async def test_a_node_that_refuses_gangs_of_two_namespaces_is_named_and_avoided_by_a_third(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 10)

    def put(namespace: str, made: Manifest) -> None:
        api.put(names.path("trainingjobs", namespace, made["metadata"]["name"]), made)

    def of(namespace: str, name: str) -> Object:
        return api.store.get(JOBS, (namespace, name)).get("status") or {}

    async with (
        Refusing(api, binds_odd=True, node="n0"),
        leading(api, tmp_path, status_refresh_seconds=0.1) as term,
    ):
        for namespace in ("one", "two"):
            put(namespace, training_job("odd", task("worker", gpus=8)))
            await until(lambda: of(namespace, "odd").get("phase") == "Running")  # noqa: B023
            assert of(namespace, "odd")["interruptions"] == 1
        put("three", training_job("small", task("worker")))
        await until(lambda: of("three", "small").get("phase") == "Running")
        (node,) = {p["spec"]["nodeName"] for p in pods(api) if "small" in p["metadata"]["name"]}
        assert node == "n3"
        # Six nodes are free beside the one that is avoided.
        put("three", training_job("waits", task("worker", 7, gpus=8)))
        words = "it avoids room on n0 for some minutes, because pods were refused or failed there"
        await until(lambda: words in of("three", "waits").get("message", ""))
        put("three", training_job("whole", task("worker", 10, gpus=8)))
        (sample,) = next(iter(term.metrics.suspected.collect())).samples
        assert (sample.labels, sample.value) == ({"node": "n0"}, 1.0)
        await until(lambda: of("three", "whole").get("reason") not in (None, "NeverFits"))
    (event,) = events_about(api, "Node")
    assert (event["reason"], event["type"]) == ("NodeSuspected", "Warning")
    about = {"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": "n0", "namespace": ""}
    assert (event["involvedObject"], event["metadata"]["namespace"]) == (about, "default")
