"""The recent service of submitters: device-seconds of all their gangs, with slow decay.

Service per gang alone rewards splitting a training into short jobs: each of them is new, and
precedes the one job of another user that has run for hours. So the submitter is charged as well.
Usage counts half after the half-life, a quarter after two.

The ledger integrates the usage of running gangs over time. So it counts gangs of every kind, also
deleted, stopped or failed ones, and needs no record of each.
"""

import math
from collections.abc import Iterable, Mapping

from bireme.core.accelerators import DEFAULT, Accelerators, in_units
from bireme.core.gangs import Task
from bireme.core.running import RunningGang


def devices_of(tasks: Iterable[Task], accelerators: Accelerators) -> int | float:
    """Return the accelerators of all replicas of ``tasks``, shares as fractions.

    The number of replicas if they request none.
    """
    sizes = [(task.replicas, accelerators.milli(task.request)) for task in tasks]
    return in_units(sum(n * milli for n, milli in sizes)) or sum(n for n, _ in sizes)


class ServiceLedger:
    """Decayed device-seconds by submitter; its time only goes forward.

    Args:
        half_life_seconds: The time after which a device-second counts half; 0 keeps no account.
        accelerators: The resources that are devices.
    """

    def __init__(self, half_life_seconds: float, accelerators: Accelerators = DEFAULT) -> None:
        self._half_life_seconds, self._accelerators = half_life_seconds, accelerators
        self._since = -math.inf
        self._service: dict[str, float] = {}
        self._rates: dict[str, float] = {}

    def observe(self, running: Iterable[RunningGang], now: float) -> None:
        """Record that from ``now`` on exactly ``running`` hold their places."""
        if not self._half_life_seconds:
            return
        self._advance(now)
        self._rates = {}
        for gang in running:
            user = gang.gang.user
            self._rates[user] = self._rates.get(user, 0.0) + self._devices(gang)

    def begin(self, running: RunningGang, now: float) -> None:
        """Record that one more gang holds places from ``now`` on."""
        self._change(running, now, 1)

    def end(self, running: RunningGang, now: float) -> None:
        """Record that a gang that has begun holds its places no more."""
        self._change(running, now, -1)

    def _change(self, running: RunningGang, now: float, times: int) -> None:
        if not self._half_life_seconds:
            return
        self._advance(now)
        user = running.gang.user
        self._rates[user] = self._rates.get(user, 0.0) + times * self._devices(running)
        if not self._rates[user]:
            del self._rates[user]

    def _devices(self, running: RunningGang) -> int | float:
        return devices_of(running.current.tasks, self._accelerators)

    @property
    def is_new(self) -> bool:
        """True until the first observation, if an account is kept."""
        return bool(self._half_life_seconds) and not math.isfinite(self._since)

    def add(self, user: str, device_seconds: float, ended: float, now: float) -> None:
        """Charge ``user`` at ``now`` for unobserved usage that ended at ``ended``."""
        self._advance(now)
        if device_seconds > 0:
            more = device_seconds * self._decay_factor(max(0.0, now - ended))
            self._service[user] = self._service.get(user, 0.0) + more

    def at(self, now: float) -> Mapping[str, float]:
        """Return the service of each submitter at ``now``; a copy."""
        if not self._half_life_seconds:
            return {}
        self._advance(now)
        return dict(self._service)

    def _advance(self, now: float) -> None:
        seconds = now - self._since if math.isfinite(self._since) else 0.0
        # After a clock step backwards, time stands still here until the clock has caught up.
        if seconds < 0:
            return
        self._since = now
        if not seconds:
            return
        factor = self._decay_factor(seconds)
        # Usage decays while the gang runs: the integral of the decay.
        full = (1 - factor) * self._half_life_seconds / math.log(2)
        users = self._service.keys() | self._rates.keys()
        totals = {
            user: self._service.get(user, 0.0) * factor + self._rates.get(user, 0.0) * full
            for user in users
        }
        self._service = {user: served for user, served in totals.items() if served >= 1.0}

    def _decay_factor(self, seconds: float) -> float:
        return float(0.5 ** (seconds / self._half_life_seconds))
