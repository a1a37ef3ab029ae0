"""``bireme maintenance plan`` against an API server: it decides as its operator would."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from bireme.cli import main
from bireme.kube import names, plans
from bireme.testing import a_node
from testbed.fakeapi import FakeApi, Fault
from testbed.objects.facts import a_job, a_plan, node_manifest, pod_manifest
from testbed.scenario.manifests import Manifest, task, training_job

CONFIG_MAPS = "/api/v1/configmaps"
POLICIES = names.path("schedulingpolicies")
RENDERED = Path(__file__).parents[1] / "golden" / "chart" / "default.yaml"
SMALLEST_FIRST = {"scheduling": {"orderer": "smallest-first"}}


def gang_on(api: FakeApi, node: str, name: str = "job", gpus: int = 2) -> None:
    """A running TrainingJob with its plan, and its pod on a node."""
    worker = task("worker", 1, gpus=gpus)
    job, uid = a_job(worker, name=name), f"{name}-uid"
    # None has had any service that the default order counts.
    now = time.time()  # noqa: TID251  # the command goes by the clock
    plan = a_plan(job, (node,), planned=now)
    status = {"phase": "Running", "plan": plans.to_manifest(plan)}
    body = {**training_job(name, worker), "status": status}
    api.store.create(names.path("trainingjobs"), ("default", name), body, uid=uid)
    pod = pod_manifest(job, plan, plan.members[0])
    api.store.create("/api/v1/pods", ("default", pod["metadata"]["name"]), pod)


def pod_on(api: FakeApi, name: str, phase: str = "Running", owner: str = "ReplicaSet") -> None:
    about = {"name": name, "namespace": "default"}
    about["ownerReferences"] = [{"kind": owner, "name": "o", "uid": "o"}]  # type: ignore[assignment]  # a list
    body = {"metadata": about, "spec": {"nodeName": "n0"}, "status": {"phase": phase}}
    api.store.create("/api/v1/pods", ("default", name), body)


def config_map(settings: Manifest, namespace: str = "bireme-system") -> Manifest:
    """The chart's default ConfigMap, with other settings in its file."""
    rendered = yaml.safe_load_all(RENDERED.read_text())
    made: Manifest = next(
        each for each in rendered if "settings.yaml" in ((each or {}).get("data") or {})
    )
    made["metadata"]["namespace"] = namespace
    made["data"]["settings.yaml"] = yaml.safe_dump(
        yaml.safe_load(made["data"]["settings.yaml"]) | settings
    )
    return made


def install(api: FakeApi, settings: Manifest, namespace: str = "bireme-system") -> None:
    made = config_map(settings, namespace)
    api.store.create(CONFIG_MAPS, (namespace, made["metadata"]["name"]), made)


def decide_by(api: FakeApi, **spec: Any) -> None:
    about = {"name": "chosen", "uid": "u", "generation": 1}
    body = {"metadata": about, "spec": spec}
    api.store.create(POLICIES, ("", "chosen"), body)


