"""Passes over a whole vocabulary, fast on a CPU: the instrument must not take the cores from the generation."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from specview.capturing.scratch import Scratch

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
    whole = width - width % _CHUNK
    chunks = scores[:, :whole].view(rows, -1, _CHUNK)
    best = chunks.amax(-1).topk(k, dim=-1, sorted=False).indices
    inside = chunks.gather(1, best[:, :, None].expand(-1, -1, _CHUNK)).flatten(1)
    columns = (best[:, :, None] * _CHUNK + torch.arange(_CHUNK, device=scores.device)).flatten(1)
    if whole < width:
        inside = torch.cat([inside, scores[:, whole:]], dim=1)
        columns = torch.cat([columns, torch.arange(whole, width, device=scores.device).expand(rows, -1)], dim=1)
    values, place = inside.topk(k, dim=-1)
    return values, columns.gather(1, place)


def count_above(scores: Tensor, bound: Tensor | float, scratch: Scratch) -> Tensor:
    """(rows,) how many columns of each row exceed its bound, as float32 (exact below 2²⁴).

    A comparison that writes floats is summed six times as fast as one that writes truth values.
    """
    return torch.gt(scores, bound, out=_one(scratch, scores)).sum(-1)


def count_below(scores: Tensor, bound: Tensor, scratch: Scratch) -> Tensor:
    """(rows,) how many columns of each row are less than its bound, as float32."""
    return torch.lt(scores, bound, out=_one(scratch, scores)).sum(-1)


def count_equal(scores: Tensor, bound: Tensor, scratch: Scratch) -> Tensor:
    """(rows,) how many columns of each row equal its bound, as float32."""
    return torch.eq(scores, bound, out=_one(scratch, scores)).sum(-1)


def overlap(p: Tensor, q: Tensor, scratch: Scratch) -> Tensor:
    """(rows,) Σ min(p, q)."""
    return torch.minimum(p, q, out=_one(scratch, p)).sum(-1)


def expectations(probabilities: Tensor, blocks: Iterable[Tensor], scratch: Scratch) -> Tensor:
    """(rows,) Σ p·score, where a removed token has the score −∞ and p 0, and counts for nothing.

    Args:
        blocks: the scores; their rows, one block after the other, are those of `probabilities`.
    """
    products, start = _one(scratch, probabilities), 0
    for scores in blocks:
        end = start + scores.shape[0]
        torch.mul(probabilities[start:end], scores, out=products[start:end])
        start = end
    found = products.sum(-1)
    if bool(found.isnan().any()):
        found = products.nan_to_num_(nan=0.0).sum(-1)
    return found


def same(scores: Tensor, others: Tensor, scratch: Scratch) -> bool:
    """Whether two matrices are equal, in half the time of `torch.equal`; two −∞ are not recognised as equal."""
    least, most = torch.aminmax(torch.sub(scores, others, out=_one(scratch, scores)))
    return bool((least == 0) & (most == 0))


def _one(scratch: Scratch, like: Tensor) -> Tensor:
    return scratch.take("pass", tuple(like.shape), like.device)
