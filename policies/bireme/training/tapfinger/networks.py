"""The networks of TapFinger: a heterogeneous graph attention network, a pointer, a size head.

Nodes of the graph are the pools, what waits in each, what runs in each, and one shortcut between
the pools. Its edges (pool with waiting, running, shortcut, both ways) make stars, so that attention
over the neighbours of a node is attention over one padded axis, and dense masks do for a graph
library. A layer follows Wang et al., Heterogeneous graph attention network, WWW 2019, equations 3
to 9; as there, a node is a neighbour of itself. All agents share it.

The pointer (Li et al., equation 10) and the size head are shared too, and nothing depends on how
many pools, tasks and sizes there are. Shapes: ``pending`` (..., pools, slots, features),
``running`` (..., pools, runs, features), ``pools`` (..., pools, features), ``sizes`` (..., sizes,
features) of one kind; the first feature tells whether there is something.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from bireme.rl.encoders.tapfinger_scene import (
    PENDING_FEATURES,
    POOL_FEATURES,
    RUNNING_FEATURES,
    SIZE_FEATURES,
)
from bireme.training.networks import Attention, mean_over

_EDGES: Final = (
    "pool-pending",
    "pool-running",
    "pending-pool",
    "running-pool",
    "shortcut-pool",
    "pool-shortcut",
)
"""Types of edges, from and to."""
_NEVER = -1e9
_SLOPE = 0.2
"""Of the leaky rectifier in node-level attention, as in Wang et al."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the networks are; the paper's are 256, 4, 6 and 2."""

    width: int = 32
    heads: int = 2
    graph_layers: int = 1
    pending_layers: int = 1


class States(NamedTuple):
    """Of all nodes but the shortcut's neighbours' masks: (..., pools, slots or runs, width)."""

    pending: Tensor
    running: Tensor
    pools: Tensor
    shortcut: Tensor


class NodeAttention(nn.Module):
    """Equations 3 to 6: a node gathers from its neighbours of one type and from itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.of_node = nn.Linear(width, heads, bias=False)
        self.of_neighbour = nn.Linear(width, heads, bias=False)

    def forward(self, node: Tensor, neighbours: Tensor, is_there: Tensor) -> Tensor:
        """(..., width) from the same, (..., neighbours, width) and bool (..., neighbours)."""
        wanted = self.of_node(node)
        own = functional.leaky_relu(wanted + self.of_neighbour(node), _SLOPE)
        theirs = wanted.unsqueeze(-2) + self.of_neighbour(neighbours)
        found = functional.leaky_relu(theirs, _SLOPE).masked_fill(~is_there.unsqueeze(-1), _NEVER)
        shares = torch.softmax(torch.cat([own.unsqueeze(-2), found], dim=-2), dim=-2)
        return functional.elu(_mixed(node, neighbours, shares))


def _mixed(node: Tensor, neighbours: Tensor, shares: Tensor) -> Tensor:
    """A node and its neighbours by their ``shares``, (..., 1 + neighbours, heads)."""
    heads = shares.shape[-1]
    parts = _split(neighbours, heads).transpose(-3, -2)
    gathered = (shares[..., 1:, :].transpose(-2, -1).unsqueeze(-2) @ parts).squeeze(-2)
    own = shares[..., 0, :].unsqueeze(-1) * _split(node, heads)
    return (own + gathered).flatten(-2)


def _split(states: Tensor, heads: int) -> Tensor:
    """(..., heads, width / heads) from (..., width)."""
    return states.reshape(*states.shape[:-1], heads, states.shape[-1] // heads)


class SemanticAttention(nn.Module):
    """Equations 7 to 9: how much each type of edge matters, alike for all nodes of a type."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.judge = nn.Sequential(
            nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1, bias=False)
        )

    def forward(self, states: Tensor, is_node: Tensor) -> Tensor:
        """(..., nodes, width) from (..., nodes, types, width) and bool (..., nodes)."""
        found = mean_over(self.judge(states).squeeze(-1), is_node)
        weights = torch.softmax(found, dim=-1)[..., None, :, None]
        return (weights * states).sum(-2)


