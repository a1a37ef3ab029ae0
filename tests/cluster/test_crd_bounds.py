"""The CRDs on a real API server: bounds, defaults, columns, and the examples of the manuals.

The values out of bounds stand in ``crd_bounds.yaml``. Rules in CEL are in ``testbed/cel/table``.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from bireme.core.nodes import HOSTNAME_LABEL
from bireme.kube import crd, names, quantities
from bireme.kube.crd import KINDS
from testbed.cel.examples import object_of
from testbed.controlplane.api import Manifest, Reply
from testbed.controlplane.cluster import Cluster

pytestmark = pytest.mark.cluster

OUT_OF_RANGE = yaml.safe_load(Path(__file__).with_name("crd_bounds.yaml").read_text())
EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
# Kubeflow's run in test_kubeflow.py: this cluster does not know its kinds.
MANIFESTS = sorted(path for path in EXAMPLES.glob("*.yaml") if "kubeflow" not in path.name)


def job(name: str, **fields: Any) -> Manifest:
    """A job of two workers."""
    tasks = [{"name": "worker", "role": "worker", "replicas": 2}]
    return object_of({"kind": "TrainingJob", "name": name, "spec": {"tasks": tasks, **fields}})


def path_of(kind: str, name: str = "") -> str:
    """Path of a collection, or of an object in it; those of namespaces are in ``default``."""
    (found,) = (each for each in KINDS if each.name == kind)
    namespace = "/namespaces/default" if found.scope == "Namespaced" else ""
    base = f"/apis/{names.API_VERSION}{namespace}/{found.plural}"
    return f"{base}/{name}" if name else base


TRY = "?dryRun=All&fieldValidation=Strict"
"""Ask for the answer alone; fields that nobody knows are refused, as kubectl asks for."""


def creation(cluster: Cluster, example: Manifest) -> Reply:
    """Answer to the creation of an example, which is not kept."""
    return cluster.api.request("POST", path_of(example["kind"]) + TRY, object_of(example))


def refusal(reply: Reply) -> str:
    """The message of the API server's refusal."""
    assert reply.status >= 400, "it was accepted"
    return str(reply.json()["message"])


def set_status(cluster: Cluster, reference: str, **status: Any) -> None:
    kind, _, name = reference.partition("/")
    cluster.api.patch(f"{path_of(kind, name)}/status", {"status": status})


@contextmanager
def in_phase(cluster: Cluster, given: Manifest, phase: str) -> Iterator[str]:
    """``kind/name`` of an object made from ``given`` and put into ``phase``; deleted after."""
    reference = f"{given['kind']}/{given['metadata']['name']}"
    cluster.api.post(path_of(given["kind"]), given)
    try:
        set_status(cluster, reference, phase=phase)
        yield reference
    finally:
        cluster.api.request("DELETE", path_of(*reference.split("/")))


@pytest.fixture(scope="module", autouse=True)
def crds(cluster: Cluster) -> None:
    """The chart's definitions, applied server-side as users apply them."""
    cluster.kubectl("apply", "--server-side", "-f", str(crd.DIRECTORY))
    # The example that reads the operator's record stands in the operator's namespace.
    cluster.kubectl("create", "namespace", "bireme-system")
    served = [f"crd/{kind.plural}.{names.GROUP}" for kind in KINDS]
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", *served)


@pytest.fixture(scope="module")
def running_job(cluster: Cluster, crds: None) -> Iterator[str]:
    with in_phase(cluster, job("running", minAvailable=2), "Running") as reference:
        yield reference


@pytest.mark.parametrize("example", OUT_OF_RANGE.values(), ids=OUT_OF_RANGE)
def test_a_value_out_of_range_is_refused_by_its_field(cluster: Cluster, example: Manifest) -> None:
    assert example["message"] in refusal(creation(cluster, example))


def test_an_accepted_job_shows_its_defaults_and_keeps_its_template(cluster: Cluster) -> None:
    given = job("defaults", minAvailable=None, queue=None)
    args = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    spec = json.loads(cluster.kubectl(*args, input=json.dumps(given)))["spec"]

    assert spec.pop("tasks") == given["spec"]["tasks"]
    assert spec == {
        "rendezvous": "none",
        "roleAffinity": {"mode": "Preferred", "topologyKey": HOSTNAME_LABEL},
        "runPolicy": {"backoffLimit": 3, "cleanPodPolicy": "Running", "suspend": False},
    }


def test_kubectl_get_tells_what_is_going_on(cluster: Cluster, running_job: str) -> None:
    story = {
        "reason": "Admitted",
        "ready": "1/2",
        "gpus": 16,
        "priority": {"score": 0.75},
        "queue": "lab",
    }
    set_status(cluster, running_job, **story, queuePosition=1, placement={"nodes": 2})

    header, row = cluster.kubectl("get", "btj", "running").splitlines()
    columns = "NAME PHASE QUEUE PRIORITY READY GPUS POSITION REASON AGE"
    assert " ".join(header.split()) == columns
    assert " ".join(row.split()).startswith("running Running lab 0.75 1/2 16 1 Admitted ")
    assert "running" in cluster.kubectl("get", "bireme"), "the category lists it"


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in MANIFESTS])
def test_an_example_manifest_is_accepted(cluster: Cluster, path: Path) -> None:
    applied = cluster.kubectl("apply", "--dry-run=server", "-f", str(path))

    assert applied.count("(server dry run)") == path.read_text().count("\nkind: ") > 0


def test_quantities_mean_what_the_api_server_takes_them_for(cluster: Cluster) -> None:
    cpu = ["0", "1", "0.5", ".5", "5.", "100m", "1500m", "1000u", "1e3", "1E-3", "2.5k", "1000"]
    memory = ["0", "1Gi", "1024Mi", "1536Mi", "1.5Gi", "8Pi", "1k", "1e9", "1025"]
    requests = [*(("cpu", text) for text in cpu), *(("memory", text) for text in memory)]
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"q{i}"},
            "spec": {
                "containers": [
                    {"name": "main", "image": "train", "resources": {"requests": {name: text}}}
                ]
            },
        }
        for i, (name, text) in enumerate(requests)
    ]
    output = '-o=jsonpath={.spec.containers[0].resources.requests}{"\\n"}'
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
    answers = cluster.kubectl("create", "--dry-run=server", output, "-f", "-", input=given)

    canonical = [json.loads(line) for line in answers.splitlines()]
    assert len(canonical) == len(requests)
    for (name, text), theirs in zip(requests, canonical, strict=True):
        amount = quantities.parse_quantity(name, text)
        assert amount == quantities.parse_quantity(name, theirs[name]), (text, theirs)
        if text[-1] in "0125mui":  # not for exponents and "5.", which it keeps as they are
            assert quantities.format_quantity(name, amount) == theirs[name], text
