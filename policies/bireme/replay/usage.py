"""Device-seconds of a record: the devices that gangs held between its first cycle and its last.

A record does not say why a gang ended, nor which free places were reserved. So the time lost to
stops is inferred from gangs that ran and wait again, and reserved time is unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.usage import Holder, UsageMeter, devices_held
from bireme.replay.reader import Record
from bireme.replay.record import RecordError


@dataclass(slots=True)
class RecordedUsage:
    """Device-seconds from ``begin`` to ``end``, as far as they are recorded.

    Attributes:
        begin, end: POSIX seconds; the end is that of the record.
        known_from: The first recorded moment of the time.
        known_seconds: Length of the recorded part; without the gaps between two operators.
        device_seconds: Device-seconds by holder; none is reserved.
        lost: Device-seconds of running that stops made void: since the last progress report of the
            run, or since its beginning if it reported none.
    """

    begin: float
    end: float
    known_from: float
    known_seconds: float = 0.0
    device_seconds: dict[Holder, float] = field(default_factory=dict)
    lost: dict[Holder, float] = field(default_factory=dict)


def usage_of(record: Record, span_seconds: float) -> RecordedUsage:
    """Return the usage in the last ``span_seconds`` of ``record``.

    Raises:
        RecordError: the record has no cycle, or cannot be read.
    """
    end = _last_moment(record)
    begin = end - span_seconds
    usage, losses = RecordedUsage(begin, end, end), _Losses()
    meter, writer = UsageMeter(), ""
    for cycle in record.cycles():
        if record.run != writer:  # nobody saw the time between two operators
            meter, writer = UsageMeter(), record.run
        moment = max(begin, cycle.snapshot.now)
        usage.known_from = min(usage.known_from, moment)
        lapse = meter.look(moment, devices_held(cycle.snapshot, ()))
        usage.known_seconds += lapse.seconds
        _add(usage.device_seconds, lapse.device_seconds)
        _add(usage.lost, losses.look(cycle.snapshot, moment))
    return usage


def _last_moment(record: Record) -> float:
    for file in reversed(record.files):
        last = None
        for cycle in Record((file,)).cycles():
            last = cycle.snapshot.now
        if last is not None:
            return last
    raise RecordError(f"{record.files[0][0]}: the record has no cycle; name a later file too")


def _add(total: dict[Holder, float], more: Mapping[Holder, float]) -> None:
    for holder, seconds in more.items():
        total[holder] = total.get(holder, 0.0) + seconds


@dataclass(slots=True)
class _Losses:
    """Finds gangs that ran and wait again."""

    _began: dict[str, float] = field(default_factory=dict)
    """Time at which a running gang was first seen to run, by uid."""
    _stopped: dict[str, Mapping[Holder, float]] = field(default_factory=dict)
    """Loss of a stopped gang, should it wait again; by uid."""
    _running: dict[str, RunningGang] = field(default_factory=dict)
    _last: ClusterSnapshot | None = None

    def look(self, now: ClusterSnapshot, moment: float) -> dict[Holder, float]:
        """Return the loss of gangs that ran and are first seen to wait or run again."""
        lost: dict[Holder, float] = {}
        running = {r.gang.uid: r for r in now.running if not (r.is_leaving or r.is_starting)}
        for uid, previous in self._running.items():
            current = running.get(uid)
            if current is None or current.started != previous.started:
                self._stopped[uid] = self._loss(previous, self._began.pop(uid), moment)
            if current is not None:  # a wait in between was not recorded
                _add(lost, self._stopped.pop(uid, {}))
        for uid in running:
            self._began.setdefault(uid, moment)
        self._running, self._last = running, now
        for gang in now.waiting:
            if gang.uid not in running:
                _add(lost, self._stopped.pop(gang.uid, {}))
        return lost

    def _loss(self, run: RunningGang, began: float, moment: float) -> Mapping[Holder, float]:
        assert self._last is not None  # noqa: S101  # it ran there
        progress = run.gang.progress
        since = began if progress is None else max(began, progress.reported)
        devices = devices_held(replace(self._last, running=(run,)), ())
        return {holder: n * max(0.0, moment - since) for holder, n in devices.items()}
