"""Entropies of many distributions at once, by tensor operations that wait for nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from specview.vllm_plugin.scored import Scratch


def entropy(probs: Tensor, top: Tensor, scores: Tensor, best: Tensor, scratch: Scratch) -> Tensor:
    """(n,) nats: H = −log p(best) − Σ p·(score − best), `top` being p(best)."""
    # Where p is 0 the score may be −∞, and 0·∞ must not become NaN.
    work = torch.sub(scores, best[:, None], out=scratch.get("work", scores)).clamp_(min=torch.finfo(torch.float32).min)
    return -top.log() - work.mul_(probs).sum(-1)


def own_entropy(q: Tensor, scratch: Scratch) -> Tensor:
    """(n,) nats, from the probabilities alone."""
    return -torch.log(q, out=scratch.get("work", q)).clamp_(min=torch.finfo(torch.float32).min).mul_(q).sum(-1)
