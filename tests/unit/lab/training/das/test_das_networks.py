"""The networks of DAS: what may be permuted, what padding must not change, any cluster size."""

import pytest
import torch
from torch import Tensor

from bireme_lab.encoders.das_inputs import (
    JOB_FEATURES,
    MACHINE_FEATURES,
    PLACE_FEATURES,
    PLACED_FEATURES,
)
from bireme_lab.training.das.networks import (
    Communication,
    DasCritic,
    OrderingNetwork,
    PlacementNetwork,
)


def of_shape(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def everybody(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.bool)


def in_line(jobs: int) -> Tensor:
    return torch.arange(jobs, dtype=torch.float32)


def padded(states: Tensor) -> Tensor:
    """Two more of them, full of what must never matter."""
    return torch.cat([states, torch.full((2, *states.shape[1:]), 77.0)])


@pytest.fixture
def ordering() -> OrderingNetwork:
    torch.manual_seed(0)
    return OrderingNetwork()


@pytest.fixture
def placement() -> PlacementNetwork:
    torch.manual_seed(0)
    return PlacementNetwork()


@pytest.mark.parametrize("machines", [8, 32, 64])
@pytest.mark.parametrize("jobs", [1, 20])
def test_same_weights_serve_any_cluster(
    ordering: OrderingNetwork, placement: PlacementNetwork, jobs: int, machines: int
) -> None:
    queue = of_shape(2, jobs, JOB_FEATURES), in_line(jobs)
    cluster = of_shape(2, machines, MACHINE_FEATURES)
    scores = ordering(*queue, everybody(2, jobs), cluster, everybody(2, machines))
    assert scores.shape == (2, jobs)
    affinities = placement(of_shape(2, PLACED_FEATURES), of_shape(2, machines, PLACE_FEATURES))
    assert affinities.shape == (2, machines)


def test_padded_jobs_and_machines_do_not_change_priorities(ordering: OrderingNetwork) -> None:
    jobs, machines = of_shape(6, JOB_FEATURES), of_shape(4, MACHINE_FEATURES)
    plain = ordering(jobs, in_line(6), everybody(6), machines, everybody(4))
    is_job, is_machine = torch.arange(8) < 6, torch.arange(6) < 4
    beside = ordering(padded(jobs), in_line(8), is_job, padded(machines), is_machine)
    assert torch.allclose(plain, beside[:6], atol=1e-6)


def test_order_of_machines_does_not_change_priorities(ordering: OrderingNetwork) -> None:
    jobs, machines = of_shape(6, JOB_FEATURES), of_shape(7, MACHINE_FEATURES)
    plain = ordering(jobs, in_line(6), everybody(6), machines, everybody(7))
    turned = ordering(jobs, in_line(6), everybody(6), machines.flip(0), everybody(7))
    assert torch.allclose(plain, turned, atol=1e-6)


def test_priorities_move_with_jobs_that_keep_their_place_in_the_queue(
    ordering: OrderingNetwork,
) -> None:
    jobs, cluster = of_shape(6, JOB_FEATURES), (of_shape(3, MACHINE_FEATURES), everybody(3))
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    plain = ordering(jobs, in_line(6), everybody(6), *cluster)
    listed_otherwise = ordering(jobs[order], in_line(6)[order], everybody(6), *cluster)
    assert torch.allclose(plain[order], listed_otherwise, atol=1e-6)
    arrived_otherwise = ordering(jobs[order], in_line(6), everybody(6), *cluster)
    assert not torch.allclose(plain[order], arrived_otherwise, atol=1e-4)


def test_affinities_move_with_their_machines(placement: PlacementNetwork) -> None:
    job, machines = of_shape(PLACED_FEATURES), of_shape(6, PLACE_FEATURES)
    assert torch.allclose(
        placement(job, machines), placement(job, machines.flip(0)).flip(0), atol=1e-6
    )


def test_communication_is_the_gated_mixture_of_the_slide() -> None:
    torch.manual_seed(0)
    communicate = Communication()
    states, machines = of_shape(3, 32), of_shape(5, MACHINE_FEATURES)
    squeezed = communicate.squeezed(machines.mean(0)).expand(3, 32)
    share = torch.sigmoid(communicate.gate(torch.cat([states, squeezed], -1)))
    expected = share * squeezed + (1 - share) * states
    assert torch.allclose(communicate(states, machines, everybody(5)), expected, atol=1e-6)


def test_only_the_ordering_agent_that_communicates_sees_the_cluster() -> None:
    queue = of_shape(3, JOB_FEATURES), in_line(3), everybody(3)
    machines = of_shape(4, MACHINE_FEATURES)
    changes = []
    for communicates in (True, False):
        torch.manual_seed(0)
        network = OrderingNetwork(communicates=communicates)
        before = network(*queue, machines, everybody(4))
        after = network(*queue, machines + 1, everybody(4))
        changes.append((after - before).abs().max().item())
    assert changes[0] > 1e-4
    assert changes[1] == 0.0


def test_value_of_an_empty_queue_is_a_number_and_padding_does_not_change_it() -> None:
    torch.manual_seed(0)
    critic = DasCritic()
    jobs, cluster = of_shape(3, JOB_FEATURES), (of_shape(4, MACHINE_FEATURES), everybody(4))
    plain = critic(jobs, everybody(3), *cluster)
    beside = critic(padded(jobs), torch.arange(5) < 3, *cluster)
    assert torch.allclose(plain, beside, atol=1e-6)
    assert torch.isfinite(critic(jobs, ~everybody(3), *cluster))
