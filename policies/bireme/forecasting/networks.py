"""Networks that forecast: a card that says what they were trained on, and one ONNX file.

A forecaster's checkpoint is made and checked as a policy's is (:mod:`bireme.rl.checkpoints`): size
and sha256 first, then the graph, then a trial run. Its card adds what series it is for.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from bireme.core.errors import installing
from bireme.core.resources import FloatArray
from bireme.forecasting.windows import Frame, Rows, encode
from bireme.rl import cards
from bireme.rl.cards import PartCard
from bireme.rl.checkpoints import read_file, session_of
from bireme.rl.errors import AnswerError, CheckpointError
from bireme.rl.sessions import Session

ENCODER: Final = "forecast-windows/1"
"""What feeds it: :mod:`bireme.forecasting.windows`, which changes only under another version."""
FORECASTS: Final = ("forecasts", "points")
"""Name and axis of the answer: the leads of the first row, then those of the second, and so on."""
_LIMIT_SECONDS: Final = 60.0
_MOST_STEPS: Final = 4096
_Steps = Annotated[int, Meta(ge=1, le=_MOST_STEPS)]


class ForecastCard(cards.Made, frozen=True, kw_only=True):
    """Everything about a forecasting network but its weights.

    Attributes:
        step_seconds: Of the series that it is for.
        window, horizon, periods, cycles: As in :class:`~bireme.forecasting.windows.Frame`.
        network: Its file.
    """

    step_seconds: Annotated[int, Meta(ge=1)]
    window: _Steps
    horizon: _Steps
    periods: tuple[_Steps, ...]
    cycles: _Steps
    network: PartCard

    @property
    def frame(self) -> Frame:
        """How much it sees, and how far it forecasts."""
        return Frame(self.window, self.horizon, self.periods, self.cycles)


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A network that has been tried."""

    card: ForecastCard
    session: Session

    def forecasts(self, rows: Rows) -> FloatArray:
        """Demand by row and lead, at least 0, shape (rows, horizon).

        Raises:
            AnswerError: the network gives no valid answer.
        """
        shape = len(rows.centre), self.card.horizon
        answer = self.session.answer(rows.inputs, shape[0] * shape[1], _LIMIT_SECONDS)
        return rows.demand(answer.reshape(shape))


def load(folder: Path) -> Network:
    """The network in ``folder``. Raises CheckpointError: it cannot be used."""
    try:
        text = read_file(folder, cards.CARD_FILE, cards.MOST_CARD_BYTES)
        card = cards.decode_as(text, ForecastCard, folder / cards.CARD_FILE)
        return network_of(card, read_file(folder, card.network.file, card.network.bytes))
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    except ImportError as error:
        raise CheckpointError(f"{folder}: {error}; {installing('forecast')}") from error


def network_of(card: ForecastCard, model: bytes) -> Network:
    """The network in the ONNX file ``model``. Raises CheckpointError: it is not what is stated."""
    where = f"{card.name}/{card.network.file}"
    if card.network.encoder != ENCODER:
        raise CheckpointError(
            f"{where}: its encoder is {card.network.encoder!r}, this Bireme has {ENCODER!r}; "
            "train it again"
        )
    session = session_of(model, card.network, card.frame.inputs, FORECASTS, where)
    network = Network(card, session)
    _rehearse(network, where)
    return network


def _rehearse(network: Network, where: str) -> None:
    """Ask once; CheckpointError where that gives no valid answer."""
    frame = network.card.frame
    count = frame.least_values + frame.horizon
    logs = np.log1p(5 + 4 * np.sin(np.arange(count) / 3))
    try:
        network.forecasts(encode(logs, np.array([frame.least_values, count]), frame))
    except AnswerError as error:
        raise CheckpointError(
            f"{where}: the trial run failed: {error}; train or export it again"
        ) from error
