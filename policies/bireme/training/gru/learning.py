"""How the network learns: from windows of series, by the absolute error of scaled logs.

The weights found are the likeliest ones if each is normally distributed around where it began,
which is the seasonal-naive forecast. That counts the more the fewer rows there are: a series of
seven weeks of days moves the network little, one of half a year of hours moves it freely.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.windows import Frame, encode
from bireme.training.algorithm import Callback, Progress
from bireme.training.gru.network import GruNetwork

LEARNING_RATE: Final = 3e-3
ROWS_AT_ONCE: Final = 128
HOLDING_ROWS: Final = 50.0
"""So few rows hold the weights where they began; with ten times as many they are all but free.

Chosen on windows before those that any result is told of, and on other daily series.
"""
_WARM_UP: Final = 0.1
_UPDATES_BETWEEN_REPORTS: Final = 25


@dataclass(frozen=True, slots=True, eq=False)
class Lessons:
    """What is shown, and what came: (rows, window, ...), (rows, horizon, ...), (rows, horizon)."""

    past: Tensor
    ahead: Tensor
    came: Tensor

    def __len__(self) -> int:
        return len(self.came)


def lessons(values: FloatArray, frame: Frame, origins: IntArray) -> Lessons:
    """Those of one series at ``origins``, each with ``frame.horizon`` values behind it."""
    logs = np.log1p(values)
    rows = encode(logs, origins, frame)
    came = logs[origins[:, None] + np.arange(frame.horizon)]
    scaled = ((came - rows.centre) / rows.spread).astype(np.float32)
    return Lessons(*map(torch.from_numpy, (rows.inputs["past"], rows.inputs["ahead"], scaled)))


def joined(parts: Sequence[Lessons]) -> Lessons:
    """All of them together."""
    every = ((part.past, part.ahead, part.came) for part in parts)
    return Lessons(*(torch.cat(tensors) for tensors in zip(*every, strict=True)))


class Fitting:
    """Fits ``network`` to ``rows`` in so many updates, faster first; may be interrupted.

    What an update does depends on its number, on ``seed`` and on the weights alone, so that a run
    that is resumed is the one that was not broken off.
    """

    def __init__(self, network: GruNetwork, rows: Lessons, updates: int, seed: int = 0) -> None:
        self.network, self._rows, self._total, self._seed = network, rows, updates, seed
        self._began = [part.detach().clone() for part in network.parameters()]
        self._optimizer = torch.optim.Adam(network.parameters())
        self.updates = 0

    def learn(self, total_steps: int, callback: Callback | None = None) -> Self:
        """Update until ``total_steps`` updates were made; a callback hears every 25th and last."""
        since, losses, goes_on = time.perf_counter(), [0.0], True
        while goes_on and self.updates < total_steps:
            losses.append(self._update())
            self.updates += 1
            is_told = not self.updates % _UPDATES_BETWEEN_REPORTS or self.updates == total_steps
            if callback is not None and is_told:
                told = {"loss": float(np.mean(losses[-_UPDATES_BETWEEN_REPORTS:]))}
                took = time.perf_counter() - since
                goes_on = callback(Progress(self.updates, self.updates, took, told))
        return self

    def state_dict(self) -> dict[str, Any]:
        """All it takes to go on from here."""
        moments = self._optimizer.state_dict()["state"]
        return {
            "policy": dict(self.network.state_dict()),
            "optimizer": {str(key): value for key, value in moments.items()},
            "updates": self.updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.network.load_state_dict(state["policy"])
        groups = self._optimizer.state_dict()["param_groups"]
        moments = {int(key): value for key, value in state.get("optimizer", {}).items()}
        self._optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.updates = state["updates"]

    def _update(self) -> float:
        for group in self._optimizer.param_groups:
            group["lr"] = LEARNING_RATE * _rate(self.updates / self._total)
        chance = torch.Generator().manual_seed(self._seed * 1_000_003 + self.updates)
        rows = torch.randperm(len(self._rows), generator=chance)[:ROWS_AT_ONCE]
        answer = self.network(self._rows.past[rows], self._rows.ahead[rows])
        came = self._rows.came[rows].reshape(-1)
        loss = functional.smooth_l1_loss(answer, came, beta=0.1)
        self._optimizer.zero_grad()
        held = loss + self._distance() * (HOLDING_ROWS / len(self._rows)) ** 3
        held.backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(self.network.parameters(), 1.0)
        self._optimizer.step()
        return float(loss.detach())

    def _distance(self) -> Tensor:
        """Of the weights from where they began, squared."""
        pairs = zip(self.network.parameters(), self._began, strict=True)
        return torch.stack([((part - began) ** 2).sum() for part, began in pairs]).sum()


def _rate(share: float) -> float:
    """Part of the learning rate after this ``share`` of all updates: up in a tenth, then down."""
    if share < _WARM_UP:
        return share / _WARM_UP
    return (1 + math.cos(math.pi * (share - _WARM_UP) / (1 - _WARM_UP))) / 2
