"""ValidatingAdmissionPolicies at work, and the CEL rules of custom kinds."""

from collections.abc import Callable
from typing import Any, Final

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.admission import Attempt
from bireme_lab.embedded.api.errors import Faults, Object
from bireme_lab.embedded.api.requests import ApiUser
from bireme_lab.embedded.api.resources import ResourceKind, ResourceKinds
from bireme_lab.embedded.api.store import Store
from bireme_lab.embedded.builtin.rbac import Rights
from bireme_lab.embedded.cel import rules
from bireme_lab.embedded.cel.policies import judge
from bireme_lab.embedded.cel.requests import AdmissionRequest, Check, Surroundings

_PREFIX: Final = "/apis/admissionregistration.k8s.io/v1"
POLICIES: Final = f"{_PREFIX}/validatingadmissionpolicies"
BINDINGS: Final = f"{_PREFIX}/validatingadmissionpolicybindings"


def policy_admission(
    store: Store, resources: ResourceKinds, rights: Rights
) -> Callable[[Attempt], None]:
    """Return the validator that puts a write to every policy with a binding."""

    def may(user: ApiUser, check: Check) -> bool:
        resource = check.get("resource", "")
        if check.get("subresource"):
            resource = f"{resource}/{check['subresource']}"
        return rights.may(
            user,
            check.get("verb", ""),
            check.get("group", ""),
            resource,
            check.get("namespace", ""),
            check.get("name", ""),
        )

    def objects(kind: str, namespace: str) -> list[Any]:
        return [
            obj
            for resource in resources
            if resource.kind == kind
            for key, obj in store.collection(resource.path).objects.items()
            if key[0] in ("", namespace)
        ]

    def admit(attempt: Attempt) -> None:
        bindings = list(store.collection(BINDINGS).objects.values())
        if not bindings:
            return
        namespaces = {
            name: obj for (_, name), obj in store.collection(kinds.NAMESPACES).objects.items()
        }
        manifests = [*store.collection(POLICIES).objects.values(), *bindings]
        judge(manifests, _request(attempt), Surroundings(namespaces, may, objects))

    return admit


def _request(attempt: Attempt) -> AdmissionRequest:
    resource = attempt.resource
    return AdmissionRequest(
        operation=attempt.operation,
        resource=resource.plural,
        kind=resource.kind,
        user=attempt.user,
        group=resource.group,
        version=resource.version,
        subresource=attempt.subresource,
        namespace=attempt.key[0],
        name=attempt.key[1],
        object=attempt.obj,
        old=attempt.old,
    )


def check_rules(resource: ResourceKind, obj: Object, old: Object | None, faults: Faults) -> None:
    """Add the faults that the CEL rules of a custom kind find."""
    if resource.schema is None:
        return
    for broken in rules.faults(dict(resource.schema), obj, old):
        faults.add(broken.path, "FieldValueInvalid", broken.body)