class Cluster:
    """n0 with two gangs, n1 with room for one of them; the larger is first by default."""

    def __init__(self, api: FakeApi, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.api, self._capsys = api, capsys
        self._kubeconfig = str(api.kubeconfig(folder))
        for name, gpus in (("n0", 8), ("n1", 4)):
            made = {"kind": "Node", **node_manifest(a_node(name, gpus))}
            api.store.create("/api/v1/nodes", ("", name), made)
        api.store.create(names.path("queues"), ("", "default"), {"metadata": {"name": "default"}})
        gang_on(api, "n0", "a-large", gpus=4)
        gang_on(api, "n0", "b-small", gpus=2)

    async def drain(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, output and errors of the command; it has a loop of its own."""
        given = ["maintenance", "plan", *arguments, "--kubeconfig", self._kubeconfig]
        status = await asyncio.to_thread(main, given)
        captured = self._capsys.readouterr()
        return status, captured.out, captured.err

    async def restarted(self, *arguments: str) -> tuple[str, str]:
        """Gangs that start again at once where n0 is drained, and the text on standard error."""
        status, out, err = await self.drain("n0", *arguments)
        assert status == 0, err
        rows = [line.split() for line in out.splitlines()[1:]]
        assert sorted(row[3] for row in rows[:2]) == ["restarts", "waits"]
        return next(row[1] for row in rows if row[3] == "restarts"), err


@pytest.fixture
def cluster(
    api: FakeApi,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Cluster:
    monkeypatch.delenv("BIREME_CONFIG", raising=False)
    return Cluster(api, tmp_path, capsys)


async def test_without_an_installed_chart_the_defaults_decide_and_it_says_so(
    cluster: Cluster,
) -> None:
    who, err = await cluster.restarted()
    assert who == "a-large"
    assert "the cluster has no ConfigMap of Bireme's chart; name their file by BIREME_CONFIG" in err
    assert "a preview by the default settings; nothing has been moved" in err


async def test_settings_that_the_chart_has_installed_decide(cluster: Cluster) -> None:
    install(cluster.api, SMALLEST_FIRST)
    who, err = await cluster.restarted()
    assert who == "b-small"
    expected = "a preview by ConfigMap bireme-system/bireme-settings; nothing has been moved"
    assert err == f"bireme: {expected}\n"


async def test_settings_of_a_named_file_go_before_those_of_the_chart(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(cluster.api, SMALLEST_FIRST)
    (tmp_path / "settings.yaml").write_text("scheduling: {orderer: fifo}")
    monkeypatch.setenv("BIREME_CONFIG", str(tmp_path / "settings.yaml"))
    who, err = await cluster.restarted()
    assert who == "a-large"
    assert "settings.yaml; nothing has been moved" in err


async def test_variables_of_the_environment_go_before_any_file(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIREME_ORDERER", "smallest-first")
    assert (await cluster.restarted())[0] == "b-small"


async def test_the_active_scheduling_policy_decides_over_the_settings(cluster: Cluster) -> None:
    install(cluster.api, {})
    decide_by(cluster.api, orderer="smallest-first")
    who, err = await cluster.restarted()
    assert who == "b-small"
    assert "bireme-settings and SchedulingPolicy chosen; nothing" in err


async def test_a_shadow_decides_nothing(cluster: Cluster) -> None:
    decide_by(cluster.api, orderer="smallest-first", stage="Shadow")
    assert (await cluster.restarted())[0] == "a-large"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"orderer": "somebodys.module:Order"}, "chosen names 'somebodys.module:Order', code of"),
        ({"orderer": "no-such-order"}, "no-such-order"),
        ({"checkpoint": {"name": "no-such-checkpoint"}}, "no checkpoint is called"),
        ({"orderer": 5}, "orderer"),
    ],
)
async def test_a_policy_that_cannot_be_loaded_here_is_named_and_the_settings_decide(
    cluster: Cluster, spec: Manifest, why: str
) -> None:
    install(cluster.api, SMALLEST_FIRST)
    decide_by(cluster.api, **spec)
    who, err = await cluster.restarted()
    assert who == "b-small"
    assert "SchedulingPolicy chosen decides in the cluster and cannot be loaded here" in err
    assert why in err
    assert "this preview uses the policy of the settings" in err


async def test_code_that_a_cluster_names_is_never_imported(cluster: Cluster) -> None:
    install(cluster.api, {"scheduling": {"orderer": "somebodys.module:Order"}})
    status, out, err = await cluster.drain("n0")
    assert (status, out) == (1, "")
    assert "bireme-settings names 'somebodys.module:Order', code of the cluster" in err


async def test_a_user_without_access_to_settings_learns_so(cluster: Cluster) -> None:
    install(cluster.api, SMALLEST_FIRST)
    refused = Fault(status=403)
    cluster.api.faults.add(refused, lambda _method, path, _watch: path == CONFIG_MAPS, times=None)
    who, err = await cluster.restarted()
    assert who == "a-large"
    assert "you may not list ConfigMaps of all namespaces" in err


async def test_settings_of_several_operators_are_not_chosen_from(cluster: Cluster) -> None:
    for namespace in ("one", "two"):
        install(cluster.api, {}, namespace)
    status, out, err = await cluster.drain("n0")
    assert (status, out) == (1, "")
    assert "one/bireme-settings, two/bireme-settings; save settings.yaml of the right one" in err


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("scheduling: {waitBoundSecond: 5}", 1, "did you mean 'waitBoundSeconds'"),
        ("scheduling: [", 1, "the file"),
        ("scheduling: {orderer: nobody}", 1, "cannot be loaded here"),
        (None, 1, "name a readable YAML file"),
    ],
)
async def test_settings_that_cannot_be_used_are_refused(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str | None,
    code: int,
    says: str,
) -> None:
    if text is not None:
        (tmp_path / "settings.yaml").write_text(text)
    monkeypatch.setenv("BIREME_CONFIG", str(tmp_path / "settings.yaml"))
    status, _, err = await cluster.drain("n0")
    assert status == code
    assert says in err


async def test_pods_that_a_drain_moves_are_counted_beside_gangs(cluster: Cluster) -> None:
    pod_on(cluster.api, "moved")
    pod_on(cluster.api, "ended", phase="Succeeded")
    pod_on(cluster.api, "stays", owner="DaemonSet")
    _, out, _ = await cluster.drain("n0", "-o", "json")
    data = json.loads(out)
    assert (data["apiVersion"], data["kind"]) == ("cli.bireme.dev/v1", "DrainPreview")
    assert data["otherPods"] == 1
    assert data["decidedBy"] == {"settings": "the default settings", "policy": None}
    _, out, _ = await cluster.drain("n1")
    assert out.startswith("No gang has a replica there.")


async def test_a_node_that_does_not_exist_is_named(cluster: Cluster) -> None:
    status, _, err = await cluster.drain("n9")
    assert status == 1
    assert "there is no node 'n9'" in err
