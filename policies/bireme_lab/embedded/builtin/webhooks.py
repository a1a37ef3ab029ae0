"""Validating webhooks: called over HTTPS where their rules match."""

import ssl
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from bireme_lab.embedded.api.admission import Attempt
from bireme_lab.embedded.api.errors import ApiRefusal, Object
from bireme_lab.embedded.api.object_selectors import matches_labels
from bireme_lab.embedded.api.store import Store

CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_NAMESPACES: Final = "/api/v1/namespaces"
_REPLY_LIMIT_BYTES: Final = 1024**2


def webhook_admission(store: Store) -> Callable[[Attempt], None]:
    """Return the validator that asks every webhook whose rules match."""

    def admit(attempt: Attempt) -> None:
        for configuration in list(store.collection(CONFIGURATIONS).objects.values()):
            for webhook in configuration.get("webhooks") or ():
                if _matches(webhook, attempt, store):
                    _ask(webhook, attempt)

    return admit


def _matches(webhook: Mapping[str, Any], attempt: Attempt, store: Store) -> bool:
    resource = attempt.resource
    plural = resource.plural
    if attempt.subresource:
        plural = f"{plural}/{attempt.subresource}"
    is_wanted = any(
        _is_in(resource.group, rule.get("apiGroups"))
        and _is_in(resource.version, rule.get("apiVersions"))
        and _is_in(attempt.operation, rule.get("operations"))
        and _is_in(plural, rule.get("resources"))
        for rule in webhook.get("rules") or ()
    )
    if not is_wanted:
        return False
    if attempt.key[0] and (selector := webhook.get("namespaceSelector")):
        namespace = store.get(_NAMESPACES, ("", attempt.key[0])) or {"metadata": {}}
        if not matches_labels(selector, namespace["metadata"].get("labels") or {}):
            return False
    if selector := webhook.get("objectSelector"):
        obj = attempt.obj or attempt.old or {"metadata": {}}
        return matches_labels(selector, obj["metadata"].get("labels") or {})
    return True


def _is_in(value: str, values: Any) -> bool:
    return value in (values or ()) or "*" in (values or ())


def _ask(webhook: Mapping[str, Any], attempt: Attempt) -> None:
    """Raise the Refusal of a webhook, or of its silence where that counts."""
    name = webhook["name"]
    is_ignorable = webhook.get("failurePolicy") == "Ignore"
    url = (webhook.get("clientConfig") or {}).get("url")
    try:
        reply = _call(url or "", attempt, float(webhook.get("timeoutSeconds", 10)))
    except (OSError, msgspec.DecodeError, ValueError) as error:
        if is_ignorable:
            return
        text = f'failed calling webhook "{name}": failed to call webhook: Post "{url}": {error}'
        raise ApiRefusal(500, "InternalError", f"Internal error occurred: {text}") from error
    response = reply.get("response") or {}
    if response.get("allowed"):
        return
    status = response.get("status") or {}
    message = status.get("message") or "without explanation"
    text = f'admission webhook "{name}" denied the request: {message}'
    raise ApiRefusal(int(status.get("code") or 403), status.get("reason", "Forbidden"), text)


def _call(url: str, attempt: Attempt, timeout_seconds: float) -> Object:
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": (attempt.obj or attempt.old or {"metadata": {}})["metadata"].get("uid", ""),
            "operation": attempt.operation,
            "name": attempt.key[1],
            "namespace": attempt.key[0],
            "userInfo": attempt.user.to_info(),
            "object": attempt.obj,
            "oldObject": attempt.old,
            "dryRun": attempt.is_dry_run,
        },
    }
    if not url.startswith("https://"):
        raise ValueError("url of clientConfig must begin with https://")
    request = urllib.request.Request(  # noqa: S310  # https, as checked
        url, msgspec.json.encode(review), {"Content-Type": "application/json"}
    )
    context = ssl.create_default_context()
    with urllib.request.urlopen(request, timeout=timeout_seconds, context=context) as reply:  # noqa: S310
        decoded: Object = msgspec.json.decode(reply.read(_REPLY_LIMIT_BYTES))
    return decoded
