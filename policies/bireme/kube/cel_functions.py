"""Functions that Kubernetes adds to CEL: strings, lists, sets, quantities, versions, authorizer.

A value of a type of Kubernetes, such as a quantity, is a map with the key ``@type`` here: the
library passes no other objects through. Equal quantities are equal maps.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from bireme.kube.quantities import exact_quantity

_TYPE: Final = "@type"
_QUANTITY: Final = "kubernetes.Quantity"
_SEMVER: Final = "kubernetes.Semver"
_MAX_INT: Final = 2**63 - 1
_CHECKS: Final = "group", "resource", "subresource", "namespace", "name"
_rights: Final[ContextVar[Callable[[Mapping[str, str]], bool] | None]] = ContextVar("rights")


@dataclass(frozen=True, slots=True)
class Function:
    """One overload of a function; ``parameters`` and ``result`` name types of CEL."""

    name: str
    parameters: tuple[str, ...]
    result: str
    body: Callable[..., Any]
    is_member: bool = True


@contextmanager
def check_rights(may: Callable[[Mapping[str, str]], bool] | None) -> Iterator[None]:
    """Have ``may`` answer the authorizer within the block."""
    token = _rights.set(may)
    try:
        yield
    finally:
        _rights.reset(token)


# --- quantities and versions ----------------------------------------------------------------------


def quantity(text: str | int) -> dict[str, str]:
    """Return the value of CEL's ``quantity(text)``.

    Raises:
        ValueError: ``text`` is no quantity.
    """
    try:
        return {_TYPE: _QUANTITY, "amount": str(exact_quantity(str(text)))}
    except ValueError:
        raise ValueError(
            "quantities must match the regular expression"
            " '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from None


def semver(text: str) -> dict[str, Any]:
    """Return the value of CEL's ``semver(text)``.

    Raises:
        ValueError: ``text`` is no version of three numbers; others are not built.
    """
    parts = text.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError(f"semver {text!r} is no version of three numbers; others are not built")
    return {_TYPE: _SEMVER, "numbers": [int(part) for part in parts]}


def _is_quantity(text: str) -> bool:
    try:
        exact_quantity(text)
    except ValueError:
        return False
    return True


def _amount(value: Mapping[str, Any]) -> Fraction:
    if value.get(_TYPE) != _QUANTITY:
        raise ValueError("no such overload")
    return Fraction(value["amount"])


def _as_quantity(amount: Fraction) -> dict[str, str]:
    return {_TYPE: _QUANTITY, "amount": str(amount)}


def _as_integer(value: Mapping[str, Any]) -> int:
    if not _is_integer(value):
        raise ValueError("cannot convert value to integer")
    return int(_amount(value))


def _is_integer(value: Mapping[str, Any]) -> bool:
    amount = _amount(value)
    return amount.denominator == 1 and -_MAX_INT <= amount <= _MAX_INT


def _compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> int:
    a: Any
    b: Any
    if first.get(_TYPE) == second.get(_TYPE) == _SEMVER:
        a, b = first["numbers"], second["numbers"]
    else:
        a, b = _amount(first), _amount(second)
    return int(a > b) - int(a < b)


def _part_of_version(index: int) -> Callable[[Mapping[str, Any]], int]:
    def part(value: Mapping[str, Any]) -> int:
        if value.get(_TYPE) != _SEMVER:
            raise ValueError("no such overload")
        return int(value["numbers"][index])

    return part


# --- the authorizer -------------------------------------------------------------------------------


def _step(part: str) -> Callable[[Mapping[str, str], str], dict[str, str]]:
    def extend(check: Mapping[str, str], value: str) -> dict[str, str]:
        return {**check, part: value}

    return extend


def _as_service_account(check: Mapping[str, str], namespace: str, name: str) -> dict[str, str]:
    return {**check, "user": f"system:serviceaccount:{namespace}:{name}"}


def _is_allowed(check: Mapping[str, str]) -> bool:
    may = _rights.get()
    if may is None:
        raise ValueError("no such attribute(s): authorizer")
    return may({part: value for part, value in check.items() if part != _TYPE})


# --- strings --------------------------------------------------------------------------------------


def format_text(template: str, values: Sequence[Any]) -> str:
    """Return ``template`` with its clauses filled, as cel-go's version 2 of ``format`` does.

    Raises:
        ValueError: a clause is not built, or has no value.
    """
    parts: list[str] = []
    rest = iter(values)
    characters = iter(template)
    for character in characters:
        if character != "%":
            parts.append(character)
            continue
        clause = next(characters, "")
        if clause == "%":
            parts.append("%")
        elif clause in ("s", "d"):
            try:
                value = next(rest)
            except StopIteration:
                raise ValueError(f"index {len(values)} out of range") from None
            if clause == "d" and not _is_int(value):
                raise ValueError("decimal clause can only be used on integers")
            parts.append(_text(value))
        else:
            raise ValueError(f"clause %{clause} of format is not built; use %s or %d")
    return "".join(parts)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: Any) -> str:
    """Return ``value`` as the clause %s writes it."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return value
        case int():
            return str(value)
        case float():
            return _double_text(value)
        case timedelta():
            return f"{_double_text(value.total_seconds())}s"
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case list():
            return f"[{', '.join(map(_literal, value))}]"
        case dict() if _TYPE not in value:
            pairs = sorted(f"{_literal(key)}:{_literal(each)}" for key, each in value.items())
            return f"{{{', '.join(pairs)}}}"
    raise ValueError(f"string clause of format takes no {type(value).__name__}")


