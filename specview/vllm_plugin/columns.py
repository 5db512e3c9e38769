"""The columns of the matrix that a step sends from the device to the host, one row a scored position."""

from __future__ import annotations

SCALARS = (
    "candidate",
    "token",
    "draft_prob",
    "target_prob",
    "u",
    "overlap",
    "draft_entropy",
    "target_entropy",
    "rank",
    "draft_deviation",
    "target_deviation",
    "residual_mass",
    "token_target_prob",
    "token_draft_prob",
)
"""Ids and counts travel as float64, which holds every integer up to 2⁵³."""

INDEX = {name: place for place, name in enumerate(SCALARS)}


def width(top: int) -> int:
    """Columns of a matrix that keeps `top` alternatives: ids and probabilities of p, then of q."""
    return len(SCALARS) + 4 * top
