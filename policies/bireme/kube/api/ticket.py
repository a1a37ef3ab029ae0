"""Ticket: says to the operator who asks it, so that nobody passes a token on.

A caller of the operator over HTTP creates one beside it. The chart's policy lets a ticket name
nobody but the user who creates it. The secret whose digest it holds then proves to the operator
who asks, and is good for nothing else.
"""

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from bireme.kube.api.base import ApiModel, Resource, Rule, validations

MAX_GROUPS: Final = 512
_Text = Annotated[str, Field(max_length=1024)]


class TicketSpec(ApiModel):
    """The user who asks, exactly as the API server authenticates them."""

    user: Annotated[str, Field(min_length=1, max_length=1024)]
    """The name of the user."""
    uid: _Text = ""
    """The UID of the user, where there is one."""
    groups: tuple[_Text, ...] = Field(default=(), max_length=MAX_GROUPS)
    """The groups of the user."""
    extra: dict[str, Annotated[tuple[_Text, ...], Field(max_length=32)]] = Field(
        default={}, max_length=32
    )
    """Further attributes of the user from the authenticator."""
    secret_digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$", max_length=64)]
    """The sha256 of the secret with which a request proves that it comes from the creator of the
    ticket."""


_RULES: Final = validations(
    Rule(
        "self.spec == oldSelf.spec",
        "a ticket cannot be changed: create another one",
        field=".spec",
    ),
)


class Ticket(Resource):
    """Proof of a user's identity for requests to the operator; valid for five minutes."""

    model_config = ConfigDict(json_schema_extra=_RULES)

    kind: Literal["Ticket"] = "Ticket"
    spec: TicketSpec
