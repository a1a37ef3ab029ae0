"""The networks of TapFinger: what may be permuted, what padding must not change, who sees whom."""

import pytest
import torch
from torch import Tensor

from bireme_lab.encoders.tapfinger_scene import (
    PENDING_FEATURES,
    POOL_FEATURES,
    RUNNING_FEATURES,
    SIZE_FEATURES,
)
from bireme_lab.training.tapfinger.networks import (
    Design,
    Graph,
    NodeAttention,
    Perceptron,
    SemanticAttention,
    ServedPools,
    SizeHead,
    TapAgents,
    TapFingerSizes,
    TapNetwork,
)
from bireme_lab.training.tapfinger.recipe import TapfingerPaperRecipe

SIZES = TapFingerSizes(width=8, heads=2, graph_layers=2)


def drawn(*shape: int, seed: int = 1) -> Tensor:
    part = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    part[..., 0] = 1.0  # there is something
    return part


def a_question(pools: int = 3, slots: int = 4, runs: int = 2, types: int = 0) -> list[Tensor]:
    return [
        drawn(pools, slots, PENDING_FEATURES + types, seed=1),
        drawn(pools, runs, RUNNING_FEATURES + types, seed=2),
        drawn(pools, POOL_FEATURES, seed=3),
    ]


def near(left: Tensor, right: Tensor) -> bool:
    return torch.allclose(left, right, atol=1e-5)


def test_a_node_without_neighbours_keeps_its_own_state() -> None:
    attention = NodeAttention(8, 2)
    node, nobody = drawn(3, 8), torch.zeros(3, 5, dtype=torch.bool)
    assert near(attention(node, drawn(3, 5, 8, seed=2), nobody), torch.nn.functional.elu(node))


def test_edge_types_that_say_the_same_are_mixed_to_just_that() -> None:
    states = drawn(4, 1, 8).expand(4, 3, 8)
    mixed = SemanticAttention(8)(states, torch.ones(4, dtype=torch.bool))
    assert near(mixed, states[:, 0])


def test_scores_follow_tasks_to_other_slots() -> None:
    torch.manual_seed(0)
    network, order = TapNetwork(Design(SIZES)), torch.tensor([2, 0, 3, 1])
    pending, running, pools = a_question()
    before, _ = network.point(network.encode(pending, running, pools)[0], pending)
    moved = pending[:, order]
    after, _ = network.point(network.encode(moved, running, pools)[0], moved)
    assert near(before[:, order], after)


@pytest.mark.parametrize("axis", ["slots", "runs", "pools"])
def test_what_is_padding_changes_nothing(axis: str) -> None:
    torch.manual_seed(0)
    graph = Graph(SIZES)
    pending, running, pools = a_question()
    states, of_pools = graph(pending, running, pools)
    nothing = [part.new_zeros((2, *part.shape[1:])) for part in (pending, running, pools)]
    if axis == "slots":
        pending = torch.cat([pending, pending.new_zeros(3, 2, PENDING_FEATURES)], dim=1)
    elif axis == "runs":
        running = torch.cat([running, running.new_zeros(3, 2, RUNNING_FEATURES)], dim=1)
    else:
        parts = zip((pending, running, pools), nothing, strict=True)
        pending, running, pools = (torch.cat(pair) for pair in parts)
    padded, padded_pools = graph(pending, running, pools)
    assert near(padded[:3, :4], states)
    assert near(padded_pools[:3], of_pools)


def test_a_pool_knows_what_runs_in_another_by_the_graph_alone() -> None:
    torch.manual_seed(0)
    for kind, shows in ((Graph, True), (Perceptron, False)):
        encode = kind(SIZES)
        pending, running, pools = a_question()
        before = encode(pending, running, pools)[1][0]
        running[2] = drawn(2, RUNNING_FEATURES, seed=9)
        assert near(encode(pending, running, pools)[1][0], before) is not shows


def test_a_size_is_judged_by_itself_and_waiting_comes_first() -> None:
    torch.manual_seed(0)
    head, sizes = SizeHead(SIZES), drawn(5, SIZE_FEATURES)
    task, pool = drawn(8, seed=2), drawn(8, seed=3)
    scores = head(task, pool, sizes)
    assert scores.shape == (6,)
    assert near(head(task, pool, sizes[2:4])[1:], scores[3:5])


def test_tasks_taken_in_line_come_in_the_order_of_slots() -> None:
    network = TapNetwork(Design(SIZES, has_graph=False, selects="first"))
    scores, _ = network.point(drawn(2, 5, 8), drawn(2, 5, PENDING_FEATURES))
    assert scores.argsort(descending=True).tolist() == [[0, 1, 2, 3, 4]] * 2


def test_tasks_taken_at_random_are_others_in_other_moments_and_nothing_learns_them() -> None:
    network = TapNetwork(Design(SIZES, selects="random"))
    pending = drawn(200, 4, PENDING_FEATURES)
    pending[..., 1] = pending[..., 1].abs()
    scores, _ = network.point(drawn(200, 4, 8), pending)
    counts = torch.bincount(scores.argmax(-1), minlength=4)
    assert counts.min() > 20
    assert not scores.requires_grad


def test_the_papers_size_is_built_and_answers() -> None:
    agents = TapAgents(TapfingerPaperRecipe.design)
    weights = sum(part.numel() for part in agents.network.parameters())
    asked = a_question(types=TapfingerPaperRecipe.design.types)
    answer = ServedPools(agents.network)(*asked, drawn(3, 4, 5, SIZE_FEATURES))
    assert weights > 2_000_000
    assert answer.shape == (3 * 4 * 7,)
    assert answer.isfinite().all()
