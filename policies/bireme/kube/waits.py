"""How long a gang has waited, as the status of its TrainingJob or PodGroup keeps it.

A gang waits while it stands in line. Time in which it could not start however long it waited is no
waiting, and what waited for little does not go first once it asks for more: where an edit raises
the request, the gang waits anew. So a place before others cannot be had by parking.

``queuedTime`` is when it last joined the line, ``waitSeconds`` what it had waited before,
``parkedTime`` since when it stands in none. ``request``, ``queue`` and ``waitsFor`` are what its
wait counts for: in another queue or with other nodes or pods it waits anew. Time in which its own
namespace keeps it (a quota, a claim, too many other jobs) is ``uncountedSeconds``, and goes on
since ``uncountedTime``: it keeps its place among its equals, but does not come nearer to its bound.
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
    """What was recorded does not count: an edit has changed what it waits for."""
    uncounted: float = 0.0
    """Seconds of it that the wait bound does not count."""
    uncounted_since: float | None = None
    """Since when that goes on, POSIX seconds; None where it waits for capacity."""

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


def is_other(status: Mapping[str, Any], queue: str, key: str = "") -> bool:
    """Return whether its wait counts for another queue, or for other nodes and pods (``key``)."""
    known = status.get("queue"), status.get("waitsFor")
    return any(was and now and was != now for was, now in zip(known, (queue, key), strict=True))


def uncounted(status: Mapping[str, Any]) -> tuple[float, float | None]:
    """Return how much of the wait its bound does not count, and since when that goes on."""
    since = quantities.parse_timestamp(status.get("uncountedTime"))
    return float(status.get("uncountedSeconds") or 0), since


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
    is_counted: bool = True,
    key: str = "",
) -> None:
    """Write into ``status`` that the gang has waited for ``seconds`` by ``now``, if that is new.

    It counts for ``request`` and ``key``; ``is_parked`` tells whether the gang stands in no line
    from now on, ``is_counted`` whether its bound counts the time from now on.
    """
    stamp = quantities.format_timestamp(now)
    _record_uncounted(status, now, is_anew=is_anew, is_counted=is_counted or is_parked)
    if key:
        status["waitsFor"] = key
    if is_anew or ("parkedTime" in status and not is_parked):
        status["waitSeconds"] = int(seconds)
        status["queuedTime"] = stamp
        status.pop("parkedTime", None)
    if is_parked:
        status.setdefault("parkedTime", stamp)
    if request:
        status["request"] = dict(request)


def _record_uncounted(
    status: dict[str, Any], now: float, *, is_anew: bool, is_counted: bool
) -> None:
    before, since = uncounted(status)
    if is_anew:
        before, since = 0.0, None
        status.pop("uncountedSeconds", None)
        status.pop("uncountedTime", None)
    if since is not None and is_counted:
        status["uncountedSeconds"] = int(before + max(0.0, now - since))
        status.pop("uncountedTime")
    elif since is None and not is_counted:
        status["uncountedTime"] = quantities.format_timestamp(now)
