"""Behaviour cloning with DAgger (Ross, Gordon and Bagnell, AISTATS 2011).

A round plays one episode in which, step by step and env by env, either the expert acts (with
a share that falls linearly to 0 over ``expert_rounds``) or the learner does. The expert labels
every state met, whichever acted, and the learner is trained on all states so far. So it also learns
what the expert does in states that only its own mistakes lead to.

The loss is the negative log-likelihood of the expert's actions. A Gaussian policy that learns its
spread will make it small, as a rule's actions have none: bound it in the network.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from bireme.training.algorithm import Algorithm, Config
from bireme.training.distributed import least
from bireme.training.distributions import Action
from bireme.training.networks import ActorCritic, arrays, tensor, tensors
from bireme.training.rollouts import MAX_EPISODE, joined, never_ends, taken
from bireme.training.vec_env import Actions, Array, Observation, VecEnv, by_agent

Expert: TypeAlias = Callable[[Observation], Actions]
"""From what is seen of n envs to what should be done in each, shape (n, ...)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloningConfig(Config):
    """The settings of cloning.

    Attributes:
        expert_rounds: The expert acts always in the first round and never after this many.
        n_epochs: Passes over all states so far in every round, in parts of ``batch_size``.
        ent_coef: Weight of the entropy; a copy that is sure of itself learns slowly later.
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
        self._labels: Action = {}

    def update(self) -> tuple[int, dict[str, float]]:
        """Play and label, then train on all states so far."""
        share = max(0.0, 1 - self.updates / max(1, self.config.expert_rounds))
        states = self._play(share)
        size = len(next(iter(self._seen.values())))
        # As many parts in every process: each of them is a gradient that the others wait for.
        parts = max(1, int(least(size // self.config.batch_size)))
        losses: list[float] = []
        for _ in range(self.config.n_epochs):
            shuffled = torch.randperm(size, generator=self.generator).to(self.policy.device)
            losses += [self._improve(rows) for rows in shuffled.tensor_split(parts)]
        metrics = {"loss": float(np.mean(losses)), "expert_share": share, "states": float(size)}
        return states, metrics

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"states": {"seen": self._seen, "labels": self._labels}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        states, device = state["states"], self.policy.device
        self._seen = {name: part.to(device) for name, part in states["seen"].items()}
        # A run that was broken off before its first round has no labels yet.
        labels = states["labels"]
        self._labels = by_agent(lambda label: label.to(device), labels) if self._seen else labels

    @torch.no_grad()
    def _play(self, share: float) -> int:
        """Play up to ``n_steps`` steps; return how many states were labelled."""
        self.episodes.begin()
        seen: list[dict[str, Tensor]] = []
        labels: list[Action] = []
        while not self.episodes.is_over.all() and len(seen) != self.config.n_steps:
            if len(seen) == MAX_EPISODE:
                raise never_ends(self.episodes)
            shown = self.episodes.seen()
            # Copies, because an env may go on writing into the arrays it showed.
            there = tensors(shown, self.policy.device)
            seen.append({name: part.clone() for name, part in there.items()})
            expert_actions = self.expert(shown)
            labels.append(by_agent(partial(_kept, self.policy.device), expert_actions))
            own = arrays(self.policy.distribution(seen[-1]).sample(self.generator))
            rows = len(self.episodes.rows)
            heeds = np.asarray(torch.rand(rows, generator=self.generator) < share)
            self.episodes.step(by_agent(partial(_mixed, heeds), own, expert_actions))
        self._remember(seen, labels)
        return sum(len(next(iter(part.values()))) for part in seen)

    def _remember(self, seen: list[dict[str, Tensor]], labels: list[Action]) -> None:
        if self._seen:
            seen, labels = [self._seen, *seen], [self._labels, *labels]
        kept = slice(-self.config.most_states, None)
        self._seen = {name: torch.cat([one[name] for one in seen])[kept] for name in seen[0]}
        self._labels = taken(joined(labels), kept)

    def _improve(self, rows: Tensor) -> float:
        found = self.policy.distribution({name: part[rows] for name, part in self._seen.items()})
        loss = -found.log_prob(taken(self._labels, rows)).mean()
        self.descend(loss - self.config.ent_coef * found.entropy().mean())
        return float(loss.detach())


def _kept(device: torch.device, label: Array) -> Tensor:
    return tensor(label).clone().to(device)


def _mixed(heeds: Array, own: Array, expert_actions: Array) -> Array:
    """Return the expert's actions in the rows that heed it, the learner's in others."""
    by_row = heeds.reshape(-1, *[1] * (own.ndim - 1))
    return np.where(by_row, expert_actions, own).astype(own.dtype)
