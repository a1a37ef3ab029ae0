"""Layers that networks of several families share; what is padding changes nothing in them.

Shapes: ``states`` (..., things, features), ``is_there`` (..., things) bool: False where it is
padding. Leading dimensions are those of batches.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """One layer of a transformer encoder, normalised before each half."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )

    def forward(self, states: Tensor, is_there: Tensor) -> Tensor:
        """(..., things, width) from the same; things attend to those that ``is_there`` marks."""
        parts = self.project(self.before(states)).chunk(3, dim=-1)
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(-3, -2) for part in parts
        )
        hidden = torch.where(is_there, 0.0, -1e9)[..., None, None, :]
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=hidden)
        states = states + self.merge(found.transpose(-3, -2).flatten(-2))
        inner: Tensor = self.inner(self.between(states))
        return states + inner


def mean_over(states: Tensor, is_there: Tensor) -> Tensor:
    """The mean over what ``is_there`` marks, (..., features); zero where nothing is."""
    weights = is_there.to(states.dtype)[..., None]
    return (states * weights).sum(-2) / weights.sum(-2).clamp_min(1.0)
