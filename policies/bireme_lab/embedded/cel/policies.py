"""ValidatingAdmissionPolicies: the verdict of the API server on a request.

Sources: ``k8s.io/apiserver/pkg/admission/plugin/policy``. Audit annotations are not written.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from bireme.kube import cel
from bireme_lab.embedded.api.errors import ApiRefusal
from bireme_lab.embedded.api.errors import Object as Manifest
from bireme_lab.embedded.api.object_selectors import matches_labels
from bireme_lab.embedded.cel.matching import matches
from bireme_lab.embedded.cel.requests import AdmissionRequest, Surroundings

POLICY: Final = "ValidatingAdmissionPolicy"
BINDING: Final = "ValidatingAdmissionPolicyBinding"
_CODES: Final = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}
_INVALID: Final = ("Invalid", 422)
_CONDITION: Final = ("object", "oldObject", "request", "params", "namespaceObject", "authorizer")
_VALIDATION: Final = (*_CONDITION, "variables")
_MESSAGE: Final = tuple(name for name in _VALIDATION if name != "authorizer")
_VARIABLE: Final = re.compile(r"\bvariables\.([A-Za-z_][A-Za-z0-9_]*)")
_MAX_MESSAGE_BYTES: Final = 5 * 1024


@dataclass(frozen=True)
class Denial:
    """One validation that denies, or an error in place of a verdict, whose ``index`` is None."""

    policy: str
    binding: str
    index: int | None
    reason: str
    message: str
    actions: tuple[str, ...]

    def to_refusal(self, request: AdmissionRequest) -> ApiRefusal:
        """Return the API server's answer."""
        words = (
            f"{request.target} is forbidden: ValidatingAdmissionPolicy '{self.policy}' with binding"
            f" '{self.binding}' denied request: {self.message}"
        )
        reason, code = self.reason or _INVALID[0], _CODES.get(self.reason, _INVALID[1])
        return ApiRefusal(code, reason, words)


def judge(
    manifests: Iterable[Manifest], request: AdmissionRequest, world: Surroundings
) -> list[str]:
    """Return the warnings of all policies about ``request``.

    Raises:
        Refusal: a policy denies it; the first denial gives the words.
    """
    every = denials(manifests, request, world)
    for each in every:
        if "Deny" in each.actions:
            raise each.to_refusal(request)
    return [
        f"Validation failed for {POLICY} '{each.policy}' with binding '{each.binding}':"
        f" {each.message}"
        for each in every
        if "Warn" in each.actions
    ]


def denials(
    manifests: Iterable[Manifest], request: AdmissionRequest, world: Surroundings
) -> list[Denial]:
    """Return every denial by the policies and bindings among ``manifests``, in their order."""
    listed = list(manifests)
    return [
        denial
        for policy in listed
        if policy["kind"] == POLICY and matches(policy["spec"]["matchConstraints"], request, world)
        for binding in listed
        if binding["kind"] == BINDING
        and binding["spec"]["policyName"] == policy["metadata"]["name"]
        and matches(binding["spec"].get("matchResources", {}), request, world)
        for denial in _judge_bound(policy, binding, request, world)
    ]


def _judge_bound(
    policy: Manifest, binding: Manifest, request: AdmissionRequest, world: Surroundings
) -> Iterator[Denial]:
    spec = policy["spec"]
    deny = partial(
        Denial,
        policy["metadata"]["name"],
        binding["metadata"]["name"],
        actions=tuple(binding["spec"]["validationActions"]),
    )
    is_fatal = spec.get("failurePolicy", "Fail") == "Fail"
    try:
        params = _params(spec, binding["spec"], request, world)
    except LookupError as error:
        if is_fatal:
            yield deny(None, "", f"failed to configure binding: {error}")
        return
    for each in params:
        for index, reason, message in _Evaluation(spec, request, world, each).verdicts():
            if index is not None or is_fatal:
                yield deny(index, reason, message)


def _params(
    spec: Manifest, binding: Manifest, request: AdmissionRequest, world: Surroundings
) -> list[Manifest | None]:
    """Return the parameters of a binding, as far as they are objects of the request's namespace."""
    reference = binding.get("paramRef")
    if "paramKind" not in spec or reference is None:
        return [None]
    namespace = reference.get("namespace", request.namespace)
    objects = world.objects(spec["paramKind"]["kind"], namespace)
    params: list[Manifest | None] = [
        each
        for each in objects
        if each["metadata"]["name"] == reference.get("name", each["metadata"]["name"])
        and matches_labels(reference.get("selector", {}), each["metadata"].get("labels") or {})
    ]
    if not params and reference.get("parameterNotFoundAction", "Deny") == "Deny":
        raise LookupError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return params


