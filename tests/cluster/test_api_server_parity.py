"""The table of examples on a real API server: it must answer as the embedded one does.

Every object of the table is there before the policies are, and every request is accepted until they
are. Then refusals are awaited one by one, and what is accepted is asked last. No request is kept.
"""

import http.client
import json
from collections.abc import Iterable, Iterator
from functools import partial
from operator import eq
from typing import Any, Final
from urllib.parse import quote

import pytest

from bireme.kube import names
from bireme.kube.crd import KINDS as SERVED
from bireme_lab.embedded.api.patches import merge
from bireme_lab.embedded.api.requests import ApiUser
from bireme_lab.embedded.cel.policies import BINDING, POLICY
from testbed.cel import examples
from testbed.cel.examples import KINDS, ObjectExample, RequestExample
from testbed.controlplane.api import Manifest, Reply
from testbed.controlplane.cluster import Cluster
from testbed.scenario.waiting import eventually

pytestmark = pytest.mark.cluster

TRY: Final = "?dryRun=All&fieldValidation=Strict"
RBAC: Final = "rbac.authorization.k8s.io"
EVERYBODY: Final = {"apiGroup": RBAC, "kind": "Group", "name": "system:authenticated"}
VERBS: Final = ["get", "list", "create", "update", "patch", "delete"]
POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


@pytest.fixture(scope="module", autouse=True)
def crds(cluster: Cluster) -> None:
    """The chart's definitions, and one of JobSets, of which the policies know."""
    cluster.kubectl("apply", "--server-side", "-f", str(examples.CRDS))
    kind = KINDS["JobSet"]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": kind.version, "served": True, "storage": True}
    spec = {
        "group": kind.group,
        "names": {"kind": "JobSet", "plural": kind.plural},
        "scope": "Namespaced",
        "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
    }
    name = f"{kind.plural}.{kind.group}"
    made: Manifest = {"metadata": {"name": name}, "spec": spec}
    cluster.api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", made)
    served = [*(f"{each.plural}.{names.GROUP}" for each in SERVED), name]
    crd = [f"crd/{each}" for each in served]
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", *crd)


def path_of(manifest: Manifest, *, is_named: bool) -> str:
    kind, metadata = KINDS[manifest["kind"]], manifest["metadata"]
    namespace = f"/namespaces/{metadata['namespace']}" if kind.is_namespaced else ""
    name = f"/{metadata['name']}" if is_named else ""
    return f"{kind.base}{namespace}/{kind.plural}{name}"


def answer_of(reply: Reply) -> tuple[int, str, str]:
    """Code, reason and message of a refusal; 0 and nothing where the request is accepted.

    A creation that finds its name taken has passed admission: a cluster has one ClusterClaim.
    """
    if reply.status < http.client.BAD_REQUEST:
        return 0, "", ""
    status = reply.json()
    if status.get("reason") == "AlreadyExists":
        return 0, "", ""
    return reply.status, status.get("reason", ""), status["message"]


def store(cluster: Cluster, manifest: Manifest) -> None:
    """Create an object with its status, unless it is there."""
    status = {"status": manifest["status"]} if manifest.get("status") else {}
    reply = cluster.api.request("POST", path_of(manifest, is_named=False), manifest)
    assert reply.status in (201, 409), reply.body
    if status:
        cluster.api.patch(f"{path_of(manifest, is_named=True)}/status", status)


# --- objects --------------------------------------------------------------------------------------


def in_default(manifest: Manifest) -> Manifest:
    made: Manifest = merge(manifest, {"metadata": {"namespace": "default"}})
    return made


def write(cluster: Cluster, example: ObjectExample) -> Reply:
    """Answer to the creation or the change of an example, which is not kept."""
    new = in_default(example.new)
    if example.old is None:
        return cluster.api.request("POST", path_of(new, is_named=False) + TRY, new)
    path = path_of(new, is_named=True)
    given = {**cluster.api.get(path), example.part: new[example.part]}
    subresource = "/status" if example.part == "status" else ""
    return cluster.api.request("PUT", path + subresource + TRY, given)


@pytest.fixture(scope="module")
def stored_examples(cluster: Cluster, crds: None) -> Iterator[None]:
    """The objects that examples change; removed before any policy could keep them."""
    olds = [each.old for each in examples.object_examples().values() if each.old is not None]
    unique = {each["metadata"]["name"]: in_default(each) for each in olds}
    for each in unique.values():
        store(cluster, each)
    yield
    for each in unique.values():
        cluster.api.request("DELETE", path_of(each, is_named=True))


def test_objects_are_answered_as_the_table_says(cluster: Cluster, stored_examples: None) -> None:
    wrong = differences(
        (
            each.name,
            (422, "Invalid", each.refusal) if each.refusal else (0, "", ""),
            answer_of(write(cluster, each)),
        )
        for each in examples.object_examples().values()
    )
    assert not wrong, wrong


def differences(answers: Iterable[tuple[str, Any, Any]]) -> str:
    """The answers that are not those of the table, a line each."""
    return "\n".join(
        f"{name}: the table says {expected}, the API server {given}"
        for name, expected, given in answers
        if expected != given
    )


# --- requests -------------------------------------------------------------------------------------


def impersonation(user: ApiUser) -> dict[str, str]:
    """Headers by which the administrator asks as ``user``; the server adds system:authenticated."""
    headers = {"Impersonate-User": user.name}
    for group in user.groups[1:]:
        assert "Impersonate-Group" not in headers, (
            "a header stands once in a request of this client"
        )
        headers["Impersonate-Group"] = group
    if user.uid:
        headers["Impersonate-Uid"] = user.uid
    for key, (value,) in user.extra.items():
        headers[f"Impersonate-Extra-{quote(key)}"] = value
    return headers


