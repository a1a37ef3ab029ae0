"""RLPTO's network: one small scorer, shared over all tasks.

The same layers read every task, with the mean over tasks and the context, and give it two scores:
for one node more and for one node less. Doing nothing has its own score. So the number and order of
tasks may vary, and one network serves every beta, which is part of the context.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from bireme_lab.encoders.rlpto import CONTEXT_FEATURES, TASK_FEATURES
from bireme_lab.training.distributions import MaskedCategorical
from bireme_lab.training.networks import ActorCritic, Tensors, mean_over

WIDTH = 48


class Allocator(nn.Module):
    """Scores of the moves: none, a node more to each task, a node less."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.each = nn.Sequential(
            nn.Linear(TASK_FEATURES + CONTEXT_FEATURES, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.own = nn.Linear(width, width, bias=False)
        self.whole = nn.Linear(width + CONTEXT_FEATURES, width)
        self.more_and_less = nn.Linear(width, 2)
        self.none = nn.Linear(width, 1)

    def forward(self, tasks: Tensor, context: Tensor, present: Tensor | None = None) -> Tensor:
        """Return logits, (..., 2 * tasks + 1): none first, then more by task, then less by task.

        Args:
            tasks: Shape (..., tasks, TASK_FEATURES).
            context: Shape (..., CONTEXT_FEATURES).
            present: bool: False for padding, shape (..., tasks); None in service, without padding.
        """
        if present is None:
            present = torch.ones_like(tasks[..., 0], dtype=torch.bool)
        around = context.unsqueeze(-2).expand(*tasks.shape[:-1], context.shape[-1])
        states = self.each(torch.cat([tasks, around], dim=-1))
        whole = self.whole(torch.cat([mean_over(states, present), context], dim=-1))
        moves = self.more_and_less(torch.relu(self.own(states) + whole.unsqueeze(-2)))
        none = self.none(torch.relu(whole))
        return torch.cat([none, moves[..., 0], moves[..., 1]], dim=-1)


class Valuer(nn.Module):
    """V(s): the value of a state, from the mean over its tasks and from the context."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.each = nn.Sequential(
            nn.Linear(TASK_FEATURES + CONTEXT_FEATURES, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.head = nn.Sequential(
            nn.Linear(width + CONTEXT_FEATURES + 1, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, tasks: Tensor, context: Tensor, present: Tensor) -> Tensor:
        """Return values, (batch,), from the inputs of :class:`Allocator`."""
        around = context.unsqueeze(-2).expand(*tasks.shape[:-1], context.shape[-1])
        mean = mean_over(self.each(torch.cat([tasks, around], dim=-1)), present)
        running = present.to(tasks.dtype).mean(-1, keepdim=True)
        return torch.as_tensor(self.head(torch.cat([mean, context, running], dim=-1)).squeeze(-1))


class RlptoPolicy(ActorCritic):
    """The network as a policy; replicas are its baseline, so it has no critic."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.allocator = Allocator(width)

    def distribution(self, observation: Tensors) -> MaskedCategorical:
        """Return a distribution over the moves, from the environment's observation."""
        # Cut slots that are empty in the whole batch.
        present = observation["present"]
        slots, used = present.shape[1], int(present.any(0).nonzero().max()) + 1
        tasks, context = observation["tasks"][:, :used], observation["context"]
        scores = self.allocator(tasks, context, present[:, :used])
        none, more, less = scores.split([1, used, used], dim=1)
        logits = [none, *(functional.pad(part, (0, slots - used)) for part in (more, less))]
        return MaskedCategorical(torch.cat(logits, dim=1), observation["mask"])


class PaperPolicy(RlptoPolicy):
    """The policy with the paper's critic, without shared weights."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__(width)
        self.critic = Valuer(width)

    def values(self, observation: Tensors) -> Tensor:
        inputs = (observation[name] for name in ("tasks", "context", "present"))
        return torch.as_tensor(self.critic(*inputs))
