"""Base of the API models: the model class, CEL rules, bounded field types, common parts.

A model is camelCase on the wire and refuses unknown fields. A :class:`Rule` is a validation in CEL
that the API server runs. Its message is a template with CEL expressions as ``{...}`` parts, so that
it can name the conflicting values. The API server adds the path of the field.

Every string, list and map of the API has a bound, here or at its field. Without bounds the API
server refuses the CRD (CEL's cost estimate is too high), and one object could fill its store.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    ValidationError,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from bireme.kube.quantities import (
    MAX_DURATION,
    PATTERN,
    SHORT_PATTERN,
    parse_duration,
    parse_quantity,
)


class ApiModel(BaseModel):
    """Base of every API model: frozen, strict about unknown fields.

    The docstring below a field describes it in the CustomResourceDefinition.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        serialize_by_alias=True,
        extra="forbid",
        frozen=True,
    )

    def to_manifest(self) -> dict[str, Any]:
        """Return the JSON form for the API server: camelCase, absent instead of null."""
        return self.model_dump(mode="json", exclude_none=True)

    @classmethod
    def read(cls, spec: Mapping[str, Any]) -> tuple[Self | None, str]:
        """Return the model of a ``spec`` off the wire and "", or None and its first problem."""
        try:
            # Fields of a newer CRD must not stop an older operator.
            return cls.model_validate(spec, extra="ignore"), ""
        except ValidationError as error:
            first, *more_errors = error.errors(include_url=False)
            path = ".".join(map(str, ("spec", *first["loc"])))
            more = f" (and {len(more_errors)} more)" if more_errors else ""
            value = f"{ascii(first['input'])[:80]}{more}"
            problem = f"{path}: {first['msg']}; the value is {value}; correct it, or update Bireme"
            return None, problem


@dataclass(frozen=True)
class Rule:
    """One CEL validation of the model it is attached to.

    ``expression`` must be true of ``self``; an expression with ``oldSelf`` is checked only on
    updates. ``message`` names the error, the values and the remedy; its ``{...}`` parts hold CEL
    without braces.
    """

    expression: str
    message: str
    field: str | None = None
    """Path of the invalid field, from the model of the rule: ``.spec.queue``."""

    def to_schema(self) -> dict[str, str]:
        """Return the entry of ``x-kubernetes-validations``."""
        schema = {"rule": self.expression, "messageExpression": _message_expression(self.message)}
        return schema if self.field is None else {**schema, "fieldPath": self.field}


def validations(*rules: Rule) -> dict[str, Any]:
    """Return the schema addition that attaches ``rules`` to a model or a field."""
    return {"x-kubernetes-validations": [rule.to_schema() for rule in rules]}


def equal_or_absent(field: str, old: str, new: str) -> str:
    """Return CEL: an optional field is absent from both, or equal in both."""
    return (
        f"has({old}.{field}) == has({new}.{field})"
        f" && (!has({new}.{field}) || {old}.{field} == {new}.{field})"
    )


def change_refusal(field: str) -> str:
    """Return the beginning of a message that refuses a change of an optional spec field."""
    old, new = (
        f"{{has({side}.spec.{field}) ? string({side}.spec.{field}) : '(absent)'}}"
        for side in ("oldSelf", "self")
    )
    return f"spec.{field} cannot change from {old} to {new}"


def _message_expression(template: str) -> str:
    """Return CEL that fills the template; unlike ``+``, ``format`` has a bounded cost."""
    texts = re.split(r"\{(.*?)\}", template)
    literal = json.dumps("%s".join(text.replace("%", "%%") for text in texts[::2]))
    return f"{literal}.format([{', '.join(texts[1::2])}])"


# --- field types, with the limits that Kubernetes puts on them -----------------------------------

