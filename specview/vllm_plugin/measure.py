"""What a step's distributions were: measured on their device into one small matrix, so that one copy brings it home.

Nothing here waits for the device, draws a random number or changes a tensor that it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from specview.vllm_plugin.columns import SCALARS, width

GREEDY_BELOW = 1e-5
"""vLLM decodes greedily below this temperature; the probabilities recorded are then those of temperature 1."""
MASS_TOLERANCE = 1e-3
"""vLLM sums top-p masses in float32 over the whole vocabulary."""
BLOCK = 256
CHUNK_ELEMENTS = {"cpu": 1 << 21}
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
    raw_rows: Tensor | None = None
    """(n,) rows of `raw`, where that holds others too."""
    temperature: Tensor | None = None
    """(n,) of each row's own request; None when all are greedy."""
    top_k: Tensor | None = None
    top_p: Tensor | None = None
    judged: bool = True
    """Whether these are candidates, which have a rank, an overlap and a residual."""
    widest_k: int = 0
    """The largest top-k in use."""
    draft: Tensor | None = None
    """(n, vocab) float32 q; None for a one-hot q."""
    draft_entropy: Tensor | None = None
    """(n,) measured when q was made; None where it was not seen."""
    draft_deviation: Tensor | None = None
    """(n,)"""

    def rows(self, start: int, stop: int) -> Scored:
        """These rows, as views."""
        return self._each(lambda tensor: tensor[start:stop])

    def select(self, index: Tensor) -> Scored:
        """The rows named by `index` (m,) on the same device."""
        return self._each(lambda tensor: tensor.index_select(0, index))

    def _each(self, part: Callable[[Tensor], Tensor]) -> Scored:
        shared = () if self.raw_rows is None else ("raw",)
        changed: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor) and field.name not in shared:
                changed[field.name] = part(value)
        return replace(self, **changed)


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
    if s.judged:
        column["rank"].copy_(_rank(s.scores, candidate, work, scratch))
    values, ids = _best(probs, max(1, top))
    best = s.scores.gather(1, ids[:, :1])
    mass = probs.sum(-1)
    column["target_entropy"].copy_(_entropy(probs, mass, values[:, 0], s.scores, best[:, 0], work))
    _alternatives(packed, len(SCALARS), ids, values, top)
    if s.uniform is not None:
        column["u"].copy_(s.uniform)
    if s.draft is None and s.judged:
        column["overlap"].copy_(own)
        column["residual_mass"].copy_(mass - own)
    elif s.draft is not None:
        q = s.draft
        column["draft_prob"].copy_(q.gather(1, candidate)[:, 0])
        column["token_draft_prob"].copy_(q.gather(1, token)[:, 0])
        overlap = torch.minimum(probs, q, out=work).sum(-1)
        column["overlap"].copy_(overlap)
        column["residual_mass"].copy_(mass - overlap)  # Σ max(0, p − q) = Σ p − Σ min(p, q)
        column["draft_entropy"].copy_(_own_entropy(q, work) if s.draft_entropy is None else s.draft_entropy)
        q_values, q_ids = _best(q, max(1, top))
        _alternatives(packed, len(SCALARS) + 2 * top, q_ids, q_values, top)
    if s.draft_deviation is not None:
        column["draft_deviation"].copy_(s.draft_deviation)
    if s.raw is not None:
        column["target_deviation"].copy_(_deviation(s, probs, mass, values, ids, work, scratch))


def _alternatives(packed: Tensor, start: int, ids: Tensor, values: Tensor, top: int) -> None:
    packed[:, start : start + top].copy_(ids[:, :top])
    packed[:, start + top : start + 2 * top].copy_(values[:, :top])


def _rank(scores: Tensor, candidate: Tensor, work: Tensor, scratch: Scratch) -> Tensor:
    """(n,) place of each candidate, 1 = best; equal scores rank by id, as argmax does. Sums of ones in float32 are
    exact up to 2²⁴, above any vocabulary."""
    own = scores.gather(1, candidate)
    if _readable(scores):
        above = torch.gt(scores, own, out=work).sum(-1)
        tied = (torch.eq(scores, own, out=work).sum(-1) > 1).nonzero()[:, 0]
        ties = [work[row, :token].sum() for row, token in zip(tied.tolist(), candidate[tied, 0].tolist(), strict=True)]
        return 1 + (above.index_add_(0, tied, torch.stack(ties)) if ties else above)
    # A lower id precedes with an equal score: it needs to exceed only the next smaller number.
    just_below = torch.nextafter(own, torch.full_like(own, -torch.inf))
    ids = torch.arange(scores.shape[1], device=scores.device, dtype=torch.float32)
    lower = torch.lt(ids, candidate.to(torch.float32), out=scratch.get("lower", scores, torch.bool))
    bar = torch.where(lower, just_below, own, out=work)
    return 1 + torch.gt(scores, bar, out=work).sum(-1)


