"""Sets of fields of an object, in the nested form of ``metadata.managedFields``.

A set is a dictionary of path elements: ``f:NAME`` for a field, ``k:{KEYS}`` for an item of a list
that is merged by keys, ``v:VALUE`` for an item of a set, and ``.`` for the element itself.

Source: ``sigs.k8s.io/structured-merge-diff``, its FieldsV1 serialization and its list types.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Fields = dict[str, Any]
_SELF: Final = "."

LIST_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "ports": ("containerPort", "protocol"),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "conditions": ("type",),
    "ownerReferences": ("uid",),
    "schedulingGates": ("name",),
    "resourceClaims": ("name",),
}
"""Lists of Kubernetes' kinds that are merged by keys."""
SETS: Final = frozenset({"finalizers"})
ATOMIC_MAPS: Final = frozenset({"selector", "nodeSelector", "labelSelector", "matchLabels"})
_DEFAULT_KEYS: Final = {"protocol": "TCP"}


@dataclass(frozen=True, slots=True)
class MergeShape:
    """How a value is merged: by the schema of a custom kind, or by the names of fields."""

    schema: Mapping[str, Any] | None
    name: str = ""

    def field(self, name: str) -> "MergeShape":
        """Return the shape of a field of this value."""
        if self.schema is None:
            return MergeShape(None, name)
        of = self.schema.get("properties", {}).get(name)
        if of is None:
            extra = self.schema.get("additionalProperties")
            of = extra if isinstance(extra, Mapping) else {}
        if name == "metadata" and "properties" not in of:
            return MergeShape(None, name)
        return MergeShape(of, name)

    def item(self) -> "MergeShape":
        """Return the shape of an item of this list."""
        if self.schema is None:
            return MergeShape(None)
        items = self.schema.get("items")
        return MergeShape(items if isinstance(items, Mapping) else {})

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys by which the items of a list are merged; empty for none."""
        if self.schema is None:
            return LIST_KEYS.get(self.name, ())
        if self.schema.get("x-kubernetes-list-type") == "map":
            return tuple(self.schema["x-kubernetes-list-map-keys"])
        return ()

    @property
    def is_set(self) -> bool:
        if self.schema is None:
            return self.name in SETS
        return self.schema.get("x-kubernetes-list-type") == "set"

    @property
    def is_atomic_map(self) -> bool:
        if self.schema is None:
            return self.name in ATOMIC_MAPS
        return self.schema.get("x-kubernetes-map-type") == "atomic"


def key_of(item: Any, keys: Sequence[str]) -> str | None:
    """Return the path element of an item of a keyed list; None without its keys."""
    if not isinstance(item, dict):
        return None
    values = {key: item.get(key, _DEFAULT_KEYS.get(key)) for key in keys}
    if all(value is None for value in values.values()):
        return None
    given = {key: value for key, value in sorted(values.items()) if value is not None}
    return "k:" + json.dumps(given, separators=(",", ":"))


def children(value: Any, shape: MergeShape) -> dict[str, tuple[Any, MergeShape]] | None:
    """Return the parts of ``value`` by path element; None for a value that is merged whole."""
    if isinstance(value, dict) and not shape.is_atomic_map:
        return {f"f:{name}": (each, shape.field(name)) for name, each in value.items()}
    if isinstance(value, list):
        if shape.is_set:
            return {
                "v:" + json.dumps(each, separators=(",", ":")): (each, MergeShape({}))
                for each in value
            }
        keys = shape.keys
        if keys:
            elements = [key_of(each, keys) for each in value]
            if None not in elements and len(set(elements)) == len(elements):
                return {
                    str(element): (each, shape.item())
                    for element, each in zip(elements, value, strict=True)
                }
    return None


def fields_of(value: Any, shape: MergeShape) -> Fields:
    """Return all fields of ``value``."""
    parts = children(value, shape)
    if parts is None:
        return {}
    fields: Fields = {}
    for element, (each, of) in parts.items():
        inner = fields_of(each, of)
        if element.startswith("k:"):
            inner = {_SELF: {}, **inner}
        fields[element] = inner
    return fields


def changed_fields(old: Any, new: Any, shape: MergeShape) -> tuple[Fields, Fields]:
    """Return the fields that ``new`` sets or adds, and those of ``old`` that it removes."""
    previous, current = children(old, shape), children(new, shape)
    if previous is None or current is None:
        return {}, {}
    is_keyed = isinstance(new, list)
    changed: Fields = {}
    removed: Fields = {}
    for element, (each, of) in current.items():
        if element not in previous:
            inner = fields_of(each, of)
            changed[element] = {_SELF: {}, **inner} if element.startswith("k:") else inner
            continue
        earlier = previous[element][0]
        if each == earlier:
            continue
        if children(each, of) is None or children(earlier, of) is None:
            changed[element] = {}
            continue
        inner, gone = changed_fields(earlier, each, of)
        if inner:
            changed[element] = inner
        if gone:
            removed[element] = gone
    for element, (each, of) in previous.items():
        if element not in current:
            inner = fields_of(each, of)
            removed[element] = {_SELF: {}, **inner} if is_keyed else inner
    return changed, removed


def union(one: Fields, other: Fields) -> Fields:
    """Return the fields of either set."""
    both = dict(one)
    for element, inner in other.items():
        both[element] = union(both[element], inner) if element in both else inner
    return both


def subtract(one: Fields, other: Fields) -> Fields:
    """Return the fields of ``one`` whose leaves are not in ``other``."""
    rest: Fields = {}
    for element, inner in one.items():
        if element not in other:
            rest[element] = inner
        elif inner and (remaining := subtract(inner, other[element])):
            rest[element] = remaining
    return rest


def overlap(one: Fields, other: Fields) -> Fields:
    """Return the leaves of ``one`` that are in ``other``."""
    both: Fields = {}
    for element, inner in one.items():
        if element not in other:
            continue
        if not inner:
            both[element] = {}
        elif common := overlap(inner, other[element]):
            both[element] = common
    return both


def paths(fields: Fields, prefix: str = "") -> Iterator[str]:
    """Yield the leaves as conflicts name them: ``.spec.tasks[name="a"].replicas``."""
    for element, inner in fields.items():
        if element == _SELF:
            if len(fields) == 1:
                yield prefix
            continue
        path = prefix + element_text(element)
        if inner:
            yield from paths(inner, path)
        else:
            yield path


def element_text(element: str) -> str:
    """Return a path element as messages name it."""
    kind, _, rest = element.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        pairs = json.loads(rest).items()
        return "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in pairs) + "]"
    return f"[={rest}]"


def remove(value: Any, fields: Fields, shape: MergeShape) -> Any:
    """Return ``value`` without the leaves in ``fields``; emptied items go with their keys."""
    parts = children(value, shape)
    if parts is None:
        return value
    is_gone: Callable[[str], bool] = lambda element: (  # noqa: E731
        element in fields and (not fields[element] or _SELF in fields[element])
    )
    retained = {
        element: remove(each, fields[element], of) if element in fields else each
        for element, (each, of) in parts.items()
        if not is_gone(element)
    }
    if isinstance(value, list):
        return list(retained.values())
    # A map from which everything was taken goes as well, as its owner set nothing else in it.
    return {
        element.removeprefix("f:"): each
        for element, each in retained.items()
        if not (each in ({}, []) and element in fields and parts[element][0] not in ({}, []))
    }
