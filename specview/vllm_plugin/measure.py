"""What a step's distributions were: measured on their device into one small matrix, so that one copy brings it home.

Nothing here waits for the device, draws a random number or changes a tensor that it was given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from specview.vllm_plugin import host
from specview.vllm_plugin.columns import JUDGED
from specview.vllm_plugin.deviation import target_deviation
from specview.vllm_plugin.entropy import entropy, own_entropy
from specview.vllm_plugin.scored import Scored, Scratch, join

CHUNK_ELEMENTS = 1 << 23
"""Rows are measured in chunks, in a little of the memory that vLLM left free."""
BLOCK = 256
"""Of a vocabulary; the largest are looked for in the blocks with the largest peaks."""


def pack(parts: Sequence[Scored], top: int, scratch: Scratch) -> Tensor:
    """(n, `columns.width(top)`) of all rows in order, on their device. A value that was not at hand is NaN; whoever
    reads the matrix knows which those are. Ids and counts are below 2²⁴, and so exact in float32.

    Args:
        parts: of one vocabulary; where there are two, candidates and then last positions.
    """
    vocab = parts[0].scores.shape[1]
    top = min(top, vocab)
    at_once = max(1, CHUNK_ELEMENTS // max(1, vocab))
    measure_rows = host.packed if host.measurable(parts[0].scores) else _packed
    if len(parts) == 2 and measure_rows is _packed and sum(len(part.scores) for part in parts) <= at_once:
        # Starting an operation costs a device more than a copy.
        joined = join(parts[0], parts[1], scratch)
        parts = parts if joined is None else (joined,)
    packed = []
    for part in parts:
        n = len(part.scores)
        starts = range(0, n, at_once)
        chunks = [part] if n <= at_once else [part.rows(start, min(n, start + at_once)) for start in starts]
        packed += [measure_rows(chunk, top, scratch) for chunk in chunks]
    return packed[0] if len(packed) == 1 else torch.cat(packed)


def _packed(s: Scored, top: int, scratch: Scratch) -> Tensor:
    probs = s.probs
    if probs is None:
        probs = torch.softmax(s.scores, dim=-1, out=scratch.get("probs", s.scores))
    mass = probs.sum(-1)
    tokens = torch.stack([s.candidate, s.token], dim=1).to(torch.int64).clamp_(0, s.scores.shape[1] - 1)
    best, ids = _best(s.scores, max(1, top))
    values = probs.gather(1, ids)
    own, of_token = probs.gather(1, tokens).unbind(1)
    nats = entropy(probs, values[:, 0], s.scores, best[:, 0], scratch)
    deviation = torch.full_like(mass, torch.nan)
    if s.raw is not None:
        deviation = target_deviation(s, probs, scratch.get("work", s.scores), scratch)
    of_all = torch.stack([s.candidate, s.token, own, of_token, nats, deviation], dim=1)
    of_judged = mass.new_empty(0, len(JUDGED) + 2 * top)
    if s.judged:
        of_judged = _judged(s, probs, mass, tokens, top, scratch)
    of_judged = pad(of_judged, (0, 0, 0, len(mass) - s.judged), value=math.nan)
    scalars, tops = of_judged[:, : len(JUDGED)], of_judged[:, len(JUDGED) :]
    return torch.cat([of_all, scalars, ids[:, :top], values[:, :top], tops], dim=1)


def _judged(s: Scored, probs: Tensor, mass: Tensor, tokens: Tensor, top: int, scratch: Scratch) -> Tensor:
    """(judged, columns) what candidates alone have, in the order of `JUDGED`, then the alternatives of q."""
    n = s.judged
    probs, mass, tokens = probs[:n], mass[:n], tokens[:n]
    blank = torch.full_like(mass, torch.nan)
    own = probs.gather(1, tokens[:, :1])[:, 0]
    rank = _rank(s.scores[:n], tokens[:, :1], scratch)
    draft_prob = of_token = draft_entropy = blank
    overlap = own  # of a one-hot q
    tops = [blank[:, None].expand(-1, 2 * top)]
    if s.draft is not None:
        draft_prob, of_token = s.draft.gather(1, tokens).unbind(1)
        overlap = torch.minimum(probs, s.draft, out=scratch.get("work", probs)).sum(-1)
        draft_entropy = own_entropy(s.draft, scratch) if s.draft_entropy is None else s.draft_entropy
        draft_best, draft_ids = _best(s.draft, max(1, top))
        tops = [draft_ids[:, :top], draft_best[:, :top]]
    residual = mass - overlap  # Σ max(0, p − q) = Σ p − Σ min(p, q)
    draft_deviation = blank if s.draft_deviation is None else s.draft_deviation
    u = blank if s.uniform is None else s.uniform
    scalars = [rank, u, draft_prob, of_token, overlap, residual, draft_entropy, draft_deviation]
    return torch.cat([torch.stack(scalars, dim=1), *tops], dim=1)


def _best(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(values, ids), each (n, count), of the largest. Whoever is among them is in one of the `count` blocks with the
    largest peaks, so that only those are searched."""
    n, vocab = values.shape
    whole = vocab // BLOCK * BLOCK
    if whole < BLOCK * 4 * count:
        best = values.topk(count, dim=-1)
        return best.values, best.indices
    blocks = values[:, :whole].view(n, -1, BLOCK)
    places = blocks.amax(-1).topk(count, dim=-1).indices
    found = blocks.gather(1, places[:, :, None].expand(-1, -1, BLOCK)).view(n, -1)
    if whole < vocab:
        found = torch.cat([found, values[:, whole:]], dim=-1)
        tail = places.new_full((n, 1), whole // BLOCK).expand(-1, (vocab - whole) // BLOCK + 1)
        places = torch.cat([places, tail], dim=-1)
    best = found.topk(count, dim=-1)
    block = torch.div(best.indices, BLOCK, rounding_mode="floor")
    return best.values, places.gather(1, block) * BLOCK + best.indices % BLOCK


def _rank(scores: Tensor, token: Tensor, scratch: Scratch) -> Tensor:
    """(n,) place of each candidate, `token` (n, 1): 1 = best; equal scores rank by id, as argmax does."""
    own = scores.gather(1, token)
    # A lower id precedes with an equal score: it needs to exceed only the next smaller number.
    just_below = torch.nextafter(own, torch.full_like(own, -torch.inf))
    ids = torch.arange(scores.shape[1], device=scores.device, dtype=torch.float32)
    lower = torch.lt(ids, token.to(torch.float32), out=scratch.get("lower", scores, torch.bool))
    work = scratch.get("work", scores)
    return 1 + torch.gt(scores, torch.where(lower, just_below, own, out=work), out=work).sum(-1)
