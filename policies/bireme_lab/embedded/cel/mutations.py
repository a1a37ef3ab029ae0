"""MutatingAdmissionPolicies: the changes that the API server makes to an object of a request.

Source: ``k8s.io/apiserver/pkg/admission/plugin/policy/mutating``.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from bireme.kube import cel
from bireme_lab.embedded.api import json_patches
from bireme_lab.embedded.api.errors import ApiRefusal
from bireme_lab.embedded.api.errors import Object as Manifest
from bireme_lab.embedded.api.reinvocation import Invocation, Reinvocation
from bireme_lab.embedded.api.schemas import Schema
from bireme_lab.embedded.cel import configurations
from bireme_lab.embedded.cel.evaluation import (
    VALIDATION,
    Evaluation,
    bound_policies,
    in_words,
    params_of,
)
from bireme_lab.embedded.cel.messages import compile_messages
from bireme_lab.embedded.cel.requests import AdmissionRequest, Surroundings

POLICY: Final = "MutatingAdmissionPolicy"


@dataclass(frozen=True)
class Patching:
    """The kind of the object that policies change.

    Attributes:
        schema: How its fields are merged, and their types.
        complete: Returns patched content with defaults; ApiRefusal for content of another type.
    """

    schema: Schema
    complete: Callable[[Manifest], Manifest]


@dataclass(frozen=True)
class Fault:
    """An error of a policy in place of its change."""

    policy: str
    binding: str
    reason: str
    message: str

    def __str__(self) -> str:
        return (
            f"policy '{self.policy}' with binding '{self.binding}' denied request: {self.message}"
        )


def mutate(
    manifests: Iterable[Manifest],
    request: AdmissionRequest,
    world: Surroundings,
    patching: Patching,
    reinvocation: Reinvocation,
) -> Manifest:
    """Return the object of ``request`` after the policies and bindings among ``manifests``.

    Raises:
        ApiRefusal: a policy whose failures count has failed; the first one gives the words.
    """
    run = _Run(request, world, patching, reinvocation)
    invocations = list(run.invocations(list(manifests)))
    reinvocation.begin(run.obj)
    for policy, binding, param in invocations:
        run.invoke(policy, binding, param)
    if run.is_patched:
        reinvocation.require()
    reinvocation.end(run.obj)
    if run.faults:
        raise _refusal(run.faults, request)
    return run.obj


def _refusal(faults: list[Fault], request: AdmissionRequest) -> ApiRefusal:
    details = {
        "name": request.name,
        "group": request.group,
        "kind": request.resource,
        "causes": [{"message": str(item)} for item in faults],
    }
    stated = {name: value for name, value in details.items() if value}
    return ApiRefusal(403, faults[0].reason, str(faults[0]), stated)


@dataclass
class _Run:
    """One run of all policies over the object of a request."""

    request: AdmissionRequest
    world: Surroundings
    patching: Patching
    reinvocation: Reinvocation
    obj: Manifest = field(init=False)
    faults: list[Fault] = field(default_factory=list)
    is_patched: bool = False

    def __post_init__(self) -> None:
        self.obj = self.request.object or {}

    def invocations(
        self, manifests: list[Manifest]
    ) -> Iterator[tuple[Manifest, Manifest, Manifest | None]]:
        """Yield policy, binding and parameter of all that are about the request as it came."""
        for policy, binding in bound_policies(manifests, POLICY, self.request, self.world):
            try:
                params = params_of(policy["spec"], binding["spec"], self.request, self.world)
            except LookupError as error:
                text = f"failed to configure binding: {error}"
                self._blame(policy, binding, "Forbidden", text)
                continue
            for item in params:
                yield policy, binding, item

    def invoke(self, policy: Manifest, binding: Manifest, param: Manifest | None) -> None:
        """Let a policy change the object, unless its conditions or the run exclude it."""
        spec, original = policy["spec"], self.obj
        try:
            if not self._evaluation(spec, param).is_about():
                return
        except cel.CelError as error:
            self._blame(policy, binding, "Invalid", str(error))
            return
        invocation = _invocation(policy, binding, param)
        if not self.reinvocation.may_run(invocation):
            return
        for mutation in spec["mutations"]:
            try:
                patched = self._patch(self._evaluation(spec, param), mutation)
            except _MutationError as error:
                self._blame(policy, binding, "Invalid", str(error))
                continue
            self.obj, self.is_patched = self.patching.complete(patched), True
        if self.obj != original:
            self.reinvocation.require()
        if spec["reinvocationPolicy"] == "IfNeeded":
            self.reinvocation.make_eligible(invocation)

    def _evaluation(self, spec: Manifest, param: Manifest | None) -> Evaluation:
        return Evaluation(spec, replace(self.request, object=self.obj), self.world, param)

    def _patch(self, evaluation: Evaluation, mutation: Manifest) -> Manifest:
        is_patch = mutation["patchType"] == "JSONPatch"
        expression: str = mutation["jsonPatch" if is_patch else "applyConfiguration"]["expression"]
        try:
            value = evaluation.construct(expression)
        except cel.CelError as error:
            raise _MutationError(in_words(expression, error)) from None
        if misplacements := compile_messages(expression, VALIDATION).misplacements:
            raise _MutationError("type mismatch: " + "\n".join(misplacements))
        try:
            if is_patch:
                return self._apply_operations(value)
            return configurations.merge_configuration(self.obj, value, self.patching.schema)
        except configurations.ConfigurationError as error:
            raise _MutationError(f"error applying patch: {error}") from None
        except json_patches.JsonPatchError as error:
            raise _MutationError(f"JSON Patch: {error}") from None

    def _apply_operations(self, operations: list[Manifest]) -> Manifest:
        """Return the object after a JSON patch; the object itself where a test of it fails."""
        # An empty path is the whole object, and protobuf leaves out what is empty.
        complete = [{"op": "", "path": "", **item} for item in operations]
        try:
            result: Manifest = json_patches.patch(self.obj, complete)
        except json_patches.FailedTestError:
            return self.obj
        return result

    def _blame(self, policy: Manifest, binding: Manifest, reason: str, message: str) -> None:
        if policy["spec"].get("failurePolicy", "Fail") == "Fail":
            names = policy["metadata"]["name"], binding["metadata"]["name"]
            self.faults.append(Fault(*names, reason, message))


class _MutationError(Exception):
    """A mutation that makes no object, in the API server's words."""


def _invocation(policy: Manifest, binding: Manifest, param: Manifest | None) -> Invocation:
    meta = {} if param is None else param["metadata"]
    of_param = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
    return policy["metadata"]["name"], binding["metadata"]["name"], of_param
