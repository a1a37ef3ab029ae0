"""Both agents of DAS as one policy: whose turn it is, what counts, and what must not."""

import numpy as np
import pytest
import torch
from torch import Tensor

from bireme_lab.training.das.environment import ORDERING, PLACEMENT, DasTurnEnv
from bireme_lab.training.das.networks import DasAgents
from bireme_lab.training.distributions import FullGaussian, JointDistribution
from bireme_lab.training.networks import tensors


@pytest.fixture(scope="module")
def turns() -> dict[str, dict[str, Tensor]]:
    """Observations with several jobs waiting, in each agent's turn."""
    env = DasTurnEnv(2, ("small",), jobs=30, slots=30, reports=True)
    seen = env.reset([0, 1])
    while not (seen["fits"].sum(axis=1) >= 2).all():
        seen = env.step({ORDERING: np.arange(30.0)[None].repeat(2, 0)}).observation
        seen = env.step({PLACEMENT: np.zeros((2, 8))}).observation
    choosing = {name: part.clone() for name, part in tensors(seen).items()}
    placing = env.step({ORDERING: np.arange(30.0)[None].repeat(2, 0)}).observation
    return {ORDERING: choosing, PLACEMENT: tensors(placing)}


@pytest.fixture
def agents() -> DasAgents:
    torch.manual_seed(0)
    return DasAgents()


def found(agents: DasAgents, seen: dict[str, Tensor]) -> JointDistribution:
    answer = agents.distribution(seen)
    assert isinstance(answer, JointDistribution)
    return answer


def log_probs(agents: DasAgents, seen: dict[str, Tensor]) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    answer = found(agents, seen)
    return answer.log_probs(answer.sample(generator)).detach()


@pytest.mark.parametrize(("turn", "busy"), [(ORDERING, 0), (PLACEMENT, 1)])
def test_only_the_agent_whose_turn_it_is_has_work(
    agents: DasAgents, turns: dict[str, dict[str, Tensor]], turn: str, busy: int
) -> None:
    works = found(agents, turns[turn]).works()
    assert works[:, busy].all()
    assert not works[:, 1 - busy].any()
    assert (log_probs(agents, turns[turn])[:, 1 - busy] == 0).all()


def test_ordering_agent_has_no_work_where_one_job_alone_fits(
    agents: DasAgents, turns: dict[str, dict[str, Tensor]]
) -> None:
    alone = torch.zeros_like(turns[ORDERING]["fits"])
    alone[:, 0] = True
    assert not found(agents, turns[ORDERING] | {"fits": alone}).works().any()


def test_padded_slots_of_jobs_never_matter(
    agents: DasAgents, turns: dict[str, dict[str, Tensor]]
) -> None:
    seen = turns[ORDERING]
    spoiled = torch.where(seen["job_mask"][..., None], seen["jobs"], 99.0)
    assert torch.equal(log_probs(agents, seen), log_probs(agents, seen | {"jobs": spoiled}))
    assert torch.allclose(agents.values(seen), agents.values(seen | {"jobs": spoiled}))


def test_machines_without_room_never_matter(
    agents: DasAgents, turns: dict[str, dict[str, Tensor]]
) -> None:
    seen = turns[PLACEMENT]
    has_room = seen["has_room"].clone()
    has_room[:, 0] = False
    spoiled = seen["places"].clone()
    spoiled[:, 0] = 99.0
    full = seen | {"has_room": has_room}
    assert torch.equal(log_probs(agents, full), log_probs(agents, full | {"places": spoiled}))


def test_affinities_vary_together_as_the_walks_say(
    agents: DasAgents, turns: dict[str, dict[str, Tensor]]
) -> None:
    seen = turns[PLACEMENT] | {"has_room": torch.ones_like(turns[PLACEMENT]["has_room"])}
    placement = found(agents, seen).agents[PLACEMENT]
    assert isinstance(placement, FullGaussian)
    spread = agents.log_std[PLACEMENT].exp() * seen["walks"]
    expected = spread @ spread.mT
    assert torch.allclose(placement.cholesky @ placement.cholesky.mT, expected, atol=1e-6)
    assert (expected[0] / expected[0].diagonal().max()).tril(-1).max() > 0.05


def test_without_walks_machines_vary_apart_and_finished_runs_are_hidden(
    turns: dict[str, dict[str, Tensor]],
) -> None:
    torch.manual_seed(0)
    apart, seen = DasAgents(walks=False), turns[PLACEMENT]
    assert not isinstance(found(apart, seen).agents[PLACEMENT], FullGaussian)
    healthy = seen["places"].clone()
    healthy[..., -1] += 1.0
    assert torch.equal(log_probs(apart, seen), log_probs(apart, seen | {"places": healthy}))


def test_a_sure_policy_can_be_made_to_try_things_again(agents: DasAgents) -> None:
    with torch.no_grad():
        agents.log_std[ORDERING].fill_(-3.0)
    agents.explore_within(-2.0)
    assert [float(value.detach()) for value in agents.log_std.values()] == [-2.0, -2.0]
