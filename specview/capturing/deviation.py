"""How far a distribution is from the one that the settings asked for (clause C1, "the same settings")."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specview.capturing.passes import same
from specview.capturing.scratch import Scratch
from specview.capturing.settings import Asked

NOTICEABLE = 1e-3
"""Above this a difference is no rounding."""
_EQUAL = 1e-6
"""Below this two softmaxes of the same numbers may differ by rounding alone."""


_AT_ONCE = 65_536
"""Numbers looked at together: what is computed from them then stays in the processor's cache."""


def of_rows(
    scores: Sequence[Tensor], used: Tensor, logits: Tensor, asked: Asked, sequence: Tensor, committed: int,
    scratch: Scratch,
) -> list[float]:  # fmt: skip
    """max |used − softmax(the logits under the settings asked for)| of each row; all rows as wide as `used`.

    Args:
        scores: the rows whose softmax `used` is.
        sequence, committed: row i stands behind the prefix `sequence[: committed + i]`.
    """
    found: list[float] = []
    step = max(1, _AT_ONCE // used.shape[1])
    for i in range(0, used.shape[0], step):
        rows = slice(i, i + step)
        wanted = logits[rows] if asked.nothing else asked.apply(logits[rows], sequence, committed + i)
        if step == 1 and same(scores[i][None], wanted, scratch):
            found.append(0.0)
        else:
            found += largest(used[rows], torch.softmax(wanted, dim=-1), ties=asked.sampling.top_p < 1.0)
    return found


def largest(used: Tensor, wanted: Tensor, *, ties: bool) -> list[float]:
    """max |used − wanted| of each row; both (rows, columns) probabilities.

    Args:
        ties: top-p may have cut through tokens of equal probability. Which of them stay is the sort's choice and no
            deviation, so their probabilities are compared as a sum.
    """
    apart = (used - wanted).abs_()
    found: list[float] = apart.amax(dim=-1).tolist()
    if ties and max(found) > _EQUAL:
        # Ties have one probability: what the one sort kept and the other did not.
        edge, least = (kept.masked_fill(kept == 0, 2.0).amin(-1) for kept in (wanted, used))
        tied: list[bool] = ((edge - least).abs() <= _EQUAL).tolist()
        for i, value in enumerate(found):
            if value > _EQUAL and tied[i]:
                found[i] = _without_ties(used[i], wanted[i], apart[i], edge[i], least[i])
    return found


def _without_ties(used: Tensor, wanted: Tensor, apart: Tensor, edge: Tensor, least: Tensor) -> float:
    """max |used − wanted|, the tokens that tie at the edge of the nucleus taken together; all (columns,).

    Args:
        edge, least: the smallest probabilities that are not 0 of `wanted` and of `used`.
    """
    tied = (wanted == edge) | ((wanted == 0) & (used == least))
    outside = apart.masked_fill(tied, 0.0).amax()
    inside = (used[tied].sum() - wanted[tied].sum()).abs()
    return float(torch.maximum(outside, inside))
