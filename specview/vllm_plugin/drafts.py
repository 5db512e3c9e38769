"""What a draft's distributions were, measured when they are made: later, vLLM has them but not their logits."""

from __future__ import annotations

import torch
from torch import Tensor

from specview.vllm_plugin import host
from specview.vllm_plugin.deviation import free_probabilities, scale
from specview.vllm_plugin.entropy import entropy
from specview.vllm_plugin.scored import Scratch


def draft_facts(
    raw: Tensor, temperature: Tensor, scores: Tensor, probs: Tensor, tokens: Tensor, scratch: Scratch
) -> tuple[Tensor, Tensor]:
    """(deviation, entropy), each (n,), of a draft's distributions.

    Args:
        raw: its logits before the temperature (n,); scores: what vLLM made of them; both (n, vocab) in the draft's own
            type.
        tokens: (n,) drawn from `probs` (n, vocab).
    """
    found = host.draft_facts(raw, temperature, scores, probs, tokens) if host.measurable(probs) else None
    if found is not None:
        return found
    wide = scale(raw, temperature, scratch, raw.dtype)
    if wide.dtype != torch.float32:
        wide = scratch.get("wide", wide).copy_(wide)
    nats = entropy(probs, probs.amax(-1), wide, wide.amax(-1), scratch)
    work = scratch.get("work", wide)
    return torch.sub(free_probabilities(wide, scratch), probs, out=work).abs_().amax(-1), nats
