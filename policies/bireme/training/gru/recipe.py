"""How the GRU of forecasts is trained: ``gru``, for pools of any kind or for one series.

Without ``--series`` it learns generated demand (:mod:`bireme.training.gru.families`), and with
``--data FOLDER`` the hours of a real cluster as well: Philly's nodes in use, and its jobs. That is
the network that comes with Bireme. With ``--series FILE`` it learns that series alone.

Fill-ins to the paper, which names no sizes: one layer of 32 units, windows of a day of hours beside
the same hours of past seasons, direct forecasts of the whole horizon, absolute error of logs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from bireme.core.times import HOUR
from bireme.forecasting.gru import Gru
from bireme.forecasting.networks import Network
from bireme.forecasting.series import Series
from bireme.forecasting.windows import Frame
from bireme.rl import cards
from bireme.rl.cards import Result
from bireme.simulator.traces.series import read_series
from bireme.training.gru.families import DAY, WEEK, demand
from bireme.training.gru.judging import judged
from bireme.training.gru.learning import Fitting, Lessons, joined, lessons
from bireme.training.gru.training import (
    MOST_WINDOW,
    NAME,
    SUMMARY,
    UPDATES,
    frame_for,
    new_network,
    origins_of,
    served,
)
from bireme.training.runs import TrainingRun

HORIZON: Final = 48
JUDGED_DAYS: Final = 14
_SEASONS: Final = (DAY, WEEK)
_LENGTH: Final = 10 * WEEK
_ROWS_OF_SERIES: Final = 24
_REAL: Final = {
    "Philly, nodes in use": ("helios/philly_node_sequence_1min.csv.gz", "active", "mean"),
    "Philly, jobs per hour": ("philly/philly_2017-09-04_2017-11-14.csv.gz", None, "count"),
}
_CREDIT: Final = (
    f"; Philly (Microsoft, CC-BY-4.0; nodes in use from HeliosArtifact, MIT) but for its last "
    f"{JUDGED_DAYS} days"
)


@dataclass(frozen=True, slots=True, eq=False)
class _Course:
    """What is learned, in words too, and what the network is judged by afterwards."""

    frame: Frame
    step_seconds: int
    rows: Lessons
    data: str
    updates: int
    held_out: Mapping[str, Sequence[Series]]


class GruRecipe:
    """``gru``: the short-period half of LSP.

    Args:
        series: What to learn; None: hourly demand of any pool.
        horizon: Steps that it forecasts at once.
    """

    name = NAME
    summary = SUMMARY

    def __init__(self, series: Series | None = None, horizon: int = HORIZON) -> None:
        self._series, self._horizon = series, horizon

    def train(self, run: TrainingRun) -> Path:
        """Learn, judge and write.

        Raises:
            TooShort: the series leaves less than a season of rows.
            TraceError: ``run.data`` lacks a file, or it cannot be read.
        """
        course = self._general(run) if self._series is None else self._own(run, self._series)
        network = new_network(course.frame, run.seed)
        fitting = Fitting(network, course.rows, course.updates, run.seed)
        run.learn("fitting", fitting, course.updates)
        minutes = round(run.seconds / 60, 1)
        made, model = served(
            network,
            course.frame,
            step_seconds=course.step_seconds,
            data=course.data,
            seed=run.seed,
            command=run.command,
            training={"steps": fitting.updates, "rows": len(course.rows), "minutes": minutes},
        )
        if run.is_first:
            _write(run.checkpoint_folder, made, model, self._results(course, made))
        return run.checkpoint_folder

    def _own(self, run: TrainingRun, series: Series) -> _Course:
        """Of one series, all of it."""
        frame = frame_for(series, self._horizon)
        rows = lessons(series.values, frame, origins_of(series, frame))
        updates = UPDATES if run.scale == "full" else 50
        data = f"one series, {len(series)} values in steps of {series.step_seconds} s"
        return _Course(frame, series.step_seconds, rows, data, updates, {})

    def _general(self, run: TrainingRun) -> _Course:
        """Of hourly demand, generated and real."""
        count, updates = (1200, 4 * UPDATES) if run.scale == "full" else (12, 50)
        frame = Frame(MOST_WINDOW, self._horizon, _SEASONS)
        chance = np.random.default_rng(run.seed)
        real = _real(run.data) if run.data else {}
        known = [series.until(len(series) - JUDGED_DAYS * DAY) for series in real.values()]
        rows = [_drawn(chance, series, frame) for series in _generated(chance, count)]
        rows += [lessons(s.values, frame, origins_of(s, frame)) for s in known]
        data = f"{count} generated hourly demands of ten weeks{_CREDIT if real else ''}"
        unseen = _generated(np.random.default_rng((run.seed, 1)), max(2, count // 12))
        held_out = {"generated demand": unseen, **{name: [s] for name, s in real.items()}}
        return _Course(frame, HOUR, joined(rows), data, updates, held_out)

    def _results(self, course: _Course, made: Network) -> tuple[Result, ...]:
        gru = Gru(train=lambda _: made)
        return tuple(
            judged(gru, every, self._horizon, JUDGED_DAYS, setting, made.card.command)
            for setting, every in course.held_out.items()
        )


def _generated(chance: np.random.Generator, count: int) -> list[Series]:
    return [Series(v, HOUR, _SEASONS) for v in demand(chance, count, _LENGTH)]


def _drawn(chance: np.random.Generator, series: Series, frame: Frame) -> Lessons:
    """Rows at some places of ``series``."""
    origins = chance.choice(origins_of(series, frame), _ROWS_OF_SERIES, replace=False)
    return lessons(series.values, frame, origins)


def _real(data: Path) -> dict[str, Series]:
    """Hours of Philly, by what they count."""
    found = {
        name: read_series(data / file, column, step_seconds=HOUR, reduce=reduce).series
        for name, (file, column, reduce) in _REAL.items()
    }
    return {name: replace(series, periods=_SEASONS) for name, series in found.items()}


def _write(folder: Path, made: Network, model: bytes, results: tuple[Result, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / made.card.network.file).write_bytes(model)
    card = msgspec.structs.replace(made.card, results=results)
    (folder / cards.CARD_FILE).write_bytes(cards.encode(card))
