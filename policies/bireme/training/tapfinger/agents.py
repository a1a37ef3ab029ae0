"""The agents of TapFinger as one policy: a pool each, with layers that all of them share.

The ablations of the paper (section 5.4 and figure 8): without a graph every task is encoded by
itself beside its pool (No-HAN), without a pointer tasks are taken at random (No-pointer), without
both in the order of the queue (vanilla).
"""

from dataclasses import dataclass, field
from typing import Final, Literal

import torch
from torch import Tensor, nn

from bireme.training.distributions import MaskedCategorical
from bireme.training.policies import ActorCritic, Tensors
from bireme.training.tapfinger.choices import PoolChoices
from bireme.training.tapfinger.networks import (
    Critic,
    Graph,
    Perceptron,
    Pointer,
    SizeHead,
    Sizes,
)

_CERTAIN: Final = 50.0
"""Difference of scores that makes a choice as good as certain."""
_DIGITS, _MODULUS = 379.0, 101.0
"""What is drawn at random are digits of waiting times, so that equal moments have equal answers."""


@dataclass(frozen=True, slots=True)
class Design:
    """What the agents are made of.

    Attributes:
        has_graph: Whether nodes attend to each other; else each task is seen beside its pool.
        selects: How a pool chooses a task of its queue.
    """

    sizes: Sizes = field(default_factory=Sizes)
    has_graph: bool = True
    selects: Literal["pointer", "random", "first"] = "pointer"


class TapNetwork(nn.Module):
    """Graph, pointer and size head: all that is served."""

    def __init__(self, design: Design) -> None:
        super().__init__()
        sizes = design.sizes
        self.selects = design.selects
        self.encode = Graph(sizes) if design.has_graph else Perceptron(sizes)
        self.pointer = Pointer(sizes)
        self.size_head = SizeHead(sizes)

    def point(self, states: Tensor, pending: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of slots, (..., slots), and states (..., slots, width)."""
        scores, states = self.pointer(states, pending[..., 0] > 0)
        slots = torch.arange(pending.shape[-2], dtype=scores.dtype)
        if self.selects == "first":
            scores = (-_CERTAIN * slots).expand_as(scores)
        if self.selects == "random":
            scores = _CERTAIN * _drawn(pending[..., 1], slots)
        return scores, states


def _drawn(waited: Tensor, slots: Tensor) -> Tensor:
    """Whole numbers that mean nothing, alike wherever they are worked out, (..., slots)."""
    digits = torch.floor(_DIGITS * waited) + _DIGITS * slots
    return digits - _MODULUS * torch.floor(digits / _MODULUS)


class TapAgents(ActorCritic):
    """What acts in a :class:`~bireme.training.tapfinger.turns.TapTurns`."""

    def __init__(self, design: Design = Design()) -> None:  # it never changes
        super().__init__()
        self.network = TapNetwork(design)
        self.critic = Critic(design.sizes)

    def distribution(self, observation: Tensors) -> PoolChoices:
        """Of all pools; the networks look only at pools that can start something."""
        seen = (observation[name] for name in ("pending", "running", "pools"))
        states, of_pools = self.network.encode(*seen)
        can_start = _can_start(observation)
        busy = can_start.any(-1)
        scores, states = self.network.point(states[busy], observation["pending"][busy])
        allowed = can_start | ~busy.unsqueeze(-1)  # a distribution must allow something
        slots = MaskedCategorical(_spread(scores, busy), allowed)
        kinds, sizes = observation["kind"][busy].clamp(min=0), observation["sizes"][busy]
        can_void = observation["can_void"][:, None].expand_as(busy)[busy]
        pools, rows = of_pools[busy], torch.arange(len(scores))

        def sizes_of(slot: Tensor) -> MaskedCategorical:
            chosen = slot[busy]
            known = sizes[rows, kinds[rows, chosen]]
            logits = self.network.size_head(states[rows, chosen], pools, known)
            may = torch.cat([can_void.unsqueeze(-1), known[..., 0] > 0], dim=-1)
            return MaskedCategorical(
                _spread(logits, busy), _spread(may, busy) | ~busy.unsqueeze(-1)
            )

        job, room = observation["job"], observation["room"]
        return PoolChoices(slots, sizes_of, job=job, room=room, idle=~busy)

    def values(self, observation: Tensors) -> Tensor:
        """The sum of what all agents expect, of what waits with each; shape (batch,)."""
        pending, pools = observation["pending"], observation["pools"]
        states, of_pools = self.network.encode(pending, observation["running"], pools)
        expected: Tensor = self.critic(states, pending[..., 0] > 0, of_pools)
        return (expected * pools[..., 0]).sum(-1)


def _can_start(observation: Tensors) -> Tensor:
    """Tasks whose smallest size is free, (batch, pools, slots)."""
    kind = observation["kind"]
    fits = observation["sizes"][..., 0, 0].gather(-1, kind.clamp(min=0)) > 0
    return fits & (kind >= 0)


def _spread(rows: Tensor, busy: Tensor) -> Tensor:
    """``rows`` of busy pools, (busy, choices), among all, (batch, pools, choices); 0 elsewhere."""
    whole = rows.new_zeros((*busy.shape, rows.shape[-1]))
    return whole.masked_scatter(busy.unsqueeze(-1), rows)
