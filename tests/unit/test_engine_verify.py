"""Acceptance, residual and bonus, on distributions written out by hand."""

from __future__ import annotations

import torch

from engine.sampling import draw
from engine.verify import accept, accept_greedy, correction, longest_prefix

P = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.6, 0.4, 0.0]])
Q = torch.tensor([[0.25, 0.5, 0.25], [0.5, 0.4, 0.1]])


def test_a_candidate_stays_while_u_is_below_the_ratio() -> None:
    candidates = torch.tensor([1, 0])
    below, above = 0.3 / 0.5 - 1e-6, 0.3 / 0.5 + 1e-6
    assert accept(P, Q, candidates, torch.tensor([below, 0.19])).accepted == 2
    assert accept(P, Q, candidates, torch.tensor([below, 0.21])).accepted == 1
    assert accept(P, Q, candidates, torch.tensor([above, 0.0])).accepted == 0


def test_the_looked_up_probabilities_are_the_candidates_own() -> None:
    verdict = accept(P, Q, torch.tensor([2, 1]), torch.tensor([0.9, 0.9]))
    torch.testing.assert_close(verdict.candidate_p, torch.tensor([0.2, 0.1]))
    torch.testing.assert_close(verdict.candidate_q, torch.tensor([0.25, 0.4]))


def test_a_later_acceptance_does_not_mend_an_earlier_rejection() -> None:
    assert longest_prefix(torch.tensor([True, False, True, True])) == 1
    assert longest_prefix(torch.tensor([], dtype=torch.bool)) == 0


def test_greedy_accepts_the_argmax_only() -> None:
    best = torch.tensor([0, 2, 0])
    assert accept_greedy(best, P, Q, torch.tensor([0, 2])).accepted == 2
    assert accept_greedy(best, P, Q, torch.tensor([0, 1])).accepted == 1


def test_the_residual_is_what_p_has_more_than_q() -> None:
    found = correction(P, Q, torch.tensor(1))
    torch.testing.assert_close(found.weights, torch.tensor([[0.0, 0.0, 0.7]]))
    torch.testing.assert_close(found.mass, torch.tensor(0.7))
    assert not found.fallback


def test_a_full_acceptance_draws_the_bonus_from_p() -> None:
    found = correction(P, Q, torch.tensor(2))
    assert torch.equal(found.weights, P[2:])
    assert not found.fallback


def test_without_candidates_the_token_comes_from_p() -> None:
    found = correction(P[:1], Q[:0], torch.tensor(0))
    assert torch.equal(found.weights, P[:1])


def test_equal_distributions_with_a_forced_rejection_fall_back_to_p() -> None:
    found = correction(P, P[:2].clone(), torch.tensor(0))
    assert found.fallback
    assert torch.equal(found.weights, P[:1])
    assert int(draw(found.weights, torch.tensor([0.6], dtype=torch.float64))) == 1


def test_rounding_noise_is_no_residual() -> None:
    found = correction(P, P[:2] * (1 - 1e-7), torch.tensor(0))
    assert found.fallback


def test_equal_distributions_accept_always() -> None:
    highest = torch.full((2,), 1 - 2**-24)
    assert accept(P, P[:2].clone(), torch.tensor([1, 2]), highest).accepted == 2
