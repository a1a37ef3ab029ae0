"""Requests to the API server, taken apart, and its answers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bireme_lab.embedded.api.errors import Object, bad_request, no_resource
from bireme_lab.embedded.api.store import Key

_PATH: Final = re.compile(
    r"(?P<prefix>/api/v1|/apis/[^/]+/[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]+))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[^/]+))?"
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
# Of a namespace itself: the pattern above would take them for objects in it.
_OF_NAMESPACE: Final = re.compile(r"/api/v1/namespaces/(?P<name>[^/]+)/(?P<sub>status|finalize)")


@dataclass(frozen=True, slots=True)
class RequestPath:
    """Parts of a request path; empty strings for those it leaves out.

    Attributes:
        resource: The path of all objects of the kind, such as ``/api/v1/pods``.
    """

    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    @classmethod
    def parse(cls, path: str) -> "RequestPath":
        """Take a path apart, e.g. ``/api/v1/namespaces/a/pods/p/status``; 404 for others."""
        if match := _OF_NAMESPACE.fullmatch(path):
            return cls("/api/v1/namespaces", "", match["name"], match["sub"])
        match = _PATH.fullmatch(path)
        if match is None:
            raise no_resource()
        part = match.groupdict(default="")
        resource = f"{part['prefix']}/{part['plural']}"
        return cls(resource, part["namespace"], part["name"], part["subresource"])


@dataclass(frozen=True, slots=True)
class ApiUser:
    """The sender of a request."""

    name: str
    groups: tuple[str, ...] = ("system:authenticated",)
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def to_info(self) -> Object:
        """Return the user as ``userInfo`` of reviews and admission; what is empty has no field."""
        info: Object = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            info["uid"] = self.uid
        if self.extra:
            info["extra"] = {name: list(values) for name, values in self.extra.items()}
        return info


ADMIN: Final = ApiUser("kubernetes-admin", ("system:masters", "system:authenticated"))


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request, whatever carries it."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    user: ApiUser = ADMIN
    content_type: str = "application/json"
    accept: str = "application/json"
    user_agent: str = ""
    body: bytes = b""

    @property
    def is_dry_run(self) -> bool:
        return bool(self.query.get("dryRun"))

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") in ("1", "true")

    def number(self, name: str) -> int | None:
        """Return a number of the query, None where it is not there; 400 for other texts."""
        text = self.query.get(name)
        if not text:
            return None
        if not _INTEGER.fullmatch(text):
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        return int(text)

    @property
    def version_fault(self) -> str:
        """The words for a ``resourceVersion`` of the query that is none; empty for others."""
        text = self.query.get("resourceVersion", "")
        if not text or (text.isascii() and text.isdigit()):
            return ""
        parsing = f'strconv.ParseUint: parsing "{text}": invalid syntax'
        return f'resourceVersion: Invalid value: "{text}": {parsing}'

    @property
    def manager(self) -> str:
        """The field manager: as stated, else the first word of the user agent."""
        return self.query.get("fieldManager") or self.user_agent.partition("/")[0] or "unknown"


@dataclass(slots=True)
class ApiAnswer:
    """The answer to a request.

    Attributes:
        body: An object, sent as JSON, or text or bytes as they are.
        warnings: Texts of ``Warning`` headers, which kubectl prints.
    """

    code: int
    body: Any
    warnings: list[str] = field(default_factory=list)
    retry_after_seconds: int | None = None
