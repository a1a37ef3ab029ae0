"""The agents of TapFinger as one policy: a pool each, with layers that all of them share.

The ablations of the paper (section 5.4 and figure 8): without a graph every task is encoded by
itself beside its pool (No-HAN), without a pointer tasks are taken at random (No-pointer), without
both in the order of the queue (vanilla).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from bireme.rl.encoders.tapfinger import LOST, VOID, winners
from bireme.training.distributions import Action, Distribution, MaskedCategorical
from bireme.training.networks import ActorCritic, Tensors
from bireme.training.tapfinger.networks import Critic, Graph, Perceptron, Pointer, SizeHead, Sizes
from bireme.training.tapfinger.turns import SIZE, SLOT

# What all pools choose together: a task each, and a size for it, with the density this has.
#
# For one pool (Li et al., equation 13)
#
#     log pi = log Pr(task | pool) + m log Pr*(size | task, pool)
#
# where m is 0 for pools that lost their task. Who wins is settled when the choice is made
# (:mod:`bireme.rl.encoders.tapfinger`) and is part of it: the size of a loser is LOST. A
# pool
# that would give its task nothing does not contend for it, or it would keep it from those who
# would.
# Pools that can start nothing have nothing to decide, and are left out of densities and losses.
#
# A size is judged only for the task that is chosen, so the entropy of sizes is that for the task
# which was likeliest. The divergence from another distribution asks for the sizes of all tasks, and
# costs as much as choosing once for each.

SizesOf: TypeAlias = Callable[[Tensor], MaskedCategorical]
"""From a slot of every pool, (batch, pools), to its sizes, (batch, pools, 1 + sizes)."""


class PoolChoices(Distribution):
    """Of all pools of a batch.

    Args:
        slots: Over (batch, pools, slots).
        sizes_of: Over the sizes, of given slots.
        job: Whose task waits in each slot; equal ones are the same, (batch, pools, slots).
        room: How often its smallest size is free there, same shape.
        idle: Pools that can start nothing, (batch, pools).
    """

    def __init__(
        self,
        slots: MaskedCategorical,
        sizes_of: SizesOf,
        *,
        job: Tensor,
        room: Tensor,
        idle: Tensor,
    ) -> None:
        self._slots, self._sizes_of = slots, sizes_of
        self._job, self._room, self._idle = job, room, idle

    def sample(self, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """Slot and size of every pool."""
        with torch.no_grad():
            slot = self._slots.sample(generator)
            return self._settled(slot, self._sizes_of(slot).sample(generator))

    def mode(self) -> dict[str, Tensor]:
        """The likeliest slot of every pool, and the likeliest size for it."""
        slot = self._slots.mode()
        return self._settled(slot, self._sizes_of(slot).mode())

    def log_probs(self, actions: Action) -> Tensor:
        """By pool, 0 where idle; shape (batch, pools)."""
        if isinstance(actions, Tensor):
            raise TypeError("pools choose slot and size; the actions are one tensor")
        slot, size = actions[SLOT], actions[SIZE]
        won = size != LOST
        of_slot = _taken(self._slots, slot)
        of_size = _taken(self._sizes_of(slot), size.clamp(min=0))
        found = of_slot + torch.where(won, of_size, 0.0)
        return found.masked_fill(self._idle, 0.0)

    def log_prob(self, actions: Action) -> Tensor:
        """Of all pools together."""
        return self.log_probs(actions).sum(1)

    def works(self) -> Tensor:
        """Which pools have something to decide."""
        return ~self._idle

    def entropy(self) -> Tensor:
        """Of the slots, and of the sizes for the likeliest ones."""
        sizes = self._sizes_of(self._slots.mode())
        return (_entropies(self._slots) + _entropies(sizes)).masked_fill(self._idle, 0.0).sum(1)

    def kl(self, other: "PoolChoices") -> Tensor:
        """To ``other`` in the same state, of choices before it is settled who wins, (batch,).

        By the chain rule: of the slots, and of the sizes in each slot by how likely it is.
        """
        found = _divergences(self._slots, other._slots)
        likeliest = self._slots.mode()
        for slot, is_allowed in enumerate(self._slots.mask.unbind(-1)):
            asked = torch.where(is_allowed, slot, likeliest)
            weight = self._slots.log_probabilities[..., slot].exp()
            found = found + weight * _divergences(self._sizes_of(asked), other._sizes_of(asked))
        return found.masked_fill(self._idle, 0.0).sum(1)

    def _settled(self, slot: Tensor, size: Tensor) -> dict[str, Tensor]:
        """With LOST for those who chose what another pool won, and for idle ones."""
        chosen = slot.unsqueeze(-1)
        voids = size == VOID
        job = self._job.gather(-1, chosen).squeeze(-1).masked_fill(self._idle | voids, -1)
        chance = _taken(self._slots, slot).detach().exp()
        room = self._room.gather(-1, chosen).squeeze(-1)
        won = torch.from_numpy(winners(*(np.asarray(part) for part in (job, chance, room))))
        return {SLOT: slot, SIZE: torch.where(won | (voids & ~self._idle), size, LOST)}


def _taken(found: MaskedCategorical, choice: Tensor) -> Tensor:
    """Log-probabilities of choices, without summing over pools."""
    return found.log_probabilities.gather(-1, choice.unsqueeze(-1)).squeeze(-1)


def _entropies(found: MaskedCategorical) -> Tensor:
    """By pool."""
    return -(found.log_probabilities.exp() * found.finite).sum(-1)


def _divergences(found: MaskedCategorical, other: MaskedCategorical) -> Tensor:
    """By pool."""
    return (found.log_probabilities.exp() * (found.finite - other.finite)).sum(-1)


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
