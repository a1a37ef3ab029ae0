"""The chart's admission policies, judged without an API server: their CEL, by cel-python.

It knows of CEL what the policies use, with ``authorizer``, ``variables``, ``params`` and the string
functions of Kubernetes. Types are not checked, and costs are not counted: the real API server does
both, in the tier ``cluster``.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import celpy
import yaml
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError

from testbed.controlplane.api import Manifest

GOLDEN: Final = Path(__file__).parents[1] / "tests" / "golden" / "chart" / "default.yaml"
_STEPS: Final = ("group", "resource", "subresource", "namespace", "name", "check")


@dataclass(frozen=True)
class Request:
    """A request as admission sees it.

    ``resource`` may have a subresource; ``may`` answers the authorizer, from the parts of a check:
    group, resource, subresource, namespace, name and check, the verb.
    """

    operation: str
    resource: str
    user: str
    object: Manifest | None = None
    old: Manifest | None = None
    group: str = ""
    namespace: str = "team-a"
    name: str = ""
    groups: tuple[str, ...] = ("system:authenticated",)
    extra: Mapping[str, list[str]] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    may: Callable[[Mapping[str, str]], bool] = lambda _: False
    pods: tuple[Manifest, ...] = ()
    """Of the namespace, for policies that are about them."""


@dataclass(frozen=True)
class Policy:
    name: str
    spec: Manifest
    binding: Manifest

    def refusals(self, request: Request) -> list[str]:
        """Return the messages of all validations that refuse ``request``."""
        if not self._is_about(request):
            return []
        if "paramKind" not in self.spec:
            return self._judged(request, None)
        chosen = [pod for pod in request.pods if _selects(self.binding["paramRef"], pod)]
        return [message for pod in chosen for message in self._judged(request, pod)]

    def _is_about(self, request: Request) -> bool:
        constraints = self.spec["matchConstraints"]
        selector = constraints.get("namespaceSelector", {}).get("matchLabels", {})
        if not selector.items() <= request.namespace_labels.items():
            return False
        main, _, sub = request.resource.partition("/")
        wanted = {request.resource, "*/" + sub} if sub else {main}
        return any(
            request.group in rule["apiGroups"]
            and request.operation in rule["operations"]
            and wanted & set(rule["resources"])
            for rule in constraints["resourceRules"]
        )

    def _judged(self, request: Request, param: Manifest | None) -> list[str]:
        context = _context(request, param)
        for condition in self.spec.get("matchConditions", ()):
            if not _evaluate(condition["expression"], context, request):
                return []
        variables = celtypes.MapType({})
        context["variables"] = variables
        for each in self.spec.get("variables", ()):
            try:
                found = _evaluate(each["expression"], context, request)
            except CELEvalError:
                continue  # as with the API server, an error of a variable that is used refuses
            variables[celtypes.StringType(each["name"])] = found
        found = []
        for each in self.spec["validations"]:
            if not _evaluate(each["expression"], context, request):
                words = each.get("messageExpression")
                message = _evaluate(words, context, request) if words else each["message"]
                found.append(str(message))
        return found


@cache
def policies() -> dict[str, Policy]:
    """Return the policies that the chart renders by default, by name."""
    manifests = [each for each in yaml.safe_load_all(GOLDEN.read_text()) if each]
    by_kind = {
        (each["kind"], each["metadata"]["name"]): each["spec"]
        for each in manifests
        if each["kind"].startswith("ValidatingAdmissionPolicy")
    }
    return {
        name: Policy(name, spec, by_kind["ValidatingAdmissionPolicyBinding", name])
        for (kind, name), spec in by_kind.items()
        if kind == "ValidatingAdmissionPolicy"
    }


def refusals(request: Request, among: Iterable[Policy] | None = None) -> dict[str, list[str]]:
    """Return the messages of all policies that refuse ``request``, by policy."""
    judged = policies().values() if among is None else among
    found = {policy.name: policy.refusals(request) for policy in judged}
    return {name: messages for name, messages in found.items() if messages}


def _selects(reference: Manifest, pod: Manifest) -> bool:
    labels = pod["metadata"].get("labels") or {}
    rules = reference["selector"]["matchExpressions"]
    assert {rule["operator"] for rule in rules} == {"DoesNotExist"}, "no other is known here"
    return all(rule["key"] not in labels for rule in rules)


def _context(request: Request, param: Manifest | None) -> dict[str, Any]:
    info = {"username": request.user, "groups": list(request.groups), "extra": dict(request.extra)}
    main, _, sub = request.resource.partition("/")
    asked = {
        "operation": request.operation,
        "namespace": request.namespace,
        "name": request.name,
        "userInfo": info,
        "resource": {"group": request.group, "resource": main},
        "subResource": sub,
    }
    labels = {"metadata": {"labels": dict(request.namespace_labels)}}
    return {
        "object": json_to_cel(request.object),
        "oldObject": json_to_cel(request.old),
        "request": json_to_cel(asked),
        "namespaceObject": json_to_cel(labels),
        "params": json_to_cel(param),
        "authorizer": celtypes.MapType({}),
    }


def _evaluate(expression: str, context: Mapping[str, Any], request: Request) -> Any:
    return _program(_without_null(expression, request), request.may).evaluate(dict(context))


def _without_null(expression: str, request: Request) -> str:
    """Return ``expression`` with comparisons with null carried out: cel-python has none of maps."""

    def truth(found: re.Match[str]) -> str:
        is_null = (request.object if found[1] == "object" else request.old) is None
        return str(is_null == (found[2] == "==")).lower()

    return re.sub(r"\b(object|oldObject) (==|!=) null", truth, expression)


@cache
def _compiled(expression: str) -> Any:
    return celpy.Environment().compile(expression)


def _program(expression: str, may: Callable[[Mapping[str, str]], bool]) -> Any:
    def step(name: str) -> Callable[..., celtypes.MapType]:
        def extended(so_far: celtypes.MapType, value: celtypes.StringType) -> celtypes.MapType:
            return celtypes.MapType({**so_far, celtypes.StringType(name): value})

        return extended

    def is_allowed(check: celtypes.MapType) -> celtypes.BoolType:
        return celtypes.BoolType(may({str(key): str(value) for key, value in check.items()}))

    functions: dict[str, Any] = {
        **{name: step(name) for name in _STEPS},
        "allowed": is_allowed,
        "format": _formatted,
        "join": lambda parts, between: celtypes.StringType(str(between).join(map(str, parts))),
    }
    return celpy.Environment().program(_compiled(expression), functions=functions)


def _formatted(text: celtypes.StringType, values: celtypes.ListType) -> celtypes.StringType:
    return celtypes.StringType(str(text) % tuple(map(_shown, values)))


def _shown(value: Any) -> str:
    return str([str(each) for each in value]) if isinstance(value, list) else str(value)
