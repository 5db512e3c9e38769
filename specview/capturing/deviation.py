"""How far a distribution is from the one that the settings asked for (clause C1, "the same settings")."""

from __future__ import annotations

import torch
from torch import Tensor

NOTICEABLE = 1e-3
"""Above this a difference is no rounding."""
_EQUAL = 1e-6
"""Below this two softmaxes of the same numbers may differ by rounding alone."""


def largest(scores: Tensor, asked: Tensor, *, ties: bool) -> list[float]:
    """max |softmax(scores) − softmax(asked)| of each row; both (rows, columns) float32.

    Args:
        ties: top-p may have cut through tokens of equal probability. Which of them stay is the sort's choice and no
            deviation, so their probabilities are compared as a sum.
    """
    used, wanted = torch.softmax(scores, dim=-1), torch.softmax(asked, dim=-1)
    apart = (used - wanted).abs()
    found: list[float] = apart.amax(dim=-1).tolist()
    if ties:
        for i, value in enumerate(found):
            if value > _EQUAL:
                found[i] = _without_ties(used[i], wanted[i], apart[i])
    return found


def _without_ties(used: Tensor, wanted: Tensor, apart: Tensor) -> float:
    """max |used − wanted|, the tokens that tie at the edge of the nucleus taken together; all (columns,)."""
    edge, least = wanted[wanted > 0].min(), used[used > 0].min()
    # Ties have one probability: what the one sort kept and the other did not.
    tied = (wanted == edge) | ((wanted == 0) & (used == least))
    if (edge - least).abs() > _EQUAL:
        return float(apart.amax())
    outside = apart.masked_fill(tied, 0.0).amax()
    inside = (used[tied].sum() - wanted[tied].sum()).abs()
    return float(torch.maximum(outside, inside))
