"""Forecasting networks: their input windows, their card and their ONNX file.

1. :func:`encode` turns a series into windows of ``log1p``. Each row is scaled by mean and deviation
   of its own last season, so that one network serves pools of two nodes and of two hundred. A row
   belongs to an origin, the index of the first forecast value, and sees nothing from there on.

       past    the last ``window`` values, those one season back and their mean over seasons
       ahead   per lead: the value one season back, the mean over seasons, the last value, and the
               lead itself

2. :func:`load` checks a checkpoint as a policy's is (:mod:`bireme.onnx.checkpoints`).
3. :meth:`Network.forecasts` runs it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import numpy as np
from msgspec import Meta, Struct

from bireme.core.errors import installing
from bireme.core.resources import FloatArray, IntArray
from bireme.core.times import clock_time
from bireme.onnx import cards
from bireme.onnx.cards import PartCard
from bireme.onnx.checkpoints import open_session, read_file
from bireme.onnx.errors import AnswerError, CheckpointError
from bireme.onnx.sessions import Array, Session, Shape

MIN_SPREAD: Final = 1e-3
"""Deviation of logs below which a season counts as constant."""
MAX_DEVIATIONS: Final = 20.0
"""Maximum distance of forecasts from the mean of logs of the last season."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The size of a network's windows, and its horizon.

    Attributes:
        window: Number of consecutive values that it reads one after the other.
        horizon: Number of steps that it forecasts at once.
        periods: Seasons in steps, shortest first; may be ().
        cycles: Maximum number of past seasons over which a mean is taken.
    """

    window: int
    horizon: int
    periods: tuple[int, ...]
    cycles: int = 4

    @property
    def least_values(self) -> int:
        """Minimum number of values before an origin."""
        return self.window + max(self.periods, default=0)

    @property
    def inputs(self) -> Mapping[str, Shape]:
        """Shapes of the arrays of :func:`encode`, by name."""
        seasonal = 2 * len(self.periods)
        return {
            "past": ("rows", self.window, 1 + seasonal),
            "ahead": ("rows", self.horizon, 2 + seasonal),
        }


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The input of a network, and the scale of its answers.

    Attributes:
        inputs: By name of :attr:`Frame.inputs`, float32.
        centre, spread: Mean and deviation of the logs of each row, shape (rows, 1).
    """

    inputs: Mapping[str, Array]
    centre: FloatArray
    spread: FloatArray

    def demand(self, answers: FloatArray) -> FloatArray:
        """Return forecasts, at least 0, from ``answers``, both of shape (rows, horizon)."""
        bounded = np.clip(answers, -MAX_DEVIATIONS, MAX_DEVIATIONS)
        return np.maximum(np.expm1(self.centre + self.spread * bounded), 0.0)


def encode(logs: FloatArray, origins: IntArray, frame: Frame) -> Rows:
    """Return the rows of ``origins``, each at least ``frame.least_values``, from logs of values."""
    centre, spread = _scales(logs, origins, max(frame.periods, default=frame.window))
    first = origins[:, None]
    past_at, ahead_at = first + np.arange(-frame.window, 0), first + np.arange(frame.horizon)
    past, lead_parts = [logs[past_at]], list[FloatArray]()
    for period in frame.periods:
        past += _seasons(logs, past_at, first, period, frame.cycles)
        lead_parts += _seasons(logs, ahead_at, first, period, frame.cycles)
    lead_parts.append(np.broadcast_to(logs[first - 1], ahead_at.shape))
    scaled = {
        name: (np.stack(parts, axis=-1) - centre[:, :, None]) / spread[:, :, None]
        for name, parts in (("past", past), ("ahead", lead_parts))
    }
    leads = np.broadcast_to(np.arange(1, frame.horizon + 1) / frame.horizon, ahead_at.shape)
    scaled["ahead"] = np.concatenate([scaled["ahead"], leads[:, :, None]], axis=-1)
    inputs = {name: part.astype(np.float32) for name, part in scaled.items()}
    return Rows(inputs, centre, spread)