def ask(cluster: Cluster, example: RequestExample) -> tuple[int, str, str]:
    """Answer to the request of an example, which is not kept."""
    request = example.request
    subresource = f"/{request.subresource}" if request.subresource else ""
    manifest = request.object or request.old
    assert manifest is not None
    body: Manifest | None = request.object
    if request.subresource in ("binding", "eviction"):
        path = path_of({**manifest, "kind": "Pod"}, is_named=True)
    else:
        path = path_of(manifest, is_named=request.old is not None)
    if example.change is not None:
        body = merge(cluster.api.get(path), example.change)
    method = {"CREATE": "POST", "UPDATE": "PUT", "DELETE": "DELETE"}[request.operation]
    where = path + subresource + "?dryRun=All"
    return answer_of(cluster.api.request(method, where, body, impersonation(request.user)))


def give_rights(cluster: Cluster) -> None:
    """Have everybody own every namespace by the verbs of the API, and users have their rights."""
    cluster_wide = ["queues/status", "schedulingpolicies/status", "nodepoolscalers/status"]
    cluster_wide.append("clusterclaims")
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": VERBS}
    makes = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"]}
    bind(cluster, "namespaces", EVERYBODY, makes)
    ours = {"apiGroups": [names.GROUP], "resources": cluster_wide, "verbs": ["update"]}
    bind(cluster, "ours", EVERYBODY, ours)
    for namespace in examples.namespaces():
        bind(cluster, "owner", EVERYBODY, everything, namespace)
    for name, account in examples.accounts().items():
        subject = {"apiGroup": RBAC, "kind": "User", "name": account.user.name}
        for number, right in enumerate(account.rights):
            rule: Manifest = {
                "verbs": [right.verb],
                "apiGroups": [right.group],
                "resources": [right.resource],
            }
            if right.name:
                rule["resourceNames"] = [right.name]
            bind(cluster, f"{name}-{number}", subject, rule, right.namespace)


def bind(
    cluster: Cluster, name: str, subject: Manifest, rule: Manifest, namespace: str = ""
) -> None:
    """Give a right in a namespace, or in the whole cluster."""
    kind, where = ("Role", f"/namespaces/{namespace}") if namespace else ("ClusterRole", "")
    path, head = f"/apis/{RBAC}/v1{where}/{kind.lower()}", {"metadata": {"name": f"table-{name}"}}
    cluster.api.post(f"{path}s", {**head, "rules": [rule]})
    role = {"apiGroup": RBAC, "kind": kind, "name": f"table-{name}"}
    cluster.api.post(f"{path}bindings", {**head, "roleRef": role, "subjects": [subject]})


@pytest.fixture(scope="module")
def table_in_cluster(cluster: Cluster, crds: None) -> None:
    """Namespaces, rights and stored objects of the table."""
    for name, manifest in examples.namespaces().items():
        reply = cluster.api.request("POST", "/api/v1/namespaces", manifest)
        assert reply.status in (201, 409), reply.body
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        eventually(partial(cluster.api.request, "GET", account), lambda reply: reply.status == 200)
    give_rights(cluster)
    for each in examples.stored_objects().values():
        store(cluster, each)


def test_every_request_is_accepted_where_no_policy_refuses_it(
    cluster: Cluster, table_in_cluster: None
) -> None:
    accepted = (0, "", "")
    table = examples.request_examples().values()
    # Rights that were given a moment ago may not count at once.
    wrong = differences(
        (
            each.name,
            accepted,
            eventually(partial(ask, cluster, each), lambda answer: "cannot" not in answer[2]),
        )
        for each in table
    )
    assert not wrong, wrong


@pytest.fixture(scope="module")
def policies_in_force(cluster: Cluster, table_in_cluster: None) -> None:
    """The policies of the chart, which act a moment after they are there."""
    plural_of = {BINDING: BINDINGS, POLICY: POLICIES}
    for each in examples.policies():
        cluster.api.post(plural_of[each["kind"]], each)


def answers(
    cluster: Cluster, chosen: Iterable[RequestExample]
) -> Iterator[tuple[str, tuple[int, str, str], tuple[int, str, str]]]:
    """Name, expected and given answer of each example; refusals first, which are awaited."""
    for each in sorted(chosen, key=lambda example: not example.refusal):
        expected = (403, "Forbidden", each.refusal) if each.refusal else (0, "", "")
        given = ask(cluster, each)
        if each.refusal and not given[0]:
            given = eventually(partial(ask, cluster, each), lambda answer: answer[0] > 0)
        yield each.name, expected, given


def test_requests_are_answered_as_the_table_says(cluster: Cluster, policies_in_force: None) -> None:
    table = examples.request_examples().values()
    wrong = differences(answers(cluster, [each for each in table if not each.without]))
    assert not wrong, wrong
    for each in (each for each in table if each.without):
        assert cluster.api.request("DELETE", f"{BINDINGS}/{each.without}").status == 200
        eventually(partial(ask, cluster, each), partial(eq, (403, "Forbidden", each.refusal)))


def test_api_server_finds_nothing_wrong_with_the_types_of_any_policy(
    cluster: Cluster, policies_in_force: None
) -> None:
    def checked() -> dict[str, Any]:
        listed = json.loads(cluster.kubectl("get", "validatingadmissionpolicies", "-o=json"))
        return {
            each["metadata"]["name"]: each.get("status", {}).get("typeChecking")
            for each in listed["items"]
        }

    found = eventually(checked, lambda found: None not in found.values())
    assert len(found) == len(examples.policies()) // 2
    assert [name for name, warnings in found.items() if warnings] == []
