"""Distributions over actions, with their exact densities.

The first dimension is the batch. All others belong to the action and are independent parts of it
(for a :class:`FullGaussian` the last dimension is correlated). So ``log_prob``, ``entropy`` and
``kl`` always have shape (batch,). A mask marks the existing entries of a padded action. Other
entries have no density, are sampled as 0, and never change a result. Random numbers are always
drawn on the CPU, on whatever device the parameters are.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Self, TypeAlias

import torch
from torch import Tensor

Action: TypeAlias = Tensor | dict[str, Tensor]
_LOG_TWO_PI = math.log(2 * math.pi)


class ActionDistribution(ABC):
    """A distribution over the actions of a batch; one agent unless it is joint."""

    @abstractmethod
    def sample(self, generator: torch.Generator | None = None) -> Action:
        """Draw one action per row, without gradient."""

    @abstractmethod
    def mode(self) -> Action:
        """Return the most likely action per row."""

    @abstractmethod
    def log_prob(self, actions: Action) -> Tensor:
        """Return the log-probability or log-density of ``actions``, shape (batch,)."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Return the entropy in nats, shape (batch,)."""

    @abstractmethod
    def kl(self, other: Self) -> Tensor:
        """Return the Kullback-Leibler divergence to ``other``, whose mask must be equal."""

    def log_probs(self, actions: Action) -> Tensor:
        """Return log-probabilities by agent, 0 where idle; shape (batch, agents)."""
        return self.log_prob(actions).unsqueeze(1)

    def works(self) -> Tensor:
        """Return which agents have a decision to make, bool, shape (batch, agents)."""
        return torch.ones_like(self.entropy(), dtype=torch.bool).unsqueeze(1)


