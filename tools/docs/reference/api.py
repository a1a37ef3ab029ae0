"""``docs/reference/api.md``: every kind and every field, from the schemas of the CRDs."""

from collections.abc import Iterator
from typing import Final

from bireme.kube import names
from bireme.kube.crd import KINDS, Schema, ServedKind, definition
from tools.docs.reference.tables import code, table

_HEAD: Final = f"""# API

The kinds of `{names.GROUP}/{names.VERSION}`, written by `make reference` from the models that the
CustomResourceDefinitions are made of; `kubectl explain` says the same. A `[]` after a field means
each entry of a list, `.*` each value of a map. Fields that have neither a default nor "required"
may be left out. Rules that span fields are checked by the API server too, whose refusal names the
values that clash and the remedy.

"""
_COLUMNS: Final = ("field", "type", "default", "bounds", "meaning")
_BOUNDS: Final = (
    ("minimum", "from {}"),
    ("maximum", "to {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {} entries"),
    ("maxItems", "at most {} entries"),
    ("minProperties", "at least {} keys"),
    ("maxProperties", "at most {} keys"),
)
# Larger ones JSON does not hold exactly; as a bound it tells a reader nothing.
_WHOLE_NUMBERS: Final = 2**53


def page() -> str:
    return _HEAD + "\n".join(_section(kind) for kind in KINDS)


def _section(kind: ServedKind) -> str:
    made = definition(kind)["spec"]
    version = made["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    columns = ", ".join(column["name"] for column in version["additionalPrinterColumns"])
    (short_name,) = made["names"]["shortNames"]
    parts = [
        f"## {made['names']['kind']}\n\n{schema['description']}\n\n",
        f"{made['scope']}; `kubectl get {kind.plural}` or `{short_name}` shows {columns}.\n",
    ]
    for name, title in (("spec", "Spec of {}"), ("status", "Status of {}, written by Bireme")):
        part = schema["properties"].get(name)
        if part is None:
            continue
        heading = title.format(made["names"]["kind"])
        parts += [f"\n### {heading}\n\n", table(_COLUMNS, _rows(part, ""))]
    return "".join(parts)


def _rows(schema: Schema, path: str) -> Iterator[tuple[str, ...]]:
    """Yield a row for every field below ``schema``, parents first."""
    for name, child in schema.get("properties", {}).items():
        here = f"{path}{name}"
        yield _cells(here, child, name in schema.get("required", ()))
        yield from _below(child, here)


def _below(child: Schema, here: str) -> Iterator[tuple[str, ...]]:
    suffix, inner = _inner(child)
    # An element that is an object has its fields as rows; one that is not needs a row itself.
    if suffix and "properties" not in inner and "description" in inner:
        yield _cells(here + suffix, inner, required=False)
    yield from _rows(inner, f"{here}{suffix}.")


def _inner(schema: Schema) -> tuple[str, Schema]:
    """Return the element of a list or a map, and how that is written; else the schema itself."""
    if "items" in schema:
        return "[]", schema["items"]
    if "additionalProperties" in schema:
        return ".*", schema["additionalProperties"]
    return "", schema


def _cells(path: str, schema: Schema, required: bool) -> tuple[str, ...]:
    default = "required" if required else code(schema.get("default"))
    meaning = schema.get("description", "")
    return code(path), _type(schema), default, "; ".join(_bounds(schema)), meaning


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return " or ".join(code(value) for value in schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    kind = schema.get("type", "any")
    suffix, inner = _inner(schema)
    if suffix == "[]":
        return f"list of {_type(inner)}"
    if suffix:
        return f"map to {_type(inner)}"
    return "time" if schema.get("format") == "date-time" else str(kind)


def _bounds(schema: Schema) -> Iterator[str]:
    for key, words in _BOUNDS:
        if key in schema and schema[key] != _WHOLE_NUMBERS:
            yield words.format(schema[key])
    if "pattern" in schema:
        yield f"matches {code(schema['pattern'])}"
    suffix, inner = _inner(schema)
    if suffix and "properties" not in inner and any(_bounds(inner)):
        yield "each " + ", ".join(_bounds(inner))
