"""The two networks of A2cScheduler: a scorer shared over the queue, and the paper's two CNNs.

The scorer scores every job by the same small network, which also sees the mean state of all jobs
and the context. So it has a few thousand weights, accepts a queue of any length, and does not
depend on the order of the jobs. The void has its own network. A job's score is the advantage of its
start over waiting.

The paper's actor and critic (Liang et al., PAKDD 2020, section 4.3 and table 3) read the image:
16 and 32 filters of 3 x 3, flattened, one full layer; their weights are distinct.
"""

import torch
from torch import Tensor, nn

from bireme_lab.encoders.a2c import CONTEXT_FEATURES, IMAGE_HORIZON_STEPS, JOB_FEATURES, columns
from bireme_lab.training.deeprm.environment import DeepRmEnvConfig
from bireme_lab.training.distributions import MaskedCategorical
from bireme_lab.training.networks import ActorCritic, Tensors, mean_over

WIDTH = 32
FILTERS = (16, 32)


class QueueScorer(nn.Module):
    """Scores of jobs; those below 0 are worse than waiting."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.each = nn.Sequential(
            nn.Linear(JOB_FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.job = nn.Linear(width, width, bias=False)
        self.whole = nn.Linear(width + CONTEXT_FEATURES, width)
        self.score = nn.Linear(width, 1)
        self.void = nn.Linear(width, 1)

    def forward(self, jobs: Tensor, context: Tensor, present: Tensor | None = None) -> Tensor:
        """Return scores, shape (..., jobs).

        Args:
            jobs: Shape (..., jobs, JOB_FEATURES).
            context: Shape (..., CONTEXT_FEATURES).
            present: 1 for a job and 0 for an empty slot, shape (..., jobs); None in service, where
                no slot is empty.
        """
        present = torch.ones_like(jobs[..., 0]) if present is None else present
        states = self.each(jobs)
        whole = self.whole(torch.cat([mean_over(states, present), context], dim=-1))
        scores = self.score(torch.relu(self.job(states) + whole.unsqueeze(-2))).squeeze(-1)
        return torch.as_tensor(scores - self.void(torch.relu(whole)))


class SetPolicy(ActorCritic):
    """The scorer as a policy; replicas are its baseline, so it has no critic."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.scorer = QueueScorer(width)

    def distribution(self, observation: Tensors) -> MaskedCategorical:
        """Return a distribution over the queue and the void, from :func:`as_set`."""
        present = observation["present"].float()
        scores = self.scorer(observation["jobs"], observation["context"], present)
        logits = torch.cat([scores, torch.zeros_like(scores[:, :1])], dim=1)
        return MaskedCategorical(logits, observation["mask"])


def convolutions(config: DeepRmEnvConfig, outputs: int, stride: int = 1) -> nn.Sequential:
    """Return one of the paper's networks; with ``stride`` 2 layers read every other place.

    It maps images, shape (batch, 1, horizon steps, columns), to shape (batch, outputs).
    """
    down, across = IMAGE_HORIZON_STEPS, columns(config.queue_slots)
    for _ in FILTERS:
        down, across = -(-down // stride), -(-across // stride)
    return nn.Sequential(
        nn.Conv2d(1, FILTERS[0], 3, stride, padding=1),
        nn.ReLU(),
        nn.Conv2d(FILTERS[0], FILTERS[1], 3, stride, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(FILTERS[1] * down * across, outputs),
    )


class ServedImages(nn.Module):
    """The paper's actor for serving: an image per gang and its slot in the image."""

    def __init__(self, actor: nn.Module) -> None:
        super().__init__()
        self.actor = actor

    def forward(self, image: Tensor, slot: Tensor) -> Tensor:
        """Return the advantage of each gang's start over waiting, shape (gangs,).

        Args:
            image: Shape (gangs, 1, horizon steps, columns).
            slot: 1 in the gang's place, shape (gangs, queue slots).
        """
        logits = self.actor(image)
        return torch.as_tensor((logits[:, :-1] * slot).sum(1) - logits[:, -1])


class ImagePolicy(ActorCritic):
    """The paper's actor and critic."""

    def __init__(self, config: DeepRmEnvConfig, stride: int = 1) -> None:
        super().__init__()
        self.actor = convolutions(config, config.queue_slots + 1, stride)
        self.critic = convolutions(config, 1, stride)

    def distribution(self, observation: Tensors) -> MaskedCategorical:
        """Return a distribution over the queue and the void, from :func:`as_image`."""
        return MaskedCategorical(self.actor(observation["image"]), observation["mask"])

    def values(self, observation: Tensors) -> Tensor:
        return torch.as_tensor(self.critic(observation["image"]).squeeze(-1))
