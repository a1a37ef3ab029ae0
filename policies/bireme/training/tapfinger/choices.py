"""What all pools choose together: a task each, and a size for it, with the density this has.

For one pool (Li et al., equation 13)

    log pi = log Pr(task | pool) + m log Pr*(size | task, pool)

where m is 0 for pools that lost their task. Who wins is settled when the choice is made
(:mod:`bireme.rl.encoders.tapfinger_choice`) and is part of it: the size of a loser is LOST. A pool
that would give its task nothing does not contend for it, or it would keep it from those who would.
Pools that can start nothing have nothing to decide, and are left out of densities and losses.

A size is judged only for the task that is chosen, so the entropy of sizes is that for the task
which was likeliest. The divergence from another distribution asks for the sizes of all tasks, and
costs as much as choosing once for each.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from bireme.rl.encoders.tapfinger_choice import winners
from bireme.rl.encoders.tapfinger_moves import LOST, VOID
from bireme.training.distributions import Action, Distribution, MaskedCategorical
from bireme.training.tapfinger.sight import SIZE, SLOT

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
