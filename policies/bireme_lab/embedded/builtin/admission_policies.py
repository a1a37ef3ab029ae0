"""Admission policies and their bindings as objects: defaults and validation.

Source: ``pkg/apis/admissionregistration`` of Kubernetes, its ``v1/defaults.go`` and ``validation``.
Types of results are checked for mutations alone.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from bireme.kube import cel
from bireme_lab.embedded.api.errors import Faults, Object
from bireme_lab.embedded.builtin.plain import filled
from bireme_lab.embedded.cel.evaluation import CONDITION, MESSAGE, VALIDATION
from bireme_lab.embedded.cel.expression_tokens import ExpressionTokens
from bireme_lab.embedded.cel.messages import compile_messages

_FAILURE_POLICIES: Final = ("Fail", "Ignore")
_PATCHES: Final = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
_RESULTS: Final = {"ApplyConfiguration": "Object", "JSONPatch": "list(JSONPatch)"}
_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "UPDATE")
_LIST_FIELDS: Final = ("operations", "apiGroups", "apiVersions", "resources")
_UNMUTATED: Final = ("binding", "eviction", "scale", "log")


def complete_policy(obj: Object, _: Object | None) -> Object:
    """Return a policy with its defaults."""
    spec = filled(obj.get("spec") or {}, failurePolicy="Fail")
    return {**obj, "spec": _with_complete_resources(spec, "matchConstraints")}


def complete_validating_policy(obj: Object, old: Object | None) -> Object:
    """Return a ValidatingAdmissionPolicy, which has a status, with its defaults."""
    return filled(complete_policy(obj, old), status={})


def complete_binding(obj: Object, _: Object | None) -> Object:
    """Return a binding with its defaults."""
    return {**obj, "spec": _with_complete_resources(obj.get("spec") or {}, "matchResources")}


def _with_complete_resources(spec: Object, name: str) -> Object:
    if not isinstance(spec.get(name), dict):
        return spec
    resources = filled(
        spec[name], matchPolicy="Equivalent", namespaceSelector={}, objectSelector={}
    )
    for rules in ("resourceRules", "excludeResourceRules"):
        if resources.get(rules):
            resources = {**resources, rules: [filled(item, scope="*") for item in resources[rules]]}
    return {**spec, name: resources}


def validate_validating_policy(obj: Object, _: Object | None, faults: Faults) -> None:
    """Add the faults of a ValidatingAdmissionPolicy."""
    spec = obj["spec"]
    _check_policy(spec, faults)
    names = VALIDATION if spec.get("variables") else CONDITION
    check = _Expressions(spec, faults)
    for index, item in enumerate(spec.get("validations") or ()):
        path = f"spec.validations[{index}]"
        check(f"{path}.expression", item.get("expression", ""), names)
        if item.get("messageExpression"):
            of_message = tuple(name for name in MESSAGE if name in names)
            check(f"{path}.messageExpression", item["messageExpression"], of_message)
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        text = "validations or auditAnnotations must contain at least one item"
        faults.required("spec.validations", text)
        faults.required("spec.auditAnnotations", text)


def validate_mutating_policy(obj: Object, _: Object | None, faults: Faults) -> None:
    """Add the faults of a MutatingAdmissionPolicy."""
    spec = obj["spec"]
    _check_policy(spec, faults, _OPERATIONS)
    for index, item in enumerate((spec.get("matchConstraints") or {}).get("resourceRules") or ()):
        _refuse_unmutated(item.get("resources") or (), faults, index)
    if not spec.get("mutations"):
        faults.required("spec.mutations", "mutations must contain at least one item")
    for index, item in enumerate(spec.get("mutations") or ()):
        _check_mutation(spec, item, f"spec.mutations[{index}]", faults)
    policy = spec.get("reinvocationPolicy")
    if not policy:
        faults.required("spec.reinvocationPolicy")
    elif policy not in ("IfNeeded", "Never"):
        faults.unsupported("spec.reinvocationPolicy", policy, ("IfNeeded", "Never"))


def validate_binding(obj: Object, _: Object | None, faults: Faults) -> None:
    """Add the faults of a binding."""
    spec = obj["spec"]
    if not spec.get("policyName"):
        faults.required("spec.policyName")
    reference = spec.get("paramRef")
    if reference is not None:
        _check_reference(reference, faults)
    operations = _OPERATIONS if obj["kind"].startswith("Mutating") else ()
    _check_resources(spec.get("matchResources") or {}, "spec.matchResources", faults, operations)


def _check_reference(reference: Object, faults: Faults) -> None:
    path, is_selector = "spec.paramRef", "selector" in reference
    if reference.get("name") and is_selector:
        for name in ("name", "selector"):
            faults.forbidden(f"{path}.{name}", "name and selector are mutually exclusive")
    if not reference.get("name") and not is_selector:
        faults.required(path, "one of name or selector must be specified")
    action = reference.get("parameterNotFoundAction")
    if not action:
        faults.required(f"{path}.parameterNotFoundAction")
    elif action not in ("Deny", "Allow"):
        faults.unsupported(f"{path}.parameterNotFoundAction", action, ("Deny", "Allow"))


def _check_policy(spec: Object, faults: Faults, operations: Iterable[str] = ()) -> None:
    """Add the faults of what both kinds of policies have."""
    if spec["failurePolicy"] not in _FAILURE_POLICIES:
        faults.unsupported("spec.failurePolicy", spec["failurePolicy"], _FAILURE_POLICIES)
    constraints = spec.get("matchConstraints")
    if constraints is None:
        faults.required("spec.matchConstraints")
    else:
        _check_resources(constraints, "spec.matchConstraints", faults, operations)
        if not constraints.get("resourceRules"):
            faults.required("spec.matchConstraints.resourceRules")
    check = _Expressions(spec, faults)
    for index, item in enumerate(spec.get("matchConditions") or ()):
        check(f"spec.matchConditions[{index}].expression", item.get("expression", ""), CONDITION)
    for index, item in enumerate(spec.get("variables") or ()):
        path = f"spec.variables[{index}]"
        check(f"{path}.expression", item.get("expression", ""), VALIDATION, count=index)


def _check_resources(
    resources: Object, path: str, faults: Faults, operations: Iterable[str]
) -> None:
    """Add the faults of rules; only ``operations`` are supported, if any are given."""
    for index, item in enumerate(resources.get("resourceRules") or ()):
        for name in _LIST_FIELDS:
            if not item.get(name):
                faults.required(f"{path}.resourceRules[{index}].{name}")
        for operation in item.get("operations") or ():
            if operations and operation not in operations:
                place = f"{path}.resourceRules.operations"
                faults.unsupported(place, operation, tuple(operations))


def _refuse_unmutated(resources: Iterable[str], faults: Faults, index: int) -> None:
    for number, item in enumerate(resources):
        if item.partition("/")[2] in _UNMUTATED:
            path = f"spec.matchConstraints.resourceRules[{index}].resources[{number}]"
            faults.invalid(path, item, "the embedded cluster mutates no requests of this kind")


def _check_mutation(spec: Object, mutation: Object, path: str, faults: Faults) -> None:
    kind = mutation.get("patchType")
    if not kind:
        faults.required(f"{path}.patchType")
        return
    if kind not in _PATCHES:
        faults.unsupported(f"{path}.patchType", kind, tuple(_PATCHES))
        return
    for item, name in _PATCHES.items():
        if item != kind and mutation.get(name) is not None:
            text = f"must not be specified when patchType is {kind}"
            faults.invalid(f"{path}.{name}", f"{{{name}}}", text)
    stated = mutation.get(_PATCHES[kind])
    if stated is None:
        text = f"must be specified when patchType is {kind}"
        faults.required(f"{path}.{_PATCHES[kind]}", text)
        return
    place, expression = f"{path}.{_PATCHES[kind]}.expression", stated.get("expression", "").strip()
    check = _Expressions(spec, faults)
    program = check(place, expression, VALIDATION, compile_messages)
    if program is not None and program.result_type != _RESULTS[kind]:
        text = f"must evaluate to {_RESULTS[kind]} but got {program.result_type}"
        faults.invalid(place, expression, text)


class _Expressions:
    """The check that expressions of a policy compile."""

    def __init__(self, spec: Object, faults: Faults) -> None:
        self._variables = [item.get("name", "") for item in spec.get("variables") or ()]
        self._has_params = spec.get("paramKind") is not None
        self._faults = faults

    def __call__(
        self,
        path: str,
        expression: str,
        names: tuple[str, ...],
        compiler: Callable[[str, tuple[str, ...]], Any] = cel.compile_expression,
        *,
        count: int | None = None,
    ) -> Any:
        """Return a compiled expression, or None after its fault.

        ``count`` is the number of variables that it may read; None for all.
        """
        if not expression.strip():
            self._faults.required(path)
            return None
        variables = self._variables[:count]
        for name, offset in ExpressionTokens(expression).selections("variables"):
            if "variables" in names and name not in variables:
                self._faults.invalid(path, expression, _undefined_field(expression, name, offset))
                return None
        available = names if self._has_params else tuple(name for name in names if name != "params")
        try:
            return compiler(expression, available)
        except cel.CelError as error:
            self._faults.invalid(path, expression, str(error))
            return None


def _undefined_field(expression: str, name: str, offset: int) -> str:
    """Return the compiler's words for a variable that does not exist."""
    head = expression[:offset]
    line, column = head.count("\n") + 1, offset - (head.rfind("\n") + 1)
    text = expression.split("\n")[line - 1]
    return (
        f"compilation failed: ERROR: <input>:{line}:{column + 1}: undefined field '{name}'\n"
        f" | {text}\n | {'.' * column}^"
    )
