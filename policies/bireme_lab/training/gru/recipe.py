"""Recipe ``gru``: the network of LSP's short-period half, for pools of any kind or for one series.

Without ``--series`` it learns generated demand (:func:`demand`), and with ``--data FOLDER`` also
the hours of a real cluster: Philly's nodes in use, and its jobs. The shipped network is trained so.
With ``--series FILE`` it learns only that series.

Fill-ins to the paper (Lu et al., IEEE TPDS 2023), which names no sizes: one layer of 32 units,
windows of a day of hours beside the same hours of past seasons, direct forecasts of the whole
horizon, absolute error of logs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from bireme.core.resources import FloatArray
from bireme.core.times import HOUR
from bireme.forecasting.gru import Gru
from bireme.forecasting.networks import DataRange, Frame, Network
from bireme.forecasting.series import Series, SeriesError
from bireme.onnx import cards
from bireme.onnx.cards import Result
from bireme_lab.simulator.traces.series import read_series
from bireme_lab.training.gru import networks
from bireme_lab.training.gru.evaluation import evaluate_forecaster
from bireme_lab.training.gru.networks import GruTrainer, WindowBatch, origins_of, windows_of
from bireme_lab.training.runs import TrainingRun

# --- generated demand ---------------------------------------------------------------------------

DAY: Final = 24
WEEK: Final = 7 * DAY
_WAVES: Final = (1, 2, 3)
_PERSISTENCE: Final = (0.0, 0.5, 0.9, 0.98, 0.995)
_NOISE: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
_DRIFT: Final = (0.0, 0.03, 0.1)


def demand(rng: np.random.Generator, count: int, hours: int) -> FloatArray:
    """Draw hourly node counts of ``count`` pools, at least 0, shape (count, hours).

    Each series is drawn from wide families: a daily course of a few waves, different weekdays with
    one or two quiet days, noise that lasts from minutes to weeks, and drift. Some have a lasting
    change of level, a ceiling, or hours without demand. The size is between one node and thousands.
    """
    strength = rng.uniform(0, 1, (count, 1)) * rng.choice([0.0, 0.4, 1.0, 1.0], (count, 1))
    logs = strength * _weeks(rng, count)[:, np.arange(hours) % WEEK]
    logs += rng.choice(_NOISE, (count, 1)) * _lasting(rng, count, hours)
    logs += rng.choice(_NOISE[:4], (count, 1)) * rng.standard_normal((count, hours))
    # random walks with deviation 1 after a week
    drift = rng.choice(_DRIFT, (count, 1)), rng.standard_normal((count, hours)).cumsum(axis=1)
    logs += drift[0] * (drift[1] / np.sqrt(WEEK))
    logs += _steps(rng, count, hours)
    level = np.exp(rng.uniform(0, np.log(2000), (count, 1)))
    nodes = level * np.exp(logs - logs.mean(axis=1, keepdims=True))
    return _as_recorded(rng, nodes)


def _weeks(rng: np.random.Generator, count: int) -> FloatArray:
    """Draw the usual course of a week in logs, shape (count, hours of a week)."""
    hours = np.arange(WEEK)
    daily = sum(
        rng.normal(0, 1 / wave, (count, 1))
        * np.cos(2 * np.pi * wave * hours / DAY + rng.uniform(0, 2 * np.pi, (count, 1)))
        for wave in _WAVES
    )
    days = hours // DAY
    weekdays = rng.normal(0, 0.2, (count, 7))[:, days]
    first, depth = rng.integers(0, 7, (count, 1)), rng.exponential(0.7, (count, 1))
    is_quiet = (days - first) % 7 < rng.choice([0, 1, 2, 2], (count, 1))
    return np.asarray(daily * np.where(is_quiet, 0.4, 1.0) + weekdays - depth * is_quiet)


def _lasting(rng: np.random.Generator, count: int, hours: int) -> FloatArray:
    """Draw autoregressive noise of deviation 1, shape (count, hours)."""
    keeps = rng.choice(_PERSISTENCE, count)
    news = rng.standard_normal((hours, count)) * np.sqrt(1 - keeps**2)
    # stationary from the first hour on
    news[0] = rng.standard_normal(count)
    for hour in range(1, hours):
        news[hour] += keeps * news[hour - 1]
    return np.asarray(news.T)


def _steps(rng: np.random.Generator, count: int, hours: int) -> FloatArray:
    """Draw one lasting change of level in a third of the series."""
    size = rng.normal(0, 0.5, (count, 1)) * (rng.random((count, 1)) < 1 / 3)
    return np.asarray(size * (np.arange(hours) >= rng.integers(0, hours, (count, 1))))


def _as_recorded(rng: np.random.Generator, nodes: FloatArray) -> FloatArray:
    """Let some series count whole nodes, reach a ceiling, or have hours without demand."""
    count = len(nodes)
    ceiling = np.quantile(nodes, 0.8, axis=1, keepdims=True)
    nodes = np.where(rng.random((count, 1)) < 0.15, np.minimum(nodes, ceiling), nodes)
    floor = np.quantile(nodes, 0.25, axis=1, keepdims=True)
    nodes = np.where((rng.random((count, 1)) < 0.15) & (nodes < floor), 0.0, nodes)
    return np.where(rng.random((count, 1)) < 0.6, np.round(nodes), nodes)


HORIZON: Final = 48
TEST_DAYS: Final = 14
_SEASONS: Final = (DAY, WEEK)
_LENGTH: Final = 10 * WEEK
_ROWS_OF_SERIES: Final = 24
_REAL: Final = {
    "Philly, nodes in use": ("helios/philly_node_sequence_1min.csv.gz", "active", "mean"),
    "Philly, jobs per hour": ("philly/philly_2017-09-04_2017-11-14.csv.gz", None, "count"),
}
_CREDIT: Final = (
    f"; Philly (Microsoft, CC-BY-4.0; nodes in use from HeliosArtifact, MIT) but for its last "
    f"{TEST_DAYS} days"
)

_SPLIT: Final = (
    f"trained on generated demand and on all but the last {TEST_DAYS} days of real series, for a "
    f"fixed number of steps without validation; evaluated on the last {TEST_DAYS} days of other "
    "generated demand and of the real series"
)


@dataclass(frozen=True, slots=True, eq=False)
class _Curriculum:
    """The training rows, their description, and the series for the evaluation."""

    frame: Frame
    step_seconds: int
    rows: WindowBatch
    data: str
    updates: int
    held_out: Mapping[str, Sequence[Series]]
    split: str = networks.WHOLE_SERIES
    trained_on: tuple[DataRange, ...] | None = None


class GruRecipe:
    """``gru``: the short-period half of LSP, for ``series``, or hourly demand of any pool."""

    name = networks.NAME
    summary = networks.SUMMARY

    def __init__(self, series: Series | None = None, horizon: int = HORIZON) -> None:
        self._series, self._horizon = series, horizon

    def train(self, run: TrainingRun) -> Path:
        """Learn, evaluate and write.

        Raises:
            TooShortError: the series leaves less than a season of rows.
            TraceError: ``run.data`` lacks a file, or it cannot be read.
        """
        curriculum = self._general(run) if self._series is None else self._own(run, self._series)
        network = networks.new_network(curriculum.frame, run.seed)
        trainer = GruTrainer(network, curriculum.rows, curriculum.updates, run.seed)
        run.learn("fitting", trainer, curriculum.updates)
        minutes = round(run.seconds / 60, 1)
        served, model = networks.to_served(
            network,
            curriculum.frame,
            step_seconds=curriculum.step_seconds,
            data=curriculum.data,
            split=curriculum.split,
            trained_on=curriculum.trained_on,
            seed=run.seed,
            command=run.command,
            training={"steps": trainer.updates, "rows": len(curriculum.rows), "minutes": minutes},
        )
        if run.is_first:
            _write(run.checkpoint_folder, served, model, self._results(curriculum, served))
        return run.checkpoint_folder

    def _own(self, run: TrainingRun, series: Series) -> _Curriculum:
        frame = networks.frame_for(series, self._horizon)
        rows = windows_of(series.values, frame, origins_of(series, frame))
        updates = networks.UPDATES if run.scale == "full" else 50
        data = f"one series, {len(series)} values in steps of {series.step_seconds} s"
        return _Curriculum(frame, series.step_seconds, rows, data, updates, {})

    def _general(self, run: TrainingRun) -> _Curriculum:
        count, updates = (1200, 4 * networks.UPDATES) if run.scale == "full" else (12, 50)
        frame = Frame(networks.MAX_WINDOW, self._horizon, _SEASONS)
        rng = np.random.default_rng(run.seed)
        real = _real(run.data) if run.data else {}
        # the last days of real series are for the evaluation
        training_series = [series.until(len(series) - TEST_DAYS * DAY) for series in real.values()]
        rows = [_draw_windows(rng, series, frame) for series in _generate(rng, count)]
        rows += [windows_of(s.values, frame, origins_of(s, frame)) for s in training_series]
        data = f"{count} generated hourly demands of ten weeks{_CREDIT if real else ''}"
        # another stream of the seed, so that these series are unseen
        unseen = _generate(np.random.default_rng((run.seed, 1)), max(2, count // 12))
        held_out = {"generated demand": unseen, **{name: [s] for name, s in real.items()}}
        ranges = tuple(_range(name, s) for name, s in zip(real, training_series, strict=True))
        learned = networks.concatenate(rows)
        return _Curriculum(frame, HOUR, learned, data, updates, held_out, _SPLIT, ranges)

    def _results(self, curriculum: _Curriculum, served: Network) -> tuple[Result, ...]:
        gru = Gru(train=lambda _: served)
        return tuple(
            evaluate_forecaster(gru, every, self._horizon, TEST_DAYS, setting, served.card.command)
            for setting, every in curriculum.held_out.items()
        )


def _generate(rng: np.random.Generator, count: int) -> list[Series]:
    return [Series(v, HOUR, _SEASONS) for v in demand(rng, count, _LENGTH)]


def _draw_windows(rng: np.random.Generator, series: Series, frame: Frame) -> WindowBatch:
    origins = rng.choice(origins_of(series, frame), _ROWS_OF_SERIES, replace=False)
    return windows_of(series.values, frame, origins)


def _real(data: Path) -> dict[str, Series]:
    by_name = {
        name: read_series(data / file, column, step_seconds=HOUR, reduce=reduce).series
        for name, (file, column, reduce) in _REAL.items()
    }
    return {name: replace(series, periods=_SEASONS) for name, series in by_name.items()}


def _range(name: str, series: Series) -> DataRange:
    """Return the time of a real series; its name begins with the cluster's name."""
    if series.start is None:
        raise SeriesError(f"{name} has no times; give a file with a column of times")
    end = series.start + series.step_seconds * len(series)
    return DataRange(name.partition(",")[0], series.start, end)


def _write(folder: Path, served: Network, model: bytes, results: tuple[Result, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / served.card.network.file).write_bytes(model)
    card = msgspec.structs.replace(served.card, results=results)
    (folder / cards.CARD_FILE).write_bytes(cards.encode(card))
