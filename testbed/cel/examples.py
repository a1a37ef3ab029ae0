"""The table of examples: objects and requests with the answers that the API server must give.

``table/objects.yaml`` holds objects for the rules of the CRDs, ``table/requests.yaml`` requests for
the admission policies. A task without a template gets the smallest one; ``requests`` puts requests
into it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from bireme.kube import names
from bireme_lab.embedded.api.patches import merge
from bireme_lab.embedded.api.requests import ApiUser
from bireme_lab.embedded.cel import rules
from bireme_lab.embedded.cel.policies import BINDING, POLICY
from bireme_lab.embedded.cel.requests import AdmissionRequest, Check, Surroundings
from testbed.cel.tickets import ticket_policies
from testbed.controlplane.api import Manifest
from testbed.scenario.renderings import DEFAULT

_ROOT: Final = Path(__file__).parents[2]
_TABLE: Final = Path(__file__).with_name("table")
CRDS: Final = _ROOT / "charts" / "bireme" / "files" / "crds"


def _read(name: str) -> Manifest:
    table: Manifest = yaml.safe_load((_TABLE / name).read_text())
    return table


@cache
def definitions() -> dict[str, Manifest]:
    """Return the CRDs of the chart by kind."""
    manifests = [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob("*.yaml"))]
    return {each["spec"]["names"]["kind"]: each for each in manifests}


# --- objects for the rules of the CRDs ------------------------------------------------------------


@dataclass(frozen=True)
class ObjectExample:
    """An object that is created, or a change of a stored one.

    Attributes:
        part: The field that a change writes, ``spec`` or ``status``.
        refusal: The message of the refusal; empty where the object is accepted.
    """

    name: str
    new: Manifest
    old: Manifest | None = None
    part: str = "spec"
    refusal: str = ""


@cache
def object_examples() -> dict[str, ObjectExample]:
    """Return the examples for rules of CRDs by name."""
    table = _read("objects.yaml")
    stored = {name: object_of(each) for name, each in table["stored"].items()}
    examples: dict[str, ObjectExample] = {}
    for name, each in table["examples"].items():
        if "stored" in each:
            old, part = stored[each["stored"]], each.get("subresource", "spec")
            change = _spec(each["change"]) if part == "spec" else each["change"]
            new = merge(old, {part: change})
            example = ObjectExample(name, new, old, part, each.get("refusal", ""))
        else:
            example = ObjectExample(name, object_of(each), refusal=each.get("refusal", ""))
        examples[name] = example
    return examples


def object_of(given: Mapping[str, Any]) -> Manifest:
    """Return the object of an entry of the table; one with a status is as it is stored."""
    kind, name = given["kind"], given.get("name", "example")
    head = {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": name}}
    made = {**head, "spec": _spec(given["spec"])}
    if "status" not in given:
        return made
    return rules.judge(definitions()[kind], {**made, "status": given["status"]})


def _spec(spec: Manifest) -> Manifest:
    """Return a spec with pod templates in its tasks."""
    if "tasks" not in spec:
        return spec
    tasks = [{"template": _template(task.get("requests")), **task} for task in spec["tasks"]]
    for task in tasks:
        task.pop("requests", None)
    return {**spec, "tasks": tasks}


def _template(requests: Manifest | None) -> Manifest:
    container: Manifest = {"name": "main", "image": "train"}
    if requests:
        container["resources"] = {"requests": requests}
    return {"spec": {"containers": [container]}}


# --- requests for the admission policies ----------------------------------------------------------


@dataclass(frozen=True)
class ResourceType:
    """A kind as the API server serves it."""

    group: str
    version: str
    plural: str
    is_namespaced: bool = True

    @property
    def base(self) -> str:
        """Path of its group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


KINDS: Final = {
    "Binding": ResourceType("", "v1", "bindings"),
    "Eviction": ResourceType("policy", "v1", "evictions"),
    "Job": ResourceType("batch", "v1", "jobs"),
    "JobSet": ResourceType("jobset.x-k8s.io", "v1alpha2", "jobsets"),
    "Namespace": ResourceType("", "v1", "namespaces", is_namespaced=False),
    "Pod": ResourceType("", "v1", "pods"),
    "Service": ResourceType("", "v1", "services"),
    "ServiceAccount": ResourceType("", "v1", "serviceaccounts"),
    **{
        name: ResourceType(
            names.GROUP,
            each["spec"]["versions"][0]["name"],
            each["spec"]["names"]["plural"],
            is_namespaced=each["spec"]["scope"] == "Namespaced",
        )
        for name, each in definitions().items()
    },
}
DEFAULT_NAMESPACE: Final = "team-a"


@dataclass(frozen=True)
class Right:
    """What a role gives; an empty ``name`` or ``namespace`` is any, and a resource may be ``*``."""

    verb: str
    group: str
    resource: str
    name: str
    namespace: str

    @classmethod
    def parse(cls, text: str) -> "Right":
        """Return the right that ``verb resource.group/name in namespace`` stands for."""
        what, _, namespace = text.partition(" in ")
        verb, _, what = what.partition(" ")
        place, _, name = what.partition("/")
        resource, _, group = place.partition(".")
        if not group and name:  # of the core: a subresource in place of a name
            return cls(verb, "", f"{resource}/{name}", "", namespace)
        return cls(verb, "*" if resource == "*" else group, resource, name, namespace)

    def covers(self, check: Check) -> bool:
        resource = check["resource"]
        if check.get("subresource"):
            resource += f"/{check['subresource']}"
        return (
            self.verb in ("*", check["verb"])
            and self.group in ("*", check["group"])
            and self.resource in ("*", resource)
            and self.name in ("", check.get("name", ""))
            and self.namespace in ("", check.get("namespace", ""))
        )


