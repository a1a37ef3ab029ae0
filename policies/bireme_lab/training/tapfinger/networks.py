"""The networks of TapFinger's agents: graph attention, a pointer, a size head; and their policy.

Nodes of the graph are the pools, the jobs that wait in each and run in each, and one shortcut
between the pools. Its edges (pool with waiting, running, shortcut, both ways) make stars, so that
attention over the neighbours of a node is attention over one padded axis, and dense masks do for a
graph library. A layer follows Wang et al., Heterogeneous graph attention network, WWW 2019,
equations 3 to 9; as there, a node is a neighbour of itself. All agents, one per pool, share all
layers, the pointer (Li et al., equation 10) and the size head.

Shapes: ``pending`` (..., pools, slots, features), ``running`` (..., pools, runs, features),
``pools`` (..., pools, features), ``sizes`` (..., sizes, features) of one kind; the first feature is
0 for padding.

The ablations of the paper (section 5.4 and figure 8): without a graph every task is encoded by
itself beside its pool (No-HAN), without a pointer tasks are taken at random (No-pointer), without
both in the order of the queue (vanilla).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bireme_lab.encoders.tapfinger import LOST, VOID, winners
from bireme_lab.encoders.tapfinger_scene import (
    PENDING_FEATURES,
    POOL_FEATURES,
    RUNNING_FEATURES,
    SIZE_FEATURES,
)
from bireme_lab.training.distributions import Action, ActionDistribution, MaskedCategorical
from bireme_lab.training.networks import ActorCritic, AttentionLayer, Tensors, mean_over
from bireme_lab.training.tapfinger.environment import SIZE, SLOT

_EDGES: Final = (
    "pool-pending",
    "pool-running",
    "pending-pool",
    "running-pool",
    "shortcut-pool",
    "pool-shortcut",
)
"""Types of edges, from and to."""
_NEVER = -1e9  # finite: softmax over nothing but minus infinity is nan
_SLOPE = 0.2
"""Slope of the leaky rectifier in node-level attention, as in Wang et al."""


@dataclass(frozen=True, slots=True)
class TapFingerSizes:
    """Sizes of the networks; the paper's are 256, 4, 6 and 2."""

    width: int = 32
    heads: int = 2
    graph_layers: int = 1
    pending_layers: int = 1


class States(NamedTuple):
    """States of all nodes, the last axis is their width."""

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
        """Return (..., width) from the same, (..., neighbours, width), bool (..., neighbours)."""
        query = self.of_node(node)
        own_score = functional.leaky_relu(query + self.of_neighbour(node), _SLOPE)
        theirs = query.unsqueeze(-2) + self.of_neighbour(neighbours)
        scores = functional.leaky_relu(theirs, _SLOPE).masked_fill(~is_there.unsqueeze(-1), _NEVER)
        shares = torch.softmax(torch.cat([own_score.unsqueeze(-2), scores], dim=-2), dim=-2)
        return functional.elu(_mix(node, neighbours, shares))


def _mix(node: Tensor, neighbours: Tensor, shares: Tensor) -> Tensor:
    """Mix a node and its neighbours by ``shares``, (..., 1 + neighbours, heads)."""
    heads = shares.shape[-1]
    parts = _split(neighbours, heads).transpose(-3, -2)
    gathered = (shares[..., 1:, :].transpose(-2, -1).unsqueeze(-2) @ parts).squeeze(-2)
    own_part = shares[..., 0, :].unsqueeze(-1) * _split(node, heads)
    return (own_part + gathered).flatten(-2)


