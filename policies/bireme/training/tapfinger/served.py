"""The network of TapFinger as it is served: one moment, every task of every pool, no padding."""

import torch
from torch import Tensor, nn

from bireme.training.tapfinger.agents import TapNetwork


class ServedPools(nn.Module):
    """Scores from the inputs of ``tapfinger-pools/1``."""

    def __init__(self, network: TapNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, pending: Tensor, running: Tensor, pools: Tensor, sizes: Tensor) -> Tensor:
        """Of every slot: the pointer's, that of waiting, those of sizes; flat."""
        states, of_pools = self.network.encode(pending, running, pools)
        scores, states = self.network.point(states, pending)
        there = of_pools.unsqueeze(-2).expand_as(states)
        logits = self.network.size_head(states, there, sizes)
        return torch.cat([scores.unsqueeze(-1), logits], dim=-1).flatten()
