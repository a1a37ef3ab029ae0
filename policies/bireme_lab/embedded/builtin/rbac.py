"""Rights of users, by Roles and ClusterRoles and their bindings."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.object_selectors import matches_labels
from bireme_lab.embedded.api.requests import ApiRequest, ApiUser, RequestPath
from bireme_lab.embedded.api.resources import ResourceKind
from bireme_lab.embedded.api.store import Store

_PREFIX: Final = "/apis/rbac.authorization.k8s.io/v1"
CLUSTER_ROLES: Final = f"{_PREFIX}/clusterroles"
CLUSTER_BINDINGS: Final = f"{_PREFIX}/clusterrolebindings"
_ROLES: Final = f"{_PREFIX}/roles"
_BINDINGS: Final = f"{_PREFIX}/rolebindings"
_MASTERS: Final = "system:masters"
_ACCOUNT: Final = "system:serviceaccount:"
_ALL: Final = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
_READ: Final = ["get", "list", "watch"]
_WRITE: Final = ["create", "delete", "deletecollection", "patch", "update"]
_OF_USERS: Final = {
    "": ["configmaps", "persistentvolumeclaims", "pods", "secrets", "serviceaccounts", "services"],
    "apps": ["deployments", "deployments/scale", "replicasets", "replicasets/scale",
             "statefulsets", "statefulsets/scale"],
    "batch": ["jobs"],
    "policy": ["poddisruptionbudgets"],
}  # fmt: skip
# What kube-scheduler may do, as Kubernetes' own roles have it.
_OF_SCHEDULER: Final = (
    (("", "events.k8s.io"), ("events",), ("create", "patch", "update")),
    (("coordination.k8s.io",), ("leases",), ("create", "get", "list", "patch", "update", "watch")),
    (("",), ("nodes", "namespaces", "replicationcontrollers", "services"), tuple(_READ)),
    (("",), ("persistentvolumeclaims", "persistentvolumes"), (*_READ, "patch", "update")),
    (("",), ("pods",), ("delete", *_READ)),
    (("",), ("bindings", "pods/binding"), ("create",)),
    (("",), ("pods/status",), ("patch", "update")),
    (("apps",), ("replicasets", "statefulsets"), tuple(_READ)),
    (("policy",), ("poddisruptionbudgets",), tuple(_READ)),
    (("storage.k8s.io",), ("*",), tuple(_READ)),
    (("resource.k8s.io",), ("*",), (*_READ, "patch", "update")),
    (("authentication.k8s.io",), ("tokenreviews",), ("create",)),
    (("authorization.k8s.io",), ("subjectaccessreviews",), ("create",)),
)
_OF_ALL: Final = (
    {"apiGroups": ["authorization.k8s.io"], "verbs": ["create"],
     "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]},
    {"apiGroups": ["authentication.k8s.io"], "verbs": ["create"],
     "resources": ["selfsubjectreviews"]},
)  # fmt: skip
_AGGREGATE: Final = "rbac.authorization.k8s.io/aggregate-to-"


def first_roles() -> Iterator[Object]:
    """Yield the ClusterRoles that every cluster has, for users and for kube-scheduler."""
    yield _role("cluster-admin", [_ALL])
    of_scheduler: list[Object] = [
        {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs)}
        for groups, resources, verbs in _OF_SCHEDULER
    ]
    yield _role("system:kube-scheduler", of_scheduler)
    yield _role("system:volume-scheduler", of_scheduler)
    yield _role("system:basic-user", list(_OF_ALL))
    reads = [
        {"apiGroups": [group], "resources": names, "verbs": _READ}
        for group, names in _OF_USERS.items()
    ]
    read_rule = {
        "apiGroups": [""],
        "resources": ["events", "pods/log", "resourcequotas"],
        "verbs": _READ,
    }
    without_secrets = [
        {**rule, "resources": [name for name in rule["resources"] if name != "secrets"]}
        for rule in reads
    ]
    writes = [
        {"apiGroups": [group], "resources": names, "verbs": [*_READ, *_WRITE]}
        for group, names in _OF_USERS.items()
    ]
    evicts = {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}
    grants = {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["rolebindings", "roles"],
        "verbs": [*_READ, *_WRITE],
    }
    yield _role("view", [*without_secrets, read_rule], "view")
    yield _role("edit", [*writes, read_rule, evicts], "edit", "view")
    yield _role("admin", [*writes, read_rule, evicts, grants], "admin", "edit", "view")


def first_bindings() -> Iterator[Object]:
    """Yield the bindings of the cluster's own programs and of all users to their roles."""
    for name, kind, role in (
        ("system:kube-scheduler", "User", "system:kube-scheduler"),
        ("system:nodes", "Group", "cluster-admin"),
        ("system:authenticated", "Group", "system:basic-user"),
    ):
        yield {
            "metadata": {"name": role if name == "system:authenticated" else name},
            "subjects": [{"kind": kind, "name": name}],
            "roleRef": {"kind": "ClusterRole", "name": role},
        }