def _literal(value: Any) -> str:
    """Return ``value`` as it stands in a list or map."""
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case float():
            return f"{value:.6f}"
        case timedelta():
            return f'duration("{_text(value)}")'
        case datetime():
            return f'timestamp("{_text(value)}")'
    return _text(value)


def _double_text(number: float) -> str:
    """Return a number as Go's %g does: exponents from 21 digits on, where Python's begin at 17."""
    if number.is_integer() and abs(number) < 1e21:
        return str(int(number))
    text = repr(number)
    return format(Decimal(text), "f") if 1e-4 <= abs(number) < 1e21 else text


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    if not 0 <= start <= stop <= len(text):
        raise ValueError(f"index out of range: {start}, {stop}")
    return text[start:stop]


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise ValueError(f"index out of range: {index}")
    return text[index : index + 1]


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    parts = text.split(separator) if separator else list(text)
    if limit < 0 or len(parts) <= limit:
        return parts
    return [*parts[: limit - 1], separator.join(parts[limit - 1 :])]


def _in_ascii(text: str, change: Callable[[str], str]) -> str:
    return "".join(change(each) if each.isascii() else each for each in text)


# --- lists ----------------------------------------------------------------------------------------


def _total(values: Sequence[Any]) -> Any:
    """Return the sum; an empty list of any type adds up to 0."""
    return sum(values[1:], values[0]) if values else 0


def _extreme(choose: Callable[[Iterable[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
    def extreme(values: Sequence[Any]) -> Any:
        if not values:
            raise ValueError(f"{choose.__name__} called on empty list")
        return choose(values)

    return extreme


def _index(values: Sequence[Any], value: Any) -> int:
    return values.index(value) if value in values else -1


def _last_index(values: Sequence[Any], value: Any) -> int:
    place = _index(values[::-1], value)
    return place if place < 0 else len(values) - 1 - place


def _contains(values: Sequence[Any], others: Sequence[Any]) -> bool:
    return all(each in values for each in others)


_ELEMENTS: Final = ("string", "int", "double", "bool", "object")

FUNCTIONS: Final = (
    Function("quantity", ("string",), "object", quantity, is_member=False),
    Function("isQuantity", ("string",), "bool", _is_quantity, is_member=False),
    Function("sign", ("object",), "int", lambda v: _compare(v, quantity("0"))),
    Function("isInteger", ("object",), "bool", _is_integer),
    Function("asInteger", ("object",), "int", _as_integer),
    Function("asApproximateFloat", ("object",), "double", lambda v: float(_amount(v))),
    Function(
        "add", ("object", "object"), "object", lambda a, b: _as_quantity(_amount(a) + _amount(b))
    ),
    Function("add", ("object", "int"), "object", lambda a, b: _as_quantity(_amount(a) + b)),
    Function(
        "sub", ("object", "object"), "object", lambda a, b: _as_quantity(_amount(a) - _amount(b))
    ),
    Function("sub", ("object", "int"), "object", lambda a, b: _as_quantity(_amount(a) - b)),
    Function("compareTo", ("object", "object"), "int", _compare),
    Function("isGreaterThan", ("object", "object"), "bool", lambda a, b: _compare(a, b) > 0),
    Function("isLessThan", ("object", "object"), "bool", lambda a, b: _compare(a, b) < 0),
    Function("semver", ("string",), "object", semver, is_member=False),
    *(
        Function(name, ("object",), "int", _part_of_version(index))
        for index, name in enumerate(("major", "minor", "patch"))
    ),
    *(Function(part, ("object", "string"), "object", _step(part)) for part in _CHECKS),
    Function("check", ("object", "string"), "object", _step("verb")),
    Function("serviceAccount", ("object", "string", "string"), "object", _as_service_account),
    Function("allowed", ("object",), "bool", _is_allowed),
    Function("charAt", ("string", "int"), "string", _char_at),
    Function("format", ("string", "list"), "string", format_text),
    Function("indexOf", ("string", "string"), "int", str.find),
    Function("lastIndexOf", ("string", "string"), "int", str.rfind),
    Function("join", ("list",), "string", "".join),
    Function("join", ("list", "string"), "string", lambda parts, between: between.join(parts)),
    Function("lowerAscii", ("string",), "string", lambda text: _in_ascii(text, str.lower)),
    Function("upperAscii", ("string",), "string", lambda text: _in_ascii(text, str.upper)),
    Function("replace", ("string", "string", "string"), "string", str.replace),
    Function("replace", ("string", "string", "string", "int"), "string", str.replace),
    Function("split", ("string", "string"), "list", _split),
    Function("split", ("string", "string", "int"), "list", _split),
    Function("substring", ("string", "int"), "string", _substring),
    Function("substring", ("string", "int", "int"), "string", _substring),
    Function("trim", ("string",), "string", str.strip),
    Function("sum", ("list",), "any", _total),
    Function("max", ("list",), "any", _extreme(max)),
    Function("min", ("list",), "any", _extreme(min)),
    Function("isSorted", ("list",), "bool", lambda values: values == sorted(values)),
    *(Function("indexOf", ("list", kind), "int", _index) for kind in _ELEMENTS),
    *(Function("lastIndexOf", ("list", kind), "int", _last_index) for kind in _ELEMENTS),
    Function("sets.contains", ("list", "list"), "bool", _contains, is_member=False),
    Function(
        "sets.equivalent",
        ("list", "list"),
        "bool",
        lambda a, b: _contains(a, b) and _contains(b, a),
        is_member=False,
    ),
    Function(
        "sets.intersects",
        ("list", "list"),
        "bool",
        lambda a, b: any(each in a for each in b),
        is_member=False,
    ),
)
"""Of the API server's environment are missing: urls, regex, ip, cidr, named formats, selectors."""
