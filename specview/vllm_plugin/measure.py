"""What a step's distributions were: measured on their device into one small matrix, so that one copy brings it home.

Nothing here waits for the device, draws a random number or changes a tensor that it was given.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specview.vllm_plugin.columns import SCALARS, width

GREEDY_BELOW = 1e-5
"""vLLM decodes greedily below this temperature; the probabilities recorded are then those of temperature 1."""
MASS_TOLERANCE = 1e-3
"""vLLM sums top-p masses in float32 over the whole vocabulary."""
CHUNK_ELEMENTS = {"cpu": 1 << 20}
CHUNK_ELEMENTS_ELSEWHERE = 1 << 23
"""Rows are measured in chunks: a processor's cache, or a little of the memory that vLLM left free."""


@dataclass(frozen=True, slots=True)
class Scored:
    """n scored positions: the distributions that the draw saw, and what they were made from."""

    scores: Tensor
    """(n, vocab) float32: logits after temperature and truncation; what was removed is −inf."""
    candidate: Tensor
    """(n,) token judged, or drawn from these scores."""
    token: Tensor
    """(n,) token that vLLM put out here; −1 for none."""
    probs: Tensor | None = None
    """(n, vocab) float32 softmax of the scores, where vLLM computed it."""
    uniform: Tensor | None = None
    """(n,) the draws of the acceptance test."""
    raw: Tensor | None = None
    """(n, vocab) logits before the temperature; None where they are not at hand."""
    temperature: Tensor | None = None
    """(n,) of each row's own request; None when all are greedy."""
    top_k: Tensor | None = None
    top_p: Tensor | None = None
    widest_k: int = 0
    """The largest top-k in use."""
    draft: Tensor | None = None
    """(n, vocab) float32 q; None for a one-hot q."""
    draft_deviation: Tensor | None = None
    """(n,)"""

    def rows(self, start: int, stop: int) -> Scored:
        def cut(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor[start:stop]

        return Scored(
            self.scores[start:stop], self.candidate[start:stop], self.token[start:stop], cut(self.probs),
            cut(self.uniform), cut(self.raw), cut(self.temperature), cut(self.top_k), cut(self.top_p), self.widest_k,
            cut(self.draft), cut(self.draft_deviation),
        )  # fmt: skip

    def select(self, index: Tensor) -> Scored:
        """The rows named by `index` (m,) on the same device."""

        def pick(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.index_select(0, index)

        return Scored(
            self.scores.index_select(0, index), self.candidate.index_select(0, index),
            self.token.index_select(0, index), pick(self.probs), pick(self.uniform), pick(self.raw),
            pick(self.temperature), pick(self.top_k), pick(self.top_p), self.widest_k, pick(self.draft),
            pick(self.draft_deviation),
        )  # fmt: skip


class Scratch:
    """Buffers that are kept from step to step: fresh pages would cost a CPU more than the arithmetic."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.dtype], Tensor] = {}

    def get(self, name: str, like: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """An uninitialised tensor shaped like `like`."""
        count = like.numel()
        buffer = self._buffers.get((name, dtype))
        if buffer is None or buffer.numel() < count or buffer.device != like.device:
            buffer = torch.empty(count, dtype=dtype, device=like.device)
            self._buffers[name, dtype] = buffer
        return buffer[:count].view(like.shape)


def pack(scored: Scored, top: int, scratch: Scratch) -> Tensor:
    """(n, `columns.width(top)`) float64, on the device of the scores. A value that was not at hand is NaN; whoever
    reads the matrix knows which those are."""
    n, vocab = scored.scores.shape
    top = min(top, vocab)
    packed = torch.full((n, width(top)), torch.nan, dtype=torch.float64, device=scored.scores.device)
    at_once = max(1, CHUNK_ELEMENTS.get(packed.device.type, CHUNK_ELEMENTS_ELSEWHERE) // max(1, vocab))
    for start in range(0, n, at_once):
        stop = min(n, start + at_once)
        _fill(packed[start:stop], scored.rows(start, stop), top, scratch)
    return packed


def _fill(packed: Tensor, s: Scored, top: int, scratch: Scratch) -> None:
    column = dict(zip(SCALARS, packed.unbind(1), strict=False))
    vocab = s.scores.shape[1]
    probs = s.probs
    if probs is None:
        probs = torch.softmax(s.scores, dim=-1, out=scratch.get("probs", s.scores))
    work = scratch.get("work", s.scores)
    candidate = s.candidate.to(torch.int64).clamp(0, vocab - 1)[:, None]
    token = s.token.to(torch.int64).clamp(0, vocab - 1)[:, None]
    own = probs.gather(1, candidate)[:, 0]
    column["candidate"].copy_(s.candidate)
    column["token"].copy_(s.token)
    column["target_prob"].copy_(own)
    column["token_target_prob"].copy_(probs.gather(1, token)[:, 0])
    column["rank"].copy_(_rank(s.scores, candidate, work, scratch))
    values, ids = probs.topk(max(1, top), dim=-1)
    best = s.scores.gather(1, ids[:, :1])
    # H = −log p(best) − Σ p·(score − best). Where p is 0 the score may be −∞, and 0·∞ must not become NaN.
    torch.sub(s.scores, best, out=work).clamp_(min=torch.finfo(torch.float32).min)
    column["target_entropy"].copy_(-values[:, 0].log() - torch.linalg.vecdot(probs, work))
    _alternatives(packed, len(SCALARS), ids, values, top)
    if s.uniform is not None:
        column["u"].copy_(s.uniform)
    if s.draft is None:
        column["overlap"].copy_(own)
        column["residual_mass"].copy_(probs.sum(-1) - own)
    else:
        q = s.draft
        column["draft_prob"].copy_(q.gather(1, candidate)[:, 0])
        column["token_draft_prob"].copy_(q.gather(1, token)[:, 0])
        column["overlap"].copy_(torch.minimum(probs, q, out=work).sum(-1))
        column["residual_mass"].copy_(torch.sub(probs, q, out=work).clamp_(min=0).sum(-1))
        torch.log(q, out=work).clamp_(min=torch.finfo(torch.float32).min)
        column["draft_entropy"].copy_(-torch.linalg.vecdot(q, work))
        values, ids = q.topk(max(1, top), dim=-1)
        _alternatives(packed, len(SCALARS) + 2 * top, ids, values, top)
    if s.draft_deviation is not None:
        column["draft_deviation"].copy_(s.draft_deviation)
    if s.raw is not None:
        column["target_deviation"].copy_(_deviation(s, probs, work, scratch))


def _alternatives(packed: Tensor, start: int, ids: Tensor, values: Tensor, top: int) -> None:
    packed[:, start : start + top].copy_(ids[:, :top])
    packed[:, start + top : start + 2 * top].copy_(values[:, :top])


def _rank(scores: Tensor, candidate: Tensor, work: Tensor, scratch: Scratch) -> Tensor:
    """(n,) place of each candidate, 1 = best; equal scores rank by id, as argmax does. Sums of ones in float32 are
    exact up to 2²⁴, above any vocabulary."""
    own = scores.gather(1, candidate)
    above = torch.gt(scores, own, out=work).sum(-1)
    lower = scratch.get("lower", scores, torch.bool)
    torch.lt(torch.arange(scores.shape[1], device=scores.device), candidate, out=lower)
    return 1 + above + torch.eq(scores, own, out=work).mul_(lower).sum(-1)


def free_probabilities(raw: Tensor, temperature: Tensor | None, scratch: Scratch) -> Tensor:
    """(n, vocab) softmax of the logits under each row's own temperature, before any truncation; lives in `scratch`."""
    scaled = scratch.get("scaled", raw)
    if temperature is None:
        scaled.copy_(raw)
    else:
        own = torch.where(temperature < GREEDY_BELOW, 1.0, temperature).to(torch.float32)
        torch.div(raw.to(torch.float32), own[:, None], out=scaled)
    return torch.softmax(scaled, dim=-1, out=scratch.get("free", raw))


def _deviation(s: Scored, probs: Tensor, work: Tensor, scratch: Scratch) -> Tensor:
    """(n,) max |p − p'|, p' from the raw logits under the row's own settings; NaN when p is no distribution."""
    assert s.raw is not None
    free = free_probabilities(s.raw, s.temperature, scratch)
    if s.top_k is None and s.top_p is None:
        return torch.sub(probs, free, out=work).abs_().amax(-1)
    removed = torch.eq(s.scores, -torch.inf, out=scratch.get("removed", s.scores, torch.bool))
    return _truncated_deviation(s, probs, free, removed, work)


def _truncated_deviation(s: Scored, probs: Tensor, free: Tensor, removed: Tensor, work: Tensor) -> Tensor:
    """Top-k and top-p without a sort: the set that was kept is right when it is the upper end of the distribution, has
    at most k members, and is the smallest that reaches top-p; p' is then `free` on that set. Where the set is wrong,
    the token that is wrongly in or out differs by at least its own probability, which is taken as the difference."""
    smallest = work.copy_(free).masked_fill_(removed, 2.0).amin(-1)
    largest_removed = torch.where(removed, free, torch.zeros((), device=free.device), out=work).amax(-1)
    kept = work.copy_(free).masked_fill_(removed, 0.0)
    mass = kept.sum(-1)
    difference = kept.div_(mass[:, None]).sub_(probs).abs_().amax(-1)
    whole = torch.ones_like(mass)
    too_many = torch.zeros_like(mass, dtype=torch.bool)
    if s.top_k is not None:
        limit = s.top_k.to(torch.int64)
        too_many |= torch.gt(free, smallest[:, None], out=work).sum(-1) >= limit
        within = limit <= s.widest_k
        best = free.topk(max(1, s.widest_k), dim=-1).values.cumsum(-1)
        whole = torch.where(within, best.gather(1, limit.clamp(1, best.shape[1])[:, None] - 1)[:, 0], whole)
    share = whole if s.top_p is None else whole * s.top_p
    too_many |= mass - smallest >= share + MASS_TOLERANCE * whole
    too_few = mass < share - MASS_TOLERANCE * whole
    unordered = largest_removed > smallest
    nothing = torch.zeros_like(mass)
    for wrong, by in ((too_many | unordered, smallest / mass), (too_few, largest_removed / whole)):
        difference = torch.maximum(difference, torch.where(wrong, by, nothing))
    return difference