def _role(name: str, rules: list[Object], *gathers: str) -> Object:
    role: Object = {"metadata": {"name": name}, "rules": rules}
    if gathers:
        selectors = [{"matchLabels": {f"{_AGGREGATE}{each}": "true"}} for each in gathers]
        role["aggregationRule"] = {"clusterRoleSelectors": selectors}
    return role


class Rights:
    """Answers who may do what, out of the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def authorize(
        self, request: ApiRequest, verb: str, resource: ResourceKind, target: RequestPath
    ) -> bool:
        """Return whether the user of a request may do what it is about."""
        plural = (
            f"{resource.plural}/{target.subresource}" if target.subresource else resource.plural
        )
        name = target.name
        namespace = target.namespace
        return self.may(request.user, verb, resource.group, plural, namespace, name)

    def may(
        self,
        user: ApiUser,
        verb: str,
        group: str,
        resource: str,
        namespace: str = "",
        name: str = "",
    ) -> bool:
        """Return whether a user may do ``verb``; no ``namespace`` is the whole cluster.

        ``resource`` is a plural, with ``/SUBRESOURCE`` for one.
        """
        if _MASTERS in user.groups:
            return True
        return any(
            _allows(rule, verb, group, resource, name) for rule in self._rules(user, namespace)
        )

    def rules(self, user: ApiUser, namespace: str) -> Iterator[Object]:
        """Yield the rules about resources that a user has in a namespace."""
        if _MASTERS in user.groups:
            yield _ALL
        for rule in self._rules(user, namespace):
            if rule.get("resources"):
                yield dict(rule)

    def _rules(self, user: ApiUser, namespace: str) -> Iterator[Mapping[str, Any]]:
        for binding in self._objects(CLUSTER_BINDINGS):
            if _is_bound(binding, user, ""):
                yield from self._rules_of_cluster_role(binding["roleRef"]["name"])
        if not namespace:
            return
        for binding in self._objects(_BINDINGS):
            bound_namespace = binding["metadata"]["namespace"]
            if bound_namespace != namespace or not _is_bound(binding, user, bound_namespace):
                continue
            reference = binding["roleRef"]
            if reference["kind"] == "ClusterRole":
                yield from self._rules_of_cluster_role(reference["name"])
            elif (
                role := self._store.get(_ROLES, (bound_namespace, reference["name"]))
            ) is not None:
                yield from role.get("rules") or ()

    def _rules_of_cluster_role(self, name: str) -> Iterator[Mapping[str, Any]]:
        role = self._store.get(CLUSTER_ROLES, ("", name))
        if role is None:
            return
        yield from role.get("rules") or ()
        selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
        for other in self._objects(CLUSTER_ROLES):
            labels = other["metadata"].get("labels") or {}
            if other is not role and any(matches_labels(each, labels) for each in selectors):
                yield from other.get("rules") or ()

    def _objects(self, path: str) -> Iterable[Object]:
        return tuple(self._store.collection(path).objects.values())


def _is_bound(binding: Object, user: ApiUser, namespace: str) -> bool:
    for subject in binding.get("subjects") or ():
        match subject["kind"]:
            case "User" if subject["name"] == user.name:
                return True
            case "Group" if subject["name"] in user.groups:
                return True
            case "ServiceAccount":
                account_namespace = subject.get("namespace") or namespace
                if user.name == f"{_ACCOUNT}{account_namespace}:{subject['name']}":
                    return True
    return False


def _allows(rule: Mapping[str, Any], verb: str, group: str, resource: str, name: str) -> bool:
    names = rule.get("resourceNames")
    return (
        _has(rule.get("verbs"), verb)
        and _has(rule.get("apiGroups"), group)
        and _has_resource(rule.get("resources"), resource)
        and (not names or name in names)
    )


def _has(values: Any, value: str) -> bool:
    return value in (values or ()) or "*" in (values or ())


def _has_resource(values: Any, resource: str) -> bool:
    _, _, subresource = resource.partition("/")
    return _has(values, resource) or bool(subresource and f"*/{subresource}" in (values or ()))


def account_user(namespace: str, name: str) -> ApiUser:
    """Return the user that a ServiceAccount is."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}",
              "system:authenticated")  # fmt: skip
    return ApiUser(f"{_ACCOUNT}{namespace}:{name}", groups)
