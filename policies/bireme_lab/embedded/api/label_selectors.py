"""Label selectors as requests write them, such as ``team=a,size in (big, small),!spot``.

Source: ``k8s.io/apimachinery/pkg/labels/selector.go``, with its messages.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from bireme_lab.embedded.api import metadata
from bireme_lab.embedded.api.errors import Faults, bad_request, shown

_TOKEN: Final = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)")
_SYMBOLS: Final = frozenset(("==", "!=", *"=!(),<>"))
_OPERATORS: Final = ("in", "notin", "=", "==", "!=", ">", "<")
_OPERATOR_WORDS: Final = "in, notin, =, ==, !=, gt, lt"


class _SyntaxFault(Exception):  # noqa: N818  # it becomes a refusal
    """A text is no requirement; the message says where."""


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One requirement on the value of a label.

    Attributes:
        operator: One of ``_OPERATORS``, or ``exists`` or ``!``.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()


def parse(text: str) -> list[LabelRequirement]:
    """Return the requirements of a selector.

    Raises:
        Refusal: 400; it cannot be parsed.
    """
    tokens = _Tokens(_TOKEN.findall(text))
    requirements: list[LabelRequirement] = []
    while tokens.next != "":
        if not tokens.is_identifier and tokens.next != "!":
            expected = "!, identifier, or 'end of string'"
            raise bad_request(f"found '{tokens.next}', expected: {expected}")
        try:
            requirements.append(_requirement(tokens))
        except _SyntaxFault as fault:
            raise bad_request(f"unable to parse requirement: {fault}") from fault
        separator = tokens.take()
        if separator == "":
            break
        if separator != ",":
            raise bad_request(f"found '{separator}', expected: ',' or 'end of string'")
        if not tokens.is_identifier and tokens.next != "!":
            raise bad_request(f"found '{tokens.next}', expected: identifier after ','")
    return requirements


@dataclass(eq=False)
class _Tokens:
    """Tokens of a selector; an empty text is its end."""

    texts: list[str]
    position: int = field(default=0)

    @property
    def next(self) -> str:
        return self.texts[self.position] if self.position < len(self.texts) else ""

    @property
    def is_identifier(self) -> bool:
        return self.next != "" and self.next not in _SYMBOLS

    def take(self) -> str:
        token = self.next
        self.position += 1
        return token


def _requirement(tokens: _Tokens) -> LabelRequirement:
    is_negative = tokens.next == "!"
    if is_negative:
        tokens.take()
    if not tokens.is_identifier:
        raise _SyntaxFault(f"found '{tokens.next}', expected: identifier")
    key = tokens.take()
    if fault := next(metadata.qualified_name_faults(key), ""):
        raise _SyntaxFault(f"<nil>: Invalid value: {shown(key)}: {fault}")
    if is_negative or tokens.next in ("", ","):
        return LabelRequirement(key, "!" if is_negative else "exists")
    operator = tokens.take()
    if operator not in _OPERATORS:
        raise _SyntaxFault(f"found '{operator}', expected: {_OPERATOR_WORDS}")
    values = _set(tokens) if operator in ("in", "notin") else _exact(tokens)
    _check_values(key, operator, values)
    return LabelRequirement(key, operator, values)


def _exact(tokens: _Tokens) -> tuple[str, ...]:
    if tokens.next in ("", ","):
        return ("",)
    if not tokens.is_identifier:
        raise _SyntaxFault(f"found '{tokens.next}', expected: identifier")
    return (tokens.take(),)


def _set(tokens: _Tokens) -> tuple[str, ...]:
    """Return the values in parentheses; an empty place is an empty value."""
    if tokens.next != "(":
        raise _SyntaxFault(f"found '{tokens.next}' expected: '('")
    tokens.take()
    if tokens.next == ")":
        tokens.take()
        return ()
    values: list[str] = []
    while True:
        if tokens.is_identifier:
            values.append(tokens.take())
        elif tokens.next in (",", ")"):
            values.append("")
        else:
            raise _SyntaxFault(f"found '{tokens.next}', expected: ',', ')' or identifier")
        separator = tokens.take()
        if separator == ")":
            return tuple(values)
        if separator != ",":
            raise _SyntaxFault(f"found '{separator}', expected: ',' or ')'")


def _check_values(key: str, operator: str, values: tuple[str, ...]) -> None:
    if operator in ("in", "notin") and not values:
        text = "for 'in', 'notin' operators, values set can't be empty"
        raise _SyntaxFault(f"values: Invalid value: []: {text}")
    if operator in ("<", ">") and not re.fullmatch(r"[+-]?\d+", values[0]):
        text = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise _SyntaxFault(f"values[0]: Invalid value: {shown(values[0])}: {text}")
    for index, value in enumerate(sorted(values)):
        faults = Faults()
        metadata.check_label("key", value, faults, f"values[{index}][{key}]")
        if faults.causes:
            raise _SyntaxFault(str(faults.causes[0]))
