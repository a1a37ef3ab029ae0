"""Label selectors and field selectors of requests."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from bireme_lab.embedded.api import label_selectors
from bireme_lab.embedded.api.errors import Object, bad_request
from bireme_lab.embedded.api.label_selectors import LabelRequirement

_EQUALITY: Final = re.compile(r"^([^=!]*)(==|!=|=)(.*)$", re.DOTALL)
_COMMA_OUTSIDE: Final = re.compile(r",(?![^(]*\))")
OF_ALL: Final = frozenset({"metadata.name", "metadata.namespace"})
"""Fields by which every kind can be selected, custom ones of the whole cluster by name alone."""


class UnknownFieldError(Exception):
    """A selector names a field by which a kind cannot be selected; the message is the field."""


@dataclass(frozen=True, slots=True)
class Term:
    """One requirement on the value of a key: in ``values``, or not.

    Attributes:
        values: None for the mere existence of the key.
        bound: The number that the value, a number, is below or above.
    """

    key: str
    values: frozenset[str] | None
    is_negative: bool
    bound: tuple[str, int] | None = None

    def matches(self, value: str | None) -> bool:
        """Return whether a value meets it; ``value`` is None for a key that is not there."""
        if self.bound is not None:
            return value is not None and _is_within(value, *self.bound)
        is_in = value is not None if self.values is None else value in self.values
        return is_in is not self.is_negative


def _is_within(value: str, sign: str, bound: int) -> bool:
    if not re.fullmatch(r"[+-]?\d+", value):
        return False
    return int(value) < bound if sign == "<" else int(value) > bound


@dataclass(frozen=True, slots=True)
class Selector:
    """Predicate over objects: the namespace, the labels and the fields of a request."""

    namespace: str = ""
    labels: tuple[Term, ...] = ()
    fields: tuple[Term, ...] = ()

    @classmethod
    def from_query(
        cls, query: Mapping[str, str], namespace: str, selectable: Collection[str]
    ) -> Self:
        """Parse ``labelSelector`` and ``fieldSelector``.

        Raises:
            Refusal: 400 for a selector that cannot be parsed.
            UnknownFieldError: A field is not selectable.
        """
        labels = tuple(map(_label_term, label_selectors.parse(query.get("labelSelector", ""))))
        fields = tuple(map(_field_term, _split(query.get("fieldSelector", ""))))
        for term in fields:
            if term.key not in selectable:
                raise UnknownFieldError(term.key)
        return cls(namespace, labels, fields)

    def __call__(self, obj: Object) -> bool:
        meta = obj["metadata"]
        if self.namespace and meta.get("namespace", "") != self.namespace:
            return False
        labels = meta.get("labels") or {}
        return all(term.matches(labels.get(term.key)) for term in self.labels) and all(
            term.matches(_text(obj, term.key)) for term in self.fields
        )


def _split(text: str) -> list[str]:
    return [part.strip() for part in _COMMA_OUTSIDE.split(text) if part.strip()]


def _label_term(requirement: LabelRequirement) -> Term:
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case "exists" | "!" as operator:
            return Term(key, None, operator == "!")
        case "<" | ">" as operator:
            return Term(key, None, False, (operator, int(values[0])))
        case operator:
            return Term(key, frozenset(values), operator in ("notin", "!="))


def _field_term(text: str) -> Term:
    match = _EQUALITY.match(text)
    if match is None:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{text}'")
    key, sign, value = match.groups()
    return Term(key.strip(), frozenset({value.strip()}), sign == "!=")


def _text(obj: Object, path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


def matches_labels(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether ``labels`` meet a LabelSelector object; an empty one is met by all.

    Raises:
        ValueError: an operator is none of a selector.
    """
    if selector is None:
        return False
    labels_by_key = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in labels_by_key.items()):
        return False
    for each in selector.get("matchExpressions") or ():
        values = each.get("values")
        if each["operator"] not in _OPERATORS:
            raise ValueError(
                f"operator {each['operator']} of key {each['key']} is no operator of a selector"
            )
        is_set = each["operator"] in ("In", "NotIn")
        term = Term(
            each["key"],
            frozenset(values or ()) if is_set else None,
            each["operator"] in ("NotIn", "DoesNotExist"),
        )
        if not term.matches(labels.get(each["key"])):
            return False
    return True
