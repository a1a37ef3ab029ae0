"""Distributions of policies: densities by hand, masks, divergences, several agents."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bireme_lab.training.distributions import (
    ActionDistribution,
    DiagonalGaussian,
    FullGaussian,
    JointDistribution,
    MaskedCategorical,
)

INF = math.inf


def chance(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def covariance(dims: int, seed: int) -> Tensor:
    """Some positive definite matrix."""
    root = torch.randn(dims, dims, generator=chance(seed), dtype=torch.float64)
    return root @ root.T + torch.eye(dims, dtype=torch.float64)


def full(dims: int, seed: int, mask: Tensor | None = None) -> FullGaussian:
    mean = torch.randn(1, dims, generator=chance(seed + 1), dtype=torch.float64)
    return FullGaussian(mean, torch.linalg.cholesky(covariance(dims, seed))[None], mask)


def test_log_probabilities_are_those_of_the_allowed_choices_alone() -> None:
    """exp(1) : exp(3) among the two that are allowed."""
    found = MaskedCategorical(torch.tensor([[1.0, 9.0, 3.0]]), torch.tensor([[True, False, True]]))
    share = 1 / (1 + math.exp(2))
    assert found.log_prob(torch.tensor([0])).item() == pytest.approx(math.log(share))
    assert found.log_prob(torch.tensor([2])).item() == pytest.approx(math.log(1 - share))
    assert found.log_prob(torch.tensor([1])).item() == -INF
    entropy = -(share * math.log(share) + (1 - share) * math.log(1 - share))
    assert found.entropy().item() == pytest.approx(entropy)
    assert found.mode().tolist() == [2]


def test_forbidden_choices_are_never_sampled() -> None:
    mask = torch.tensor([[False, True, True, False]]).expand(500, 4)
    drawn = MaskedCategorical(torch.zeros(500, 4), mask).sample(chance())
    assert set(drawn.tolist()) == {1, 2}


def test_a_row_that_forbids_everything_is_named() -> None:
    mask = torch.tensor([[True, True], [True, False], [False, False]])
    with pytest.raises(ValueError, match=r"row \(2,\) of the mask forbids all 2 choices"):
        MaskedCategorical(torch.zeros(3, 2), mask)


def test_a_logit_that_is_nan_is_an_error_unless_it_is_forbidden() -> None:
    broken = torch.tensor([[0.0, math.nan]])
    MaskedCategorical(broken, torch.tensor([[True, False]]))
    with pytest.raises(ValueError, match="a logit is nan"):
        MaskedCategorical(broken)


def test_gradients_stay_finite_where_choices_are_forbidden() -> None:
    logits = torch.zeros(2, 3, requires_grad=True)
    mask = torch.tensor([[True, False, True], [False, True, False]])
    found = MaskedCategorical(logits, mask)
    other = MaskedCategorical(torch.ones(2, 3), mask)
    loss = found.log_prob(torch.tensor([0, 1])) + found.entropy() + found.kl(other)
    loss.sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[~mask] == 0).all()


def test_several_choices_of_one_action_are_independent() -> None:
    logits = torch.randn(5, 3, 4, generator=chance())
    chosen = torch.randint(4, (5, 3), generator=chance())
    one_by_one = [MaskedCategorical(logits[:, k]).log_prob(chosen[:, k]) for k in range(3)]
    together = MaskedCategorical(logits).log_prob(chosen)
    torch.testing.assert_close(together, torch.stack(one_by_one).sum(0))
    assert MaskedCategorical(logits).sample(chance()).shape == (5, 3)


def test_diagonal_density_is_the_product_of_normal_densities() -> None:
    found = DiagonalGaussian(torch.tensor([[1.0, -2.0]]), torch.tensor([0.0, math.log(2.0)]))
    by_hand = -0.5 * (0.25 + 1.0) - math.log(2.0) - math.log(2 * math.pi)
    assert found.log_prob(torch.tensor([[1.5, 0.0]])).item() == pytest.approx(by_hand)
    entropy = 1 + math.log(2 * math.pi) + math.log(2.0)
    assert found.entropy().item() == pytest.approx(entropy)


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(0, 99))
def test_full_density_is_the_textbook_formula(dims: int, seed: int) -> None:
    found, sigma = full(dims, seed), covariance(dims, seed)
    action = torch.randn(1, dims, generator=chance(seed + 2), dtype=torch.float64)
    away = (action - found.mean)[0]
    quadratic = away @ torch.linalg.inv(sigma) @ away
    by_hand = -0.5 * (quadratic + torch.logdet(sigma) + dims * math.log(2 * math.pi))
    torch.testing.assert_close(found.log_prob(action)[0], by_hand)
    entropy = 0.5 * (dims * (1 + math.log(2 * math.pi)) + torch.logdet(sigma))
    torch.testing.assert_close(found.entropy()[0], entropy)


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(0, 99))
def test_full_gaussian_with_a_diagonal_root_is_the_diagonal_one(dims: int, seed: int) -> None:
    mean, log_std, action = torch.randn(3, 4, dims, generator=chance(seed), dtype=torch.float64)
    diagonal = DiagonalGaussian(mean, log_std)
    whole = FullGaussian(mean, torch.diag_embed(log_std.exp()))
    torch.testing.assert_close(whole.log_prob(action), diagonal.log_prob(action))
    torch.testing.assert_close(whole.entropy(), diagonal.entropy())
    other = DiagonalGaussian(action, log_std.flip(0))
    other_whole = FullGaussian(action, torch.diag_embed(log_std.flip(0).exp()))
    torch.testing.assert_close(whole.kl(other_whole), diagonal.kl(other))


@settings(deadline=None)
@given(st.integers(2, 5), st.integers(0, 99))
def test_padding_a_full_gaussian_changes_nothing(dims: int, seed: int) -> None:
    """Two entries are put in that do not exist, with nonsense in them."""
    small = full(dims, seed)
    kept = torch.arange(dims) + torch.tensor([i >= 1 for i in range(dims)])
    mean, root = torch.full((1, dims + 2), 7.0).double(), torch.full((1, dims + 2, dims + 2), 9.0)
    root = root.double().tril()
    mean[0, kept], root[0, kept[:, None], kept] = small.mean[0], small.cholesky[0]
    mask = torch.zeros(1, dims + 2, dtype=torch.bool)
    mask[0, kept] = True
    padded = FullGaussian(mean, root, mask)
    action = torch.randn(1, dims + 2, generator=chance(seed), dtype=torch.float64)
    torch.testing.assert_close(padded.log_prob(action), small.log_prob(action[:, kept]))
    torch.testing.assert_close(padded.entropy(), small.entropy())
    assert (padded.sample(chance())[~mask] == 0).all()
    other = FullGaussian(mean + 1, 2 * root, mask)
    torch.testing.assert_close(
        padded.kl(other), small.kl(FullGaussian(small.mean + 1, 2 * small.cholesky))
    )


def test_padding_a_diagonal_gaussian_changes_nothing() -> None:
    mask = torch.tensor([[True, False]])
    padded = DiagonalGaussian(torch.tensor([[1.0, 5.0]]), torch.tensor([0.3, 9.0]), mask)
    small = DiagonalGaussian(torch.tensor([[1.0]]), torch.tensor([0.3]))
    action = torch.tensor([[0.2, 4.0]])
    torch.testing.assert_close(padded.log_prob(action), small.log_prob(action[:, :1]))
    torch.testing.assert_close(padded.entropy(), small.entropy())
    assert padded.sample(chance())[0, 1] == 0


def test_full_samples_have_the_covariance_asked_for() -> None:
    found = full(3, 4)
    many = FullGaussian(found.mean.expand(40_000, 3), found.cholesky.expand(40_000, 3, 3))
    drawn = np.asarray(many.sample(chance()))
    assert np.cov(drawn.T) == pytest.approx(np.asarray(covariance(3, 4)), abs=0.15)
    assert drawn.mean(axis=0) == pytest.approx(np.asarray(found.mean[0]), abs=0.05)


def pairs() -> list[tuple[ActionDistribution, ActionDistribution]]:
    """Two of each kind, 50 000 equal rows so that a sample tells expectations."""
    many = 50_000
    logits = torch.tensor([[0.0, 1.0, -1.0], [0.5, 0.0, 0.3]])[:, None].expand(2, many, 3)
    mean = torch.tensor([[0.0, 1.0], [0.5, 0.5]])[:, None].expand(2, many, 2)
    log_std = torch.tensor([[0.0, -0.5], [0.3, 0.1]])
    root = torch.tensor([[[1.0, 0.0], [0.5, 0.8]], [[1.2, 0.0], [-0.3, 1.0]]])
    categorical = [MaskedCategorical(one) for one in logits]
    diagonal = [DiagonalGaussian(*one) for one in zip(mean, log_std, strict=True)]
    whole = [FullGaussian(m, r.expand(many, 2, 2)) for m, r in zip(mean, root, strict=True)]
    joint = [
        JointDistribution({"a": a, "b": b}) for a, b in zip(categorical, diagonal, strict=True)
    ]
    found: list[list[ActionDistribution]] = [[*categorical], [*diagonal], [*whole], [*joint]]
    return [(one, other) for one, other in found]


@pytest.mark.parametrize(
    ("one", "other"), pairs(), ids=["categorical", "diagonal", "full", "joint"]
)
def test_kl_and_entropy_are_the_expectations_they_stand_for(
    one: ActionDistribution, other: ActionDistribution
) -> None:
    drawn = one.sample(chance())
    difference = one.log_prob(drawn) - other.log_prob(drawn)
    assert one.kl(other)[0].item() == pytest.approx(difference.mean().item(), abs=0.02)
    assert one.entropy()[0].item() == pytest.approx(-one.log_prob(drawn).mean().item(), abs=0.02)
    assert one.kl(one)[0].item() == pytest.approx(0, abs=1e-6)


def test_an_idle_agent_counts_nothing() -> None:
    choice = MaskedCategorical(torch.zeros(2, 4))
    level = DiagonalGaussian(torch.zeros(2, 1), torch.zeros(1))
    idle = torch.tensor([False, True])
    joint = JointDistribution({"choice": choice, "level": level}, idle={"level": idle})
    actions = {"choice": torch.tensor([0, 1]), "level": torch.tensor([[0.5], [3.0]])}
    expected = torch.stack(
        [choice.log_prob(actions["choice"]), level.log_prob(actions["level"])], 1
    )
    expected[1, 1] = 0
    torch.testing.assert_close(joint.log_probs(actions), expected)
    torch.testing.assert_close(joint.log_prob(actions), expected.sum(1))
    assert joint.works().tolist() == [[True, True], [True, False]]
    assert joint.entropy()[1].item() == pytest.approx(math.log(4))


def test_an_idle_agent_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="idle names 'levl'"):
        JointDistribution({"level": MaskedCategorical(torch.zeros(1, 2))}, idle={"levl": INF})  # type: ignore[dict-item]


def test_actions_of_one_agent_and_of_several_are_not_mixed_up() -> None:
    single = MaskedCategorical(torch.zeros(1, 2))
    with pytest.raises(TypeError, match=r"one agent acts here, but the actions are of \['a'\]"):
        single.log_prob({"a": torch.tensor([0])})
    with pytest.raises(TypeError, match="a dict by agent"):
        JointDistribution({"a": single}).log_prob(torch.tensor([0]))
