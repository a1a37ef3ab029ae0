"""Every rule of the CRDs on a real API server: what it accepts, what it refuses, in which words.

The examples stand in ``crd_rules.yaml``. The refusal of a rule is compared whole, and a rule
without a refused example fails the suite.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from bireme.core.nodes import HOSTNAME_LABEL
from bireme.kube import crd, names, quantities
from bireme.kube.crd import KINDS
from testbed.controlplane.api import Reply
from testbed.controlplane.cluster import Cluster

pytestmark = pytest.mark.cluster

RULES = yaml.safe_load(Path(__file__).with_name("crd_rules.yaml").read_text())
EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
# Kubeflow's run in test_kubeflow.py: this cluster does not know its kinds.
MANIFESTS = sorted(path for path in EXAMPLES.glob("*.yaml") if "kubeflow" not in path.name)
WHILE_RUNNING = (
    " while the job is Running: suspend it first (spec.runPolicy.suspend: true) or create a new job"
)
FROZEN_WITH_PLACES = [
    f"spec.{change} while the gang has its places: edit it once its pods have ended, or create a"
    " PodGroup of another name"
    for change in (
        "queue cannot change from (absent) to research",
        "priorityClassName cannot change from (absent) to urgent",
    )
]

FIXED_TICKET = "a ticket cannot be changed: create another one"

Manifest = dict[str, Any]


def pod(**requests: Any) -> Manifest:
    """A pod template that asks for ``requests``."""
    container: Manifest = {"name": "main", "image": "train"}
    if requests:
        container["resources"] = {"requests": requests}
    return {"spec": {"containers": [container]}}


def spec_of(spec: Manifest) -> Manifest:
    """A spec of the examples with pod templates in its tasks."""
    if "tasks" not in spec:
        return spec
    tasks = [{"template": pod(**task.get("requests", {})), **task} for task in spec["tasks"]]
    for task in tasks:
        task.pop("requests", None)
    return {**spec, "tasks": tasks}


def manifest(kind: str, name: str, spec: Manifest) -> Manifest:
    metadata = {"name": name}
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def job(name: str, **fields: Any) -> Manifest:
    """A job of two workers."""
    tasks = [{"name": "worker", "role": "worker", "replicas": 2}]
    return manifest("TrainingJob", name, spec_of({"tasks": tasks, **fields}))


def gang(name: str) -> Manifest:
    return manifest("PodGroup", name, {"minMember": 4})


def examples(section: str) -> list[Any]:
    """A parameter set for every example of a section of the file."""
    return [pytest.param(example, id=name) for name, example in RULES[section].items()]


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
    given = manifest(example["kind"], example.get("name", "example"), spec_of(example["spec"]))
    return cluster.api.request("POST", path_of(example["kind"]) + TRY, given)


def change(cluster: Cluster, reference: str, spec: Manifest) -> Reply:
    """Answer to a change of a spec, which is not kept."""
    kind, _, name = reference.partition("/")
    patch = {"spec": spec_of(spec)}
    return cluster.api.request("PATCH", path_of(kind, name) + TRY, patch)


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


@pytest.mark.parametrize("example", examples("accepted"))
def test_a_good_object_is_accepted(cluster: Cluster, example: Manifest) -> None:
    assert creation(cluster, example).status == 201


@pytest.mark.parametrize("example", examples("refused"))
def test_a_broken_rule_is_refused_in_its_own_words(cluster: Cluster, example: Manifest) -> None:
    assert example["message"] in refusal(creation(cluster, example))


@pytest.mark.parametrize("example", examples("outOfRange"))
def test_a_value_out_of_range_is_refused_by_its_field(cluster: Cluster, example: Manifest) -> None:
    assert example["message"] in refusal(creation(cluster, example))


@pytest.mark.parametrize("example", examples("frozen"))
def test_the_shape_of_an_admitted_gang_is_fixed(
    cluster: Cluster, running_job: str, example: Manifest
) -> None:
    message = example["message"].removesuffix("...") + WHILE_RUNNING

    assert message in refusal(change(cluster, running_job, example["spec"]))


@pytest.mark.parametrize("example", examples("free"))
def test_what_is_not_the_shape_of_the_gang_can_change_while_it_runs(
    cluster: Cluster, running_job: str, example: Manifest
) -> None:
    assert change(cluster, running_job, example["spec"]).status == 200


@pytest.mark.parametrize("phase", ["Pending", "Suspended", "Failed"])
def test_the_shape_of_a_job_that_is_not_admitted_can_change(cluster: Cluster, phase: str) -> None:
    task = {"role": "worker", "replicas": 1}
    tasks = [{"name": "one", **task}, {"name": "two", **task}]
    spec = {"queue": "research", "tasks": tasks, "minAvailable": 2, "rendezvous": "torch"}

    with in_phase(cluster, job(phase.lower()), phase) as reference:
        assert change(cluster, reference, spec).status == 200


@pytest.mark.parametrize("phase", ["Starting", "Restarting"])
def test_the_shape_is_fixed_in_every_phase_that_holds_resources(
    cluster: Cluster, phase: str
) -> None:
    with in_phase(cluster, job(phase.lower()), phase) as reference:
        message = refusal(change(cluster, reference, {"minAvailable": 1}))
        moved = change(cluster, reference, {"queue": "research"})

    assert f"while the job is {phase}" in message
    # One that waits to start again counts in no queue.
    assert (moved.status == 200) == (phase == "Restarting")


@pytest.mark.parametrize("phase", ["Inqueue", "Running"])
def test_the_size_of_a_gang_can_be_raised_and_lowered_while_it_has_its_places(
    cluster: Cluster, phase: str
) -> None:
    with in_phase(cluster, gang(phase.lower()), phase) as reference:
        for size in (3, 8):
            assert change(cluster, reference, {"minMember": size}).status == 200


def test_the_queue_of_a_gang_that_has_its_places_is_fixed(cluster: Cluster) -> None:
    changes: list[Manifest] = [{"queue": "research"}, {"priorityClassName": "urgent"}]
    plan = {
        "epoch": 1,
        "attempt": 0,
        "specHash": "",
        "queue": "default",
        "mode": "Pinned",
        "tasks": [],
    }
    with in_phase(cluster, gang("placed"), "Inqueue") as reference:
        assert all(change(cluster, reference, each).status == 200 for each in changes)
        set_status(cluster, reference, plan={**plan, "plannedTime": "2026-01-01T00:00:00Z"})
        for each, words in zip(changes, FROZEN_WITH_PLACES, strict=True):
            assert words in refusal(change(cluster, reference, each))


def test_a_ticket_is_fixed(cluster: Cluster) -> None:
    ticket = manifest("Ticket", "mine", {"user": "ann", "secretDigest": "a" * 64})
    cluster.api.post(path_of("Ticket"), ticket)
    changes: list[Manifest] = [{"user": "joe"}, {"groups": ["admins"]}, {"secretDigest": "b" * 64}]
    for each in changes:
        assert FIXED_TICKET in refusal(change(cluster, "Ticket/mine", each))
    cluster.api.request("DELETE", path_of("Ticket", "mine"))


def rules(schema: Any) -> Iterator[str]:
    """The message expressions of every rule inside a schema."""
    if isinstance(schema, dict):
        yield from rules(list(schema.values()))
        yield from {schema["messageExpression"]} if "messageExpression" in schema else ()
    elif isinstance(schema, list):
        for child in schema:
            yield from rules(child)


def test_every_rule_has_a_refused_example() -> None:
    refused = [example["message"] for example in RULES["refused"].values()]
    frozen = [ex["message"].removesuffix("...") + WHILE_RUNNING for ex in RULES["frozen"].values()]
    found = {rule for kind in KINDS for rule in rules(crd.definition(kind))}
    assert len(found) >= 20

    for rule in found:
        literal = json.loads(rule[: rule.index('".format([') + 1]).replace("%%", "%")
        pattern = ".*".join(re.escape(text) for text in literal.split("%s"))
        texts = (*refused, *frozen, *FROZEN_WITH_PLACES, FIXED_TICKET)
        assert any(re.fullmatch(pattern, text) for text in texts), literal


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
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"q{i}"}, **pod(**{name: text})}
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
