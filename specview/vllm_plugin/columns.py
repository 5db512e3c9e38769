"""The columns of the matrix that a step sends from the device to the host, one row a scored position."""

from __future__ import annotations

OF_ALL = ("candidate", "token", "target_prob", "token_target_prob", "target_entropy", "target_deviation")
JUDGED = (
    "rank", "u", "draft_prob", "token_draft_prob", "overlap", "residual_mass", "draft_entropy", "draft_deviation",
)  # fmt: skip
"""Of candidates alone; NaN at last positions."""

SCALARS = (*OF_ALL, *JUDGED)

INDEX = {name: place for place, name in enumerate(SCALARS)}


def width(top: int) -> int:
    """Columns of a matrix that keeps `top` alternatives: ids and probabilities of p, then of q."""
    return len(SCALARS) + 4 * top
