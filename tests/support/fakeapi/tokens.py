"""ServiceAccount tokens of pods, and the TokenReview that tells true ones from others.

A token has the form of the real one. Its signature is a word, so that tests can forge one; it is
good for as long as its pod, the very one, exists.
"""

import base64
from collections.abc import Sequence

import msgspec

from tests.support.fakeapi.store import Object, Store

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_PODS = "/api/v1/pods"
_SIGNED = "signed"


def token_of(pod: Object, *audiences: str, signature: str = _SIGNED) -> str:
    """A token bound to ``pod`` (as it is stored), for ``audiences``."""
    meta = pod["metadata"]
    bound = {
        "namespace": meta["namespace"],
        "pod": {"name": meta["name"], "uid": meta["uid"]},
        "serviceaccount": {"name": "default"},
    }
    return ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=")
        for part in (
            msgspec.json.encode({"alg": "RS256"}),
            msgspec.json.encode({"aud": list(audiences), "kubernetes.io": bound}),
            signature.encode(),
        )
    )


def review(store: Store, asked: Object) -> Object:
    """The TokenReview ``asked``, answered."""
    spec = asked["spec"]
    return {**asked, "status": _verdict(store, spec["token"], spec.get("audiences") or [])}


def _verdict(store: Store, token: str, wanted: Sequence[str]) -> Object:
    _, payload, signature = (_decoded(part) for part in token.split("."))
    claims = msgspec.json.decode(payload)
    bound = claims["kubernetes.io"]
    name, uid = bound["pod"]["name"], bound["pod"]["uid"]
    pod = store.collection(_PODS).objects.get((bound["namespace"], name))
    shared = [audience for audience in claims["aud"] if audience in wanted]
    is_good = pod is not None and pod["metadata"]["uid"] == uid and shared
    if signature.decode() != _SIGNED or not is_good:
        return {"authenticated": False, "user": {}, "error": "[invalid bearer token]"}
    return {
        "authenticated": True,
        "audiences": shared,
        "user": {
            "username": f"system:serviceaccount:{bound['namespace']}:default",
            "extra": {
                "authentication.kubernetes.io/pod-name": [name],
                "authentication.kubernetes.io/pod-uid": [uid],
            },
        },
    }


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
