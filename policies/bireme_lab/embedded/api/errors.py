"""Refusals of the API server, as the Status objects that clients get."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cause:
    """One fault of a field: its path, the kind of fault, and the words."""

    path: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class ApiRefusal(Exception):  # noqa: N818  # it becomes an answer, not a traceback
    """A request is refused with an HTTP ``status``, a ``reason`` and a message.

    Attributes:
        details: ``details`` of the Status; empty for none.
        retry_after_seconds: The header ``Retry-After``; None for none.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message
        self.details = dict(details or {})
        self.retry_after_seconds = retry_after_seconds

    def to_object(self) -> Object:
        """Return the Status object."""
        answer: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.status,
        }
        return answer | ({"details": self.details} if self.details else {})


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that a refusal is about.

    Attributes:
        kind: Its kind, such as ``Pod``.
        resource: Its plural name with the group, such as ``jobs.batch``.
    """

    kind: str
    group: str
    resource: str
    name: str

    @property
    def details(self) -> Object:
        """The subject as ``details`` of a Status."""
        plural = self.resource.partition(".")[0]
        return {"name": self.name, "kind": plural} | ({"group": self.group} if self.group else {})


def not_found(subject: Subject) -> ApiRefusal:
    """Return the refusal of a request for an object that does not exist."""
    message = f'{subject.resource} "{subject.name}" not found'
    return ApiRefusal(404, "NotFound", message, subject.details)


def no_resource() -> ApiRefusal:
    """Return the refusal of a request for a kind that is not served."""
    return ApiRefusal(404, "NotFound", "the server could not find the requested resource")


def already_exists(subject: Subject) -> ApiRefusal:
    message = f'{subject.resource} "{subject.name}" already exists'
    return ApiRefusal(409, "AlreadyExists", message, subject.details)


def conflict(subject: Subject, text: str) -> ApiRefusal:
    """Return the refusal of a write whose precondition does not hold."""
    message = f'Operation cannot be fulfilled on {subject.resource} "{subject.name}": {text}'
    return ApiRefusal(409, "Conflict", message, subject.details)


def precondition(subject: Subject, what: str, stated: str, stored: str) -> ApiRefusal:
    """Return the refusal of a write whose uid or version is that of another object."""
    text = f"Precondition failed: {what} in precondition: {stated}, {what} in object meta: {stored}"
    return conflict(subject, text)


def other_record(subject: Subject, what: str, stated: str, stored: str) -> ApiRefusal:
    """Return the refusal of a deletion whose uid or version is that of another object."""
    kind = f"{subject.kind}.{subject.group}" if subject.group else subject.kind
    end = "deleted and then recreated" if what == "UID" else "modified"
    message = (
        f'Operation cannot be fulfilled on {kind} "{subject.name}": the {what} in the precondition '
        f"({stated}) does not match the {what} in record ({stored}). The object might have been "
        f"{end}"
    )
    return ApiRefusal(409, "Conflict", message, subject.details)


def modified(subject: Subject) -> ApiRefusal:
    return conflict(
        subject,
        "the object has been modified; please apply your changes to the latest version and "
        "try again",
    )


def forbidden(subject: Subject, text: str) -> ApiRefusal:
    name = f' "{subject.name}"' if subject.name else ""
    message = f"{subject.resource}{name} is forbidden: {text}"
    return ApiRefusal(403, "Forbidden", message, subject.details)


def invalid(subject: Subject, causes: Sequence[Cause]) -> ApiRefusal:
    """Return the refusal of an object with faults, all in one message."""
    kind = f"{subject.kind}.{subject.group}" if subject.group else subject.kind
    texts = list(dict.fromkeys(map(str, causes)))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = {
        **subject.details,
        "kind": subject.kind,
        "causes": [
            {"reason": cause.reason, "message": cause.message, "field": cause.path}
            for cause in causes
        ],
    }
    return ApiRefusal(422, "Invalid", f'{kind} "{subject.name}" is invalid: {text}', details)


def bad_request(message: str) -> ApiRefusal:
    return ApiRefusal(400, "BadRequest", message)


@dataclass(slots=True)
class Faults:
    """The faults of one object, collected by the path of the field."""

    causes: list[Cause] = field(default_factory=list)

    def add(self, path: str, reason: str, message: str) -> None:
        """Add a fault, once; ``reason`` is one of the API's, such as FieldValueInvalid."""
        cause = Cause(path, reason, message)
        if cause not in self.causes:
            self.causes.append(cause)

    def required(self, path: str, detail: str = "") -> None:
        self.add(path, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))

    def invalid(self, path: str, value: Any, detail: str) -> None:
        self.add(path, "FieldValueInvalid", f"Invalid value: {shown(value)}: {detail}")

    def unsupported(self, path: str, value: Any, values: Sequence[Any]) -> None:
        choices = ", ".join(f'"{choice}"' for choice in values)
        text = f"Unsupported value: {shown(value)}: supported values: {choices}"
        self.add(path, "FieldValueNotSupported", text)

    def duplicate(self, path: str, value: Any) -> None:
        self.add(path, "FieldValueDuplicate", f"Duplicate value: {shown(value)}")

    def forbidden(self, path: str, detail: str) -> None:
        self.add(path, "FieldValueForbidden", f"Forbidden: {detail}")

    def too_long(self, path: str, max_length: int) -> None:
        text = f"Too long: may not be more than {max_length} bytes"
        self.add(path, "FieldValueTooLong", text)

    def too_many(self, path: str, count: int, max_count: int) -> None:
        text = f"Too many: {count}: must have at most {max_count} items"
        self.add(path, "FieldValueTooMany", text)


def shown(value: Any) -> str:
    """Return a value as the API server prints it in a fault."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if value is None:
        return "null"
    if isinstance(value, int | float):
        return str(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
