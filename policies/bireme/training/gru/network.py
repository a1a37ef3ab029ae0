"""The network: a GRU reads the last values, one head forecasts every lead.

    state    = GRU(past)
    forecast = linear(ahead) + head(state, ahead)

Before it has learned anything it is the seasonal-naive forecast, since the linear part takes what
stood there one longest season ago (without seasons: the last value) and the head answers 0.
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
        last = nn.Linear(hidden, 1)
        self.head = nn.Sequential(nn.Linear(hidden + int(known), hidden), nn.Tanh(), last)
        self.linear = nn.Linear(int(known), 1)
        for part in (last, self.linear):
            nn.init.zeros_(part.weight)
            nn.init.zeros_(part.bias)
        with torch.no_grad():
            self.linear.weight[0, max(0, 2 * len(frame.periods) - 2)] = 1.0

    def forward(self, past: Tensor, ahead: Tensor) -> Tensor:
        """(rows, window, ...) and (rows, horizon, ...) to (rows * horizon,), row by row."""
        state = self.gru(past)[1][-1].unsqueeze(1).expand(-1, ahead.shape[1], -1)
        answer: Tensor = self.linear(ahead) + self.head(torch.cat([state, ahead], -1))
        return answer.reshape(-1)
