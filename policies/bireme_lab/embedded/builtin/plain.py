"""Kinds that are little more than storage: their schema, a default or two, a check or two."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bireme_lab.embedded.amounts import QUANTITY_WORDS, canonical, parse_amounts
from bireme_lab.embedded.api import models
from bireme_lab.embedded.api.errors import Faults, Object, bad_request
from bireme_lab.embedded.api.resources import ResourceKind
from bireme_lab.embedded.api.schemas import Schema

Complete = Callable[[Object, Object | None], Object]
Validate = Callable[[Object, Object | None, Faults], None]


@dataclass(eq=False)
class PlainBehaviour:
    """Behaviour of a kind that is stored as it comes, after ``defaults`` and ``checks``."""

    resource: ResourceKind
    defaults: Complete = lambda obj, _: obj
    checks: Validate = lambda *_: None

    @cached_property
    def schema(self) -> Schema | None:
        return models.schema_of(self.resource)

    def complete(self, obj: Object, old: Object | None) -> Object:
        return self.defaults(obj, old)

    def validate(self, obj: Object, old: Object | None, faults: Faults) -> None:
        self.checks(obj, old, faults)

    def grace_seconds(self, obj: Object, desired: int | None) -> int:
        return 0


def filled(obj: Object, **defaults: Any) -> Object:
    """Return ``obj`` with the values of fields that it lacks."""
    lacking = {name: value for name, value in defaults.items() if obj.get(name) is None}
    return {**obj, **lacking} if lacking else obj


def canonical_quantities(kind: str, quantities: Mapping[str, Any]) -> Object:
    """Return amounts as the server writes them; 400 for what is none."""
    try:
        parse_amounts(quantities)
    except ValueError:
        text = f'{kind} in version "v1" cannot be handled as a {kind}: {QUANTITY_WORDS}'
        raise bad_request(text) from None
    return {name: canonical(quantity) for name, quantity in quantities.items()}
