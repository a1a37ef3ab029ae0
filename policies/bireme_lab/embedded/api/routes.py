"""Routes of requests: the kind that an address is about, and the verb that a method is."""

from bireme_lab.embedded.api import errors
from bireme_lab.embedded.api.errors import ApiRefusal
from bireme_lab.embedded.api.requests import ApiRequest, ApiUser, RequestPath
from bireme_lab.embedded.api.resources import ResourceKind, ResourceKinds


def is_unknown(resources: ResourceKinds, path: str) -> bool:
    """Return whether no group of Kubernetes' own and no custom kind is at a path."""
    prefix = "/".join(path.split("/")[:4])
    if prefix.startswith("/api/"):
        return False
    kinds = [kind for kind in resources if kind.prefix == prefix]
    if any(not kind.is_custom for kind in kinds):
        return False
    plurals = {kind.plural for kind in kinds}
    return plurals.isdisjoint(path.split("/")[4:])


def served(resources: ResourceKinds, target: RequestPath) -> ResourceKind:
    """Return the kind that an address is about; 404 for one that is not served."""
    resource = resources.get(target.resource)
    if resource is None or (target.namespace and not resource.is_namespaced):
        raise errors.no_resource()
    if target.subresource and target.subresource not in resource.subresources:
        if resource.is_custom:
            raise errors.not_found(resource.subject(target.name))
        raise errors.no_resource()
    if resource.is_namespaced and target.name and not target.namespace:
        raise errors.no_resource()
    return resource


def verb_of(request: ApiRequest, target: RequestPath) -> str:
    """Return the verb of a request, as rights name it."""
    if request.method == "GET":
        if request.is_watch:
            return "watch"
        return "get" if target.name else "list"
    if request.method == "DELETE" and not target.name:
        return "deletecollection"
    verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    return verbs.get(request.method, request.method.lower())


def unauthorized(
    user: ApiUser, verb: str, resource: ResourceKind, target: RequestPath
) -> ApiRefusal:
    """Return the refusal of a request whose sender has no right to it."""
    plural = f"{resource.plural}/{target.subresource}" if target.subresource else resource.plural
    where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    text = (
        f'User "{user.name}" cannot {verb} resource "{plural}" in API group '
        f'"{resource.group}" {where}'
    )
    return errors.forbidden(resource.subject(target.name), text)
