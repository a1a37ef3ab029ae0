"""Expressions of admission policies: bindings, parameters, match conditions, variables, inputs.

Validating and mutating policies share these. Sources: ``k8s.io/apiserver/pkg/admission/plugin``,
its folders ``policy/generic`` and ``cel``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final

from bireme.kube import cel
from bireme_lab.embedded.api.errors import Object as Manifest
from bireme_lab.embedded.api.object_selectors import matches_labels
from bireme_lab.embedded.cel.expression_tokens import ExpressionTokens
from bireme_lab.embedded.cel.matching import matches
from bireme_lab.embedded.cel.messages import MessageExpression, compile_messages
from bireme_lab.embedded.cel.requests import AdmissionRequest, Surroundings

CONDITION: Final = ("object", "oldObject", "request", "params", "namespaceObject", "authorizer")
"""Variables of match conditions."""
VALIDATION: Final = (*CONDITION, "variables")
"""Variables of validations and mutations."""
MESSAGE: Final = tuple(name for name in VALIDATION if name != "authorizer")


def bound_policies(
    manifests: Sequence[Manifest], kind: str, request: AdmissionRequest, world: Surroundings
) -> Iterator[tuple[Manifest, Manifest]]:
    """Yield each policy of a kind that is about ``request``, with each binding that is."""
    for policy in manifests:
        if policy["kind"] != kind or not matches(
            policy["spec"]["matchConstraints"], request, world
        ):
            continue
        for binding in manifests:
            if (
                binding["kind"] == f"{kind}Binding"
                and binding["spec"]["policyName"] == policy["metadata"]["name"]
                and matches(binding["spec"].get("matchResources", {}), request, world)
            ):
                yield policy, binding


def params_of(
    spec: Manifest, binding: Manifest, request: AdmissionRequest, world: Surroundings
) -> list[Manifest | None]:
    """Return the parameters of a binding, as far as they are objects of the request's namespace.

    Raises:
        LookupError: there is none, and the binding denies the request then.
    """
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
class Evaluation:
    """The expressions of a policy on one request and one parameter."""

    spec: Manifest
    request: AdmissionRequest
    world: Surroundings
    param: Manifest | None
    _variables: dict[tuple[str, bool], Any] = field(default_factory=dict)
    """Values and errors, by name and whether the authorizer answers."""

    def is_about(self) -> bool:
        """Return whether every match condition holds; CelError for one that fails."""
        errors = []
        for each in self.spec.get("matchConditions", ()):
            try:
                if self.value(each["expression"], CONDITION) is False:
                    return False
            except cel.CelError as error:
                errors.append(in_words(each["expression"], error))
        if errors:
            raise cel.CelError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
        return True

    def value(self, expression: str, names: tuple[str, ...]) -> Any:
        """Return the value of an expression; CelError where it has none."""
        return self._evaluate(cel.compile_expression(expression, names), expression, names)

    def construct(self, expression: str) -> Any:
        """Return what a mutation constructs; CelError where it has no value."""
        program = compile_messages(expression, VALIDATION)
        return self._evaluate(program, expression, VALIDATION)

    def _evaluate(
        self, program: cel.Expression | MessageExpression, expression: str, names: tuple[str, ...]
    ) -> Any:
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
        named = _variables_in(expression)
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
            names = VALIDATION if may_ask else MESSAGE
            try:
                self._variables[key] = self.value(variable["expression"], names)
            except cel.CelError as error:
                self._variables[key] = error
        return self._variables[key]


@lru_cache(maxsize=1024)
def _variables_in(expression: str) -> frozenset[str]:
    return frozenset(name for name, _ in ExpressionTokens(expression).selections("variables"))


def in_words(expression: str, error: cel.CelError) -> str:
    """Return an error as the API server words it."""
    if str(error).startswith("compilation failed"):
        return f"compilation error: {error}"
    return f"expression '{expression}' resulted in error: {error}"
