"""What every API model shares: camelCase on the wire, unknown fields refused, CEL rules beside it.

A rule is data. Its message is a template whose ``{...}`` parts are CEL expressions, so a refusal
can name the values that clash; the API server adds the path of the field itself.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel


class Model(BaseModel):
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
        """The JSON form for the API server: camelCase, absent instead of null."""
        return self.model_dump(mode="json", exclude_none=True)

    @classmethod
    def read(cls, spec: Mapping[str, Any]) -> tuple[Self | None, str]:
        """The model of a ``spec`` off the wire and "", or None and what is wrong with it."""
        try:
            return cls.model_validate(spec, extra="ignore"), ""
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            return None, f"spec.{where}: {first['msg']}; correct it, or update Bireme"


@dataclass(frozen=True)
class Rule:
    """One CEL validation of the model it is attached to.

    ``expression`` must be true of ``self``; one that mentions ``oldSelf`` is checked on updates
    only. ``message`` says what is wrong, with which values, and the remedy; its ``{...}`` parts
    hold CEL without braces.
    """

    expression: str
    message: str
    field: str | None = None
    """Path of the field to blame, from the model the rule is attached to: ``.spec.queue``."""

    def to_schema(self) -> dict[str, str]:
        """The entry of ``x-kubernetes-validations``."""
        schema = {"rule": self.expression, "messageExpression": _message_expression(self.message)}
        return schema if self.field is None else {**schema, "fieldPath": self.field}


def checked_by(*rules: Rule) -> dict[str, Any]:
    """The schema addition that attaches ``rules``, for a model's or a field's JSON schema."""
    return {"x-kubernetes-validations": [rule.to_schema() for rule in rules]}


def kept(field: str, old: str, new: str) -> str:
    """CEL: an optional field is absent from both, or equal in both."""
    return (
        f"has({old}.{field}) == has({new}.{field})"
        f" && (!has({new}.{field}) || {old}.{field} == {new}.{field})"
    )


def changed(field: str) -> str:
    """How a message begins that refuses another value of an optional field of the spec."""
    before, after = (
        f"{{has({side}.spec.{field}) ? string({side}.spec.{field}) : '(absent)'}}"
        for side in ("oldSelf", "self")
    )
    return f"spec.{field} cannot change from {before} to {after}"


def _message_expression(template: str) -> str:
    """CEL that fills the template; ``format`` has a bounded cost estimate, ``+`` has none."""
    texts = re.split(r"\{(.*?)\}", template)
    literal = json.dumps("%s".join(text.replace("%", "%%") for text in texts[::2]))
    return f"{literal}.format([{', '.join(texts[1::2])}])"
