"""The service of submitters of late: device-seconds of all their gangs, forgotten slowly.

Service per gang alone invites to cut a training into short jobs: each of them is new, and goes
before the one job of somebody else that has run for hours. So service is charged to the submitter
as well. What was used counts half after the half-life, a quarter after two.

The ledger integrates what runs over time. So it counts gangs of every kind, also those that were
deleted, stopped or failed, and needs no record of each.
"""

import math
from collections.abc import Iterable, Mapping

from bireme.core.accelerators import DEFAULT, Accelerators, in_units
from bireme.core.gangs import Task
from bireme.core.running import RunningGang


def devices_of(tasks: Iterable[Task], accelerators: Accelerators) -> int | float:
    """Return the accelerators of all replicas of ``tasks``, shares as the part of one they are.

    The number of replicas when they ask for none.
    """
    sizes = [(task.replicas, accelerators.milli(task.request)) for task in tasks]
    return in_units(sum(n * milli for n, milli in sizes)) or sum(n for n, _ in sizes)


class ServiceLedger:
    """Decayed device-seconds by submitter; time only goes forward in it.

    Args:
        half_life_seconds: After so long a device-second counts half; 0 keeps no account.
        accelerators: Which resources are devices.
    """

    def __init__(self, half_life_seconds: float, accelerators: Accelerators = DEFAULT) -> None:
        self._half_life_seconds, self._accelerators = half_life_seconds, accelerators
        self._since = -math.inf
        self._served: dict[str, float] = {}
        self._rates: dict[str, float] = {}

    def observe(self, running: Iterable[RunningGang], now: float) -> None:
        """Note that from ``now`` on ``running`` hold their places, and nobody else."""
        if not self._half_life_seconds:
            return
        self._advance(now)
        self._rates = {}
        for held in running:
            user = held.gang.user
            self._rates[user] = self._rates.get(user, 0.0) + self._devices(held)

    def begin(self, held: RunningGang, now: float) -> None:
        """Note that one more gang holds places from ``now`` on."""
        self._change(held, now, 1)

    def end(self, held: RunningGang, now: float) -> None:
        """Note that a gang that has begun holds its places no more."""
        self._change(held, now, -1)

    def _change(self, held: RunningGang, now: float, times: int) -> None:
        if not self._half_life_seconds:
            return
        self._advance(now)
        user = held.gang.user
        self._rates[user] = self._rates.get(user, 0.0) + times * self._devices(held)
        if not self._rates[user]:
            del self._rates[user]

    def _devices(self, held: RunningGang) -> int | float:
        return devices_of(held.current.tasks, self._accelerators)

    @property
    def is_new(self) -> bool:
        """True until something was observed, where an account is kept."""
        return bool(self._half_life_seconds) and not math.isfinite(self._since)

    def add(self, user: str, device_seconds: float, ended: float, now: float) -> None:
        """Charge ``user`` at ``now`` for what ended at ``ended`` and nobody observed."""
        self._advance(now)
        if device_seconds > 0:
            more = device_seconds * self._left_after(max(0.0, now - ended))
            self._served[user] = self._served.get(user, 0.0) + more

    def at(self, now: float) -> Mapping[str, float]:
        """Return the service of each submitter at ``now``; a copy."""
        if not self._half_life_seconds:
            return {}
        self._advance(now)
        return dict(self._served)

    def _advance(self, now: float) -> None:
        seconds = now - self._since if math.isfinite(self._since) else 0.0
        # A clock that was set back stands still here, until it has caught up.
        if seconds < 0:
            return
        self._since = now
        if not seconds:
            return
        left = self._left_after(seconds)
        # What runs is forgotten while it runs: the integral of the decay.
        full = (1 - left) * self._half_life_seconds / math.log(2)
        known = self._served.keys() | self._rates.keys()
        after = {
            user: self._served.get(user, 0.0) * left + self._rates.get(user, 0.0) * full
            for user in known
        }
        self._served = {user: served for user, served in after.items() if served >= 1.0}

    def _left_after(self, seconds: float) -> float:
        return float(0.5 ** (seconds / self._half_life_seconds))
