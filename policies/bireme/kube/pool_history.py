"""What a pool was asked for hour by hour, as ``status.history`` of its NodePoolScaler keeps it.

One entry per day (UTC) with up to 24 numbers as text: 57 days take some 20 kB, and a person can
read them. Shared by the operator, which writes an hour when it is over, and by the nightly job.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import numpy as np

from bireme.core.resources import FloatArray
from bireme.core.times import DAY, HOUR

HISTORY_DAYS: Final = 56
"""Whole days that are kept, beside the one that is under way."""
_HOURS: Final = 24
_LATEST: Final = 253_370_764_800.0
"""POSIX seconds of the year 9999, where dates of four digits end."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolHistory:
    """Hours without a gap between them; values that nobody counted are NaN.

    Attributes:
        start: When the first hour began, POSIX seconds; a whole hour.
        demand: Nodes' worth asked for, the mean of each hour, shape (hours,).
        tasks: Jobs that finished in each hour, shape (hours,).
        notes: What could not be read, in words.
    """

    start: float
    demand: FloatArray
    tasks: FloatArray
    notes: tuple[str, ...] = ()

    @property
    def end(self) -> float:
        """When the last hour ended, POSIX seconds."""
        return self.start + HOUR * len(self.demand)

    def with_hour(self, begin: float, demand: float, tasks: float) -> "PoolHistory":
        """The same up to the hour that began at ``begin``; 56 days before its day are kept.

        Raises:
            ValueError: ``begin`` is no whole hour.
        """
        if begin % HOUR:
            raise ValueError(f"begin is {begin}; it must be a whole hour in POSIX seconds")
        first = max(self.start if len(self.demand) else begin, _oldest(begin))
        first = min(first, begin)
        first -= first % DAY
        hours = int((begin - first) // HOUR) + 1
        columns = [placed([(self.start, v)], first, hours) for v in (self.demand, self.tasks)]
        columns[0][-1], columns[1][-1] = demand, tasks
        return replace(self, start=first, demand=columns[0], tasks=columns[1])

    def to_manifest(self) -> dict[str, Any]:
        """The form of ``status.history``; the hours must begin at midnight UTC."""
        return {"days": [self._day(first) for first in range(0, len(self.demand), _HOURS)]}

    def _day(self, first: int) -> dict[str, str]:
        begin = datetime.fromtimestamp(self.start + HOUR * first, UTC)
        hours = slice(first, first + _HOURS)
        return {
            "date": begin.strftime("%Y-%m-%d"),
            "demand": _text(self.demand[hours]),
            "tasks": _text(self.tasks[hours]),
        }


NO_HISTORY: Final = PoolHistory(0.0, np.empty(0), np.empty(0))


def _oldest(begin: float) -> float:
    return begin - begin % DAY - DAY * HISTORY_DAYS


def _text(values: FloatArray) -> str:
    return " ".join("-" if math.isnan(value) else f"{round(value, 2):.10g}" for value in values)


def history_of(status: Mapping[str, Any]) -> PoolHistory:
    """The history in the status of a NodePoolScaler.

    What cannot be read counts as not counted and is noted; negative values are kept, for whoever
    uses them to refuse.
    """
    notes: list[str] = []
    days: dict[float, tuple[FloatArray, FloatArray]] = {}
    for entry in (status.get("history") or {}).get("days") or ():
        begin = _midnight(str(entry.get("date")))
        if begin is None or begin in days:
            notes.append(f"day {entry.get('date')!a} is no date or there twice; left out")
            continue
        days[begin] = _values(entry, "demand", notes), _values(entry, "tasks", notes)
    if not days:
        return replace(NO_HISTORY, notes=tuple(notes))
    if any(later < earlier for earlier, later in pairwise(days)):
        notes.append("the days are not in order; sorted")
    return _joined(days, tuple(notes))


def _joined(
    days: Mapping[float, tuple[FloatArray, FloatArray]], notes: tuple[str, ...]
) -> PoolHistory:
    """All days in one line, from the oldest that counts to the last hour written down."""
    last = max(days)
    first = min(day for day in days if day >= _oldest(last))
    hours = int((last - first) // HOUR) + max(map(len, days[last]))
    columns = [
        placed([(day, values[column]) for day, values in days.items()], first, hours)
        for column in range(2)
    ]
    return PoolHistory(first, columns[0], columns[1], notes)


def placed(parts: Iterable[tuple[float, FloatArray]], first: float, hours: int) -> FloatArray:
    """An array of ``hours`` from ``first`` on with each part at its own beginning; NaN between."""
    column = np.full(hours, np.nan)
    for begin, values in parts:
        at = int((begin - first) // HOUR) + np.arange(len(values))
        inside = (at >= 0) & (at < hours)
        column[at[inside]] = values[inside]
    return column


def _midnight(date: str) -> float | None:
    try:
        begin = datetime.strptime(date, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return begin if 0 <= begin < _LATEST else None


def _values(entry: Mapping[str, Any], name: str, notes: list[str]) -> FloatArray:
    words = str(entry.get(name) or "").split()
    if len(words) > _HOURS:
        notes.append(f"{name} of {entry.get('date')} has {len(words)} hours; the first 24 count")
    return np.array([_value(word, name, entry, notes) for word in words[:_HOURS]], dtype=np.float64)


def _value(word: str, name: str, entry: Mapping[str, Any], notes: list[str]) -> float:
    try:
        value = math.nan if word == "-" else float(word)
    except ValueError:
        value = math.inf
    if math.isinf(value) or (math.isnan(value) and word != "-"):
        notes.append(f"{name} of {entry.get('date')} holds {word[:32]!a}, which is no number")
        return math.nan
    return value
