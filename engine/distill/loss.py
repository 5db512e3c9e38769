"""What a draft is trained on: the target's whole distribution at each position, not the token that was drawn."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class DistributionLoss(torch.autograd.Function):
    """KL(p ‖ q) − λ Σ min(p, q), summed over positions, with its gradient taken by hand.

    p is the target's distribution on the scored tokens (it may sum to less than 1), q = softmax(logits). The first term
    teaches everywhere, the second is the acceptance itself: β = Σ min(p, q). One pass forms loss and gradient, because
    on a CPU the many passes of autograd over (positions, scored tokens) would cost as much as the matrix products.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, p: Tensor, overlap_weight: float) -> tuple[Tensor, Tensor]:
        """`logits` and `p` are (positions, scored tokens). Returns the loss and the summed overlap (no gradient)."""
        logits = logits.to(torch.float32, copy=True)
        log_z = logits.logsumexp(-1, keepdim=True)
        mass = p.sum(-1, keepdim=True)
        cross_entropy = (mass * log_z).sum() - torch.dot(p.flatten(), logits.flatten())
        q = logits.sub_(log_z).exp_()
        overlap = torch.minimum(p, q).sum()
        below = q.lt(p)
        lifted = (q * below).sum(-1, keepdim=True)
        gradient = q * (mass + overlap_weight * lifted) - p
        gradient -= overlap_weight * q * below
        ctx.save_for_backward(gradient.bfloat16())
        ctx.mark_non_differentiable(overlap)
        return cross_entropy - overlap_weight * overlap, overlap

    @staticmethod
    def backward(ctx: Any, loss_gradient: Tensor, _overlap_gradient: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * loss_gradient.to(gradient.dtype), None, None


def target_probabilities(states: Tensor, log_normalizer: Tensor, rows: Tensor) -> Tensor:
    """p at temperature 1 over the scored tokens, float32 (positions, scored tokens), from the target's final states."""
    return ((states @ rows.T).float() - log_normalizer[:, None]).exp_()
