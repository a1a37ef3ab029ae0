"""A network for one series, from torch to what serves it.

What is exported is compared with torch before it is used, as every checkpoint of Bireme is.
"""

from typing import Final

import torch

from bireme.core.resources import IntArray
from bireme.forecasting.errors import TooShort
from bireme.forecasting.networks import ENCODER, FORECASTS, ForecastCard, Network, network_of
from bireme.forecasting.series import Series, origins_between
from bireme.forecasting.windows import Frame
from bireme.training.export import compare, exported, today
from bireme.training.gru.learning import Fitting, lessons
from bireme.training.gru.network import GruNetwork

NAME: Final = "gru"
SUMMARY: Final = "Forecasts from the last values and from the same hours of past seasons"
PAPER: Final = "Lu et al., IEEE TPDS 2023 (LSP), eq. 1, with the fill-ins of its recipe"
MOST_WINDOW: Final = 24
UPDATES: Final = 2000


def trained_for(series: Series, horizon: int, seed: int = 0, updates: int = UPDATES) -> Network:
    """A network that has learned ``series``; under a minute for a year of hours.

    Args:
        series: At most its own seasons and as many rows as it gives are learned.
        horizon: Steps that it forecasts at once.
        seed: Of the first weights and of chance while learning.
        updates: How long it learns.

    Raises:
        TooShort: the series leaves less than a season of rows.
    """
    torch.set_num_threads(1)  # so small a network is slower with more, on a busy machine by far
    frame = frame_for(series, horizon)
    network = new_network(frame, seed)
    rows = lessons(series.values, frame, origins_of(series, frame))
    Fitting(network, rows, updates, seed).learn(updates)
    data = f"the series itself, {len(series)} values in steps of {series.step_seconds} s"
    told = {"steps": float(updates), "rows": float(len(rows))}
    step = series.step_seconds
    return served(network, frame, step_seconds=step, data=data, seed=seed, training=told)[0]


def frame_for(series: Series, horizon: int) -> Frame:
    """What a network for ``series`` sees: a day of hours, or the shortest season if that is less.

    Raises:
        TooShort: it leaves less than a season of rows to learn from.
    """
    window = min((MOST_WINDOW, *series.periods))
    frame = Frame(window, horizon, series.periods)
    least = frame.least_values + horizon + max(series.periods, default=window)
    if len(series) < least:
        raise TooShort(
            f"{len(series)} values; to learn {horizon} steps ahead of seasons of "
            f"{series.periods or 'no'} steps takes at least {least}"
        )
    return frame


def origins_of(series: Series, frame: Frame) -> IntArray:
    """All places of ``series`` that a network can learn from."""
    return origins_between(frame.least_values, len(series) - frame.horizon)


def new_network(frame: Frame, seed: int) -> GruNetwork:
    """One that has learned nothing; leaves torch's own chance as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GruNetwork(frame)


def served(
    network: GruNetwork,
    frame: Frame,
    *,
    step_seconds: int,
    data: str,
    seed: int,
    training: dict[str, float],
    command: str = "",
) -> tuple[Network, bytes]:
    """``network`` as it is served, with its card, and the ONNX file.

    Raises:
        CheckpointError: it answers otherwise than torch.
    """
    model, part = exported(network, f"{NAME}.onnx", ENCODER, frame.inputs, FORECASTS)
    card = ForecastCard(
        name=NAME,
        summary=SUMMARY,
        paper=PAPER,
        made=today(),
        command=command or "bireme forecast --gru train",
        seeds=(seed,),
        data=data,
        training=training,
        results=(),
        step_seconds=step_seconds,
        window=frame.window,
        horizon=frame.horizon,
        periods=frame.periods,
        cycles=frame.cycles,
        network=part,
    )
    made = network_of(card, model)
    compare(network, made.session, part)
    return made, model
