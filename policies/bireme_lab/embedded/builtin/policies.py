"""Admission policies at work, validating and mutating, and the CEL rules of custom kinds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bireme_lab.embedded.api import bodies, kinds, models, schemas
from bireme_lab.embedded.api.admission import Attempt
from bireme_lab.embedded.api.errors import ApiRefusal, Faults, Object
from bireme_lab.embedded.api.requests import ApiUser
from bireme_lab.embedded.api.resources import ResourceKind, ResourceKinds
from bireme_lab.embedded.api.store import Store
from bireme_lab.embedded.builtin import jobs
from bireme_lab.embedded.builtin.kinds import without_address
from bireme_lab.embedded.builtin.rbac import Rights
from bireme_lab.embedded.cel import mutations, policies, rules
from bireme_lab.embedded.cel.evaluation import bound_policies
from bireme_lab.embedded.cel.requests import AdmissionRequest, Check, Surroundings

_EXEMPT: Final = frozenset(
    {
        kinds.VALIDATING_POLICIES,
        kinds.VALIDATING_BINDINGS,
        kinds.MUTATING_POLICIES,
        kinds.MUTATING_BINDINGS,
    }
)
"""Kinds that no policy is about, so that a bad one can be corrected."""
_PATCHED_SUBRESOURCES: Final = ("", "status", "finalize")
_OF_SERVER: Final = ("uid", "creationTimestamp", "generation")
_SUFFIX_LENGTH: Final = 5
_UNPREPARED: Final[Mapping[str, Callable[[Object], Object]]] = {
    kinds.JOBS: jobs.without_selector,
    kinds.SERVICES: without_address,
}
"""By resource path, what of a new object the server adds after mutating admission."""


@dataclass(frozen=True, eq=False)
class PolicyAdmission:
    """The policies of a store.

    Attributes:
        schema_of: Returns the schema of a kind; None where only its storage is modelled.
    """

    store: Store
    resources: ResourceKinds
    rights: Rights
    schema_of: Callable[[ResourceKind], schemas.Schema | None]

    def validate(self, attempt: Attempt) -> None:
        """Put a write to every validating policy with a binding."""
        manifests = self._manifests(attempt, kinds.VALIDATING_POLICIES, kinds.VALIDATING_BINDINGS)
        if manifests:
            policies.judge(manifests, _request(attempt, attempt.obj), self._world())

    def mutate(self, attempt: Attempt) -> Object:
        """Return the object of a write after every mutating policy with a binding."""
        obj = attempt.obj or {}
        manifests = self._manifests(attempt, kinds.MUTATING_POLICIES, kinds.MUTATING_BINDINGS)
        if not manifests:
            return obj
        sent = _as_sent(attempt, obj)
        request = _request(attempt, sent)
        if attempt.subresource not in _PATCHED_SUBRESOURCES:
            self._refuse_subresource(manifests, request)
            return obj
        patching = mutations.Patching(
            self._merge_schema(attempt.resource),
            lambda content: _as_sent(attempt, self._complete(attempt, content)),
        )
        changed = mutations.mutate(
            manifests, request, self._world(), patching, attempt.reinvocation
        )
        return obj if changed == sent else attempt.complete(changed)

    def _manifests(self, attempt: Attempt, of_policies: str, of_bindings: str) -> list[Object]:
        """Return the policies and bindings that an attempt is put to; none without a binding."""
        bindings = list(self.store.collection(of_bindings).objects.values())
        if not bindings or attempt.resource.path in _EXEMPT:
            return []
        return [*self.store.collection(of_policies).objects.values(), *bindings]

    def _world(self) -> Surroundings:
        namespaces = self.store.collection(kinds.NAMESPACES).objects
        by_name = {name: obj for (_, name), obj in namespaces.items()}
        return Surroundings(by_name, self._may, self._objects)

    def _may(self, user: ApiUser, check: Check) -> bool:
        resource = check.get("resource", "")
        if check.get("subresource"):
            resource = f"{resource}/{check['subresource']}"
        return self.rights.may(
            user,
            check.get("verb", ""),
            check.get("group", ""),
            resource,
            check.get("namespace", ""),
            check.get("name", ""),
        )

    def _objects(self, kind: str, namespace: str) -> list[Any]:
        return [
            obj
            for resource in self.resources
            if resource.kind == kind
            for key, obj in self.store.collection(resource.path).objects.items()
            if key[0] in ("", namespace)
        ]

    def _refuse_subresource(self, manifests: list[Object], request: AdmissionRequest) -> None:
        for policy, _ in bound_policies(manifests, mutations.POLICY, request, self._world()):
            name = policy["metadata"]["name"]
            text = (
                f"the embedded cluster mutates no subresource {request.subresource}, which"
                f" MutatingAdmissionPolicy '{name}' is about: name other resources in its rules"
            )
            raise ApiRefusal(501, "NotImplemented", text)

    def _merge_schema(self, resource: ResourceKind) -> schemas.Schema:
        schema = self.schema_of(resource) or {}
        meta = models.model("V1ObjectMeta")
        if not resource.is_custom or meta is None:
            return schema
        text = {"type": "string"}
        head = {"apiVersion": text, "kind": text, "metadata": models.schema_of_model(meta)}
        return {**schema, "properties": {**schema.get("properties", {}), **head}}

    def _complete(self, attempt: Attempt, content: Object) -> Object:
        """Return patched content as an object of its kind; 500 where it is none."""
        resource = attempt.resource
        try:
            typed = bodies.typed(content, resource, attempt.subresource)
        except ApiRefusal as refusal:
            raise _internal(refusal.message) from refusal
        if not resource.is_custom and (schema := self.schema_of(resource)) is not None:
            _, unknown = schemas.prune(typed, schema)
            if unknown:
                names = ", ".join(f'unknown field "{path}"' for path in unknown)
                raise _internal(f"strict decoding error: {names}")
        name = (typed.get("metadata") or {}).get("name", "")
        if attempt.operation != "CREATE" and name != attempt.key[1]:
            raise _internal(
                f"the embedded cluster lets no policy rename {attempt.key[1]} to {name}"
            )
        return attempt.complete(typed)


def _internal(message: str) -> ApiRefusal:
    return ApiRefusal(500, "InternalError", f"Internal error occurred: {message}")


def _as_sent(attempt: Attempt, obj: Object) -> Object:
    """Return an object as mutating admission sees it: what the server adds later is not there."""
    if attempt.operation != "CREATE":
        return obj
    if (remove := _UNPREPARED.get(attempt.resource.path)) is not None:
        obj = remove(obj)
    meta = {name: value for name, value in obj["metadata"].items() if name not in _OF_SERVER}
    prefix, name = meta.get("generateName", ""), meta.get("name", "")
    if prefix and name.startswith(prefix) and len(name) == len(prefix) + _SUFFIX_LENGTH:
        del meta["name"]
    sent = {**obj, "metadata": meta}
    has_status = "status" in attempt.resource.subresources and not attempt.resource.is_custom
    return {**sent, "status": {}} if has_status and attempt.resource.path != kinds.NODES else sent


def _request(attempt: Attempt, obj: Object | None) -> AdmissionRequest:
    resource = attempt.resource
    is_named = obj is None or "name" in obj["metadata"]
    return AdmissionRequest(
        operation=attempt.operation,
        resource=resource.plural,
        kind=resource.kind,
        user=attempt.user,
        group=resource.group,
        version=resource.version,
        subresource=attempt.subresource,
        namespace=attempt.key[0],
        name=attempt.key[1] if is_named else "",
        object=obj,
        old=attempt.old,
        is_dry_run=attempt.is_dry_run,
    )


def check_rules(resource: ResourceKind, obj: Object, old: Object | None, faults: Faults) -> None:
    """Add the faults that the CEL rules of a custom kind find."""
    if resource.schema is None:
        return
    for broken in rules.faults(dict(resource.schema), obj, old):
        faults.add(broken.path, "FieldValueInvalid", broken.body)
