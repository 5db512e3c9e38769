"""What a draft's distributions were, measured when they are made: later, vLLM has them but not their logits."""

from __future__ import annotations

import torch
from torch import Tensor

from specview.vllm_plugin.deviation import free_probabilities, softmax_deviation
from specview.vllm_plugin.measure import entropy
from specview.vllm_plugin.scored import Scratch, readable


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
    exact = _same(scaled, scores)
    wide = scaled if scaled.dtype == torch.float32 else scratch.get("wide", scaled).copy_(scaled)
    mass, top, best = probs.sum(-1), probs.amax(-1), wide.amax(-1)
    weighted = torch.mul(probs, wide, out=work).sum(-1) if readable(probs) else None
    nats = entropy(probs, mass, top, wide, best, weighted, scratch)
    if exact:
        drawn = tokens.to(torch.int64)[:, None]
        tried = torch.cat([top[:, None], probs.gather(1, drawn)], dim=-1)
        return softmax_deviation(tried, torch.cat([best[:, None], wide.gather(1, drawn)], dim=-1), mass), nats
    deviation = torch.sub(free_probabilities(wide, scratch), probs, out=work).abs_().amax(-1)
    return deviation, nats


def _same(scaled: Tensor, scores: Tensor) -> bool:
    """Whether both hold the same bits, where that may be looked at; compared in words, as equal numbers they would take
    twice as long."""
    if not readable(scaled) or scores.dtype != scaled.dtype or not scores.is_contiguous():
        return False
    words = torch.int64 if scaled.shape[1] * scaled.element_size() % 8 == 0 else torch.int16
    return torch.equal(scaled.view(words), scores.view(words))
