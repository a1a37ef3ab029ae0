"""The networks of DAS as they are served: one cluster, no padding, means instead of samples."""

import torch
from torch import Tensor, nn

from bireme.training.das.networks import OrderingNetwork, PlacementNetwork


class ServedOrdering(nn.Module):
    """Priorities from the inputs of ``das-jobs/1``."""

    def __init__(self, network: OrderingNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, jobs: Tensor, places: Tensor, machines: Tensor) -> Tensor:
        """(gangs,)."""
        # A batch of one: the exporter knows attention in batches only.
        is_job = torch.ones_like(places, dtype=torch.bool)[None]
        is_machine = torch.ones_like(machines[:, 0], dtype=torch.bool)[None]
        scores: Tensor = self.network(jobs[None], places[None], is_job, machines[None], is_machine)
        return scores[0]


class ServedPlacement(nn.Module):
    """Affinities from the inputs of ``das-machines/1``.

    They are the mean of the Gaussian process' posterior. What finished runs tell is in the inputs;
    nothing has to be inverted here.
    """

    def __init__(self, network: PlacementNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, job: Tensor, machines: Tensor) -> Tensor:
        """(nodes,)."""
        affinities: Tensor = self.network(job, machines)
        return affinities
