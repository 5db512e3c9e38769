"""Passes over a whole vocabulary, fast on a CPU: the instrument must not take the cores from the generation."""

from __future__ import annotations

import torch
from torch import Tensor

_CHUNK = 64
_SHORT = 4096
"""Below this many columns there is nothing to win."""


def largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row, best first: (values, columns), both (rows, k); equal ones in any order.

    The k largest lie in the k chunks whose own largest is largest, so all but a few chunks need one maximum each.
    """
    rows, width = scores.shape
    if width < _SHORT or k * _CHUNK > width or scores.device.type != "cpu":
        found = scores.topk(k, dim=-1)
        return found.values, found.indices
    if missing := -width % _CHUNK:
        scores = torch.nn.functional.pad(scores, (0, missing), value=-torch.inf)
    chunks = scores.reshape(rows, -1, _CHUNK)
    best = chunks.amax(-1).topk(k, dim=-1, sorted=False).indices
    inside = chunks.gather(1, best[:, :, None].expand(-1, -1, _CHUNK)).flatten(1)
    values, place = inside.topk(k, dim=-1)
    return values, best.gather(1, place // _CHUNK) * _CHUNK + place % _CHUNK


def count_above(scores: Tensor, bound: Tensor | float) -> Tensor:
    """(rows,) how many columns of each row exceed its bound, as float32 (exact below 2²⁴).

    A comparison that writes floats is summed six times as fast as one that writes truth values.
    """
    return torch.gt(scores, bound, out=torch.empty_like(scores, dtype=torch.float32)).sum(-1)


def count_equal(scores: Tensor, bound: Tensor) -> Tensor:
    """(rows,) how many columns of each row equal its bound, as float32."""
    return torch.eq(scores, bound, out=torch.empty_like(scores, dtype=torch.float32)).sum(-1)
