"""ValidatingAdmissionPolicies: the verdict of the API server on a request.

Sources: ``k8s.io/apiserver/pkg/admission/plugin/policy``. Audit annotations are not written.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from bireme.kube import cel
from bireme_lab.embedded.api.errors import ApiRefusal
from bireme_lab.embedded.api.errors import Object as Manifest
from bireme_lab.embedded.cel.evaluation import (
    MESSAGE,
    VALIDATION,
    Evaluation,
    bound_policies,
    in_words,
    params_of,
)
from bireme_lab.embedded.cel.requests import AdmissionRequest, Surroundings

POLICY: Final = "ValidatingAdmissionPolicy"
BINDING: Final = "ValidatingAdmissionPolicyBinding"
_CODES: Final = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}
_INVALID: Final = ("Invalid", 422)
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
    return [
        denial
        for policy, binding in bound_policies(list(manifests), POLICY, request, world)
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
        params = params_of(spec, binding["spec"], request, world)
    except LookupError as error:
        if is_fatal:
            yield deny(None, "", f"failed to configure binding: {error}")
        return
    for each in params:
        for index, reason, message in _Verdicts(spec, request, world, each).verdicts():
            if index is not None or is_fatal:
                yield deny(index, reason, message)


class _Verdicts(Evaluation):
    """The validations of a policy on one request and one parameter."""

    def verdicts(self) -> Iterator[tuple[int | None, str, str]]:
        """Yield index, reason and message of every denial; the index of an error is None."""
        try:
            if not self.is_about():
                return
        except cel.CelError as error:
            yield None, "", str(error)
            return
        for index, each in enumerate(self.spec["validations"]):
            try:
                holds = self.value(each["expression"], VALIDATION)
            except cel.CelError as error:
                yield None, "", in_words(each["expression"], error)
                continue
            if holds is not True:
                yield index, each.get("reason", _INVALID[0]), self._message(each)

    def _message(self, validation: Manifest) -> str:
        message = ""
        if "messageExpression" in validation:
            try:
                value = self.value(validation["messageExpression"], MESSAGE)
            except cel.CelError:
                value = None  # as the API server does, which only logs it
            message = value.strip() if isinstance(value, str) else ""
            if len(message.encode()) > _MAX_MESSAGE_BYTES or "\n" in message:
                message = ""
        message = message or str(validation.get("message", "")).strip()
        return message or f"failed expression: {validation['expression'].strip()}"
