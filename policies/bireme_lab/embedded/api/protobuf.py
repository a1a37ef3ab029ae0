"""Bodies in Kubernetes' protobuf encoding, in which kubectl creates some objects.

``protobuf_fields.json`` has, by message, the number, name and type of every field; its source are
the ``generated.proto`` files of ``k8s.io/api`` and ``k8s.io/apimachinery`` v0.37.1.
"""

import base64
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from bireme_lab.embedded.api.errors import Object, bad_request

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_NUMBERS: Final = ("int32", "int64", "uint32", "uint64")
_WORD_BITS: Final = 64


@cache
def _messages() -> Mapping[str, Mapping[str, str]]:
    source = files("bireme_lab.embedded.api").joinpath("protobuf_fields.json")
    messages: Mapping[str, Mapping[str, str]] = msgspec.json.decode(source.read_bytes())
    return messages


def decode(body: bytes, kind: str = "") -> Object:
    """Return the object in a body.

    Args:
        kind: The kind where the envelope names none, as in options of deletions.

    Raises:
        Refusal: 400 for bytes that are no object, or one of a kind that is not in the table.
    """
    if not body.startswith(_MAGIC):
        raise bad_request("the body of the request is no object in protobuf")
    try:
        envelope = dict(_fields(body[len(_MAGIC) :]))
        of_type = {n: v.decode() for n, v in _fields(envelope.get(1, b"")) if isinstance(v, bytes)}
        kind = of_type.get(2) or kind
        if kind not in _messages():
            raise bad_request(f"{kind or 'an object without kind'} in protobuf is not served here")
        content: Object = _message(envelope.get(2, b""), kind)
    except (IndexError, UnicodeDecodeError) as error:
        raise bad_request(f"the body of the request is cut off: {error}") from error
    return {"apiVersion": of_type.get(1, ""), "kind": kind, **content}


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and raw value of every field."""
    offset = 0
    while offset < len(data):
        tag, offset = _varint(data, offset)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, offset = _varint(data, offset)
            yield number, value
        elif wire == _BYTES:
            length, offset = _varint(data, offset)
            if offset + length > len(data):
                raise IndexError("a field is longer than the body")
            yield number, data[offset : offset + length]
            offset += length
        else:
            width = {_FIXED64: 8, _FIXED32: 4}.get(wire)
            if width is None:
                raise IndexError(f"wire type {wire}")
            yield number, data[offset : offset + width]
            offset += width


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7
        if shift > _WORD_BITS:
            raise IndexError("a number is too long")


def _message(data: bytes, name: str) -> Any:
    existing = _messages()[name]
    result: dict[str, Any] = {}
    for number, raw in _fields(data):
        entry = existing.get(str(number))
        if entry is None:
            continue
        field, *kind = entry.split(" ")
        if kind[0] == "list":
            result.setdefault(field, []).append(_value(raw, kind[1]))
        elif kind[0] == "map":
            pair = dict(_fields(raw))
            key = pair.get(1, b"").decode()
            result.setdefault(field, {})[key] = _value(pair.get(2, b""), kind[1])
        else:
            value = _value(raw, kind[0])
            # Go writes the empty text of a field that was not given.
            if value not in ("", None):
                result[field] = value
    return _special(name, result)


def _value(raw: Any, kind: str) -> Any:
    if kind == "string":
        return raw.decode()
    if kind == "bool":
        return bool(raw)
    if kind in _NUMBERS:
        return raw - 2**_WORD_BITS if raw >= 2 ** (_WORD_BITS - 1) else raw
    if kind == "bytes":
        return base64.b64encode(raw).decode()
    return _message(raw, kind)


def _special(name: str, value: dict[str, Any]) -> Any:
    """Return messages that JSON writes as a text or a number in that form."""
    if name == "Quantity":
        return value.get("string", "0")
    if name == "IntOrString":
        return value.get("strVal", "") if value.get("type") else value.get("intVal", 0)
    if name in ("Time", "MicroTime"):
        if not value.get("seconds"):
            return None
        moment = datetime.fromtimestamp(value["seconds"] + value.get("nanos", 0) / 1e9, UTC)
        return f"{moment:%Y-%m-%dT%H:%M:%S}" + (f".{moment:%f}Z" if name == "MicroTime" else "Z")
    if name == "FieldsV1":
        return None
    return value
