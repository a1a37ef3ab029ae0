"""How long a gang has waited, as the status of its TrainingJob or PodGroup keeps it.

A gang waits while it stands in line. Time in which it could not start however long it waited is no
waiting, and what waited for little does not go first once it asks for more: where an edit raises
the request, the gang waits anew. So a place before others cannot be had by parking.

``queuedTime`` is when it last joined the line, ``waitSeconds`` what it had waited before,
``parkedTime`` since when it stands in none, ``request`` what its wait counts for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bireme.core.resources import Amounts
from bireme.kube import quantities
from bireme.kube.api.base import MAX_RECORDED_RESOURCES


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait of ``before`` seconds, and since ``since`` until ``parked``, or until now."""

    since: float
    before: float = 0.0
    parked: float | None = None
    is_anew: bool = False
    """What was recorded does not count: an edit has raised the request."""

    @property
    def arrived(self) -> float:
        """When it would have arrived to have waited as long in one go, POSIX seconds."""
        return self.since - self.before

    def seconds(self, now: float) -> float:
        """Return the whole wait at ``now``."""
        end = now if self.parked is None else min(now, self.parked)
        return self.before + max(0.0, end - self.since)


ANEW: Final = Wait(since=0.0, parked=0.0, is_anew=True)
"""Of a gang that waits anew from now on, whenever that is."""


def parked_since(status: Mapping[str, Any]) -> float | None:
    """Return since when the gang stands in no line; None in line."""
    return quantities.parse_timestamp(status.get("parkedTime"))


def is_raised(status: Mapping[str, Any], asked: Amounts) -> bool:
    """Return whether more of something is ``asked`` than its wait counts for."""
    recorded = status.get("request")
    if not recorded:
        return False
    try:
        known = {name: quantities.parse_quantity(name, n) for name, n in recorded.items()}
    except quantities.QuantityError:  # not written by the operator; the next report replaces it
        return False
    return any(amount > known.get(name, 0) for name, amount in _recorded(asked))


def request_manifest(asked: Amounts) -> dict[str, str]:
    """Return ``asked`` as ``status.request``."""
    return {
        name: quantities.format_quantity(name, min(amount, quantities.LARGEST))
        for name, amount in _recorded(asked)
    }


def _recorded(asked: Amounts) -> list[tuple[str, int]]:
    """Return the amounts that a status has room for."""
    return sorted(asked.items())[:MAX_RECORDED_RESOURCES]


def record(
    status: dict[str, Any],
    seconds: float,
    now: float,
    request: Mapping[str, str],
    *,
    is_anew: bool,
    is_parked: bool,
) -> None:
    """Write into ``status`` that the gang has waited for ``seconds`` by ``now``, if that is new.

    It counts for ``request``; ``is_parked`` tells whether the gang stands in no line from now on.
    """
    stamp = quantities.format_timestamp(now)
    if is_anew or ("parkedTime" in status and not is_parked):
        status["waitSeconds"] = int(seconds)
        status["queuedTime"] = stamp
        status.pop("parkedTime", None)
    if is_parked:
        status.setdefault("parkedTime", stamp)
    if request:
        status["request"] = dict(request)
