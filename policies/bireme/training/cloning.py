"""Behaviour cloning with DAgger (Ross, Gordon and Bagnell, AISTATS 2011).

A round plays one episode in which, step by step and env by env, either the expert acts (with
a share that falls linearly to 0 over ``expert_rounds``) or the learner does. The expert labels
every state met, whichever acted, and the learner is trained on all states so far. So it also learns
what the expert does in states that only its own mistakes lead to.

What is minimised is the negative log-likelihood of the expert's actions; a categorical policy may
be given probabilities instead of one choice, then it is the cross entropy. A Gaussian policy that
learns its spread will make it small, as a rule's actions have none: bound it in the network.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from bireme.training.algorithm import Algorithm, Config
from bireme.training.distributed import least
from bireme.training.distributions import (
    Action,
    ActionDistribution,
    JointDistribution,
    MaskedCategorical,
)
from bireme.training.networks import ActorCritic, arrays, tensor, tensors
from bireme.training.rollouts import joined, never_ends, taken
from bireme.training.vec_env import Actions, Array, Observation, VecEnv

Expert: TypeAlias = Callable[[Observation], Actions]
"""From what is seen of n envs to what should be done in each, shape (n, ...).

For categorical choices: integers, or floats of shape (n, choices), the probability of each.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloningConfig(Config):
    """The settings of cloning.

    Attributes:
        expert_rounds: The expert acts always in the first round and never after this many.
        n_epochs: Passes over all states so far in every round, in parts of ``batch_size``.
        ent_coef: How much unsureness is worth; a copy that is sure of itself learns slowly later.
        most_states: The oldest states beyond this are forgotten.
    """

    learning_rate: float = 1e-3
    expert_rounds: int = 5
    n_epochs: int = 2
    batch_size: int = 512
    ent_coef: float = 0.0
    most_states: int = 200_000


class Cloning(Algorithm[CloningConfig]):
    """Learns to act as an expert does.

    Its rounds are the updates of :meth:`learn`; its saved state holds the states met so far.
    """

    def __init__(
        self,
        policy: ActorCritic,
        env: VecEnv,
        config: CloningConfig,
        seed: int = 0,
        *,
        expert: Expert,
    ) -> None:
        super().__init__(policy, env, config, seed)
        self.expert = expert
        self._seen: dict[str, Tensor] = {}
        self._labels: Action | None = None

    def update(self) -> tuple[int, dict[str, float]]:
        """One round: play and label, then train on the aggregate."""
        share = max(0.0, 1 - self.updates / max(1, self.config.expert_rounds))
        states = self._play(share)
        size = len(next(iter(self._seen.values())))
        parts = max(1, int(least(size // self.config.batch_size)))
        losses: list[float] = []
        for _ in range(self.config.n_epochs):
            shuffled = torch.randperm(size, generator=self.generator)
            losses += [self._improve(rows) for rows in shuffled.tensor_split(parts)]
        metrics = {"loss": float(np.mean(losses)), "expert_share": share, "states": float(size)}
        return states, metrics

    def state_dict(self) -> dict[str, Any]:
        """With all labelled states."""
        labels = {"": self._labels} if isinstance(self._labels, Tensor) else self._labels or {}
        return super().state_dict() | {"states": {"seen": dict(self._seen), "labels": labels}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """With all labelled states."""
        super().load_state_dict(state)
        self._seen, labels = state["states"]["seen"], state["states"]["labels"]
        self._labels = labels.get("", labels or None)

    @torch.no_grad()
    def _play(self, share: float) -> int:
        """Play up to ``n_steps`` steps; how many states were labelled."""
        self.episodes.begin()
        seen: list[dict[str, Tensor]] = []
        labels: list[Action] = []
        while not self.episodes.is_over.all() and len(seen) != self.config.n_steps:
            if len(seen) == self.config.longest_episode:
                raise never_ends(int(self.episodes.rows[0]), len(seen))
            shown = self.episodes.seen()
            seen.append({name: part.clone() for name, part in tensors(shown).items()})
            expert_actions = self.expert(shown)
            labels.append(_tensor(expert_actions))
            found = self.policy.distribution(seen[-1])
            own = arrays(found.sample(self.generator))
            heeds = torch.rand(len(self.episodes.rows), generator=self.generator) < share
            self.episodes.step(_mixed(np.asarray(heeds), _choices(expert_actions, own), own))
        self._remember(seen, labels)
        return sum(len(next(iter(part.values()))) for part in seen)

    def _remember(self, seen: list[dict[str, Tensor]], labels: list[Action]) -> None:
        if self._labels is not None:
            seen, labels = [self._seen, *seen], [self._labels, *labels]
        kept = slice(-self.config.most_states, None)
        self._seen = {name: torch.cat([one[name] for one in seen])[kept] for name in seen[0]}
        self._labels = taken(joined(labels), kept)

    def _improve(self, rows: Tensor) -> float:
        if self._labels is None:
            raise RuntimeError("there is nothing to learn from before the first round")
        found = self.policy.distribution({name: part[rows] for name, part in self._seen.items()})
        loss = imitation_loss(found, taken(self._labels, rows)).mean()
        self.descend(loss - self.config.ent_coef * found.entropy().mean())
        return float(loss.detach())


def imitation_loss(found: ActionDistribution, labels: Action) -> Tensor:
    """Return how unlikely ``labels`` are, or how far from wanted probabilities; shape (batch,)."""
    if isinstance(found, JointDistribution) and not isinstance(labels, Tensor):
        losses = {n: imitation_loss(agent, labels[n]) for n, agent in found.agents.items()}
        return (torch.stack(list(losses.values()), dim=1) * found.works()).sum(1)
    is_soft = isinstance(labels, Tensor) and labels.is_floating_point()
    if isinstance(found, MaskedCategorical) and isinstance(labels, Tensor) and is_soft:
        return found.cross_entropy(labels)
    return -found.log_prob(labels)


def _tensor(labels: Actions) -> Action:
    if isinstance(labels, Mapping):
        return {agent: tensor(label).clone() for agent, label in labels.items()}
    return tensor(labels).clone()


def _choices(expert_actions: Actions, own: Actions) -> Actions:
    """What the expert does: its likeliest choice where it gave probabilities."""
    if isinstance(expert_actions, Mapping) and isinstance(own, Mapping):
        return {agent: _choice(expert_actions[agent], own[agent]) for agent in own}
    return _choice(np.asarray(expert_actions), np.asarray(own))


def _choice(expert_actions: Array, own: Array) -> Array:
    return expert_actions if expert_actions.ndim == own.ndim else expert_actions.argmax(-1)


def _mixed(heeds: Array, expert_actions: Actions, own: Actions) -> Actions:
    """The expert's actions in the rows that heed it, the learner's in others."""
    if isinstance(expert_actions, Mapping) and isinstance(own, Mapping):
        return {agent: _mix(heeds, expert_actions[agent], own[agent]) for agent in own}
    return _mix(heeds, np.asarray(expert_actions), np.asarray(own))


def _mix(heeds: Array, expert_actions: Array, own: Array) -> Array:
    return np.where(heeds.reshape(-1, *[1] * (own.ndim - 1)), expert_actions, own).astype(own.dtype)
