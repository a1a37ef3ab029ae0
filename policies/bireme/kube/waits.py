"""The waiting time of a gang, in the status of its TrainingJob or PodGroup.

A gang waits while it is queued. Time in which it cannot start for a reason that waiting does not
change is no waiting. An edit that raises the request resets the wait. So nobody can reserve a
position by parking a small job and enlarging it later.

``queuedTime`` is the time when it last joined the queue. ``waitSeconds`` is the sum of earlier
waits. ``parkedTime`` is the time since which it is not queued. A wait is valid for ``request``,
``queue`` and ``waitsFor``: in another queue, or with other nodes or pods, it is reset.
``uncountedSeconds`` is the part of the wait that its own namespace caused (a quota, a claim, too
many other jobs); it grows since ``uncountedTime``. That part keeps the gang's position among its
equals, but does not count for its wait bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bireme.core.resources import Amounts
from bireme.kube import quantities
from bireme.kube.api.base import MAX_RECORDED_RESOURCES

_CLOCK_SKEW_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait of ``earlier_seconds``, and from ``since`` until ``parked``, or until now."""

    since: float
    earlier_seconds: float = 0.0
    parked: float | None = None
    is_anew: bool = False
    """The recorded wait is reset: an edit has changed the request, queue, nodes or pods."""
    uncounted: float = 0.0
    """Seconds that the wait bound does not count."""
    uncounted_since: float | None = None
    """Time since which they grow, POSIX seconds; None while it waits for capacity."""

    @property
    def arrival_time(self) -> float:
        """Arrival time that gives the same wait without interruption, POSIX seconds."""
        return self.since - self.earlier_seconds

    def seconds(self, now: float) -> float:
        """Return the whole wait at ``now``."""
        end = now if self.parked is None else min(now, self.parked)
        return self.earlier_seconds + max(0.0, end - self.since)


ANEW: Final = Wait(since=0.0, parked=0.0, is_anew=True)
"""Wait of a gang whose recorded wait is reset."""


def park_time(status: Mapping[str, Any]) -> float | None:
    """Return the time since which the gang is not queued; None while it is queued."""
    return quantities.parse_timestamp(status.get("parkedTime"))


def is_raised(status: Mapping[str, Any], request: Amounts) -> bool:
    """Return whether ``request`` exceeds the recorded request in some resource."""
    recorded = status.get("request")
    if not recorded:
        return False
    try:
        amounts = {name: quantities.parse_quantity(name, n) for name, n in recorded.items()}
    except quantities.QuantityError:  # not written by the operator; the next report replaces it
        return False
    return any(amount > amounts.get(name, 0) for name, amount in _first_amounts(request))


def is_other(status: Mapping[str, Any], queue: str, key: str = "") -> bool:
    """Return whether the wait was recorded for another queue, or other nodes and pods (``key``)."""
    recorded = status.get("queue"), status.get("waitsFor")
    return any(was and now and was != now for was, now in zip(recorded, (queue, key), strict=True))


def self_caused_wait(status: Mapping[str, Any]) -> tuple[float, float | None]:
    """Return the seconds that the wait bound does not count, and the time since they grow."""
    since = quantities.parse_timestamp(status.get("uncountedTime"))
    return float(status.get("uncountedSeconds") or 0), since


def request_manifest(request: Amounts) -> dict[str, str]:
    """Return ``request`` as ``status.request``."""
    return {
        name: quantities.format_quantity(name, min(amount, quantities.LARGEST))
        for name, amount in _first_amounts(request)
    }


def _first_amounts(request: Amounts) -> list[tuple[str, int]]:
    """Return the first amounts by name, at most as many as a status may have."""
    return sorted(request.items())[:MAX_RECORDED_RESOURCES]


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
    """Record in ``status`` that the gang has waited for ``seconds`` by ``now``, if that is new.

    The wait is valid for ``request`` and ``key``. ``is_parked`` tells whether the gang is not
    queued from now on, ``is_counted`` whether its wait bound counts the time from now on.
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
    seconds, since = self_caused_wait(status)
    if is_anew:
        seconds, since = 0.0, None
        status.pop("uncountedSeconds", None)
        status.pop("uncountedTime", None)
    if since is not None and is_counted:
        status["uncountedSeconds"] = int(seconds + max(0.0, now - since))
        status.pop("uncountedTime")
    elif since is None and not is_counted:
        status["uncountedTime"] = quantities.format_timestamp(now)


def pause_seconds(failures: int) -> float:
    """Return the pause of a gang after ``failures`` failed starts in a row."""
    # The counter comes from a status and may be any number.
    return 60.0 * min(2.0 ** min(failures - 1, 5), 30.0)


def is_pause(seconds: float, failures: int) -> bool:
    """Return whether a pause after ``failures`` failed starts lasts for ``seconds`` more."""
    # A wrong clock must not delay a gang for much longer than its pause. The clocks of two leaders
    # may differ by seconds.
    return failures > 0 and 0 < seconds <= pause_seconds(failures) + _CLOCK_SKEW_SECONDS
