"""Acceptance, residual and bonus (Leviathan et al., arXiv 2211.17192, algorithm 1): pure functions of p, q and u.

Nothing here looks at the host: the number of accepted candidates stays a tensor, so that a round costs no
synchronisation until its one transfer. A full acceptance needs no branch either: q of position γ+1 is taken as 0, and
norm(max(0, p − 0)) is p itself, from which the bonus is drawn (clause C7).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

RESIDUAL_FLOOR = 1e-6
"""A residual mass below this is rounding noise: |V| float32 terms of p − q with p ≈ q add up to about 1e-7."""


class Verdict(NamedTuple):
    """What the acceptance test found."""

    accepted: Tensor
    """() int64: length of the longest accepted prefix, 0 … γ (clause C4)."""
    candidate_p: Tensor
    """(γ,) float32: p_i(y_i)."""
    candidate_q: Tensor
    """(γ,) float32: q_i(y_i)."""


class Correction(NamedTuple):
    """The distribution of the token that ends the round."""

    weights: Tensor
    """(1, vocab) float32, not normalised: max(0, p − q), p for a bonus, or p where the residual is numerically zero."""
    mass: Tensor
    """() float32: Σ max(0, p − q) at the position; 1 for a bonus."""
    fallback: Tensor
    """() bool: the residual was numerically zero and the weights are p."""


def accept(p: Tensor, q: Tensor, candidates: Tensor, uniform: Tensor) -> Verdict:
    """Judge the candidates left to right: y_i stays while u_i < min(1, p_i(y_i) ÷ q_i(y_i)) (clause C3).

    Args:
        p: (γ+1, vocab) float32; q: (γ, vocab) float32; candidates: (γ,) int64; uniform: (γ,) float32 on [0, 1).
    """
    gamma = candidates.shape[0]
    column = candidates[:, None]
    candidate_p = p[:gamma].gather(1, column).squeeze(1)
    candidate_q = q.gather(1, column).squeeze(1)
    # u < 1 always, so the minimum with 1 changes no verdict; the division is the one that a reader can redo.
    kept = uniform < candidate_p / candidate_q
    return Verdict(longest_prefix(kept), candidate_p, candidate_q)


def accept_greedy(best: Tensor, p: Tensor, q: Tensor, candidates: Tensor) -> Verdict:
    """Temperature 0: y_i stays while it is the target's argmax.

    Args:
        best: (γ+1,) int64, the target's argmax at each position. p and q are only looked up, for the record.
    """
    gamma = candidates.shape[0]
    column = candidates[:, None]
    kept = candidates == best[:gamma]
    return Verdict(longest_prefix(kept), p[:gamma].gather(1, column).squeeze(1), q.gather(1, column).squeeze(1))


def longest_prefix(kept: Tensor) -> Tensor:
    """() int64: how many leading entries of the (γ,) bool tensor are true (clause C4)."""
    return kept.to(torch.int64).cumprod(0).sum()


def correction(p: Tensor, q: Tensor, accepted: Tensor) -> Correction:
    """The distribution of the last token of the round: the residual after a rejection, p after a full acceptance.

    Args:
        p: (γ+1, vocab) float32; q: (γ, vocab) float32; accepted: () int64.
    """
    at = accepted.reshape(1)
    p_row = p.index_select(0, at)
    if q.shape[0] == 0:
        return Correction(p_row, torch.ones((), device=p.device), torch.zeros((), dtype=torch.bool, device=p.device))
    rejected = accepted < q.shape[0]
    q_row = q.index_select(0, at.clamp(max=q.shape[0] - 1)) * rejected
    residual = (p_row - q_row).clamp_(min=0)
    mass = residual.sum()
    fallback = mass < RESIDUAL_FLOOR
    return Correction(torch.where(fallback, p_row, residual), mass, fallback)
