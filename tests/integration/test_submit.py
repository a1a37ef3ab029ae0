"""``bireme submit``: checked whole before anything is sent, then followed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from bireme.cli import main
from bireme.kube import names
from testbed.fakeapi import FakeApi, Fault
from testbed.fakeapi.faults import dry_runs
from testbed.fakeapi.server import resources

JOBS, QUEUES = names.path("trainingjobs"), names.path("queues")
EXAMPLES = sorted((Path(__file__).parents[2] / "manifests/examples").glob("*.yaml"))
SERVED = {
    "v1": {"configmaps": ("ConfigMap", True), "services": ("Service", True)},
    "apps/v1": {"statefulsets": ("StatefulSet", True)},
    "batch/v1": {"jobs": ("Job", True)},
    "kubeflow.org/v1": {"pytorchjobs": ("PyTorchJob", True)},
    "rbac.authorization.k8s.io/v1": {
        "clusterroles": ("ClusterRole", False),
        "clusterrolebindings": ("ClusterRoleBinding", False),
    },
    "scheduling.k8s.io/v1": {"priorityclasses": ("PriorityClass", False)},
}
"""Kinds in the examples that are not Bireme's, as a cluster serves them."""


def job(name: str = "train", **spec: Any) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": 1}}
    pod = {"spec": {"containers": [{"name": "main", "image": "x", "resources": resources}]}}
    tasks = [{"name": "worker", "role": "worker", "replicas": 2, "template": pod}]
    head = {"apiVersion": names.API_VERSION, "kind": "TrainingJob", "metadata": {"name": name}}
    return {**head, "spec": {"queue": "research", "estimatedDuration": "1h", "tasks": tasks} | spec}


class Sender:
    """Writes manifests into a file and submits them, as a person would."""

    def __init__(self, api: FakeApi, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.api, self._file, self._capsys = api, folder / "jobs.yaml", capsys
        self._kubeconfig = str(api.kubeconfig(folder))
        api.store.create(QUEUES, ("", "research"), {"metadata": {"name": "research"}})

    async def submit(self, *manifests: dict[str, Any], flags: str = "") -> tuple[int, str, str]:
        """Exit status, output and errors."""
        self._file.write_text(yaml.safe_dump_all(manifests))
        arguments = ["submit", str(self._file), "--kubeconfig", self._kubeconfig, *flags.split()]
        status = await asyncio.to_thread(main, arguments)
        captured = self._capsys.readouterr()
        return status, captured.out, captured.err

    @property
    def sent(self) -> list[str]:
        """Names of the jobs there are."""
        return sorted(name for _, name in self.api.store.collection(JOBS).objects)


@pytest.fixture
def sender(api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Sender:
    return Sender(api, tmp_path, capsys)


async def test_a_sound_job_is_sent_and_named(sender: Sender) -> None:
    status, out, err = await sender.submit(job())
    assert (status, err) == (0, "")
    assert out == "TrainingJob default/train created; see: bireme why train\n"
    assert sender.sent == ["train"]


async def test_one_wrong_job_keeps_all_from_being_sent(sender: Sender) -> None:
    status, _, err = await sender.submit(job("good"), job("bad", tasks=[]))
    assert status == 1
    assert "error: TrainingJob bad: spec.tasks: " in err
    assert "nothing was sent: 1 error above" in err
    assert sender.sent == []


async def test_a_refusal_of_the_server_is_printed_before_anything_is_sent(sender: Sender) -> None:
    sender.api.faults.add(Fault(status=422, reason="Invalid"), dry_runs)
    status, _, err = await sender.submit(job())
    assert status == 1
    assert "error: TrainingJob train: " in err
    assert sender.sent == []


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (job(queue="reserach"), "there is no queue 'reserach'; name one of: research"),
        ({**job(), "apiVersion": "../v1"}, "apiVersion: '../v1' is no group and version"),
        (
            {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "p"}},
            "the cluster knows no example.com/v1 Thing",
        ),
        ({"apiVersion": "v1", "kind": "Pood", "metadata": {"name": "p"}}, "knows no v1 Pood"),
        ({**job(), "metadata": {}}, "metadata.name: is missing"),
        (job(minAvailable="many"), "spec.minAvailable: "),
        (job(color="red"), "spec.color: extra inputs are not permitted"),
    ],
)
async def test_errors_name_the_field(sender: Sender, manifest: dict[str, Any], words: str) -> None:
    status, _, err = await sender.submit(manifest)
    assert status == 1
    assert words in err


async def test_a_closed_queue_is_named(sender: Sender) -> None:
    spec = {"metadata": {"name": "shut"}, "spec": {"state": "Closed"}}
    sender.api.store.create(QUEUES, ("", "shut"), spec)
    _, _, err = await sender.submit(job(queue="shut"))
    assert "queue 'shut' is closed" in err


