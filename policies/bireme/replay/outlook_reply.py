"""The leader's word on the future, as it is sent: requests to ``/v1/outlook``, and the reply.

A GET asks about the gangs that wait, a POST with an :class:`OutlookRequest` about jobs as they
would be with changes. Both have the same reply. Times are in RFC 3339.
"""

from typing import Final

import msgspec

from bireme.core.play import Cut
from bireme.replay.what_if import Inquiry, Told

PATH: Final = "/v1/outlook"
VERSION: Final = "outlook.bireme.dev/v2"


class OutlookRequest(msgspec.Struct, frozen=True, rename="camel"):
    """The body of a POST."""

    api_version: str
    question: Inquiry


class ReplyStart(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The range of a start; ``latest`` and the coverage where they are known."""

    earliest: str
    latest: str | None = None
    coverage_percent: int | None = None


class GangOutlook(msgspec.Struct, frozen=True, rename="camel"):
    """A gang that waits, in the last cycle.

    Attributes:
        gpus: Its devices.
        priority: Its score; None if the cycle did not rank it.
        position: Its place in the order; None if waiting longer cannot help it.
        reason: The reason for its wait; None if the cycle did not reach it.
        arrived: Since when it waits.
        start: The foreseen start; None if there is none.
        reserved: Devices that the cycle reserved for it, by node and resource.
    """

    kind: str
    namespace: str
    name: str
    queue: str
    gpus: int | float
    priority: float | None
    position: int | None
    reason: str | None
    message: str
    arrived: str
    start: str | None
    estimated_start: ReplyStart | None
    reserved: dict[str, dict[str, int]]


class Foresight(msgspec.Struct, frozen=True, rename="camel"):
    """The forecast of the starts: when it was made, how far it reaches and why it ends there."""

    time: str
    age_seconds: float
    until: str
    cut: Cut
    policy: str


class OutlookReply(msgspec.Struct, frozen=True, rename="camel"):
    """The reply to a request.

    Attributes:
        time: Time of the last cycle.
        policy: The SchedulingPolicy that decided it; "" for the policy of the settings.
        namespaces: The namespaces whose gangs are listed; None for all.
        foresight: None before the first forecast of the starts.
        gangs: The gangs that wait, in their order; empty in the reply to a question.
        answers: One for each manifest of the question, or one for the gang that waits.
    """

    time: str
    policy: str
    namespaces: list[str] | None = None
    foresight: Foresight | None = None
    gangs: list[GangOutlook] = []
    answers: list[Told] = []
    api_version: str = VERSION
    kind: str = "Outlook"
