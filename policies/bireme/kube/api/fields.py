"""Field types with the limits Kubernetes puts on them: names, label keys, quantities, times.

Every string, list and map of the API is bounded here or at its field: without bounds CEL's cost
estimate refuses a CRD, and one object could fill the store.
"""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, AwareDatetime, Field, StrictInt, StrictStr, WithJsonSchema

from bireme.kube import durations, quantity
from bireme.kube.api.model import Rule, checked_by

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
TaskName = Annotated[str, Field(pattern=DNS_LABEL_FROM_LETTER, max_length=20)]

Reason = Annotated[str, Field(max_length=64)]
"""A PascalCase word from the project's one list of reasons."""

Message = Annotated[str, Field(max_length=1024)]

Replicas = Annotated[int, Field(ge=1, le=MAX_REPLICAS)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Timestamp = AwareDatetime

Quantity = Annotated[
    StrictInt | StrictStr,
    WithJsonSchema({"x-kubernetes-int-or-string": True, "maxLength": 32}),
]


def _is_duration(text: str) -> str:
    durations.parse(text)
    return text


Duration = Annotated[
    str,
    Field(
        max_length=32,
        json_schema_extra=checked_by(
            Rule(
                f"self.matches('{durations.PATTERN}') && self.matches('[1-9]')",
                "{self} is no duration above zero: write hours, minutes and seconds,"
                " such as 2h30m or 90s",
            ),
            Rule(
                f"!self.matches('{durations.PATTERN}') || !self.matches('[1-9]')"
                f" || (self.matches('{durations.SHORT_PATTERN}')"
                f" && duration(self) <= duration('{durations.MOST}'))",
                f"{{self}} is longer than ten years: write at most {durations.MOST}",
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
        quantity.parse(resource_name, value)
    return quantities


ResourceMap = Annotated[
    dict[str, Quantity],
    Field(
        max_length=32,
        json_schema_extra=checked_by(
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
