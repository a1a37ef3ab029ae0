"""The steps of a write before it is stored: fields, defaults, admission, validation."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final, Protocol

from bireme_lab.embedded.api import bodies, errors, metadata, models, schemas
from bireme_lab.embedded.api.errors import Faults, Object, bad_request
from bireme_lab.embedded.api.field_sets import MergeShape
from bireme_lab.embedded.api.reinvocation import Reinvocation
from bireme_lab.embedded.api.requests import ApiRequest, ApiUser
from bireme_lab.embedded.api.resources import ResourceKind
from bireme_lab.embedded.api.store import Key

_RBAC: Final = "rbac.authorization.k8s.io"
_BLOCKING: Final = (
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
    "FieldValueNotSupported",
)
"""Reasons of faults with which no rule of CEL is evaluated."""
_BLOCKED: Final = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


class Behaviour(Protocol):
    """How one of Kubernetes' kinds differs from plain storage."""

    schema: schemas.Schema | None

    def complete(self, obj: Object, old: Object | None) -> Object:
        """Return the object with defaults and what the server sets by itself."""

    def validate(self, obj: Object, old: Object | None, faults: Faults) -> None:
        """Add the faults of an object that is about to be stored."""

    def grace_seconds(self, obj: Object, desired: int | None) -> int:
        """Return the grace period of a deletion; 0 removes the object at once."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A write that is about to happen, as admission sees it.

    Attributes:
        operation: CREATE, UPDATE, DELETE or CONNECT.
        obj: The object to be stored; None for a deletion.
        old: The stored object; None for a creation.
        stated_meta: The metadata of an update as its sender states them.
        complete: Returns changed content as the object to be stored.
        reinvocation: The policies that run once more.
    """

    operation: str
    resource: ResourceKind
    subresource: str
    key: Key
    obj: Object | None
    old: Object | None
    user: ApiUser
    is_dry_run: bool
    complete: Callable[[Object], Object] = lambda content: content
    reinvocation: Reinvocation = field(default_factory=Reinvocation)
    stated_meta: Object = field(default_factory=dict)


@dataclass(eq=False)
class Admission:
    """The steps of every write.

    Attributes:
        behaviours: By resource path, for kinds that are more than storage.
        mutators: Change what is created or updated, in order.
        validators: Raise a Refusal for what may not be written.
        rules: Adds the faults that CEL rules of a custom kind find.
        advice: By resource path, returns warnings about a new object.
    """

    behaviours: Mapping[str, Behaviour] = field(default_factory=dict)
    mutators: list[Callable[[Attempt], Object]] = field(default_factory=list)
    validators: list[Callable[[Attempt], None]] = field(default_factory=list)
    rules: Callable[[ResourceKind, Object, Object | None, Faults], None] = lambda *_: None
    advice: Mapping[str, Callable[[Object], Iterable[str]]] = field(default_factory=dict)

    def check_fields(
        self, request: ApiRequest, resource: ResourceKind, content: Object
    ) -> list[str]:
        """Refuse unknown fields, or warn of them, as ``fieldValidation`` says."""
        mode = request.query.get("fieldValidation") or "Warn"
        schema = self.schema_of(resource)
        if mode == "Ignore" or schema is None:
            return []
        rest = {k: v for k, v in content.items() if k not in schemas.HEAD}
        _, unknown = schemas.prune(content.get("metadata") or {}, _meta_schema(), "metadata")
        unknown += schemas.prune(rest, schema)[1]
        texts = [f'unknown field "{path}"' for path in unknown]
        if texts and mode == "Strict":
            raise bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a '
                f"{resource.kind}: strict decoding error: {', '.join(texts)}"
            )
        return texts

    def schema_of(self, resource: ResourceKind) -> schemas.Schema | None:
        """Return the schema of a kind; None where only its storage is modelled."""
        if resource.schema is not None:
            return resource.schema
        behaviour = self.behaviours.get(resource.path)
        return behaviour.schema if behaviour is not None else None

    def shape(self, resource: ResourceKind) -> MergeShape:
        """Return how objects of a kind are merged."""
        return MergeShape(self.schema_of(resource))

    def completed(self, resource: ResourceKind, new: Object, old: Object | None) -> Object:
        """Return ``new`` pruned and with its defaults."""
        schema = self.schema_of(resource)
        if schema is not None:
            rest = {k: v for k, v in new.items() if k not in schemas.HEAD}
            head = {k: v for k, v in new.items() if k in schemas.HEAD}
            if resource.is_custom:
                rest = schemas.with_defaults(rest, schema)
            rest, _ = schemas.prune(rest, schema)
            new = {**head, **rest}
        if (behaviour := self.behaviours.get(resource.path)) is not None:
            new = behaviour.complete(new, old)
        return new

    def admit(self, attempt: Attempt) -> Object:
        """Return what is to be stored, after admission and validation."""
        obj = self._run_mutators(attempt)
        if attempt.reinvocation.is_due:
            attempt.reinvocation.is_second = True
            obj = self._run_mutators(_with(attempt, obj))
        attempt = _with(attempt, obj)
        if obj is not None:
            self._validate(attempt, obj)
        for validator in self.validators:
            validator(attempt)
        return obj if obj is not None else {}

    def _run_mutators(self, attempt: Attempt) -> Object | None:
        obj = attempt.obj
        for mutator in self.mutators:
            if obj is None:
                break
            obj = mutator(_with(attempt, obj))
        return obj

    def _validate(self, attempt: Attempt, obj: Object) -> None:
        resource, faults = attempt.resource, Faults()
        if attempt.operation == "CREATE":
            name = obj["metadata"]["name"]
            metadata.check_name(name, faults, is_segment=resource.group == _RBAC)
        metadata.check(obj["metadata"], faults, is_custom=resource.is_custom)
        if attempt.old is not None:
            metadata.check_change(attempt.stated_meta, attempt.old["metadata"], faults)
        if resource.schema is not None:
            rest = {k: v for k, v in obj.items() if k not in schemas.HEAD}
            schemas.validate(rest, resource.schema, faults)
            if not any(cause.reason in _BLOCKING for cause in faults.causes):
                self.rules(resource, obj, attempt.old, faults)
            elif next(schemas.rules_of(resource.schema), None) is not None:
                faults.add("<nil>", "FieldValueInvalid", _BLOCKED)
        elif (behaviour := self.behaviours.get(resource.path)) is not None:
            _require_fields(resource, obj, faults)
            behaviour.validate(obj, attempt.old, faults)
        if faults.causes:
            raise errors.invalid(resource.subject(obj["metadata"]["name"]), faults.causes)


@cache
def _meta_schema() -> schemas.Schema:
    """Return the schema of the metadata of every object."""
    model = models.model("V1ObjectMeta")
    return {} if model is None else models.schema_of_model(model)


def complete_object(request: ApiRequest, resource: ResourceKind) -> Object:
    """Return the object in the body of a request; 422 where required fields lack."""
    obj, faults = bodies.decode_object(request, resource), Faults()
    _require_fields(resource, obj, faults)
    if faults.causes:
        raise errors.invalid(resource.subject(""), faults.causes)
    return obj


def _require_fields(resource: ResourceKind, obj: Object, faults: Faults) -> None:
    """Add the required fields that an object of one of Kubernetes' kinds lacks."""
    model = models.model_of(resource)
    for path in () if model is None else models.missing_fields(model, obj):
        if not path.startswith("metadata."):
            faults.required(path)


def _with(attempt: Attempt, obj: Object | None) -> Attempt:
    return replace(attempt, obj=obj)
