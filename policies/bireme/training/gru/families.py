"""Generated demand: what a network learns that is to serve pools nobody has seen yet.

Each series is drawn from wide families: a daily course of a few waves, weekdays of their own with
one or two quiet days, noise that lasts from minutes to weeks, drift, now and then a lasting change
of level, a size between one node and thousands, a ceiling that some run into, hours without any.
"""

from typing import Final

import numpy as np

from bireme.core.resources import FloatArray

DAY: Final = 24
WEEK: Final = 7 * DAY
_WAVES: Final = (1, 2, 3)
_PERSISTENCE: Final = (0.0, 0.5, 0.9, 0.98, 0.995)
_NOISE: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
_DRIFT: Final = (0.0, 0.03, 0.1)


def demand(chance: np.random.Generator, count: int, hours: int) -> FloatArray:
    """Hourly node counts of ``count`` pools, at least 0, shape (count, hours)."""
    strength = chance.uniform(0, 1, (count, 1)) * chance.choice([0.0, 0.4, 1.0, 1.0], (count, 1))
    logs = strength * _weeks(chance, count)[:, np.arange(hours) % WEEK]
    logs += chance.choice(_NOISE, (count, 1)) * _lasting(chance, count, hours)
    logs += chance.choice(_NOISE[:4], (count, 1)) * chance.standard_normal((count, hours))
    logs += chance.choice(_DRIFT, (count, 1)) * _drift(chance, count, hours)
    logs += _steps(chance, count, hours)
    level = np.exp(chance.uniform(0, np.log(2000), (count, 1)))
    nodes = level * np.exp(logs - logs.mean(axis=1, keepdims=True))
    return _as_recorded(chance, nodes)


def _weeks(chance: np.random.Generator, count: int) -> FloatArray:
    """The usual course of a week in logs, shape (count, hours of a week)."""
    hours = np.arange(WEEK)
    daily = sum(
        chance.normal(0, 1 / wave, (count, 1))
        * np.cos(2 * np.pi * wave * hours / DAY + chance.uniform(0, 2 * np.pi, (count, 1)))
        for wave in _WAVES
    )
    days = hours // DAY
    weekdays = chance.normal(0, 0.2, (count, 7))[:, days]
    first, depth = chance.integers(0, 7, (count, 1)), chance.exponential(0.7, (count, 1))
    is_quiet = (days - first) % 7 < chance.choice([0, 1, 2, 2], (count, 1))
    return np.asarray(daily * np.where(is_quiet, 0.4, 1.0) + weekdays - depth * is_quiet)


def _lasting(chance: np.random.Generator, count: int, hours: int) -> FloatArray:
    """Noise of deviation 1 that follows itself, shape (count, hours)."""
    keeps = chance.choice(_PERSISTENCE, count)
    news = chance.standard_normal((hours, count)) * np.sqrt(1 - keeps**2)
    news[0] = chance.standard_normal(count)
    for hour in range(1, hours):
        news[hour] += keeps * news[hour - 1]
    return np.asarray(news.T)


def _drift(chance: np.random.Generator, count: int, hours: int) -> FloatArray:
    """A random walk whose deviation is 1 after a week."""
    return np.asarray(chance.standard_normal((count, hours)).cumsum(axis=1) / np.sqrt(WEEK))


def _steps(chance: np.random.Generator, count: int, hours: int) -> FloatArray:
    """One lasting change of level in a third of the series."""
    size = chance.normal(0, 0.5, (count, 1)) * (chance.random((count, 1)) < 1 / 3)
    return np.asarray(size * (np.arange(hours) >= chance.integers(0, hours, (count, 1))))


def _as_recorded(chance: np.random.Generator, nodes: FloatArray) -> FloatArray:
    """Some count whole nodes, some reach a ceiling, some have hours without any demand."""
    count = len(nodes)
    ceiling = np.quantile(nodes, 0.8, axis=1, keepdims=True)
    nodes = np.where(chance.random((count, 1)) < 0.15, np.minimum(nodes, ceiling), nodes)
    floor = np.quantile(nodes, 0.25, axis=1, keepdims=True)
    nodes = np.where((chance.random((count, 1)) < 0.15) & (nodes < floor), 0.0, nodes)
    return np.where(chance.random((count, 1)) < 0.6, np.round(nodes), nodes)