def _seasons(
    logs: FloatArray, indices: IntArray, first: IntArray, period: int, cycles: int
) -> tuple[FloatArray, FloatArray]:
    """Return the values whole seasons before ``indices`` and before ``first``: latest, and mean."""
    # The fewest whole seasons that lead to before the origin: from there on nothing is known.
    back = period * (np.maximum(indices - first, 0) // period + 1)
    places = (indices - back)[..., None] - period * np.arange(cycles)
    is_there = places >= 0
    seasons = np.where(is_there, logs[np.maximum(places, 0)], 0.0)
    # Never a division by 0: at least one season lies before an origin (Frame.least_values).
    return seasons[..., 0], seasons.sum(-1) / is_there.sum(-1)


def _scales(logs: FloatArray, origins: IntArray, span: int) -> tuple[FloatArray, FloatArray]:
    """Return mean and deviation of the ``span`` values before each origin, shape (rows, 1)."""
    # Sums from the start cost the same for any span; about the mean, or squares lose digits.
    middle = logs.mean()
    sums = np.stack([np.cumsum(np.insert((logs - middle) ** power, 0, 0.0)) for power in (1, 2)])
    mean, square = (sums[:, origins] - sums[:, origins - span]) / span
    spread = np.sqrt(np.maximum(square - mean**2, MIN_SPREAD**2))
    return (middle + mean)[:, None], spread[:, None]


ENCODER: Final = "forecast-windows/1"
"""Name and version of :func:`encode`; it changes only with the version."""
FORECASTS: Final = ("forecasts", "points")
"""Name and axis of the answer: all leads of the first row, then those of the second, and so on."""
_LIMIT_SECONDS: Final = 60.0
_MAX_STEPS: Final = 4096
_Steps = Annotated[int, Meta(ge=1, le=_MAX_STEPS)]


class DataRange(Struct, frozen=True, forbid_unknown_fields=True):
    """A stretch of time of one data source.

    Attributes:
        source: Cluster of the demand, such as ``Philly``: series of one cluster share their source,
            whatever they count.
        start, end: POSIX seconds; times without a zone are read as UTC. ``end`` is not part of it.
    """

    source: str
    start: float
    end: float


class ForecastCard(cards.BaseCard, frozen=True, kw_only=True):
    """Everything about a forecasting network except its weights.

    Attributes:
        trained_on: The recorded data that it was trained on; empty for generated data alone, None
            if that is unknown.
        step_seconds: Step of its series.
        window, horizon, periods, cycles: As in :class:`~bireme.forecasting.networks.Frame`.
        network: File of the network.
    """

    trained_on: tuple[DataRange, ...] | None = None
    step_seconds: Annotated[int, Meta(ge=1)]
    window: _Steps
    horizon: _Steps
    periods: tuple[_Steps, ...]
    cycles: _Steps
    network: PartCard

    @property
    def frame(self) -> Frame:
        """Its windows and its horizon."""
        return Frame(self.window, self.horizon, self.periods, self.cycles)


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A network that has passed its smoke test."""

    card: ForecastCard
    session: Session

    def forecasts(self, rows: Rows) -> FloatArray:
        """Return demand by row and lead, at least 0, shape (rows, horizon).

        Raises:
            AnswerError: the network gives no valid answer.
        """
        shape = len(rows.centre), self.card.horizon
        answer = self.session.answer(rows.inputs, shape[0] * shape[1], _LIMIT_SECONDS)
        return rows.demand(answer.reshape(shape))


def load(folder: Path, evaluated_on: Sequence[DataRange] = ()) -> Network:
    """Return the network in ``folder``.

    Raises:
        CheckpointError: the network cannot be used, or it was trained on a part of
            ``evaluated_on``.
    """
    try:
        text = read_file(folder, cards.CARD_FILE, cards.MAX_CARD_BYTES)
        card = cards.decode_as(text, ForecastCard, folder / cards.CARD_FILE)
        _require_unseen(card, evaluated_on)
        return network_of(card, read_file(folder, card.network.file, card.network.bytes))
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    except ImportError as error:
        raise CheckpointError(f"{folder}: {error}; {installing('forecast')}") from error


def _require_unseen(card: ForecastCard, evaluated_on: Sequence[DataRange]) -> None:
    """Raise CheckpointError if the network has learned the data of its evaluation."""
    if not evaluated_on:
        return
    remedy = "evaluate on other days, or a network that was trained on generated demand only"
    if card.trained_on is None:
        raise CheckpointError(f"its card does not say on which days it was trained; {remedy}")
    for evaluated in evaluated_on:
        for learned in card.trained_on:
            first, last = max(evaluated.start, learned.start), min(evaluated.end, learned.end)
            if evaluated.source == learned.source and first < last:
                raise CheckpointError(
                    f"it was trained on {evaluated.source} from {clock_time(first)} to "
                    f"{clock_time(last)}, on which it would be evaluated; {remedy}"
                )


def network_of(card: ForecastCard, model: bytes) -> Network:
    """Return the network in the ONNX file ``model``; CheckpointError if it contradicts its card."""
    where = f"{card.name}/{card.network.file}"
    if card.network.encoder != ENCODER:
        raise CheckpointError(
            f"{where}: its encoder is {card.network.encoder!r}, this Bireme has {ENCODER!r}; "
            "train it again"
        )
    session = open_session(model, card.network, card.frame.inputs, FORECASTS, where)
    network = Network(card, session)
    _smoke_test(network, where)
    return network


def _smoke_test(network: Network, where: str) -> None:
    """Run it once; CheckpointError if it gives no valid answer."""
    frame = network.card.frame
    # Two origins: the first possible one, and the end of the series.
    count = frame.least_values + frame.horizon
    logs = np.log1p(5 + 4 * np.sin(np.arange(count) / 3))
    try:
        network.forecasts(encode(logs, np.array([frame.least_values, count]), frame))
    except AnswerError as error:
        raise CheckpointError(
            f"{where}: the smoke test failed: {error}; train or export it again"
        ) from error