@dataclass(frozen=True)
class Account:
    """A user, with rights such as ``use queues.bireme.dev/gold`` and ``* * in team-a``."""

    user: ApiUser
    rights: tuple[Right, ...]


@dataclass(frozen=True)
class RequestExample:
    """A request and its answer.

    Attributes:
        stored: Name of the stored object that it changes or deletes.
        change: Merged into the stored object.
        without: Name of a policy that is not in force.
        refusal: The message of the refusal; empty where the request is accepted.
    """

    name: str
    request: AdmissionRequest
    stored: str = ""
    change: Manifest | None = None
    without: str = ""
    refusal: str = ""


@cache
def accounts() -> dict[str, Account]:
    """Return the users of the table by name."""
    return {
        name: Account(
            ApiUser(
                each["name"],
                tuple(each.get("groups", ("system:authenticated",))),
                each.get("uid", ""),
                each.get("extra", {}),
            ),
            tuple(map(Right.parse, each.get("rights", ()))),
        )
        for name, each in _read("requests.yaml")["users"].items()
    }


@cache
def stored_objects() -> dict[str, Manifest]:
    """Return the objects that are there before any request, by their name in the table."""
    return {name: complete(each) for name, each in _read("requests.yaml")["stored"].items()}


@cache
def namespaces() -> dict[str, Manifest]:
    """Return the namespaces of the table."""
    labels_of: dict[str, Manifest] = _read("requests.yaml")["namespaces"]
    return {
        name: {"metadata": {"name": name, **({"labels": labels} if labels else {})}}
        for name, labels in labels_of.items()
    }


@cache
def request_examples() -> dict[str, RequestExample]:
    """Return the examples for admission policies by name."""
    examples = _read("requests.yaml")["examples"]
    return {name: _request_example(name, each) for name, each in examples.items()}


@cache
def policies() -> tuple[Manifest, ...]:
    """Return the policies and bindings of the chart by default, and those of tickets."""
    rendered = [each for each in yaml.safe_load_all(DEFAULT.read_text()) if each]
    of_chart = [each for each in rendered if each["kind"] in (POLICY, BINDING)]
    return (*of_chart, *ticket_policies())


def policies_for(example: RequestExample) -> list[Manifest]:
    """Return the policies that are in force in an example."""
    return [each for each in policies() if each["metadata"]["name"] != example.without]


def world() -> Surroundings:
    """Return the cluster of the table, whose users have the rights that it gives them."""
    rights = {each.user.name: each.rights for each in accounts().values()}
    pods = [each for each in stored_objects().values() if each["kind"] == "Pod"]

    def may(user: ApiUser, check: Check) -> bool:
        return any(right.covers(check) for right in rights[user.name])

    def objects(kind: str, namespace: str) -> list[Manifest]:
        assert kind == "Pod", kind
        return [each for each in pods if each["metadata"]["namespace"] == namespace]

    return Surroundings(namespaces(), may, objects)


def complete(given: Mapping[str, Any]) -> Manifest:
    """Return the manifest of an entry of the table, with the defaults of our own kinds."""
    kind = KINDS[given["kind"]]
    metadata = {"name": given["name"]}
    if kind.is_namespaced:
        metadata["namespace"] = given.get("namespace", DEFAULT_NAMESPACE)
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        if field in given:
            metadata[field] = given[field]
    head = {"kind": given["kind"], "metadata": metadata}
    head["apiVersion"] = f"{kind.group}/{kind.version}" if kind.group else kind.version
    rest = {field: given[field] for field in ("target",) if field in given}
    if "spec" in given:
        rest["spec"] = _spec(given["spec"])
    if given["kind"] == "Pod":
        container = {"name": "main", "image": "train", **given.get("container", {})}
        rest["spec"] = {"containers": [container], **given["spec"]}
    made = {**head, **rest}
    return rules.judge(definitions()[given["kind"]], made) if kind.group == names.GROUP else made


def _request_example(name: str, given: Mapping[str, Any]) -> RequestExample:
    subresource, change = given.get("subresource", ""), given.get("change")
    stored = given.get("update") or given.get("delete") or ""
    old = stored_objects()[stored] if stored else None
    new = complete(given["create"]) if "create" in given else None
    if old is not None and "update" in given:
        new = merge(old, change)
    subject = new or old
    assert subject is not None, f"{name} creates, updates or deletes nothing"
    kind = KINDS[subject["kind"]]
    # A subresource of pods has a kind of its own, but is a resource of the core.
    owner = KINDS["Pod"] if subresource in ("binding", "eviction") else kind
    metadata = subject["metadata"]
    request = AdmissionRequest(
        operation="DELETE" if "delete" in given else "UPDATE" if old else "CREATE",
        group=owner.group,
        version=owner.version,
        resource=owner.plural,
        subresource=subresource,
        kind=subject["kind"],
        namespace=metadata.get(
            "namespace", "" if kind.plural != "namespaces" else metadata["name"]
        ),
        name=metadata["name"],
        user=accounts()[given["user"]].user,
        object=new,
        old=old,
    )
    without, refusal = given.get("without", ""), given.get("refusal", "")
    return RequestExample(name, request, stored, change, without, refusal)