class MaskedCategorical(ActionDistribution):
    """One of n choices; some may be forbidden.

    Args:
        logits: Shape (batch, ..., n).
        mask: bool, same shape: True for an allowed choice; None allows all.

    Raises:
        ValueError: a row has no allowed choice, or a logit of an allowed choice is nan.
    """

    def __init__(self, logits: Tensor, mask: Tensor | None = None) -> None:
        self.mask = torch.ones_like(logits, dtype=torch.bool) if mask is None else mask
        stuck = ~self.mask.any(-1)
        if stuck.any():
            raise ValueError(
                f"row {tuple(stuck.nonzero()[0].tolist())} of the mask forbids all "
                f"{logits.shape[-1]} choices; allow one, or leave out rows with nothing to decide"
            )
        masked = logits.masked_fill(~self.mask, -math.inf)
        if masked.isnan().any():
            raise ValueError("a logit is nan; lower the learning rate or look at the observation")
        self.log_probabilities = torch.log_softmax(masked, dim=-1)
        """Shape (batch, ..., n), -inf where forbidden."""

    @property
    def finite(self) -> Tensor:
        """The log-probabilities with 0 for forbidden choices, so that 0 * log 0 is 0, not nan."""
        return self.log_probabilities.masked_fill(~self.mask, 0.0)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Return choices, int64, shape (batch, ...)."""
        # multinomial accepts at most two dimensions.
        flat = self.log_probabilities.detach().exp().flatten(0, -2).cpu()
        choices = torch.multinomial(flat, 1, generator=generator).to(self.log_probabilities.device)
        return choices.reshape(self.log_probabilities.shape[:-1])

    def mode(self) -> Tensor:
        """Return the likeliest choices, int64, shape (batch, ...); ties to the first."""
        return self.log_probabilities.argmax(-1)

    def log_prob(self, actions: Action) -> Tensor:
        """Return the log-probability of int64 choices, (batch, ...); -inf for a forbidden one."""
        choices = _single(actions).unsqueeze(-1)
        return _total(self.log_probabilities.gather(-1, choices).squeeze(-1))

    def entropy(self) -> Tensor:
        return -_total(self.log_probabilities.exp() * self.finite)

    def kl(self, other: "MaskedCategorical") -> Tensor:
        return _total(self.log_probabilities.exp() * (self.finite - other.finite))


class _Gaussian(ActionDistribution):
    """Normal entries around ``mean``; entries outside ``mask`` do not exist."""

    log_scale: Tensor
    """Logarithm of the deviation of each entry given the earlier entries, shape of ``mean``."""

    def __init__(self, mean: Tensor, mask: Tensor | None) -> None:
        self.mask = torch.ones_like(mean, dtype=torch.bool) if mask is None else mask
        self.mean = mean.masked_fill(~self.mask, 0.0)

    @abstractmethod
    def _scale(self, noise: Tensor) -> Tensor:
        """Give standard normal ``noise`` the covariance."""

    @abstractmethod
    def _whiten(self, away: Tensor) -> Tensor:
        """Remove the covariance from distances from the mean."""

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        with torch.no_grad():
            noise = torch.randn(self.mean.shape, generator=generator, dtype=self.mean.dtype)
            noise = noise.to(self.mean.device)
            return self.mean + self._scale(noise.masked_fill(~self.mask, 0.0))

    def mode(self) -> Tensor:
        return self.mean

    def log_prob(self, actions: Action) -> Tensor:
        whitened = self._whiten((_single(actions) - self.mean).masked_fill(~self.mask, 0.0))
        density = -0.5 * (whitened.square() + _LOG_TWO_PI) - self.log_scale
        return _total(density * self.mask)

    def entropy(self) -> Tensor:
        return _total((0.5 * (1 + _LOG_TWO_PI) + self.log_scale) * self.mask)


class DiagonalGaussian(_Gaussian):
    """Independent normal entries.

    Args:
        mean: Shape (batch, ...).
        log_std: Logarithm of the standard deviation; any shape that broadcasts to ``mean``.
        mask: bool, shape of ``mean``: which entries exist; None: all do.
    """

    def __init__(self, mean: Tensor, log_std: Tensor, mask: Tensor | None = None) -> None:
        super().__init__(mean, mask)
        self.log_scale = log_std.expand_as(mean).masked_fill(~self.mask, 0.0)

    def _scale(self, noise: Tensor) -> Tensor:
        return noise * self.log_scale.exp()

    def _whiten(self, away: Tensor) -> Tensor:
        return away / self.log_scale.exp()

    def kl(self, other: "DiagonalGaussian") -> Tensor:
        away = (self.mean - other.mean).square() + (2 * self.log_scale).exp()
        wider = other.log_scale - self.log_scale
        return _total((wider + 0.5 * away * (-2 * other.log_scale).exp() - 0.5) * self.mask)


class FullGaussian(_Gaussian):
    """A normal vector with any covariance Sigma = L L^T.

    log p(a) = -1/2 |L^-1 (a - mean)|^2 - sum log diag L - n/2 log 2 pi (the paper on DAS prints it
    without Sigma^-1 and with -log |Sigma|; this is the density).

    Args:
        mean: Shape (batch, ..., n).
        cholesky: L, lower triangular with a positive diagonal, shape (batch, ..., n, n).
        mask: bool, shape of ``mean``: which entries exist; None: all do.
    """

    def __init__(self, mean: Tensor, cholesky: Tensor, mask: Tensor | None = None) -> None:
        super().__init__(mean, mask)
        # A missing entry gets the identity's row, so that L stays invertible.
        both = self.mask.unsqueeze(-1) & self.mask.unsqueeze(-2)
        identity = torch.eye(mean.shape[-1], dtype=mean.dtype, device=mean.device)
        self.cholesky = torch.where(both, cholesky.tril(), identity)
        self.log_scale = self.cholesky.diagonal(dim1=-2, dim2=-1).log()

    def _scale(self, noise: Tensor) -> Tensor:
        return (self.cholesky @ noise.unsqueeze(-1)).squeeze(-1)

    def _whiten(self, away: Tensor) -> Tensor:
        column = away.unsqueeze(-1)
        solved: Tensor = torch.linalg.solve_triangular(self.cholesky, column, upper=False)
        return solved.squeeze(-1)

    def kl(self, other: "FullGaussian") -> Tensor:
        shift = (other.mean - self.mean).unsqueeze(-1)
        joined = torch.cat([self.cholesky, shift], dim=-1)
        whitened = torch.linalg.solve_triangular(other.cholesky, joined, upper=False)
        wider = other.log_scale - self.log_scale
        return _total(wider + 0.5 * (whitened.square().sum(-1) - 1))


class JointDistribution(ActionDistribution):
    """Several agents that act at once, independently given the observation.

    Args:
        agents: One distribution for each agent, by name; actions are dicts with the same names.
        idle: For agents that may have no decision: bool, shape (batch,). The action of an idle
            agent has no probability, entropy or divergence. Its distribution must still be proper.
    """

    def __init__(
        self, agents: Mapping[str, ActionDistribution], idle: Mapping[str, Tensor] | None = None
    ) -> None:
        self.agents = dict(agents)
        self._idle = dict(idle or {})
        if strangers := sorted(set(self._idle) - set(self.agents)):
            raise ValueError(f"idle names {strangers[0]!r}, which is none of {list(self.agents)}")

    def sample(self, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        return {name: _single(agent.sample(generator)) for name, agent in self.agents.items()}

    def mode(self) -> dict[str, Tensor]:
        return {name: _single(agent.mode()) for name, agent in self.agents.items()}

    def log_prob(self, actions: Action) -> Tensor:
        return self.log_probs(actions).sum(1)

    def log_probs(self, actions: Action) -> Tensor:
        if isinstance(actions, Tensor):
            raise TypeError("the actions of several agents are a dict by agent, not one tensor")
        return self._by_agent({n: a.log_prob(actions[n]) for n, a in self.agents.items()})

    def works(self) -> Tensor:
        return self._by_agent({name: a.works()[:, 0] for name, a in self.agents.items()})

    def entropy(self) -> Tensor:
        return self._by_agent({n: a.entropy() for n, a in self.agents.items()}).sum(1)

    def kl(self, other: "JointDistribution") -> Tensor:
        parts = {name: agent.kl(other.agents[name]) for name, agent in self.agents.items()}
        return self._by_agent(parts).sum(1)

    def _by_agent(self, parts: Mapping[str, Tensor]) -> Tensor:
        """Return ``parts``, shape (batch,) each, as columns, 0 where idle."""
        idle = self._idle
        columns = [p.masked_fill(idle[n], 0) if n in idle else p for n, p in parts.items()]
        return torch.stack(columns, dim=1)


def _single(actions: Action) -> Tensor:
    if isinstance(actions, Tensor):
        return actions
    raise TypeError(f"one agent acts here, but the actions are of {list(actions)}")


def _total(parts: Tensor) -> Tensor:
    """Return the sum over everything but the batch."""
    return parts.flatten(1).sum(1) if parts.dim() > 1 else parts
