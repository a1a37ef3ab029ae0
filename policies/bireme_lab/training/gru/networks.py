"""The GRU of LSP: the network, its training on windows of series, and its serving.

    state           = GRU(past)
    weights, shift  = head(state, ahead)
    forecast        = (usual + weights) . ahead + shift

So a forecast is a blend of the values of past seasons and of the last value. The weights depend on
their recent agreement. Before training the head returns 0, and the usual weights are those of the
seasonal-naive forecast: all on one longest season ago (without seasons: on the last value).

The loss is the absolute error of scaled logs, with a normal prior on the weights around their
start. The prior counts more with fewer rows: a series of seven weeks of days moves the network
little, one of half a year of hours moves it freely.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.networks import (
    ENCODER,
    FORECASTS,
    DataRange,
    ForecastCard,
    Frame,
    Network,
    encode,
    network_of,
)
from bireme.forecasting.series import Series, TooShortError, origins_between
from bireme_lab.training.algorithm import Callback, LearningProgress
from bireme_lab.training.export import compare, source_commit, to_onnx, today, versions

# --- the network --------------------------------------------------------------------------------

_HIDDEN: Final = 32


class GruNetwork(nn.Module):
    """Network from the arrays of :func:`bireme.forecasting.networks.encode` to logs of demand."""

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        (_, _, past_width), (_, _, ahead_width) = frame.inputs["past"], frame.inputs["ahead"]
        self.gru = nn.GRU(int(past_width), _HIDDEN, batch_first=True)
        # zero, so that an untrained network is the seasonal-naive forecast
        last = nn.Linear(_HIDDEN, int(ahead_width) + 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.head = nn.Sequential(nn.Linear(_HIDDEN + int(ahead_width), _HIDDEN), nn.Tanh(), last)
        self.usual = nn.Parameter(torch.zeros(int(ahead_width)))
        with torch.no_grad():
            self.usual[max(0, 2 * len(frame.periods) - 2)] = 1.0

    def forward(self, past: Tensor, ahead: Tensor) -> Tensor:
        """Return (rows * horizon,) from (rows, window, ...) and (rows, horizon, ...)."""
        state = self.gru(past)[1][-1].unsqueeze(1).expand(-1, ahead.shape[1], -1)
        answer = self.head(torch.cat([state, ahead], -1))
        weights, shift = self.usual + answer[..., :-1], answer[..., -1]
        forecast: Tensor = (weights * ahead).sum(-1) + shift
        return forecast.reshape(-1)


# --- learning -----------------------------------------------------------------------------------

LEARNING_RATE: Final = 3e-3
ROWS_AT_ONCE: Final = 128
HOLDING_ROWS: Final = 50.0
"""With so few rows the weights stay at their start; with ten times as many they are almost free.
Chosen on windows before those of any published result, and on other daily series."""
_WARM_UP: Final = 0.1
_UPDATES_BETWEEN_REPORTS: Final = 25


@dataclass(frozen=True, slots=True, eq=False)
class WindowBatch:
    """Inputs and targets: (rows, window, ...), (rows, horizon, ...), (rows, horizon)."""

    past: Tensor
    ahead: Tensor
    came: Tensor

    def __len__(self) -> int:
        return len(self.came)


def windows_of(values: FloatArray, frame: Frame, origins: IntArray) -> WindowBatch:
    """Return the windows of a series at ``origins``, with ``frame.horizon`` values after each."""
    logs = np.log1p(values)
    rows = encode(logs, origins, frame)
    came = logs[origins[:, None] + np.arange(frame.horizon)]
    scaled = ((came - rows.centre) / rows.spread).astype(np.float32)
    return WindowBatch(*map(torch.from_numpy, (rows.inputs["past"], rows.inputs["ahead"], scaled)))


def concatenate(parts: Sequence[WindowBatch]) -> WindowBatch:
    every = ((part.past, part.ahead, part.came) for part in parts)
    return WindowBatch(*(torch.cat(tensors) for tensors in zip(*every, strict=True)))


class GruTrainer:
    """Trainer of ``network`` on ``rows``, in ``updates`` updates.

    An update depends only on its number, on ``seed`` and on the weights. So a resumed run has the
    same result as an uninterrupted one.
    """

    def __init__(self, network: GruNetwork, rows: WindowBatch, updates: int, seed: int = 0) -> None:
        self.network, self._rows, self._total, self._seed = network, rows, updates, seed
        self._began = [part.detach().clone() for part in network.parameters()]
        self._optimizer = torch.optim.Adam(network.parameters())
        self.updates = 0

    def learn(self, total_steps: int, callback: Callback | None = None) -> Self:
        """Make ``total_steps`` updates in all; call ``callback`` after every 25th and the last."""
        since, losses, goes_on = time.perf_counter(), [0.0], True
        while goes_on and self.updates < total_steps:
            losses.append(self._update())
            self.updates += 1
            is_reported = not self.updates % _UPDATES_BETWEEN_REPORTS or self.updates == total_steps
            if callback is not None and is_reported:
                metrics = {"loss": float(np.mean(losses[-_UPDATES_BETWEEN_REPORTS:]))}
                took = time.perf_counter() - since
                goes_on = callback(LearningProgress(self.updates, self.updates, took, metrics))
        return self

    def state_dict(self) -> dict[str, Any]:
        moments = self._optimizer.state_dict()["state"]
        return {
            "policy": dict(self.network.state_dict()),
            "optimizer": {str(key): value for key, value in moments.items()},
            "updates": self.updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.network.load_state_dict(state["policy"])
        groups = self._optimizer.state_dict()["param_groups"]
        moments = {int(key): value for key, value in state.get("optimizer", {}).items()}
        self._optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.updates = state["updates"]

    def _update(self) -> float:
        for group in self._optimizer.param_groups:
            group["lr"] = LEARNING_RATE * _rate(self.updates / self._total)
        # a generator per update: a resumed run draws the same rows
        chance = torch.Generator().manual_seed(self._seed * 1_000_003 + self.updates)
        rows = torch.randperm(len(self._rows), generator=chance)[:ROWS_AT_ONCE]
        answer = self.network(self._rows.past[rows], self._rows.ahead[rows])
        came = self._rows.came[rows].reshape(-1)
        # absolute error, but smooth at 0
        loss = functional.smooth_l1_loss(answer, came, beta=0.1)
        self._optimizer.zero_grad()
        regularised = loss + self._distance() * (HOLDING_ROWS / len(self._rows)) ** 3
        regularised.backward()  # type: ignore[no-untyped-call]
        # clip: one odd window must not undo the training
        clip_grad_norm_(self.network.parameters(), 1.0)
        self._optimizer.step()
        return float(loss.detach())

    def _distance(self) -> Tensor:
        """Return the squared distance of the weights from their start."""
        pairs = zip(self.network.parameters(), self._began, strict=True)
        return torch.stack([((part - began) ** 2).sum() for part, began in pairs]).sum()


def _rate(share: float) -> float:
    """Return the factor of the learning rate at this share of updates: up in a tenth, then down."""
    if share < _WARM_UP:
        return share / _WARM_UP
    return (1 + math.cos(math.pi * (share - _WARM_UP) / (1 - _WARM_UP))) / 2


# --- from torch to the serving network ----------------------------------------------------------

NAME: Final = "gru"
SUMMARY: Final = "Forecasts from the last values and from the same hours of past seasons"
PAPER: Final = "Lu et al., IEEE TPDS 2023 (LSP), eq. 1, with the fill-ins of its recipe"
WHOLE_SERIES: Final = "trained on the whole series, neither validated nor evaluated"
MAX_WINDOW: Final = 24
UPDATES: Final = 2000


def train_for(series: Series, horizon: int, seed: int = 0, updates: int = UPDATES) -> Network:
    """Train a network on all of ``series``, to forecast ``horizon`` steps at once.

    It takes under a minute for a year of hours. ``seed`` sets the weights and all draws.

    Raises:
        TooShortError: the series leaves less than a season of rows.
    """
    torch.set_num_threads(1)  # so small a network is slower with more threads
    frame = frame_for(series, horizon)
    network = new_network(frame, seed)
    rows = windows_of(series.values, frame, origins_of(series, frame))
    GruTrainer(network, rows, updates, seed).learn(updates)
    data = f"the series itself, {len(series)} values in steps of {series.step_seconds} s"
    numbers = {"steps": float(updates), "rows": float(len(rows))}
    step = series.step_seconds
    return to_served(network, frame, step_seconds=step, data=data, seed=seed, training=numbers)[0]


def frame_for(series: Series, horizon: int) -> Frame:
    """Return the frame for ``series``: a day of hours, or the shortest season if that is less.

    Raises:
        TooShortError: the series leaves less than a season of rows.
    """
    window = min((MAX_WINDOW, *series.periods))
    frame = Frame(window, horizon, series.periods)
    min_values = frame.least_values + horizon + max(series.periods, default=window)
    if len(series) < min_values:
        raise TooShortError(
            f"{len(series)} values; to learn {horizon} steps ahead of seasons of "
            f"{series.periods or 'no'} steps takes at least {min_values}"
        )
    return frame


def origins_of(series: Series, frame: Frame) -> IntArray:
    """Return all origins of ``series`` that a network can learn from."""
    return origins_between(frame.least_values, len(series) - frame.horizon)


def new_network(frame: Frame, seed: int) -> GruNetwork:
    """Return an untrained network; torch's own generator keeps its state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GruNetwork(frame)


def to_served(
    network: GruNetwork,
    frame: Frame,
    *,
    step_seconds: int,
    data: str,
    seed: int,
    training: dict[str, float],
    command: str = "",
    split: str = WHOLE_SERIES,
    trained_on: tuple[DataRange, ...] | None = None,
) -> tuple[Network, bytes]:
    """Return ``network`` for serving, with its card, and the ONNX file.

    Raises:
        CheckpointError: the exported network answers differently from torch.
    """
    model, part = to_onnx(network, f"{NAME}.onnx", ENCODER, frame.inputs, FORECASTS)
    card = ForecastCard(
        name=NAME,
        summary=SUMMARY,
        paper=PAPER,
        made=today(),
        command=command or "bireme forecast compare --gru train",
        seeds=(seed,),
        data=data,
        training=training,
        commit=source_commit(),
        versions=versions(),
        split=split,
        trained_on=trained_on,
        results=(),
        step_seconds=step_seconds,
        network=part,
        **asdict(frame),
    )
    serving = network_of(card, model)
    compare(network, serving.session, part)
    return serving, model
