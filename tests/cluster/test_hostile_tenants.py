"""Attacks by tenants on the objects they may write: forged members, lifted gates, bad templates.

The admission policies of the chart are not installed here: what they refuse is ignored without
them. ``test_install.py`` tries the policies and the roles themselves.
"""

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest
import yaml

from bireme.kube import crd
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import (
    PLAN_GATE,
    POD_GROUP_LABEL,
    Manifest,
    pod,
    pod_group,
    pod_spec,
    task,
    training_job,
)
from testbed.scenario.tenant import Tenant, nodes_of, uids_of
from testbed.scenario.waiting import always

pytestmark = pytest.mark.cluster

NAMES_OF_OTHERS = ("team-b/victim", "../team-b/victim")
ADDRESSES = ("http://169.254.169.254/latest", "file:///etc/passwd")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    forged = {"replica-twice": "a tenant makes pods that say they are replicas"}
    with gpu_stack("hostile", tmp_path_factory.mktemp("stack"), not_judged=forged) as stack:
        yield stack


Path: TypeAlias = tuple[str | int, ...]


# --- texts that mean somebody else's object, or an address -----------------------------------


def text_fields(
    schema: Manifest, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[str | int, ...]]:
    """Paths of all fields that hold a text, those of pod templates aside: pods have no others."""
    if schema["type"] == "string":
        yield path
    for name, inner in schema.get("properties", {}).items():
        if name != "template":
            yield from text_fields(inner, (*path, name))
    if schema["type"] == "array":
        yield from text_fields(schema["items"], (*path, 0))


def given(manifest: Manifest, path: Path, value: str) -> Manifest:
    """A copy of ``manifest`` with ``value`` at ``path`` of its spec."""
    made: Manifest = json.loads(json.dumps(manifest))
    at: Any = made["spec"]
    for step in path[:-1]:
        at = at[step] if isinstance(step, int) else at.setdefault(step, {})
    at[path[-1]] = value
    return made


GOOD = {"TrainingJob": training_job("good"), "PodGroup": pod_group("good", 1)}
FIELDS = [
    (kind, path)
    for kind in GOOD
    for document in (yaml.safe_load((crd.DIRECTORY / f"{kind.lower()}s.yaml").read_text()),)
    for path in text_fields(
        document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    )
]


@pytest.mark.parametrize(
    ("kind", "path"), FIELDS, ids=[f"{k}-{'.'.join(map(str, p))}" for k, p in FIELDS]
)
def test_no_field_of_a_tenant_takes_an_address_or_an_object_of_another_namespace(
    stack: BiremeStack, kind: str, path: Path
) -> None:
    tenant = Tenant(stack.cluster, "default")  # nothing is made there

    def answer(manifest: Manifest) -> int:
        where = f"{tenant.path(kind)}?dryRun=All"
        return tenant.cluster.api.request("POST", where, manifest).status

    values = [*ADDRESSES, NAMES_OF_OTHERS[1]]
    if path[-1] != "topologyKey":  # a label of nodes, whose prefix looks like a namespace
        values.append(NAMES_OF_OTHERS[0])
    assert answer(GOOD[kind]) == 201
    assert {v: answer(given(GOOD[kind], path, v)) for v in values} == dict.fromkeys(values, 422)


# --- members -----------------------------------------------------------------------------------


def replica(owner: Manifest, name: str, uid: str, plan: str) -> Manifest:
    """A pod that says it is the first worker of ``owner``."""
    made = pod(name, schedulerName="bireme")
    made["metadata"]["labels"] = {
        POD_GROUP_LABEL: owner["metadata"]["name"],
        "bireme.dev/training-job": owner["metadata"]["name"],
        "bireme.dev/task": "worker",
        "bireme.dev/index": "0",
        "bireme.dev/plan": plan,
    }
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "uid": uid}
    reference["name"] = owner["metadata"]["name"]
    made["metadata"]["ownerReferences"] = [reference]
    return made