@dataclass
class _Evaluation:
    """The expressions of a policy on one request and one parameter."""

    spec: Manifest
    request: AdmissionRequest
    world: Surroundings
    param: Manifest | None
    _variables: dict[tuple[str, bool], Any] = field(default_factory=dict)
    """Values and errors, by name and whether the authorizer answers."""

    def verdicts(self) -> Iterator[tuple[int | None, str, str]]:
        """Yield index, reason and message of every denial; the index of an error is None."""
        try:
            if not self._is_about():
                return
        except cel.CelError as error:
            yield None, "", str(error)
            return
        for index, each in enumerate(self.spec["validations"]):
            try:
                holds = self._value(each["expression"], _VALIDATION)
            except cel.CelError as error:
                yield None, "", _in_words(each["expression"], error)
                continue
            if holds is not True:
                yield index, each.get("reason", _INVALID[0]), self._message(each)

    def _is_about(self) -> bool:
        errors = []
        for each in self.spec.get("matchConditions", ()):
            try:
                if self._value(each["expression"], _CONDITION) is False:
                    return False
            except cel.CelError as error:
                errors.append(_in_words(each["expression"], error))
        if errors:
            raise cel.CelError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
        return True

    def _message(self, validation: Manifest) -> str:
        message = ""
        if "messageExpression" in validation:
            try:
                value = self._value(validation["messageExpression"], _MESSAGE)
            except cel.CelError:
                value = None  # as the API server does, which only logs it
            message = value.strip() if isinstance(value, str) else ""
            if len(message.encode()) > _MAX_MESSAGE_BYTES or "\n" in message:
                message = ""
        message = message or str(validation.get("message", "")).strip()
        return message or f"failed expression: {validation['expression'].strip()}"

    def _value(self, expression: str, names: tuple[str, ...]) -> Any:
        program = cel.compile_expression(expression, names)
        values = self._inputs(names)
        errors: Mapping[str, cel.CelError] = {}
        if "variables" in names:
            values["variables"], errors = self._variables_of(expression, "authorizer" in names)
        may = partial(self.world.may, self.request.user) if "authorizer" in names else None
        try:
            return program.value(values, may)
        except cel.CelError as error:
            name = str(error).removeprefix("no such key: ")
            if name in errors:
                words = f'composited variable "{name}" fails to evaluate: {errors[name]}'
                raise cel.CelError(words) from None
            raise

    def _inputs(self, names: tuple[str, ...]) -> dict[str, Any]:
        namespace = self.world.namespaces.get(self.request.namespace)
        is_namespace = self.request.resource == "namespaces"
        inputs = {
            "object": self.request.object,
            "oldObject": self.request.old,
            "request": self.request.to_variable(),
            "params": self.param,
            # Match conditions see none, as in kube-apiserver.
            "namespaceObject": namespace if "variables" in names and not is_namespace else None,
            "authorizer": dict(cel.AUTHORIZER),
        }
        return {name: value for name, value in inputs.items() if name in names}

    def _variables_of(
        self, expression: str, may_ask: bool
    ) -> tuple[dict[str, Any], Mapping[str, cel.CelError]]:
        """Return the variables that ``expression`` names: those with a value, and errors.

        kube-apiserver evaluates a variable where it is read. Here it is evaluated before, and one
        that fails has no value: to read it is an error, and not to read it is none.
        """
        named = set(_VARIABLE.findall(expression))
        values: dict[str, Any] = {}
        errors: dict[str, cel.CelError] = {}
        for each in self.spec.get("variables", ()):
            if each["name"] not in named:
                continue
            value = self._variable(each, may_ask)
            if isinstance(value, cel.CelError):
                errors[each["name"]] = value
            else:
                values[each["name"]] = value
        return values, errors

    def _variable(self, variable: Manifest, may_ask: bool) -> Any:
        key = (variable["name"], may_ask)
        if key not in self._variables:
            names = _VALIDATION if may_ask else _MESSAGE
            try:
                self._variables[key] = self._value(variable["expression"], names)
            except cel.CelError as error:
                self._variables[key] = error
        return self._variables[key]


def _in_words(expression: str, error: cel.CelError) -> str:
    if str(error).startswith("compilation failed"):
        return f"compilation error: {error}"
    return f"expression '{expression}' resulted in error: {error}"
