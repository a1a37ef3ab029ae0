"""Envelopes of lists and watch events, decoded before the objects in them."""

import re
from typing import Any, Final, Generic, TypeVar

import msgspec

from bireme.core.gangs import Key
from bireme.kube.client import ApiError
from bireme.kube.wire import (
    MAX_ANNOTATION,
    CustomAnnotations,
    CustomMeta,
    MetadataOnly,
)

MAX_SPEC_BYTES: Final = 256 * 1024
"""Larger specs of TrainingJobs are not decoded: each would take several times as much memory."""


class _Trimmed(MetadataOnly, frozen=True):
    metadata: CustomMeta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


def trim(raw: msgspec.Raw) -> bytes:
    """Return a raw custom resource without unused fields; its size replaces a too large spec.

    So the memory of queued resources is bounded, whatever tenants create.
    """
    try:
        resource = msgspec.json.decode(raw, type=_Trimmed)
    except UNDECODABLE:  # the reader reports it
        return bytes(raw)
    if len(resource.spec) > MAX_SPEC_BYTES:
        resource = msgspec.structs.replace(resource, spec=msgspec.Raw(b"%d" % len(resource.spec)))
    annotations = resource.metadata.annotations
    if annotations is not None and len(annotations.resumable or "") > MAX_ANNOTATION:
        short = CustomAnnotations((annotations.resumable or "")[:MAX_ANNOTATION])
        metadata = msgspec.structs.replace(resource.metadata, annotations=short)
        resource = msgspec.structs.replace(resource, metadata=metadata)
    return msgspec.json.encode(resource)


def spec_bytes(spec: msgspec.Raw) -> int:
    """Return the size of a raw spec, or the size by which :func:`trim` has replaced it."""
    is_number = len(spec) < 20 and bytes(spec).isdigit()
    return int(bytes(spec)) if is_number else len(spec)


# --- lists and watch events -----------------------------------------------------------------------
#
# The API server stores objects nested 10000 levels deep, but the decoder fails with a
# RecursionError at about a thousand. One such object would make a whole page, or a watch,
# unreadable for ever. So a slow path replaces everything below DEPTH_LIMIT with a mark. In a typed
# field the mark makes the object undecodable; in a raw field :func:`is_too_deep` finds it.

DEPTH_LIMIT: Final = 256
UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_MARK: Final = b'"\\u0000nested too deeply to be read"'
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_T = TypeVar("_T")


class _StubMeta(msgspec.Struct, rename="camel"):
    resource_version: int
    name: str = ""
    namespace: str = ""
    uid: str = ""


class ObjectStub(msgspec.Struct):
    """The metadata that is decoded before the object itself."""

    metadata: _StubMeta

    @property
    def key(self) -> Key:
        return self.metadata.namespace, self.metadata.name

    @property
    def version(self) -> int:
        return self.metadata.resource_version

    @property
    def uid(self) -> str:
        return self.metadata.uid


class WatchEvent(msgspec.Struct):
    """One line of a watch; ``type`` is anything but ``ERROR``."""

    type: str
    object: msgspec.Raw


class _ListMeta(
    msgspec.Struct,
    rename={
        "resource_version": "resourceVersion",
        "next": "continue",
        "remaining": "remainingItemCount",
    },
):
    resource_version: int
    next: str = ""
    # Number of items after this page; None at the end, or if the server does not count them.
    remaining: int | None = None


class ListPage(msgspec.Struct):
    """One page of a list; ``metadata.next`` continues it."""

    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _WatchError(msgspec.Struct):
    code: int = 500
    reason: str = "Unknown"
    message: str = ""


def page(body: bytes) -> ListPage:
    """Decode the envelope of a list.

    Raises:
        ApiError: ``body`` is not a list.
    """
    return _open(body, ListPage)


def event(line: bytes) -> WatchEvent:
    """Decode the envelope of a watch event.

    Raises:
        ApiError: it is not an event, or it is an ERROR event.
    """
    opened = _open(line, WatchEvent)
    if opened.type == "ERROR":
        failure = _open(bytes(opened.object), _WatchError)
        raise ApiError(failure.code, failure.reason, failure.message)
    return opened


def stub(raw: msgspec.Raw) -> ObjectStub:
    """Return key and version of a raw object.

    Raises:
        UNDECODABLE: the object has no readable metadata.
    """
    return msgspec.json.decode(raw, type=ObjectStub, strict=False)


class ObjectReader(Generic[_T]):
    """Decodes raw objects one at a time; an undecodable object is logged and left out."""

    def __init__(self, type_: type[_T], log: Any) -> None:
        self._decoder = msgspec.json.Decoder(type_)
        self._log = log

    def stub(self, raw: msgspec.Raw) -> ObjectStub | None:
        """Return key and version of a raw object; None if they cannot be decoded."""
        try:
            return stub(raw)
        except UNDECODABLE as error:
            self._log_undecodable(None, error)
            return None

    def decode(self, key: Key, raw: msgspec.Raw) -> _T | None:
        """Return the whole object; None if it cannot be decoded."""
        try:
            return self._decoder.decode(raw)
        except UNDECODABLE as error:
            self._log_undecodable(key, error)
            return None

    def _log_undecodable(self, key: Key | None, error: Exception) -> None:
        self._log.warning("object left out, it cannot be decoded", key=key, error=str(error))


def is_too_deep(raw: msgspec.Raw) -> bool:
    """Return whether a raw value is nested too deeply, or was cut for that reason."""
    text = bytes(raw)
    if _MARK in text:
        return True
    # Fast path: most values have fewer brackets in total than the limit.
    if text.count(b"{") + text.count(b"[") <= DEPTH_LIMIT:
        return False
    # Keep only the brackets. Each round removes the innermost pairs.
    brackets = _STRING.sub(b"", text).translate(None, _NO_BRACKETS)
    for _ in range(DEPTH_LIMIT):
        if not brackets:
            return False
        brackets = brackets.replace(b"{}", b"()").replace(b"[]", b"()").replace(b"()", b"")
    return bool(brackets)


def _open(body: bytes, type_: type[_T]) -> _T:
    try:
        try:
            return msgspec.json.decode(body, type=type_, strict=False)
        except RecursionError:
            return msgspec.json.decode(cut(body), type=type_, strict=False)
    except UNDECODABLE as error:
        raise ApiError(0, "BadAnswer", f"no {type_.__name__.strip('_')}: {error}") from error


def cut(text: bytes, limit: int = DEPTH_LIMIT) -> bytes:
    """Replace every object or list below ``limit`` levels of ``text`` with the mark."""
    parts: list[bytes] = []
    depth = start = 0
    for token in _TOKEN.finditer(text):
        if token[0] in b"[{":
            depth += 1
            if depth == limit + 1:
                parts += text[start : token.start()], _MARK
        elif token[0] in b"]}":
            if depth == limit + 1:
                start = token.end()
            depth -= 1
    parts.append(text[start:])
    return b"".join(parts)
