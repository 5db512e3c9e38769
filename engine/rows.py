"""Best tokens, top tokens and ranks over rows as wide as a vocabulary.

torch's own argmax and topk scan such rows element by element on the CPU, half a millisecond for γ+1 of them. Taking
the maxima of blocks first is a vectorised pass over memory; what remains to be searched is a few hundred numbers. For
argmax and ranks on the host numpy looks at the same memory in one vectorised call. Results are exact, and equal scores
go to the lower id wherever there is one answer.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 64
NARROW = 2048
"""Up to this width a plain scan is as fast."""


def _blocks(scores: Tensor) -> Tensor:
    """(rows, blocks, BLOCK) view; the last block is filled up with −inf."""
    surplus = -scores.shape[-1] % BLOCK
    if surplus:
        scores = functional.pad(scores, (0, surplus), value=float("-inf"))
    return scores.view(scores.shape[0], -1, BLOCK)


def best(scores: Tensor) -> Tensor:
    """(rows,) int64: the argmax of each row, the lowest id among equals; (rows, vocab) float32 in."""
    if scores.device.type == "cpu":
        return torch.from_numpy(scores.numpy().argmax(axis=-1))
    return best_on_device(scores)


def best_on_device(scores: Tensor) -> Tensor:
    """`best` where every kernel is a launch, and a row is searched in two steps."""
    if scores.shape[-1] <= NARROW:
        return scores.argmax(dim=-1)
    blocks = _blocks(scores)
    block = blocks.amax(dim=-1).argmax(dim=-1)
    inside = blocks[torch.arange(scores.shape[0], device=scores.device), block].argmax(dim=-1)
    return block * BLOCK + inside


def top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """((rows, count) scores, (rows, count) int64 ids) of the best tokens, best first.

    A row's best `count` tokens lie in at most `count` blocks, and those are the blocks with the highest maxima.
    """
    if scores.shape[-1] <= max(NARROW, BLOCK * count):
        values, ids = scores.topk(count, dim=-1)
        return values, ids
    blocks = _blocks(scores)
    chosen = blocks.amax(dim=-1).topk(count, dim=-1).indices
    inside = blocks.gather(1, chosen[:, :, None].expand(-1, -1, BLOCK)).flatten(1)
    values, places = inside.topk(count, dim=-1)
    return values, chosen.gather(1, places // BLOCK) * BLOCK + places % BLOCK


def rank(scores: Tensor, tokens: Tensor) -> Tensor:
    """(rows,) float32: the place of each row's token, 1 = best, among equals by id; `tokens`: (rows,) int64."""
    return rank_on_host(scores, tokens) if scores.device.type == "cpu" else rank_on_device(scores, tokens)


def rank_on_host(scores: Tensor, tokens: Tensor) -> Tensor:
    """`rank` where reading an id costs nothing: each row is compared once, in two parts."""
    places = []
    for row, token in zip(scores.numpy(), tokens.tolist(), strict=True):
        own = row[token]
        ahead = np.count_nonzero(row[:token] >= own) + np.count_nonzero(row[token + 1 :] > own)
        places.append(1.0 + ahead)
    return torch.tensor(places, dtype=torch.float32)


def rank_on_device(scores: Tensor, tokens: Tensor) -> Tensor:
    """`rank` without a synchronisation."""
    column = tokens[:, None]
    own = scores.gather(1, column)
    ids = torch.arange(scores.shape[1], device=scores.device)
    ahead = (scores > own) | ((scores == own) & (ids < column))
    return 1.0 + ahead.count_nonzero(-1).to(torch.float32)