DNS_LABEL: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_LABEL_FROM_LETTER: Final = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN: Final = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
LABEL_KEY: Final = (
    "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
LABEL_VALUE: Final = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"

MAX_REPLICAS: Final = 10_000
MAX_TASKS: Final = 16
MAX_PLANNED_TASKS: Final = 32
MAX_LABEL: Final = 63

DnsLabel = Annotated[str, Field(pattern=DNS_LABEL, max_length=63)]
DnsSubdomain = Annotated[str, Field(pattern=DNS_SUBDOMAIN, max_length=253)]
LabelKey = Annotated[str, Field(pattern=LABEL_KEY, max_length=317)]
LabelValue = Annotated[str, Field(pattern=LABEL_VALUE, max_length=MAX_LABEL)]
QueueName = Annotated[str, Field(max_length=MAX_LABEL)]
"""As requested: a label may hold a name that is invalid for a Queue."""
TaskName = Annotated[str, Field(pattern=DNS_LABEL_FROM_LETTER, max_length=20)]

Reason = Annotated[str, Field(max_length=64)]
"""A PascalCase word from the project's one list of reasons."""

Message = Annotated[str, Field(max_length=1024)]

Replicas = Annotated[int, Field(ge=1, le=MAX_REPLICAS)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Timestamp = AwareDatetime

Quantity = Annotated[
    StrictInt | StrictStr, WithJsonSchema({"x-kubernetes-int-or-string": True, "maxLength": 32})
]


def _is_duration(text: str) -> str:
    parse_duration(text)
    return text


Duration = Annotated[
    str,
    Field(
        max_length=32,
        json_schema_extra=validations(
            Rule(
                f"self.matches('{PATTERN}') && self.matches('[1-9]')",
                "{self} is no duration above zero: write hours, minutes and seconds,"
                " such as 2h30m or 90s",
            ),
            Rule(
                f"!self.matches('{PATTERN}') || !self.matches('[1-9]')"
                f" || (self.matches('{SHORT_PATTERN}')"
                f" && duration(self) <= duration('{MAX_DURATION}'))",
                f"{{self}} is longer than ten years: write at most {MAX_DURATION}",
            ),
        ),
    ),
    AfterValidator(_is_duration),
]
"""Hours, minutes and seconds as Go writes them."""

_RESOURCE_NAME: Final = "^[-A-Za-z0-9_./]+$"
_UNCOUNTABLE: Final = (
    f"!name.matches('{_RESOURCE_NAME}')"
    " || (type(self[name]) == int ? self[name] < 0"
    " : !isQuantity(self[name]) || quantity(self[name]).isLessThan(quantity('0')))"
)


def _all_countable(quantities: dict[str, int | str]) -> dict[str, int | str]:
    for resource_name, value in quantities.items():
        if not re.fullmatch(_RESOURCE_NAME, resource_name):
            raise ValueError(
                f"{resource_name!a} is no resource name; write one like nvidia.com/gpu"
            )
        parse_quantity(resource_name, value)
    return quantities


MAX_RECORDED_RESOURCES: Final = 64

RecordedRequest = Annotated[
    dict[str, Annotated[str, Field(max_length=32)]], Field(max_length=MAX_RECORDED_RESOURCES)
]
"""Amounts in a status. The operator writes them; the API server does not check them."""

ResourceMap = Annotated[
    dict[str, Quantity],
    Field(
        max_length=32,
        json_schema_extra=validations(
            Rule(
                f"self.all(name, !({_UNCOUNTABLE}))",
                f"cannot count {{self.map(name, {_UNCOUNTABLE},"
                " '%s=%s'.format([name, self[name]]))}"
                ": write resource names such as nvidia.com/gpu, and zero or positive quantities"
                ' such as 4, "500m" or "8Gi"',
            )
        ),
    ),
    AfterValidator(_all_countable),
]
"""Resource name to quantity, as in a pod's ``resources.requests``; at most 32 resources."""


# --- the parts of every resource: apiVersion, kind, metadata, conditions --------------------------


def map_list(key: str) -> dict[str, Any]:
    """Return the schema addition that makes a list a map by unique ``key``, merged by entry."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


# For server-side apply the API server tracks each field, which costs it more time and space than
# the fields themselves. An atomic map, which one client writes as a whole, is tracked as one field.
ATOMIC: Final = {"x-kubernetes-map-type": "atomic"}


class Metadata(ApiModel):
    """``metadata`` of an object; fields Bireme does not write are carried along untouched."""

    model_config = ConfigDict(extra="allow")

    name: DnsSubdomain | None = None
    namespace: DnsSubdomain | None = None


class Resource(ApiModel):
    """A whole object of the group, as in a manifest file."""

    api_version: Literal["bireme.dev/v1alpha1"] = "bireme.dev/v1alpha1"
    kind: str
    metadata: Metadata = Metadata()


class Condition(ApiModel):
    """One aspect of an object's state, in the form every Kubernetes tool reads."""

    type: str = Field(max_length=64)
    status: Literal["True", "False", "Unknown"]
    reason: Reason
    message: Message = ""
    last_transition_time: Timestamp
    observed_generation: int | None = Field(default=None, ge=0)


Conditions = Annotated[
    tuple[Condition, ...], Field(max_length=16, json_schema_extra=map_list("type"))
]