@pytest.mark.parametrize("knows_the_uid", [True, False])
def test_a_pod_that_says_it_is_a_replica_gets_no_node_and_harms_no_gang(
    tenant: Tenant, knows_the_uid: bool
) -> None:
    tenant.create(training_job("victim", task(replicas=2)))
    tenant.await_phase("victim", "Running")
    before = uids_of(tenant.pods("victim"))
    plan = tenant.get("Pod", "victim-worker-0")["metadata"]["labels"]["bireme.dev/plan"]
    owner = tenant.get("TrainingJob", "victim")
    uid = owner["metadata"]["uid"] if knows_the_uid else "0f7c3a52-0000-4000-8000-000000000000"
    tenant.create(replica(owner, "thief", uid, plan))
    always(
        lambda: tenant.find("Pod", "thief") or {"spec": {}},
        lambda found: "nodeName" not in found["spec"],
        4.0,
        what="without a node",
    )
    now = uids_of(tenant.pods("victim"))
    assert before.items() <= now.items()
    assert tenant.status("victim")["phase"] == "Running"
    refused = any("ForeignPod" in message for _, _, message in tenant.events("thief"))
    assert refused or tenant.find("Pod", "thief") is None, "the operator deletes what is in the way"


def test_a_pod_whose_gate_is_lifted_by_hand_is_placed_nowhere(tenant: Tenant) -> None:
    early = pod("early", schedulerName="bireme", schedulingGates=[{"name": PLAN_GATE}])
    early["metadata"]["labels"] = {POD_GROUP_LABEL: "crew"}
    tenant.create(pod_group("crew", 2), early)
    lift = json.dumps([{"op": "remove", "path": "/spec/schedulingGates"}])
    where = ("-n", tenant.namespace, "--type=json", "-p", lift)
    tenant.cluster.kubectl("patch", "pod", "early", *where)
    tenant.eventually(
        lambda: tenant.events("early"), lambda events: any("NoPlan" in text for *_, text in events)
    )
    assert nodes_of([tenant.get("Pod", "early")]) == {}


# --- templates ---------------------------------------------------------------------------------


def test_what_a_template_may_not_choose_is_as_if_it_were_not_there(tenant: Tenant) -> None:
    chosen = pod_spec(
        schedulerName="default-scheduler",
        nodeName="gpu-00",
        priorityClassName="system-node-critical",
        schedulingGates=[{"name": "example.com/mine"}],
    )
    tenant.create(training_job("greedy", task(replicas=2, spec=chosen)))
    tenant.await_phase("greedy", "Running")
    made = [each["spec"] for each in tenant.pods("greedy")]
    assert {spec["schedulerName"] for spec in made} == {"bireme"}
    assert {spec.get("priorityClassName", "") for spec in made} == {""}
    assert {spec["priority"] for spec in made} == {0}
    assert {spec["automountServiceAccountToken"] for spec in made} == {False}


REFUSED: dict[str, tuple[Manifest, str]] = {
    "a folder of the node": (
        pod_spec(volumes=[{"name": "root", "hostPath": {"path": "/"}}]),
        'violates PodSecurity "baseline',
    ),
    "the network of the node": (pod_spec(hostNetwork=True), 'violates PodSecurity "baseline'),
    "the account of the operator": (
        pod_spec(serviceAccountName="bireme-operator"),
        'serviceaccount "bireme-operator" not found',
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_namespace_does_not_allow_its_tenant_the_operator_does_not_make(
    tenant: Tenant, name: str
) -> None:
    tenant.cluster.kubectl(
        *("label", "namespace", tenant.namespace, "pod-security.kubernetes.io/enforce=baseline")
    )
    spec, words = REFUSED[name]
    tenant.create(training_job("bad", task(spec=spec)))
    status = tenant.eventually(
        lambda: tenant.status("bad"), lambda status: words in status.get("message", "")
    )
    assert status["reason"] in ("PodsRefused", "TemplateInvalid")
    assert tenant.pods("bad") == []
