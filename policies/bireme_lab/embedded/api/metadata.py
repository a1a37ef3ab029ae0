"""Checks of the metadata that objects of all kinds have.

Source: ``k8s.io/apimachinery/pkg/api/validation/objectmeta.go``.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from bireme_lab.embedded.api.errors import Faults, Object

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_WORDS: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LABEL_WORDS: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_NAME_PART: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_NAME_PART_WORDS: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_MAX_SUBDOMAIN: Final = 253
_MAX_LABEL: Final = 63
_FIXED: Final = ("name", "namespace", "uid", "deletionTimestamp")
_STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")


def check_name(name: str, faults: Faults, *, is_segment: bool) -> None:
    """Add the fault of a name; roles and bindings may have any that is one segment of a path."""
    if is_segment:
        if name in (".", "..") or "/" in name or "%" in name:
            faults.invalid("metadata.name", name, "may not contain '/' or '%', or be '.' or '..'")
        return
    if not name:
        faults.required("metadata.name", "name or generateName is required")
        return
    for fault in subdomain_faults(name):
        faults.invalid("metadata.name", name, fault)


def check(meta: Object, faults: Faults, *, is_custom: bool) -> None:
    """Add the faults of labels, annotations, owners and finalizers."""
    for key, value in (meta.get("labels") or {}).items():
        check_label(key, value, faults, "metadata.labels")
    for key in meta.get("annotations") or {}:
        for fault in qualified_name_faults(key.lower()):
            faults.invalid("metadata.annotations", key, fault)
    for index, owner in enumerate(meta.get("ownerReferences") or ()):
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name):
                place = f"metadata.ownerReferences[{index}].{name}"
                faults.required(place, "must not be empty")
    for index, name in enumerate(meta.get("finalizers") or ()):
        for fault in qualified_name_faults(name):
            faults.invalid("metadata.finalizers", name, fault)
        if not is_custom and "/" not in name and name not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            faults.invalid(f"metadata.finalizers[{index}]", name, text)


def check_change(stated: Object, old: Object, faults: Faults) -> None:
    """Add a fault for each field of ``stated`` that differs from the stored one and is fixed."""
    for name in _FIXED:
        value = stated.get(name)
        if value and value != old.get(name):
            faults.invalid(f"metadata.{name}", value, "field is immutable")


def check_label(key: str, value: Any, faults: Faults, path: str) -> None:
    """Add the faults of one label, or of one entry of a selector of labels."""
    for fault in qualified_name_faults(key):
        faults.invalid(path, key, fault)
    if not isinstance(value, str):
        faults.invalid(path, value, "must be a string")
        return
    if len(value) > _MAX_LABEL:
        faults.invalid(path, value, f"must be no more than {_MAX_LABEL} bytes")
    if not _LABEL_VALUE.fullmatch(value):
        faults.invalid(path, value, _LABEL_WORDS)


def qualified_name_faults(name: str) -> Iterator[str]:
    """Yield the faults of a name such as ``example.com/gpu``; the prefix is optional."""
    prefix, separator, part = name.rpartition("/")
    if "/" in prefix:
        yield (
            f"a qualified name {_NAME_PART_WORDS} with an optional "
            "DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )
        return
    if separator and not prefix:
        yield "prefix part must be non-empty"
    elif separator:
        yield from (f"prefix part {fault}" for fault in subdomain_faults(prefix))
    if not part:
        yield "name part must be non-empty"
    elif len(part) > _MAX_LABEL:
        yield f"name part must be no more than {_MAX_LABEL} bytes"
    if not _NAME_PART.fullmatch(part):
        yield f"name part {_NAME_PART_WORDS}"


def subdomain_faults(name: str) -> Iterator[str]:
    """Yield the faults of a DNS subdomain."""
    if len(name) > _MAX_SUBDOMAIN:
        yield f"must be no more than {_MAX_SUBDOMAIN} characters"
    if not _SUBDOMAIN.fullmatch(name):
        yield _SUBDOMAIN_WORDS