async def test_hints_are_printed_and_do_not_keep_it_from_being_sent(sender: Sender) -> None:
    manifest = job(estimatedDuration=None)
    pod = manifest["spec"]["tasks"][0]["template"]["spec"]
    pod |= {"nodeName": "n1", "schedulerName": "other", "restartPolicy": "Always"}
    del pod["containers"][0]["resources"]
    status, _, err = await sender.submit(manifest)
    assert status == 0
    hints = [line.split(": ")[2].rpartition(".")[2] for line in err.splitlines()]
    assert hints == ["estimatedDuration", "nodeName", "schedulerName", "restartPolicy", "resources"]


async def test_check_sends_nothing(sender: Sender) -> None:
    status, out, _ = await sender.submit(job(), flags="--check")
    assert (status, out) == (0, "1 checked, nothing sent\n")
    assert sender.sent == []


async def test_waiting_tells_every_change_until_the_job_runs(sender: Sender) -> None:
    following = asyncio.create_task(sender.submit(job(), flags="--wait 30s"))
    key = ("default", "train")
    while key not in sender.api.store.collection(JOBS).objects:
        await asyncio.sleep(0.01)
    stored = sender.api.store.get(JOBS, key)
    status = {"phase": "Running", "reason": "GangRunning", "message": "2 of 2 run"}
    sender.api.store.update(JOBS, key, {**stored, "status": status}, "status")
    exit_status, out, _ = await following
    assert exit_status == 0
    assert out.splitlines()[-1] == "default/train: Running, GangRunning: 2 of 2 run"


async def test_waiting_for_success_fails_with_the_job(sender: Sender) -> None:
    following = asyncio.create_task(sender.submit(job(), flags="--wait 30s --until succeeded"))
    key = ("default", "train")
    while key not in sender.api.store.collection(JOBS).objects:
        await asyncio.sleep(0.01)
    for phase in ("Running", "Failed"):
        stored = sender.api.store.get(JOBS, key)
        status = {"phase": phase, "reason": "BackoffLimitExceeded"}
        sender.api.store.update(JOBS, key, {**stored, "status": status}, "status")
    exit_status, out, _ = await following
    assert exit_status == 1
    assert "default/train: Failed" in out


async def test_waiting_ends_with_the_time(sender: Sender) -> None:
    status, _, err = await sender.submit(job(), flags="--wait 1s")
    assert status == 1
    assert "not running after 1 s: default/train" in err


async def test_a_file_that_is_none_is_named(sender: Sender) -> None:
    status, _, err = await sender.submit(flags="--wait never")
    assert status == 2
    assert "'never' is no duration" in err
    status, _, err = await sender.submit()
    assert "has no manifest" in err


def serve_what_the_examples_need(api: FakeApi) -> None:
    for version, kinds in SERVED.items():
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        api.documents[root] = resources(version, kinds)


def queues_of(file: Path) -> set[str]:
    found = yaml.safe_load_all(file.read_text())
    return {each["metadata"]["name"] for each in found if each and each["kind"] == "Queue"}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
async def test_every_example_of_the_project_is_sent(sender: Sender, file: Path) -> None:
    serve_what_the_examples_need(sender.api)
    sender.api.store.delete(QUEUES, ("", "research"), {})
    for queue in set().union({"default"}, *map(queues_of, EXAMPLES)) - queues_of(file):
        sender.api.store.create(QUEUES, ("", queue), {"metadata": {"name": queue}})
    manifests = [each for each in yaml.safe_load_all(file.read_text()) if each]
    status, out, err = await sender.submit(*manifests)
    assert (status, "error: " in err) == (0, False), err
    assert len(out.splitlines()) == len(manifests)


async def test_other_kinds_go_where_the_cluster_serves_them(sender: Sender) -> None:
    serve_what_the_examples_need(sender.api)
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    role = {**head, "metadata": {"name": "bireme:all"}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    status, out, _ = await sender.submit(role, config, job(), flags="--check")
    assert (status, out) == (0, "3 checked, nothing sent\n")
    status, out, _ = await sender.submit(role, config)
    assert status == 0
    assert out == "ClusterRole bireme:all created\nConfigMap default/c created\n"
    stored = sender.api.store.collection
    assert ("default", "c") in stored("/api/v1/configmaps").objects
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    assert ("", "bireme:all") in stored(path).objects


async def test_a_job_may_name_a_queue_that_is_sent_with_it(sender: Sender) -> None:
    head = {"apiVersion": names.API_VERSION, "kind": "Queue"}
    queue = {**head, "metadata": {"name": "fresh"}, "spec": {}}
    assert (await sender.submit(job(queue="fresh")))[0] == 1
    status, _, err = await sender.submit(queue, job(queue="fresh"))
    assert (status, err) == (0, "")
