"""The agents of TapFinger as one policy: a pool each, with layers that all of them share.

The ablations of the paper (section 5.4 and figure 8): ``has_graph=False`` encodes every task by
itself beside its pool (No-HAN), ``points=False`` takes tasks at random (No-pointer), and
``in_line=True`` the one that came first (vanilla, together with no graph).
"""

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
from bireme.training.tapfinger.turns import VOID

_FIRST: float = 50.0
"""Difference of scores that makes a choice as good as certain."""


class TapNetwork(nn.Module):
    """Graph, pointer and size head: all that is served."""

    def __init__(
        self,
        sizes: Sizes,
        *,
        has_graph: bool = True,
        points: bool = True,
        in_line: bool = False,
    ) -> None:
        super().__init__()
        self.points, self.in_line = points, in_line
        self.encode = Graph(sizes) if has_graph else Perceptron(sizes)
        self.pointer = Pointer(sizes)
        self.size_head = SizeHead(sizes)

    def look(self, pending: Tensor, running: Tensor, pools: Tensor) -> tuple[Tensor, ...]:
        """Scores of slots (..., pools, slots), their states, and those of pools."""
        waits = pending[..., 0] > 0
        states, of_pools = self.encode(pending, running, pools)
        scores, states = self.pointer(states, waits)
        if self.in_line:
            scores = -_FIRST * torch.arange(waits.shape[-1]).expand(waits.shape)
        elif not self.points:
            scores = torch.zeros_like(scores)
        return scores, states, of_pools


class TapAgents(ActorCritic):
    """What acts in a :class:`~bireme.training.tapfinger.turns.TapTurns`."""

    def __init__(self, sizes: Sizes = Sizes(), **ablations: bool) -> None:  # noqa: B008  # frozen
        super().__init__()
        self.network = TapNetwork(sizes, **ablations)
        self.critic = Critic(sizes)

    def distribution(self, observation: Tensors) -> PoolChoices:
        """Of all pools."""
        seen = (observation[name] for name in ("pending", "running", "pools"))
        scores, states, of_pools = self.network.look(*seen)
        can_start = _can_start(observation)
        idle = ~can_start.any(-1)
        # a distribution must allow something, also where nobody asks
        slots = MaskedCategorical(scores, can_start | idle.unsqueeze(-1))

        def sizes_of(slot: Tensor) -> MaskedCategorical:
            task = _at(states, slot)
            kind = observation["kind"].gather(-1, slot.unsqueeze(-1)).clamp(min=0)
            sizes = _rows(observation["sizes"], kind)
            logits = self.network.size_head(task, of_pools, sizes)
            is_void = torch.arange(logits.shape[-1]) == VOID
            may = torch.cat([torch.ones_like(kind, dtype=torch.bool), sizes[..., 0] > 0], dim=-1)
            must = ~observation["can_void"][:, None] & ~idle
            return MaskedCategorical(logits, may & ~(must.unsqueeze(-1) & is_void))

        job, room = observation["job"], observation["room"]
        return PoolChoices(slots, sizes_of, job=job, room=room, idle=idle)

    def values(self, observation: Tensors) -> Tensor:
        """The sum of what all agents expect, of what waits with each; shape (batch,)."""
        pending = observation["pending"]
        states, of_pools = self.network.encode(
            pending, observation["running"], observation["pools"]
        )
        expected: Tensor = self.critic(states, pending[..., 0] > 0, of_pools)
        return expected.sum(-1)


def _can_start(observation: Tensors) -> Tensor:
    """Tasks whose smallest size is free, (batch, pools, slots)."""
    kind = observation["kind"]
    fits = observation["sizes"][..., 0, 0].gather(-1, kind.clamp(min=0)) > 0
    return fits & (kind >= 0)


def _at(states: Tensor, slot: Tensor) -> Tensor:
    """Of (batch, pools, slots, width) the rows of ``slot``, (batch, pools)."""
    width = states.shape[-1]
    return states.gather(-2, slot[..., None, None].expand(*slot.shape, 1, width)).squeeze(-2)


def _rows(sizes: Tensor, kind: Tensor) -> Tensor:
    """Of (batch, pools, kinds, sizes, features) the rows of ``kind``, (batch, pools, 1)."""
    at = kind[..., None, None].expand(*kind.shape, *sizes.shape[-2:])
    return sizes.gather(-3, at).squeeze(-3)
