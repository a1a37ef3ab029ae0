"""Trainings that are real from first to last: images, names, ranks, reports and exit codes.

Every pod is of Bireme's own image, as nobody's in particular: no root, nothing writable but /tmp.
"""

import inspect
import re
import sys
import sysconfig
import threading
from typing import Any, Final

import pytest

from bireme.cli import main as bireme
from testbed.scenario.helm import Helm, install
from testbed.scenario.manifests import Manifest, documents, task, training_job
from testbed.scenario.tenant import Tenant, nodes_of
from testbed.scenario.waiting import always
from tests.node import parameter_server
from tests.node.real_pods import logs
from tools.images.archives import Images

IMAGE_PYTHON: Final = (3, 11)
"""Of the base image, which is Debian's: what the packages of this machine must be made for."""
TMP: Final = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108  # a pod's own
PACKAGES: Final = sysconfig.get_path("purelib")
VALUES: Final = (
    "--set=operator.progress.enabled=true",
    f"--set=admission.operator.hostPaths={{{PACKAGES}}}",
)
MAX_SECONDS: Final = 150.0
"""Until a training is over: torch alone takes half a minute to import on a busy machine."""


@pytest.fixture(scope="module")
def reporting(release: Tenant, helm: Helm) -> Tenant:
    """The installed chart, with the endpoint that jobs report to, and torch mounted from here."""
    install(release.cluster, helm, *VALUES, wait=True)
    return release


def trainer(images: Images, program: str, *, cpu: str = "50m", **container: Any) -> Manifest:
    """The pod spec of a replica that runs a Python program, under restrictions."""
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "train",
                "image": images.bireme.name,
                "command": ["python", "-c", program],
                "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
                "volumeMounts": [TMP],
                **container,
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}],
    }


def losses(log: str) -> list[float]:
    """Every loss that a training printed, in turn."""
    return [float(loss) for loss in re.findall(r"^step \d+, loss ([\d.]+)", log, re.MULTILINE)]


