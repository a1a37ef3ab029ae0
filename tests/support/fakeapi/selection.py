"""Label and field selectors of the fake API server: equality and existence, joined by commas."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Selector:
    """Calling it says whether an object belongs to the collection that a request asked for."""

    namespace: str
    labels: tuple[tuple[str, str | None, bool], ...]
    fields: tuple[tuple[str, str | None, bool], ...]

    @classmethod
    def from_query(cls, query: Mapping[str, str], namespace: str) -> Self:
        """From ``labelSelector`` and ``fieldSelector``: ``a=b``, ``a!=b``, ``a``, ``!a``."""
        return cls(
            namespace,
            tuple(map(_term, filter(None, query.get("labelSelector", "").split(",")))),
            tuple(map(_term, filter(None, query.get("fieldSelector", "").split(",")))),
        )

    def __call__(self, obj: dict[str, Any]) -> bool:
        meta = obj["metadata"]
        labels = meta.get("labels") or {}
        return (
            self.namespace in {"", meta.get("namespace", "")}
            and all((labels.get(name) == value) is equal for name, value, equal in self.labels)
            and all((_field(obj, name) == value) is equal for name, value, equal in self.fields)
        )


def _term(text: str) -> tuple[str, str | None, bool]:
    if "=" not in text:  # existence: no value equals None
        return text.removeprefix("!"), None, text.startswith("!")
    name, _, value = text.partition("=")
    return name.removesuffix("!"), value.removeprefix("="), not name.endswith("!")


def _field(obj: dict[str, Any], path: str) -> str:
    found: Any = obj
    for part in path.split("."):
        found = (found or {}).get(part)
    return found or ""
