"""Objects that expressions of mutations construct: ``Object.spec{n: 3}`` and ``JSONPatch{...}``.

Kubernetes gives every name that begins with ``Object`` a type whose fields may have any name and
value. Here each expression gets its own messages of protobuf, with the fields that it names. Their
values are those of JSON, so whole doubles become integers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, struct_pb2

from bireme.kube import cel
from bireme.kube.cel_functions import Function
from bireme_lab.embedded.cel.expression_tokens import ExpressionTokens

JSON_PATCH: Final = "JSONPatch"
OBJECT: Final = "Object"
_PATCH_FIELDS: Final = ("op", "path", "from")
_ESCAPE_KEY: Final = Function(
    "jsonpatch.escapeKey",
    ("string",),
    "string",
    lambda key: key.replace("~", "~0").replace("/", "~1"),
    is_member=False,
)


class MessageExpression:
    """A compiled expression that may construct objects and operations of patches."""

    def __init__(self, expression: str, names: tuple[str, ...]) -> None:
        """Compile ``expression``; it may use the variables ``names``.

        Raises:
            CelError: it does not compile.
        """
        self._parser = _Parser(expression)
        environment = cel.make_environment(names, (_ESCAPE_KEY,), self._parser.messages())
        try:
            self._compiled = cel.compile_in(environment, self._parser.source)
        except cel.CelError as error:
            raise cel.CelError(self._parser.in_own_names(str(error))) from None

    @property
    def result_type(self) -> str:
        """The type of its value, as ``list(JSONPatch)``."""
        return self._parser.in_own_names(self._compiled.result_type)

    @property
    def misplacements(self) -> Sequence[str]:
        """Faults of objects whose type is not named after the field that they stand in."""
        return self._parser.misplacements

    def value(self, values: Mapping[str, Any], may: cel.Rights | None = None) -> Any:
        """Return the value in plain JSON.

        Raises:
            CelError: the expression has no value.
        """
        return _plain(self._compiled.value(values, may))


@lru_cache(maxsize=256)
def compile_messages(expression: str, names: tuple[str, ...]) -> MessageExpression:
    """Return ``expression`` compiled; CelError where it does not compile."""
    return MessageExpression(expression, names)


def _plain(value: Any) -> Any:
    if hasattr(value, "DESCRIPTOR"):
        value = json_format.MessageToDict(value, preserving_proto_field_name=True)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass(slots=True)
class _Construction:
    """One ``NAME{...}``; ``place`` is the field that the parser has come to."""

    name: str
    fault: str
    place: str = ""


@dataclass
class _Parser:
    """The constructions in an expression.

    Attributes:
        source: The expression with names that protobuf allows, each as long as its own.
    """

    expression: str
    misplacements: list[str] = field(default_factory=list)
    source: str = ""
    _names: dict[str, str] = field(default_factory=dict)
    """Names of types, by those in ``source``."""
    _fields: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._tokens = ExpressionTokens(self.expression)
        self._parse()
        self.source = "".join(self._tokens.texts)

    def _parse(self) -> None:
        opened: list[_Construction | None] = []
        for place in range(len(self._tokens)):
            text = self._tokens.text(place)
            if text in ("(", "[", "{"):
                opened.append(self._begin(place, opened) if text == "{" else None)
            elif text in (")", "]", "}") and opened:
                self._end(place, opened.pop())
            elif self._tokens.is_name(place):
                self._read_name(place, opened[-1] if opened else None)

    def _begin(self, place: int, opened: list[_Construction | None]) -> _Construction | None:
        """Return the construction that a brace opens; None for a map."""
        first = place - 1
        if not self._tokens.is_name(first):
            return None
        while self._tokens.text(first - 1) == "." and self._tokens.is_name(first - 2):
            first -= 2
        name = "".join(self._tokens.text(position) for position in range(first, place))
        if name.partition(".")[0] != OBJECT and name != JSON_PATCH:
            return None
        alias = name.replace(".", "_")
        if self._names.setdefault(alias, name) != name:
            other = self._names[alias]
            raise cel.CelError(
                f"compilation failed: the embedded cluster cannot tell {name} from {other}"
            )
        for position in range(first, place):
            self._tokens.replace(position, alias if position == first else "")
        return _Construction(name, _fault(name, opened))

    def _end(self, place: int, construction: _Construction | None) -> None:
        is_value = self._tokens.text(place + 1) not in (".", "[")
        if construction is not None and construction.fault and is_value:
            self.misplacements.append(construction.fault)

    def _read_name(self, place: int, construction: _Construction | None) -> None:
        previous = place - 1 - (self._tokens.text(place - 1) == "?")
        if self._tokens.text(previous) == ".":
            self._fields.add(self._tokens.text(place))
        elif construction is not None and self._tokens.text(previous) in ("{", ","):
            construction.place = self._tokens.text(place)
            self._fields.add(construction.place)

    def messages(self) -> descriptor_pool.DescriptorPool:
        """Return a pool with a message for every type; objects have every field that is named."""
        pool = descriptor_pool.DescriptorPool()
        values = descriptor_pb2.FileDescriptorProto()
        struct_pb2.DESCRIPTOR.CopyToProto(values)
        pool.Add(values)
        file = descriptor_pb2.FileDescriptorProto(
            name="objects.proto", syntax="proto3", dependency=[values.name]
        )
        _add_message(file, JSON_PATCH, dict.fromkeys(_PATCH_FIELDS, True) | {"value": False})
        for alias in sorted({OBJECT, *self._names} - {JSON_PATCH}):
            _add_message(file, alias, dict.fromkeys(sorted(self._fields), False))
        pool.Add(file)
        return pool

    def in_own_names(self, text: str) -> str:
        """Return a text of the library with the names that the expression has."""
        for alias in sorted(self._names, key=len, reverse=True):
            text = text.replace(alias, self._names[alias])
        return text


def _fault(name: str, opened: list[_Construction | None]) -> str:
    around = next((item for item in reversed(opened) if item is not None), None)
    if around is None or around.name == JSON_PATCH:
        return ""
    expected = f"{around.name}.{around.place}"
    if name == expected:
        return ""
    return (
        f'unexpected type name "{name}", expected "{expected}", which matches field name path from'
        " root Object type"
    )


def _add_message(file: Any, name: str, fields: Mapping[str, bool]) -> None:
    """Add a message; its fields are texts where True, else any values."""
    message = file.message_type.add(name=name)
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, (item, is_text) in enumerate(fields.items(), start=1):
        added = message.field.add(name=item, json_name=item, number=number)
        added.label = kinds.LABEL_OPTIONAL
        added.type = kinds.TYPE_STRING if is_text else kinds.TYPE_MESSAGE
        if not is_text:
            added.type_name = ".google.protobuf.Value"
