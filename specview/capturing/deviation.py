"""How far a distribution is from the one that the settings asked for (clause C1, "the same settings")."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

NOTICEABLE = 1e-3
"""Above this a difference is no rounding."""
_EQUAL = 1e-6
"""Below this two softmaxes of the same numbers may differ by rounding alone."""


def of_row(scores: Tensor, used: Tensor, wanted: Tensor, *, ties: bool) -> float:
    """max |used − softmax(wanted)| of one row, `used` being softmax(scores); all (columns,); `ties` as in `largest`."""
    if np.array_equal(scores.numpy(), wanted.numpy()):
        return 0.0
    return largest(used[None], torch.softmax(wanted[None], dim=-1), ties=ties)[0]


def largest(used: Tensor, wanted: Tensor, *, ties: bool) -> list[float]:
    """max |used − wanted| of each row; both (rows, columns) probabilities.

    Args:
        ties: top-p may have cut through tokens of equal probability. Which of them stay is the sort's choice and no
            deviation, so their probabilities are compared as a sum.
    """
    x, y = used.numpy(), wanted.numpy()
    signed = x - y
    apart = np.abs(signed)
    found = apart.max(-1)
    if ties and found.max() > _EQUAL:
        # Ties have one probability, the least that is not 0: what the one sort kept and the other did not.
        least, edge = (np.where(some > 0, some, 2.0).min(-1, keepdims=True) for some in (x, y))
        tied = (y == edge) | ((y == 0) & (x == least))
        outside = np.where(tied, 0.0, apart).max(-1)
        inside = np.abs(np.where(tied, signed, 0.0).sum(-1))
        alike = np.abs(edge - least)[:, 0] <= _EQUAL
        found = np.where(alike & (found > _EQUAL), np.maximum(outside, inside), found)
    distances: list[float] = found.tolist()
    return distances
