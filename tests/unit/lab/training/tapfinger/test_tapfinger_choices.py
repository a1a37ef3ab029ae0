"""Joint choices of all pools: who wins, what has a density, who has nothing to decide."""

import torch
from torch import Tensor

from bireme_lab.encoders.tapfinger import LOST, VOID
from bireme_lab.training.distributions import MaskedCategorical
from bireme_lab.training.networks import tensors
from bireme_lab.training.tapfinger.environment import TapFingerAgentEnv, TapFingerEnv, make_config
from bireme_lab.training.tapfinger.networks import PoolChoices, TapAgents

SLOT_LOGITS = torch.tensor([[[2.0, 0.0], [1.0, 0.0], [0.0, 0.0]]])
SIZE_LOGITS = torch.tensor([[[0.0, 1.0, 2.0]] * 3])


def choices(job: list[list[int]], room: list[list[float]], idle: list[bool]) -> PoolChoices:
    """Three pools of two slots and two sizes."""
    return PoolChoices(
        MaskedCategorical(SLOT_LOGITS),
        lambda slot: MaskedCategorical(SIZE_LOGITS.expand(len(slot), -1, -1)),
        job=torch.tensor([job]),
        room=torch.tensor([room]),
        idle=torch.tensor([idle]),
    )


EQUAL = [[1.0, 1.0]] * 3


def of(slot: list[int], size: list[int]) -> dict[str, Tensor]:
    return {"slot": torch.tensor([slot]), "size": torch.tensor([size])}


def test_of_two_pools_that_choose_one_task_the_surer_one_wins_it() -> None:
    found = choices([[7, 8], [7, 9], [5, 6]], EQUAL, [False] * 3).mode()
    assert found["slot"].tolist() == [[0, 0, 0]]
    assert found["size"].tolist() == [[2, LOST, 2]]


def test_much_more_room_outweighs_being_surer() -> None:
    found = choices([[7, 8], [7, 9], [5, 6]], [[1.0, 1.0], [9.0, 1.0], [1.0, 1.0]], [False] * 3)
    assert found.mode()["size"].tolist() == [[LOST, 2, 2]]


def test_a_pool_that_would_give_a_task_nothing_does_not_keep_it_from_another() -> None:
    found = choices([[7, 8], [7, 9], [5, 6]], [[9.0, 1.0], [1.0, 1.0], [1.0, 1.0]], [False] * 3)
    settled = found._settle(torch.tensor([[0, 0, 0]]), torch.tensor([[VOID, 2, 2]]))
    assert settled["size"].tolist() == [[VOID, 2, 2]]


def test_a_loser_has_the_density_of_its_slot_alone() -> None:
    found = choices([[7, 8], [7, 9], [5, 6]], EQUAL, [False] * 3)
    slots = torch.log_softmax(SLOT_LOGITS, -1)[0, :, 0]
    size = torch.log_softmax(SIZE_LOGITS, -1)[0, 0, 2]
    probs = found.log_probs(of([0, 0, 0], [2, LOST, 2]))
    assert torch.allclose(probs, torch.stack([slots[0] + size, slots[1], slots[2] + size])[None])


def test_an_idle_pool_decides_nothing_and_loses_what_it_seems_to_choose() -> None:
    found = choices([[7, 8], [7, 9], [5, 6]], EQUAL, [True, False, False])
    assert found.works().tolist() == [[False, True, True]]
    assert found.mode()["size"].tolist() == [[LOST, 2, 2]]
    assert found.log_probs(of([0, 0, 0], [LOST, 2, 2]))[0, 0] == 0
    alone = choices([[7, 8], [7, 9], [5, 6]], EQUAL, [True, True, True])
    assert alone.entropy().item() == 0


def test_samples_have_the_frequencies_of_their_densities() -> None:
    found = choices([[1, 2], [3, 4], [5, 6]], EQUAL, [False] * 3)
    chance, drawn = torch.Generator().manual_seed(0), torch.zeros(3)
    for _ in range(3000):
        drawn += found.sample(chance)["size"][0] == VOID
    assert torch.allclose(drawn / 3000, torch.softmax(SIZE_LOGITS, -1)[0, :, 0], atol=0.02)


def drawn(seed: int, idle: list[bool]) -> tuple[PoolChoices, Tensor]:
    """Three pools of three slots and two sizes each, and the chance of each pair."""
    chance = torch.Generator().manual_seed(seed)
    mask = torch.tensor([[[True, True, False], [True] * 3, [True] * 3]])
    slots = MaskedCategorical(torch.randn(1, 3, 3, generator=chance), mask)
    logits = torch.randn(1, 3, 3, 3, generator=chance)

    def sizes_of(slot: Tensor) -> MaskedCategorical:
        index = slot[..., None, None].expand(*slot.shape, 1, logits.shape[-1])
        return MaskedCategorical(logits.gather(2, index).squeeze(2))

    known = {"job": torch.arange(9).reshape(1, 3, 3), "room": torch.ones(1, 3, 3)}
    found = PoolChoices(slots, sizes_of, **known, idle=torch.tensor([idle]))
    return found, slots.log_probabilities.exp().unsqueeze(-1) * torch.softmax(logits, -1)


def test_divergence_is_that_of_all_pairs_of_slot_and_size_of_pools_that_decide() -> None:
    idle = [False, False, True]
    (one, p), (other, q) = drawn(1, idle), drawn(2, idle)
    terms = torch.where(p > 0, p * (p / q.clamp(min=1e-30)).log(), 0.0)
    assert torch.allclose(one.kl(other), terms[:, :2].sum((1, 2, 3)))
    assert one.kl(one).item() == 0


def test_agents_never_start_a_task_twice_nor_what_does_not_fit_in_whole_episodes() -> None:
    turns = TapFingerAgentEnv(TapFingerEnv(6, make_config("multi-3", jobs=24)))
    torch.manual_seed(0)
    agents, chance = TapAgents(), torch.Generator().manual_seed(0)
    seen, steps, is_over = turns.reset(range(6)), 0, False
    while not is_over and steps < 2000:  # the env refuses what cannot be
        with torch.no_grad():
            chosen = agents.distribution(tensors(seen)).sample(chance)
        step = turns.step({name: part.numpy() for name, part in chosen.items()})
        seen, is_over, steps = step.observation, bool(step.is_over.all()), steps + 1
    assert is_over