def test_parameter_servers_chief_and_worker_train_and_say_how_far_they_are(
    reporting: Tenant, tenant: Tenant, images: Images, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = {"STEPS": "150", "STEP_SECONDS": "0.05"}
    env = [{"name": name, "value": value} for name, value in steps.items()]
    spec = trainer(images, inspect.getsource(parameter_server), env=env)
    tasks = [task(role, 1, spec=spec) for role in ("chief", "ps", "worker")]
    tenant.create(training_job("regression", *tasks, rendezvous="tensorflow"))
    running = tenant.await_phase("regression", "Running")
    assert set(nodes_of(tenant.pods("regression")).values()) == {tenant.cluster.node.name}
    assert running["attempt"] == 0
    where = [f"--kubeconfig={tenant.cluster.kubeconfig}", f"--namespace={tenant.namespace}"]
    follower = threading.Thread(target=bireme, args=(["logs", "-f", "regression", *where],))
    follower.start()
    progress = tenant.eventually(lambda: tenant.status("regression").get("progress"))
    assert progress["loss"] < 10
    done = tenant.await_phase("regression", "Succeeded", MAX_SECONDS)
    assert (done["progress"]["step"], done["progress"]["totalSteps"]) == (150, 150)
    found = losses(logs(tenant, "regression-chief-0"))
    assert len(found) == 150
    assert found[-1] < 1e-3 < found[0]
    follower.join(30)
    followed = capsys.readouterr().out.splitlines()
    chief = [line.partition("] ")[2] for line in followed if line.startswith("[chief-0] ")]
    assert losses("\n".join(chief)) == found
    assert bireme(["logs", "regression", "--task=chief", "--tail=1", *where]) == 0
    assert capsys.readouterr().out == f"[chief-0] {chief[-1]}\n"
    tenant.eventually(
        lambda: {pod["metadata"]["name"] for pod in tenant.pods("regression")},
        # A worker that has not finished by then is stopped like the parameter server.
        lambda left: "regression-chief-0" in left and "regression-ps-0" not in left,
    )


def test_torchrun_on_two_replicas_trains_one_model(
    reporting: Tenant, tenant: Tenant, images: Images
) -> None:
    if sys.version_info[:2] != IMAGE_PYTHON:
        pytest.skip(
            f"torch here is for Python {sys.version_info[:2]}, the image has {IMAGE_PYTHON}"
        )
    config, _ = documents("10-elastic-torch.yaml")
    tenant.cluster.api.post(f"/api/v1/namespaces/{tenant.namespace}/configmaps", config)
    values = {"PYTHONPATH": PACKAGES, "STATE": f"{TMP['mountPath']}/last.pt", "STEPS": "300"}
    values["PYTHONPYCACHEPREFIX"] = ""  # torch's bytecode lies beside it
    spec = trainer(
        images,
        "",
        command=["python", "-m", "torch.distributed.run", "/workspace/train.py"],
        env=[{"name": name, "value": value} for name, value in values.items()],
        resources={"requests": {"cpu": "100m", "memory": "512Mi"}},
        volumeMounts=[
            TMP,
            {"name": "script", "mountPath": "/workspace"},
            {"name": "packages", "mountPath": PACKAGES, "readOnly": True},
        ],
    )
    spec["volumes"] += [
        {"name": "script", "configMap": {"name": config["metadata"]["name"]}},
        {"name": "packages", "hostPath": {"path": PACKAGES, "type": "Directory"}},
    ]
    tasks = [task(role, 1, spec=spec) for role in ("master", "worker")]
    # The master may end first, and its worker is read afterwards.
    keeps = {"cleanPodPolicy": "None"}
    tenant.create(training_job("pair", *tasks, rendezvous="torch", runPolicy=keeps))
    tenant.await_phase("pair", "Running")
    done = tenant.await_phase("pair", "Succeeded", MAX_SECONDS)
    assert (done["progress"]["step"], done["progress"]["totalSteps"]) == (300, 300)
    log = logs(tenant, "pair-master-0")
    assert log.count(", 2 processes\n") == 3
    found = losses(log)
    assert found[-1] < found[0] / 2
    assert losses(logs(tenant, "pair-worker-0")) == [], "one rank 0"


@pytest.fixture
def occupied(reporting: Tenant, tenant: Tenant, images: Images) -> str:
    """A gang of one that leaves half a CPU of the node, until its pod is deleted; its name."""
    node = tenant.get("Node", tenant.cluster.node.name)
    spare = millicores(node["status"]["allocatable"]["cpu"]) - requested(tenant) - 500
    spec = trainer(images, "import time; time.sleep(600)", cpu=f"{spare}m")
    tenant.create(training_job("first", task(spec=spec)))
    tenant.await_phase("first", "Running")
    return "first"


def requested(tenant: Tenant) -> int:
    """Thousandths of a CPU that pods on the real node ask for, in all namespaces."""
    pods = tenant.cluster.api.get("/api/v1/pods")["items"]
    return sum(
        millicores(container["resources"].get("requests", {}).get("cpu", "0"))
        for pod in pods
        if pod["spec"].get("nodeName") == tenant.cluster.node.name
        and pod["status"]["phase"] not in ("Succeeded", "Failed")
        for container in pod["spec"]["containers"]
    )


def millicores(quantity: str) -> int:
    """Thousandths of a CPU."""
    return int(quantity[:-1]) if quantity.endswith("m") else 1000 * int(quantity)


def test_a_gang_of_which_one_replica_would_fit_starts_none_until_all_fit(
    occupied: str, tenant: Tenant, images: Images
) -> None:
    spec = trainer(images, "print('done')", cpu="400m")
    tenant.create(training_job("second", task("worker", 2, spec=spec)))
    waiting = tenant.eventually(lambda: tenant.status("second"), lambda s: s.get("reason"))
    assert waiting["phase"] == "Pending"
    always(lambda: tenant.pods("second"), lambda pods: not pods, 3.0, what="without a pod")
    tenant.delete("TrainingJob", occupied)
    tenant.await_phase("second", "Succeeded")
    assert [p["status"]["phase"] for p in tenant.pods("second")] == ["Succeeded"] * 2


FAILING: Final = """
import os, sys, time
if os.environ["HOSTNAME"].endswith("-1") and int(os.environ["ATTEMPT"]) < {good}:
    sys.exit(3)
time.sleep({seconds})
"""


def failing(images: Images, good: int) -> Manifest:
    """Two replicas, of which the second exits with 3 before attempt ``good``."""
    path = {"fieldPath": "metadata.labels['bireme.dev/attempt']"}
    env = [{"name": "ATTEMPT", "valueFrom": {"fieldRef": path}}]
    return trainer(images, FAILING.format(good=good, seconds=3), env=env)


def test_a_gang_whose_replica_fails_starts_again_whole(
    reporting: Tenant, tenant: Tenant, images: Images
) -> None:
    spec = failing(images, good=1)
    tenant.create(training_job("again", task("worker", 2, spec=spec)))
    first = tenant.eventually(lambda: tenant.pods("again"), lambda pods: len(pods) == 2)
    done = tenant.await_phase("again", "Succeeded")
    assert (done["restarts"], done["attempt"], done.get("interruptions", 0)) == (1, 1, 0)
    before, after = ({p["metadata"]["uid"] for p in pods} for pods in (first, tenant.pods("again")))
    assert not before & after, "the replica that did not fail started anew too"


def test_a_gang_that_fails_too_often_tells_the_exit_code(
    reporting: Tenant, tenant: Tenant, images: Images
) -> None:
    job = training_job("never", task("worker", 2, spec=failing(images, good=9)))
    job["spec"]["runPolicy"] = {"backoffLimit": 1}
    tenant.create(job)
    failed = tenant.await_phase("never", "Failed")
    assert failed["reason"] == "BackoffLimitExceeded"
    assert failed["restarts"] == 1
    assert "replica 1 of worker" in failed["message"]
    assert "exited with 3" in failed["message"]
