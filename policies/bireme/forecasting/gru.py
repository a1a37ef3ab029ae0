"""The short-period half of LSP: a gated recurrent network (GRU), served without torch.

One network serves every series of its kind, because it sees each relative to the series' own last
season. The one that comes with Bireme is for hourly demand of node pools. ``bireme train gru
--series FILE`` trains one for a series.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.networks import DataRange, ForecastCard, Network, encode, load
from bireme.forecasting.series import ForecastError, Series, TooShortError, require_origins
from bireme.onnx.errors import AnswerError, CheckpointError

SHIPPED: Final = Path(__file__).parent / "checkpoints" / "gru"
_ROWS_AT_ONCE: Final = 1024
"""Maximum rows of a call, whose memory grows with them."""


@dataclass(frozen=True, slots=True, eq=False)
class GruModel:
    """A network for one series."""

    network: Network

    def at(self, values: FloatArray, origins: IntArray, steps: int) -> FloatArray:
        """See :class:`~bireme.forecasting.forecasters.FittedModel`.

        Beyond the network's horizon it forecasts from its own forecasts.
        """
        require_origins(origins, values, self.network.card.frame.least_values)
        logs = np.log1p(values)
        parts = np.array_split(origins, max(1, -(-len(origins) // _ROWS_AT_ONCE)))
        forecasts = np.concatenate([self._block(logs, part) for part in parts])
        while forecasts.shape[1] < steps:
            further = [
                self._block(np.append(logs[:origin], np.log1p(row)), np.array([origin + len(row)]))
                for origin, row in zip(origins, forecasts, strict=True)
            ]
            forecasts = np.hstack([forecasts, np.concatenate(further)])
        return forecasts[:, :steps]

    def _block(self, logs: FloatArray, origins: IntArray) -> FloatArray:
        """Return one horizon of the network, shape (origins, horizon)."""
        card = self.network.card
        if not len(origins):
            return np.empty((0, card.horizon))
        try:
            return self.network.forecasts(encode(logs, origins, card.frame))
        except AnswerError as error:
            raise ForecastError(f"{error}; use another model, or train this one again") from error


class Gru:
    """Forecasts with a network that was trained before, or that is trained at every fit.

    Args:
        source: Folder of the network's checkpoint.
        train: Makes a network for a series, in place of ``source``; an example with torch is
            ``bireme_lab.training.gru.networks.train_for``.
        evaluated_on: Data on which its forecasts are evaluated; a network that was trained on a
            part of them is refused.
    """

    name = "gru"

    def __init__(
        self,
        source: Path = SHIPPED,
        train: Callable[[Series], Network] | None = None,
        evaluated_on: Sequence[DataRange] = (),
    ) -> None:
        self._source, self._train, self._evaluated_on = source, train, evaluated_on
        self._loaded: Network | None = None

    def fit(self, series: Series) -> GruModel:
        """See :class:`~bireme.forecasting.forecasters.Forecaster`.

        Raises:
            TooShortError: the series has too few values for a window and a season before it.
            ForecastError: the checkpoint cannot be used, or is for series of another kind.
        """
        try:
            network = self._train(series) if self._train else self._network()
        except CheckpointError as error:
            raise ForecastError(str(error)) from error
        _require_kind(network.card, series)
        return GruModel(network)

    def _network(self) -> Network:
        # Loaded once: that runs a smoke test, and the network is the same for every series.
        if self._loaded is None:
            self._loaded = load(self._source, self._evaluated_on)
        return self._loaded


def _require_kind(card: ForecastCard, series: Series) -> None:
    """Raise ForecastError unless the network of ``card`` is for series such as this one."""
    other = ""
    if series.step_seconds != card.step_seconds:
        other = f"steps of {card.step_seconds} s, the series has {series.step_seconds} s"
    elif not set(series.periods) <= set(card.periods):
        other = f"seasons of {card.periods} steps, the series has {series.periods}"
    if other:
        raise ForecastError(
            f"network {card.name!r} is for {other}; train one for it: "
            "bireme train gru --series FILE"
        )
    min_values = card.frame.least_values
    if len(series) < min_values:
        raise TooShortError(
            f"{len(series)} values; network {card.name!r} takes at least {min_values}"
        )