def _split(states: Tensor, heads: int) -> Tensor:
    """Return (..., heads, width / heads) from (..., width)."""
    return states.reshape(*states.shape[:-1], heads, states.shape[-1] // heads)


class SemanticAttention(nn.Module):
    """Equations 7 to 9: how much each type of edge matters, alike for all nodes of a type."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.judge = nn.Sequential(
            nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1, bias=False)
        )

    def forward(self, states: Tensor, is_node: Tensor) -> Tensor:
        """Return (..., nodes, width) from (..., nodes, types, width) and bool (..., nodes)."""
        scores = mean_over(self.judge(states).squeeze(-1), is_node)
        weights = torch.softmax(scores, dim=-1)[..., None, :, None]
        return (weights * states).sum(-2)


class GraphLayer(nn.Module):
    """One layer of the heterogeneous graph attention network, with residual connections."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.projected = nn.ModuleDict({name: nn.Linear(width, width) for name in States._fields})
        self.edges = nn.ModuleDict({name: NodeAttention(width, heads) for name in _EDGES})
        self.mix = SemanticAttention(width)

    def forward(self, states: States, waits: Tensor, runs: Tensor, is_pool: Tensor) -> States:
        """Return new states; masks are (..., pools, slots), (..., pools, runs), (..., pools)."""
        pending, running, pools, shortcut = (
            project(part) for project, part in zip(self.projected.values(), states, strict=True)
        )
        # every node has one pool and one shortcut: axes of one neighbour
        one = torch.ones_like(is_pool).unsqueeze(-1)
        own_pool = pools[..., None, None, :]
        through = shortcut.unsqueeze(-2).unsqueeze(-2).expand_as(pools.unsqueeze(-2))
        by_edge = (
            self.edges["pending-pool"](pools, pending, waits),
            self.edges["running-pool"](pools, running, runs),
            self.edges["shortcut-pool"](pools, through, one),
        )
        return States(
            states.pending + self.edges["pool-pending"](pending, own_pool, one.unsqueeze(-1)),
            states.running + self.edges["pool-running"](running, own_pool, one.unsqueeze(-1)),
            states.pools + self.mix(torch.stack(by_edge, dim=-2), is_pool),
            states.shortcut + self.edges["pool-shortcut"](shortcut, pools, is_pool),
        )


class Graph(nn.Module):
    """States of waiting tasks and of pools that know of each other, by graph attention."""

    def __init__(self, sizes: TapFingerSizes, types: int = 0) -> None:
        super().__init__()
        width = sizes.width
        self.of_pending = nn.Linear(PENDING_FEATURES + types, width)
        self.of_running = nn.Linear(RUNNING_FEATURES + types, width)
        self.of_pool = nn.Linear(POOL_FEATURES, width)
        self.layers = nn.ModuleList(
            GraphLayer(width, sizes.heads) for _ in range(sizes.graph_layers)
        )

    def forward(self, pending: Tensor, running: Tensor, pools: Tensor) -> tuple[Tensor, Tensor]:
        """Return states of tasks (..., pools, slots, width) and of pools (..., pools, width)."""
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
    """Four layers over each task and its pool, instead of a graph (the paper's No-HAN)."""

    def __init__(self, sizes: TapFingerSizes, types: int = 0) -> None:
        super().__init__()
        width, inputs = sizes.width, PENDING_FEATURES + types + POOL_FEATURES
        widths = (inputs, width, width, width)
        layers = [(nn.Linear(i, width), nn.ReLU()) for i in widths]
        self.of_pending = nn.Sequential(*(part for layer in layers for part in layer))
        self.of_pool = nn.Sequential(nn.Linear(POOL_FEATURES, width), nn.ReLU())

    def forward(self, pending: Tensor, running: Tensor, pools: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same as :class:`Graph`; ``running`` is not used."""
        own_pool = pools.unsqueeze(-2).expand(*pending.shape[:-1], pools.shape[-1])
        return self.of_pending(torch.cat([pending, own_pool], dim=-1)), self.of_pool(pools)


class Pointer(nn.Module):
    """Scores of the next task, v^T tanh(W1 h_j + W2 mean h), after a transformer (equation 10)."""

    def __init__(self, sizes: TapFingerSizes) -> None:
        super().__init__()
        width = sizes.width
        self.layers = nn.ModuleList(
            AttentionLayer(width, sizes.heads) for _ in range(sizes.pending_layers)
        )
        self.of_task = nn.Linear(width, width)
        self.of_all = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, states: Tensor, waits: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores (..., slots) and states (..., slots, width) after attention."""
        for layer in self.layers:
            states = layer(states, waits)
        mean = mean_over(states, waits)
        mixed = torch.tanh(self.of_task(states) + self.of_all(mean).unsqueeze(-2))
        return self.score(mixed).squeeze(-1), states


class SizeHead(nn.Module):
    """Scores of the sizes of a task in a pool; waiting comes first.

    The paper has one output for every amount of every resource; this serves pools of any size.
    """

    def __init__(self, sizes: TapFingerSizes) -> None:
        super().__init__()
        width = sizes.width
        self.of_task = nn.Linear(2 * width, width)
        self.of_size = nn.Linear(SIZE_FEATURES, width, bias=False)
        self.inner = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.wait = nn.Sequential(nn.ReLU(), nn.Linear(width, 1))

    def forward(self, task: Tensor, pool: Tensor, sizes: Tensor) -> Tensor:
        """Return (..., 1 + sizes) from (..., width), the same, and (..., sizes, features)."""
        state = self.of_task(torch.cat([task, pool], dim=-1))
        scores = self.inner(torch.relu(state.unsqueeze(-2) + self.of_size(sizes))).squeeze(-1)
        return torch.cat([self.wait(state), scores], dim=-1)


class TapFingerCritic(nn.Module):
    """Value of each agent, from the tasks that wait in its pool."""

    def __init__(self, sizes: TapFingerSizes) -> None:
        super().__init__()
        width = sizes.width
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, pending: Tensor, waits: Tensor, pools: Tensor) -> Tensor:
        """Return (..., pools) from (..., pools, slots, width), its mask, (..., pools, width)."""
        value: Tensor = self.head(torch.cat([mean_over(pending, waits), pools], dim=-1))
        return value.squeeze(-1)


# --- the agents' policy -------------------------------------------------------------------------

SizesOf: TypeAlias = Callable[[Tensor], MaskedCategorical]
"""From a slot of every pool, (batch, pools), to its sizes, (batch, pools, 1 + sizes)."""


class PoolChoices(ActionDistribution):
    """Distribution of the choices of all pools together: a task each, and a size for it.

    For one pool (Li et al., equation 13)

        log pi = log Pr(task | pool) + m log Pr*(size | task, pool)

    where m is 0 for pools that lost their task. The winner is part of the choice
    (:mod:`bireme_lab.encoders.tapfinger`): the size of a loser is LOST. A pool that gives its task
    nothing does not contend, because it would keep the task from other pools. Pools without a
    possible start have no decision, and are left out of densities and losses.

    A size is scored only for the task that is chosen, so the entropy of sizes is that for the
    likeliest task. The divergence asks for the sizes of all tasks, at the cost of a choice for
    each.

    Args:
        slots: Distribution over (batch, pools, slots), the shape of ``job`` and ``room``.
        job: The job in each slot; equal numbers are the same job.
        room: Multiples of its smallest size that are free in the pool.
        idle: Pools without a possible start, (batch, pools).
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
        with torch.no_grad():
            slot = self._slots.sample(generator)
            return self._settle(slot, self._sizes_of(slot).sample(generator))

    def mode(self) -> dict[str, Tensor]:
        """Return the likeliest slot of every pool, and the likeliest size for it."""
        slot = self._slots.mode()
        return self._settle(slot, self._sizes_of(slot).mode())

    def log_probs(self, actions: Action) -> Tensor:
        assert not isinstance(actions, Tensor)  # noqa: S101  # slot and size
        slot, size = actions[SLOT], actions[SIZE]
        won = size != LOST
        of_slot = _log_probs_of(self._slots, slot)
        of_size = _log_probs_of(self._sizes_of(slot), size.clamp(min=0))  # LOST has no column
        log_probs = of_slot + torch.where(won, of_size, 0.0)
        return log_probs.masked_fill(self._idle, 0.0)

    def log_prob(self, actions: Action) -> Tensor:
        return self.log_probs(actions).sum(1)

    def works(self) -> Tensor:
        return ~self._idle

    def entropy(self) -> Tensor:
        """Return the entropy of the slots, and of the sizes for the likeliest ones."""
        sizes = self._sizes_of(self._slots.mode())
        return (_entropies(self._slots) + _entropies(sizes)).masked_fill(self._idle, 0.0).sum(1)

    def kl(self, other: "PoolChoices") -> Tensor:
        """Return the divergence to ``other`` in the same state, before conflicts, (batch,)."""
        # By the chain rule: of the slots, and of the sizes in each slot by how likely it is.
        divergence = _divergences(self._slots, other._slots)
        likeliest = self._slots.mode()
        for slot, is_allowed in enumerate(self._slots.mask.unbind(-1)):
            slots = torch.where(is_allowed, slot, likeliest)
            weight = self._slots.log_probabilities[..., slot].exp()
            divergence = divergence + weight * _divergences(
                self._sizes_of(slots), other._sizes_of(slots)
            )
        return divergence.masked_fill(self._idle, 0.0).sum(1)

    def _settle(self, slot: Tensor, size: Tensor) -> dict[str, Tensor]:
        """Mark as LOST the sizes of pools whose task another pool won, and of idle ones."""
        index = slot.unsqueeze(-1)
        voids = size == VOID
        job = self._job.gather(-1, index).squeeze(-1).masked_fill(self._idle | voids, -1)
        chance = _log_probs_of(self._slots, slot).detach().exp()
        room = self._room.gather(-1, index).squeeze(-1)
        # the serving code resolves conflicts, in numpy
        won = winners(*(np.asarray(part.cpu()) for part in (job, chance, room)))
        wins = torch.from_numpy(won).to(size.device) | (voids & ~self._idle)
        return {SLOT: slot, SIZE: torch.where(wins, size, LOST)}


def _log_probs_of(distribution: MaskedCategorical, choice: Tensor) -> Tensor:
    """Return log-probabilities of choices by pool."""
    return distribution.log_probabilities.gather(-1, choice.unsqueeze(-1)).squeeze(-1)


def _entropies(distribution: MaskedCategorical) -> Tensor:
    return -(distribution.log_probabilities.exp() * distribution.finite).sum(-1)


def _divergences(distribution: MaskedCategorical, other: MaskedCategorical) -> Tensor:
    return (distribution.log_probabilities.exp() * (distribution.finite - other.finite)).sum(-1)


_CERTAIN: Final = 50.0
"""Difference of scores that makes a choice as good as certain."""
_DIGITS, _MODULUS = 379.0, 101.0
"""Random choices are digits of waiting times, so that equal moments have equal answers."""


@dataclass(frozen=True, slots=True)
class Design:
    """Architecture of the agents.

    Attributes:
        has_graph: Whether nodes attend to each other; else each task is seen beside its pool.
        selects: How a pool chooses a task of its queue.
        types: Length of the one-hot types that tasks show instead of their speed; 0: none.
    """

    sizes: TapFingerSizes = field(default_factory=TapFingerSizes)
    has_graph: bool = True
    selects: Literal["pointer", "random", "first"] = "pointer"
    types: int = 0


class TapNetwork(nn.Module):
    """Graph, pointer and size head: the network for serving."""

    def __init__(self, design: Design) -> None:
        super().__init__()
        sizes = design.sizes
        self.selects = design.selects
        self.encode = (Graph if design.has_graph else Perceptron)(sizes, design.types)
        self.pointer = Pointer(sizes)
        self.size_head = SizeHead(sizes)

    def point(self, states: Tensor, pending: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores of slots, (..., slots), and states (..., slots, width)."""
        scores, states = self.pointer(states, pending[..., 0] > 0)
        slots = torch.arange(pending.shape[-2], dtype=scores.dtype, device=scores.device)
        if self.selects == "first":
            scores = (-_CERTAIN * slots).expand_as(scores)
        if self.selects == "random":
            scores = _CERTAIN * _pseudo_random(pending[..., 1], slots)
        return scores, states


def _pseudo_random(waited: Tensor, slots: Tensor) -> Tensor:
    """Return pseudo-random whole numbers, equal in torch and ONNX, (..., slots)."""
    digits = torch.floor(_DIGITS * waited) + _DIGITS * slots
    return digits - _MODULUS * torch.floor(digits / _MODULUS)


class TapAgents(ActorCritic):
    """The policy in a :class:`~bireme_lab.training.tapfinger.environment.TapFingerAgentEnv`."""

    def __init__(self, design: Design = Design()) -> None:  # it never changes
        super().__init__()
        self.network = TapNetwork(design)
        self.critic = TapFingerCritic(design.sizes)

    def distribution(self, observation: Tensors) -> PoolChoices:
        """Return the distribution of all pools; networks run only for pools that can start."""
        inputs = (observation[name] for name in ("pending", "running", "pools"))
        states, of_pools = self.network.encode(*inputs)
        kind = observation["kind"]
        # tasks whose smallest size is free, (batch, pools, slots)
        has_room = observation["sizes"][..., 0, 0].gather(-1, kind.clamp(min=0)) > 0
        can_start = has_room & (kind >= 0)
        busy = can_start.any(-1)
        scores, states = self.network.point(states[busy], observation["pending"][busy])
        allowed = can_start | ~busy.unsqueeze(-1)  # a distribution must allow something
        slots = MaskedCategorical(_spread(scores, busy), allowed)
        kinds, sizes = kind[busy].clamp(min=0), observation["sizes"][busy]
        can_void = observation["can_void"][:, None].expand_as(busy)[busy]
        pools, rows = of_pools[busy], torch.arange(len(scores), device=scores.device)

        def sizes_of(slot: Tensor) -> MaskedCategorical:
            slots_of_busy = slot[busy]
            features = sizes[rows, kinds[rows, slots_of_busy]]
            logits = self.network.size_head(states[rows, slots_of_busy], pools, features)
            may = torch.cat([can_void.unsqueeze(-1), features[..., 0] > 0], dim=-1)
            return MaskedCategorical(
                _spread(logits, busy), _spread(may, busy) | ~busy.unsqueeze(-1)
            )

        job, room = observation["job"], observation["room"]
        return PoolChoices(slots, sizes_of, job=job, room=room, idle=~busy)

    def values(self, observation: Tensors) -> Tensor:
        """Return the sum of the values of all agents; shape (batch,)."""
        pending, pools = observation["pending"], observation["pools"]
        states, of_pools = self.network.encode(pending, observation["running"], pools)
        expected: Tensor = self.critic(states, pending[..., 0] > 0, of_pools)
        return (expected * pools[..., 0]).sum(-1)  # the first feature is 0 for padding


def _spread(rows: Tensor, busy: Tensor) -> Tensor:
    """Scatter ``rows`` of busy pools, (busy, choices), to (batch, pools, choices); 0 elsewhere."""
    whole = rows.new_zeros((*busy.shape, rows.shape[-1]))
    return whole.masked_scatter(busy.unsqueeze(-1), rows)


# --- as served: one moment, every task of every pool, no padding --------------------------------


class ServedPools(nn.Module):
    """Scores from the inputs of ``tapfinger-pools/1``, or of ``tapfinger-types/1``."""

    def __init__(self, network: TapNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, pending: Tensor, running: Tensor, pools: Tensor, sizes: Tensor) -> Tensor:
        """Return for every slot the pointer's score, that of waiting, those of sizes; flat."""
        states, of_pools = self.network.encode(pending, running, pools)
        scores, states = self.network.point(states, pending)
        own_pool = of_pools.unsqueeze(-2).expand_as(states)
        logits = self.network.size_head(states, own_pool, sizes)
        return torch.cat([scores.unsqueeze(-1), logits], dim=-1).flatten()
