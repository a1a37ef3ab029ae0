"""The network: a GRU reads the last values, one head says for every lead what to go by.

    state           = GRU(past)
    weights, shift  = head(state, ahead)
    forecast        = (usual + weights) . ahead + shift

So a forecast is a blend of what stood there in past seasons and of the last value, with weights
that depend on how well they agreed lately. Before it has learned anything the head answers 0, and
the usual weights are those of the seasonal-naive forecast: all on one longest season ago (without
seasons: on the last value).
"""

import torch
from torch import Tensor, nn

from bireme.forecasting.windows import Frame

HIDDEN = 32


class GruNetwork(nn.Module):
    """From the arrays of :func:`bireme.forecasting.windows.encode` to scaled logs of demand."""

    def __init__(self, frame: Frame, hidden: int = HIDDEN) -> None:
        super().__init__()
        (_, _, seen), (_, _, known) = frame.inputs["past"], frame.inputs["ahead"]
        self.gru = nn.GRU(int(seen), hidden, batch_first=True)
        last = nn.Linear(hidden, int(known) + 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.head = nn.Sequential(nn.Linear(hidden + int(known), hidden), nn.Tanh(), last)
        self.usual = nn.Parameter(torch.zeros(int(known)))
        with torch.no_grad():
            self.usual[max(0, 2 * len(frame.periods) - 2)] = 1.0

    def forward(self, past: Tensor, ahead: Tensor) -> Tensor:
        """(rows, window, ...) and (rows, horizon, ...) to (rows * horizon,), row by row."""
        state = self.gru(past)[1][-1].unsqueeze(1).expand(-1, ahead.shape[1], -1)
        told = self.head(torch.cat([state, ahead], -1))
        weights, shift = self.usual + told[..., :-1], told[..., -1]
        answer: Tensor = (weights * ahead).sum(-1) + shift
        return answer.reshape(-1)
