"""How far the distributions that a draw saw are from their raw logits under the settings that were asked for."""

from __future__ import annotations

import torch
from torch import Tensor

from specview.vllm_plugin.scored import Scored, Scratch

GREEDY_BELOW = 1e-5
"""vLLM decodes greedily below this temperature; the probabilities recorded are then those of temperature 1."""
MASS_TOLERANCE = 1e-3
"""vLLM sums top-p masses in float32 over the whole vocabulary."""


def scale(raw: Tensor, temperature: Tensor | None, scratch: Scratch, dtype: torch.dtype = torch.float32) -> Tensor:
    """(n, vocab) logits under each row's own temperature; lives in `scratch`. vLLM divides the target's logits in
    float32 and the draft's in their own type, where rounding shows."""
    scaled = scratch.get("scaled", raw, dtype).copy_(raw)
    if temperature is None:
        return scaled
    return scaled.div_(torch.where(temperature < GREEDY_BELOW, 1.0, temperature).to(torch.float32)[:, None])


def free_probabilities(scaled: Tensor, scratch: Scratch) -> Tensor:
    """(n, vocab) softmax before any truncation; lives in `scratch`."""
    return torch.softmax(scaled, dim=-1, out=scratch.get("free", scaled))


def target_deviation(s: Scored, probs: Tensor, work: Tensor, scratch: Scratch) -> Tensor:
    """(n,) max |p − p'|, p' from the raw logits under the row's own settings; NaN when p is no distribution."""
    assert s.raw is not None
    raw = s.raw
    if s.raw_rows is not None:
        raw = torch.index_select(raw, 0, s.raw_rows, out=scratch.get("raw", s.scores, raw.dtype))
    scaled = scale(raw, s.temperature, scratch)
    free = free_probabilities(scaled, scratch)
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
