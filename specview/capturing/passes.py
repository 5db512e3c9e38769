"""Passes over a whole vocabulary, fast on a CPU: the instrument must not take the cores from the generation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specview.capturing.scratch import Scratch

Floats: TypeAlias = NDArray[np.float32]

_CHUNK = 64
_SHORT = 4096
"""Below this many columns there is nothing to win."""


def largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row, best first: (values, columns), both (rows, k); equal ones in any order.

    The k largest lie in the k chunks whose own largest is largest, so all but a few chunks need one maximum each.
    """
    rows, width = scores.shape
    if width < _SHORT or k * _CHUNK > width:
        found = scores.topk(k, dim=-1)
        return found.values, found.indices
    whole = width - width % _CHUNK
    chunks = scores[:, :whole].view(rows, -1, _CHUNK)
    best = chunks.amax(-1).topk(k, dim=-1, sorted=False).indices
    inside = chunks.gather(1, best[:, :, None].expand(-1, -1, _CHUNK)).flatten(1)
    columns = (best[:, :, None] * _CHUNK + torch.arange(_CHUNK)).flatten(1)
    if whole < width:
        inside = torch.cat([inside, scores[:, whole:]], dim=1)
        columns = torch.cat([columns, torch.arange(whole, width).expand(rows, -1)], dim=1)
    values, place = inside.topk(k, dim=-1)
    return values, columns.gather(1, place)


def floors(rows: Floats, k: int) -> Floats:
    """(rows, 1) a number that at least k entries of each row reach, and few others: the k-th largest of the maxima of
    many chunks.

    Whoever ties with the k-th largest reaches it, too.
    """
    depth = max(1, min(_CHUNK, rows.shape[1] // (2 * k)))
    width = rows.shape[1] // depth
    highest = rows[:, : depth * width].reshape(-1, depth, width).max(1)
    found: Floats = np.partition(highest, width - k, axis=-1)[:, width - k, None]
    return found


def fitted_rows(rows: Iterable[Tensor], into: Tensor) -> Tensor:
    """`into`, filled with rows of a model's own width and dtype; a token that it lacks has probability 0."""
    for row, place in zip(rows, into.unbind(), strict=True):
        width = min(row.shape[0], place.shape[0])
        if width == place.shape[0]:
            place.copy_(row[:width])
        else:
            place[:width].copy_(row)
            place[width:] = -torch.inf
    return into


def ranks(rows: Sequence[Floats], tokens: Sequence[int], scratch: Scratch) -> list[int]:
    """Place of each token in its row, 1 = highest score; ties go to the lower id."""
    found = []
    for row, token in zip(rows, tokens, strict=False):
        before, own = scratch.flags("before", row.shape), row[token]
        np.greater_equal(row[:token], own, out=before[:token])
        np.greater(row[token:], own, out=before[token:])
        found.append(1 + int(np.count_nonzero(before)))
    return found


def expectations(probabilities: Tensor, blocks: Iterable[Tensor]) -> list[float]:
    """Σ p·score of each row, where a removed token has the score −∞ and p 0, and counts for nothing. `probabilities`
    is lost: to write the products elsewhere would take half as long again.

    Args:
        blocks: the scores; their rows, one block after the other, are those of `probabilities`.
    """
    start = 0
    for scores in blocks:
        end = start + scores.shape[0]
        probabilities[start:end] *= scores
        start = end
    found: list[float] = probabilities.sum(-1).tolist()
    if any(math.isnan(one) for one in found):
        found = probabilities.nan_to_num_(nan=0.0).sum(-1).tolist()
    return found


def same(scores: Tensor, others: Tensor) -> bool:
    """Whether two matrices are equal, in half the time of `torch.equal`; `others` is lost. Two −∞ are not recognised
    as equal."""
    least, most = torch.aminmax(others.sub_(scores))
    return bool((least == 0) & (most == 0))
