"""Answers of an API server, without what differs between two of them by nature."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from testbed.scenario.manifests import Manifest

_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_VERSION: Final = re.compile(r"(?i)(resource ?version[^0-9\"]{0,30})\d+")
_NODE: Final = re.compile(r"\bgpu-\d\d\b")
_MADE_BY_SERVERS: Final = (
    (_UID, "UID"),
    (_TIME, "TIME"),
    (_VERSION, r"\1N"),
    (_NODE, "NODE"),
)
CHANCE: Final = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}$")
"""The end of a generated name."""
_OF_CREATION: Final = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink")
_UID_LABELS: Final = ("controller-uid", "batch.kubernetes.io/controller-uid")
_ACCOUNT_VOLUME: Final = "kube-api-access-"
"""Prefix of the volume that the real server mounts for the token of a service account."""


@dataclass(frozen=True, slots=True)
class PlainAnswer:
    """The answer to one step.

    Attributes:
        content: The object of an accepted write or read, or the names of a list's objects.
    """

    status: int
    reason: str
    message: str
    warnings: tuple[str, ...]
    content: Any

    @classmethod
    def parse(cls, status: int, body: Any, warnings: list[str]) -> "PlainAnswer":
        """Return an answer in its comparable form; ``body`` is decoded JSON, or text."""
        if not isinstance(body, dict):
            return cls(status, "", str(body).strip(), tuple(warnings), None)
        if body.get("kind") == "Status" and body.get("status") == "Failure":
            message = _common_words(plain(str(body.get("message", ""))))
            return cls(status, str(body.get("reason", "")), message, tuple(warnings), None)
        return cls(status, "", "", tuple(map(plain, warnings)), _content(body))


_OWN_WORDS: Final = re.compile(
    r"(?s)(cannot be handled as a \w+: (?!strict)|json parse error: |error decoding patch: "
    r"|Object 'Kind' is missing in |continue key is not valid: |, got |patch: Invalid value: "
    r"|if it was previously negative\)|json: cannot unmarshal |unrecognized type: "
    r"|cannot restore struct from: | is registered for version ).*"
)
"""Beginnings of messages that go on in words of Go's decoder, or with values as Go prints them."""
_GO_VALUE: Final = re.compile(r'Invalid value: (?:\{.*?\}|"\{.*?\}"|map\[.*?\]|null): ')


def _common_words(message: str) -> str:
    return _GO_VALUE.sub("Invalid value: {...}: ", _OWN_WORDS.sub(r"\1...", message))


def plain(text: str) -> str:
    """Return a text without uids, times, versions and names of nodes.

    kube-scheduler draws among equal nodes, and plans follow the pods that are there.
    """
    for pattern, word in _MADE_BY_SERVERS:
        text = pattern.sub(word, text)
    return text


def _content(body: Manifest) -> Any:
    if body.get("kind") == "Status":
        return "Success"
    if isinstance(body.get("items"), list):
        return sorted(CHANCE.sub("-*", item["metadata"]["name"]) for item in body["items"])
    return comparable(body)


def comparable(obj: Manifest) -> Manifest:
    """Return an object without its status and without what every server makes by itself."""
    meta = {k: v for k, v in (obj.get("metadata") or {}).items() if k not in _OF_CREATION}
    if meta.get("deletionTimestamp"):
        meta["deletionTimestamp"] = "TIME"
    rest = {k: v for k, v in obj.items() if k not in ("metadata", "status")}
    bare: Manifest = _bare({**rest, "metadata": meta})
    if obj.get("kind") == "Node":  # their controllers taint and annotate them a moment later
        bare["metadata"].pop("annotations", None)
        bare["spec"].pop("taints", None)
    return bare


def _bare(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            k: _bare(v) for k, v in value.items() if k not in _UID_LABELS and not _is_of_token(v)
        }
    if isinstance(value, list):
        return [_bare(each) for each in value if not _is_token(each)]
    return plain(value) if isinstance(value, str) else value


def _is_token(value: Any) -> bool:
    return isinstance(value, Mapping) and str(value.get("name", "")).startswith(_ACCOUNT_VOLUME)


def _is_of_token(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_token, value))