class GraphLayer(nn.Module):
    """One layer of the heterogeneous graph attention network, with what was known before added."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.projected = nn.ModuleDict({name: nn.Linear(width, width) for name in States._fields})
        self.edges = nn.ModuleDict({name: NodeAttention(width, heads) for name in _EDGES})
        self.mix = SemanticAttention(width)

    def forward(self, states: States, waits: Tensor, runs: Tensor, is_pool: Tensor) -> States:
        """The same; bool (..., pools, slots), (..., pools, runs) and (..., pools)."""
        pending, running, pools, shortcut = (
            project(part) for project, part in zip(self.projected.values(), states, strict=True)
        )
        one = torch.ones_like(is_pool).unsqueeze(-1)
        beside = pools[..., None, None, :]
        through = shortcut.unsqueeze(-2).unsqueeze(-2).expand_as(pools.unsqueeze(-2))
        seen = (
            self.edges["pending-pool"](pools, pending, waits),
            self.edges["running-pool"](pools, running, runs),
            self.edges["shortcut-pool"](pools, through, one),
        )
        return States(
            states.pending + self.edges["pool-pending"](pending, beside, one.unsqueeze(-1)),
            states.running + self.edges["pool-running"](running, beside, one.unsqueeze(-1)),
            states.pools + self.mix(torch.stack(seen, dim=-2), is_pool),
            states.shortcut + self.edges["pool-shortcut"](shortcut, pools, is_pool),
        )


class Graph(nn.Module):
    """States of waiting tasks and of pools that know of each other, by graph attention."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.of_pending = nn.Linear(PENDING_FEATURES, width)
        self.of_running = nn.Linear(RUNNING_FEATURES, width)
        self.of_pool = nn.Linear(POOL_FEATURES, width)
        self.layers = nn.ModuleList(
            GraphLayer(width, sizes.heads) for _ in range(sizes.graph_layers)
        )

    def forward(self, pending: Tensor, running: Tensor, pools: Tensor) -> tuple[Tensor, Tensor]:
        """(..., pools, slots, width) and (..., pools, width)."""
        waits, runs, is_pool = pending[..., 0] > 0, running[..., 0] > 0, pools[..., 0] > 0
        of_pools = self.of_pool(pools)
        states = States(
            torch.relu(self.of_pending(pending)),
            torch.relu(self.of_running(running)),
            torch.relu(of_pools),
            mean_over(of_pools, is_pool),
        )
        for layer in self.layers:
            states = layer(states, waits, runs, is_pool)
        return states.pending, states.pools


class Perceptron(nn.Module):
    """The same without a graph: four layers over each task and its pool (the paper's No-HAN)."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, inputs = sizes.width, PENDING_FEATURES + POOL_FEATURES
        widths = (inputs, width, width, width)
        layers = [(nn.Linear(i, width), nn.ReLU()) for i in widths]
        self.of_pending = nn.Sequential(*(part for layer in layers for part in layer))
        self.of_pool = nn.Sequential(nn.Linear(POOL_FEATURES, width), nn.ReLU())

    def forward(self, pending: Tensor, running: Tensor, pools: Tensor) -> tuple[Tensor, Tensor]:
        """As :class:`Graph`."""
        del running
        there = pools.unsqueeze(-2).expand(*pending.shape[:-1], pools.shape[-1])
        return self.of_pending(torch.cat([pending, there], dim=-1)), self.of_pool(pools)


class Pointer(nn.Module):
    """Which task next: u_j = v^T tanh(W1 h_j + W2 mean h), after a transformer (equation 10)."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.layers = nn.ModuleList(
            Attention(width, sizes.heads) for _ in range(sizes.pending_layers)
        )
        self.of_task = nn.Linear(width, width)
        self.of_all = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, states: Tensor, waits: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (..., slots) and states (..., slots, width) that know of all tasks in line."""
        for layer in self.layers:
            states = layer(states, waits)
        mean = mean_over(states, waits)
        mixed = torch.tanh(self.of_task(states) + self.of_all(mean).unsqueeze(-2))
        return self.score(mixed).squeeze(-1), states


class SizeHead(nn.Module):
    """How good each size is for a task in a pool, by what it takes and gives; waiting comes first.

    The paper has one output for every amount of every resource; this serves pools of any size.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.of_task = nn.Linear(2 * width, width)
        self.of_size = nn.Linear(SIZE_FEATURES, width, bias=False)
        self.inner = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.wait = nn.Sequential(nn.ReLU(), nn.Linear(width, 1))

    def forward(self, task: Tensor, pool: Tensor, sizes: Tensor) -> Tensor:
        """(..., 1 + sizes) from (..., width), the same, and (..., sizes, features)."""
        state = self.of_task(torch.cat([task, pool], dim=-1))
        scores = self.inner(torch.relu(state.unsqueeze(-2) + self.of_size(sizes))).squeeze(-1)
        return torch.cat([self.wait(state), scores], dim=-1)


class Critic(nn.Module):
    """What each agent expects, from the tasks that wait in its pool: (..., pools)."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, pending: Tensor, waits: Tensor, pools: Tensor) -> Tensor:
        """From (..., pools, slots, width), bool (..., pools, slots), and (..., pools, width)."""
        value: Tensor = self.head(torch.cat([mean_over(pending, waits), pools], dim=-1))
        return value.squeeze(-1)
