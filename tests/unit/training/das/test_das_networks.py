"""The networks of DAS: what may be permuted, what padding must not change, any cluster size."""

import pytest
import torch
from torch import Tensor

from bireme.training.das import networks
from bireme.training.das.networks import (
    Communication,
    Critic,
    OrderingNetwork,
    PlacementNetwork,
    Sizes,
)

SIZES = Sizes(job_features=5, machine_features=4, pair_features=3, width=8, heads=2)


def of_shape(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def everybody(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.bool)


@pytest.fixture
def ordering() -> OrderingNetwork:
    torch.manual_seed(0)
    return OrderingNetwork(SIZES)


@pytest.fixture
def placement() -> PlacementNetwork:
    torch.manual_seed(0)
    return PlacementNetwork(SIZES)


def padded(states: Tensor, dim: int) -> Tensor:
    """Two more of them, full of what must never matter."""
    shape = list(states.shape)
    shape[dim] = 2
    return torch.cat([states, torch.full(shape, 77.0)], dim)


@pytest.mark.parametrize("machines", [8, 32, 64])
@pytest.mark.parametrize("jobs", [1, 20])
def test_same_weights_serve_any_cluster(
    ordering: OrderingNetwork, placement: PlacementNetwork, jobs: int, machines: int
) -> None:
    job, machine = of_shape(2, jobs, 5), of_shape(2, machines, 4)
    scores = ordering(job, everybody(2, jobs), machine, everybody(2, machines))
    affinities, places = placement(job, machine, of_shape(2, jobs, machines, 3))
    assert scores.shape == (2, jobs)
    assert affinities.shape == (2, jobs, machines)
    assert places.shape == (2, jobs, machines, 4)


def test_padded_jobs_and_machines_do_not_change_priorities(ordering: OrderingNetwork) -> None:
    jobs, machines = of_shape(6, 5), of_shape(4, 4)
    plain = ordering(jobs, everybody(6), machines, everybody(4))
    is_job, is_machine = torch.arange(8) < 6, torch.arange(6) < 4
    beside = ordering(padded(jobs, 0), is_job, padded(machines, 0), is_machine)
    assert torch.allclose(plain, beside[:6], atol=1e-6)


def test_order_of_machines_does_not_change_priorities(ordering: OrderingNetwork) -> None:
    jobs, machines = of_shape(6, 5), of_shape(7, 4)
    plain = ordering(jobs, everybody(6), machines, everybody(7))
    turned = ordering(jobs, everybody(6), machines.flip(0), everybody(7))
    assert torch.allclose(plain, turned, atol=1e-6)


def test_priorities_move_with_their_jobs_but_for_the_place_in_the_queue(
    ordering: OrderingNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, machines = of_shape(6, 5), of_shape(3, 4)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    plain = ordering(jobs, everybody(6), machines, everybody(3))
    moved = ordering(jobs[order], everybody(6), machines, everybody(3))
    assert not torch.allclose(plain[order], moved, atol=1e-4)
    monkeypatch.setattr(networks, "positions", lambda *_: torch.zeros(6, SIZES.width))
    plain = ordering(jobs, everybody(6), machines, everybody(3))
    moved = ordering(jobs[order], everybody(6), machines, everybody(3))
    assert torch.allclose(plain[order], moved, atol=1e-6)


def test_affinities_move_with_their_machines_and_jobs(placement: PlacementNetwork) -> None:
    jobs, machines, pairs = of_shape(4, 5), of_shape(6, 4), of_shape(4, 6, 3)
    plain, _ = placement(jobs, machines, pairs)
    turned, _ = placement(jobs.flip(0), machines.flip(0), pairs.flip(0, 1))
    assert torch.allclose(plain, turned.flip(0, 1), atol=1e-6)


def test_communication_is_the_gated_mixture_of_the_slide() -> None:
    torch.manual_seed(0)
    communicate = Communication(machine_features=4, width=8)
    states, machines = of_shape(3, 8), of_shape(5, 4)
    squeezed = communicate.squeezed(machines.mean(0)).expand(3, 8)
    share = torch.sigmoid(communicate.gate(torch.cat([states, squeezed], -1)))
    expected = share * squeezed + (1 - share) * states
    assert torch.allclose(communicate(states, machines, everybody(5)), expected, atol=1e-6)


def test_only_the_ordering_agent_that_communicates_sees_the_cluster() -> None:
    jobs, machines = of_shape(3, 5), of_shape(4, 4)
    changes = []
    for communicates in (True, False):
        torch.manual_seed(0)
        network = OrderingNetwork(SIZES, communicates=communicates)
        before = network(jobs, everybody(3), machines, everybody(4))
        after = network(jobs, everybody(3), machines + 1, everybody(4))
        changes.append((after - before).abs().max().item())
    assert changes[0] > 1e-4
    assert changes[1] == 0.0


def test_value_of_an_empty_queue_is_a_number_and_padding_does_not_change_it() -> None:
    torch.manual_seed(0)
    critic = Critic(SIZES)
    jobs, machines = of_shape(3, 5), of_shape(4, 4)
    plain = critic(jobs, everybody(3), machines, everybody(4))
    beside = critic(padded(jobs, 0), torch.arange(5) < 3, machines, everybody(4))
    assert torch.allclose(plain, beside, atol=1e-6)
    nobody = critic(jobs, ~everybody(3), machines, everybody(4))
    assert torch.isfinite(nobody)