def _best(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(values, ids), each (n, count): the largest of every row. Whoever is among them is in one of the `count` blocks
    with the largest peaks, so that only those are searched."""
    n, vocab = values.shape
    whole = vocab // BLOCK * BLOCK
    if whole < BLOCK * 4 * count:
        best = values.topk(count, dim=-1)
        return best.values, best.indices
    blocks = values[:, :whole].view(n, -1, BLOCK)
    places = blocks.amax(-1).topk(count, dim=-1).indices
    found = blocks.gather(1, places[:, :, None].expand(-1, -1, BLOCK)).view(n, -1)
    ids = (places[:, :, None] * BLOCK + torch.arange(BLOCK, device=values.device)).view(n, -1)
    if whole < vocab:
        found = torch.cat([found, values[:, whole:]], dim=-1)
        ids = torch.cat([ids, torch.arange(whole, vocab, device=values.device).expand(n, -1)], dim=-1)
    best = found.topk(count, dim=-1)
    return best.values, ids.gather(1, best.indices)


def _entropy(probs: Tensor, mass: Tensor, top: Tensor, scores: Tensor, best: Tensor, work: Tensor) -> Tensor:
    """(n,) nats: H = −log p(best) − Σ p·(score − best)."""
    if _readable(probs):
        dot = torch.mul(probs, scores, out=work).sum(-1)
        if not bool(dot.isnan().any()):
            return -top.log() - (dot - best * mass)
    # Where p is 0 the score may be −∞, and 0·∞ must not become NaN.
    torch.sub(scores, best[:, None], out=work).clamp_(min=torch.finfo(torch.float32).min)
    return -top.log() - work.mul_(probs).sum(-1)


def _own_entropy(q: Tensor, work: Tensor) -> Tensor:
    """(n,) nats, from the probabilities alone."""
    return -torch.log(q, out=work).clamp_(min=torch.finfo(torch.float32).min).mul_(q).sum(-1)


def _readable(tensor: Tensor) -> bool:
    """Whether looking at a value waits for nothing: then a shorter way may be taken where it leads to the same."""
    return tensor.device.type == "cpu"


def scale(raw: Tensor, temperature: Tensor | None, scratch: Scratch, dtype: torch.dtype = torch.float32) -> Tensor:
    """(n, vocab) logits under each row's own temperature; lives in `scratch`. vLLM divides the target's logits in
    float32 and the draft's in their own type, where rounding shows."""
    scaled = scratch.get("scaled", raw, dtype).copy_(raw)
    if temperature is None:
        return scaled
    own = torch.where(temperature < GREEDY_BELOW, 1.0, temperature).to(torch.float32)
    if _readable(own) and bool((own == 1).all()):
        return scaled
    return scaled.div_(own[:, None])


def free_probabilities(scaled: Tensor, scratch: Scratch) -> Tensor:
    """(n, vocab) softmax before any truncation; lives in `scratch`."""
    return torch.softmax(scaled, dim=-1, out=scratch.get("free", scaled))


def draft_facts(
    scaled: Tensor, scores: Tensor, probs: Tensor, tokens: Tensor, scratch: Scratch
) -> tuple[Tensor, Tensor]:
    """(deviation, entropy), each (n,), of a draft's distributions.

    Args:
        scaled: its logits under the temperature; scores: those that vLLM made of the same logits; both (n, vocab) in
            the draft's own type.
        tokens: (n,) drawn from `probs`, at which the softmax is tried.
    """
    work = scratch.get("work", scaled)
    same = _same(scaled, scores, work)
    wide = scaled if scaled.dtype == torch.float32 else scratch.get("wide", scaled).copy_(scaled)
    mass, top, best = probs.sum(-1), probs.amax(-1), wide.amax(-1)
    entropy = _entropy(probs, mass, top, wide, best, work)
    if same:
        drawn = tokens.to(torch.int64)[:, None]
        tried = torch.cat([top[:, None], probs.gather(1, drawn)], dim=-1)
        return _softmax_deviation(tried, torch.cat([best[:, None], wide.gather(1, drawn)], dim=-1), mass), entropy
    deviation = torch.sub(free_probabilities(wide, scratch), probs, out=work).abs_().amax(-1)
    return deviation, entropy


def _same(scaled: Tensor, scores: Tensor, work: Tensor) -> bool:
    """Whether the scores are the scaled logits to the last bit, where that may be looked at."""
    if not _readable(scaled) or scores.dtype != scaled.dtype:
        return False
    return bool((torch.eq(scaled, scores, out=work).sum(-1) == scaled.shape[1]).all())


def _softmax_deviation(tried: Tensor, scores: Tensor, mass: Tensor) -> Tensor:
    """(n,) largest difference of p from the softmax of its own scores, tried at some tokens, the best one first, and at
    its sum. Both (n, tokens)."""
    expected = (scores - scores[:, :1]).exp_().mul_(tried[:, :1])
    return torch.maximum((tried - expected).abs_().amax(-1), (mass - 1).abs_())


def _deviation(
    s: Scored, probs: Tensor, mass: Tensor, top: Tensor, ids: Tensor, work: Tensor, scratch: Scratch
) -> Tensor:
    """(n,) max |p − p'|, p' from the raw logits under the row's own settings; NaN when p is no distribution.

    Where the scores are the scaled logits to the last bit, only the softmax is left to differ, and it is tried at the
    most probable tokens and at its sum.
    """
    assert s.raw is not None
    raw = s.raw
    if s.raw_rows is not None:
        raw = torch.index_select(raw, 0, s.raw_rows, out=scratch.get("raw", s.scores, raw.dtype))
    scaled = scale(raw, s.temperature, scratch)
    whole = s.top_k is None and s.top_p is None
    if whole and _same(scaled, s.scores, work):
        return _softmax_deviation(top, s.scores.gather(1, ids), mass)
    free = free_probabilities(scaled, scratch)
    if whole:
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
