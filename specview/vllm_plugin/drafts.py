"""What a draft's distributions were, measured when they are made: later, vLLM has them but not their logits."""

from __future__ import annotations

import torch
from torch import Tensor

from specview.vllm_plugin.deviation import free_probabilities, same, softmax_deviation
from specview.vllm_plugin.measure import entropy
from specview.vllm_plugin.scored import Scratch


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
    exact = same(scaled, scores, work)
    wide = scaled if scaled.dtype == torch.float32 else scratch.get("wide", scaled).copy_(scaled)
    mass, top, best = probs.sum(-1), probs.amax(-1), wide.amax(-1)
    nats = entropy(probs, mass, top, wide, best, work)
    if exact:
        drawn = tokens.to(torch.int64)[:, None]
        tried = torch.cat([top[:, None], probs.gather(1, drawn)], dim=-1)
        return softmax_deviation(tried, torch.cat([best[:, None], wide.gather(1, drawn)], dim=-1), mass), nats
    deviation = torch.sub(free_probabilities(wide, scratch), probs, out=work).abs_().amax(-1)
    return deviation, nats
