"""Logits → distribution: the one function that makes both q and p, and the one way to draw from either.

The order is the ecosystem's: penalties, logit bias, temperature, top-k, top-p, min-p. Everything is float32 whatever
the model's dtype. Removed tokens get the finite score `REMOVED`, whose softmax is exactly 0, so that sums such as
Σ p·score stay free of 0·∞.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.round import Sampling

REMOVED = -1e30
"""The score of a token that a setting removed; exp(REMOVED − anything finite) is exactly 0 in float32."""

_TOP_P_HEADS = (64, 1024)
"""Sorted heads to try before sorting the whole vocabulary: real distributions reach top_p early."""


class Penalties:
    """How often each token occurred before a position, one row a position.

    Attributes:
        seen: (rows, vocab) bool — in the prompt or the output (repetition penalty).
        counts: (rows, vocab) float32 — occurrences in the output (frequency and presence penalty).
    """

    def __init__(self, seen: Tensor, counts: Tensor) -> None:
        self.seen = seen
        self.counts = counts

    @classmethod
    def of_prompt(cls, prompt: Tensor, vocab_size: int) -> Penalties:
        """The single row of a sequence whose output is still empty; `prompt`: (t,) ids."""
        seen = torch.zeros(1, vocab_size, dtype=torch.bool, device=prompt.device)
        seen[0, prompt] = True
        return cls(seen, torch.zeros(1, vocab_size, device=prompt.device))

    def extend(self, tokens: Tensor) -> None:
        """Add committed output; `tokens`: (n,) ids."""
        self.seen[:, tokens] = True
        self.counts[0].index_add_(0, tokens, torch.ones(tokens.shape[0], device=self.counts.device))

    def along(self, candidates: Tensor) -> Penalties:
        """The rows of every position of a candidate path: row i has seen candidates[:i]. (γ,) → γ+1 rows."""
        rows = candidates.shape[0] + 1
        counts = self.counts.repeat(rows, 1)
        seen = self.seen.repeat(rows, 1)
        for i in range(rows - 1):
            counts[i + 1 :, candidates[i]] += 1
            seen[i + 1 :, candidates[i]] = True
        return Penalties(seen, counts)

    def last(self) -> Penalties:
        """Only the last row."""
        return Penalties(self.seen[-1:], self.counts[-1:])


def has_penalties(sampling: Sampling) -> bool:
    """Whether the settings look at what was generated before."""
    return sampling.repetition_penalty != 1.0 or sampling.frequency_penalty != 0.0 or sampling.presence_penalty != 0.0


def treats_tokens_alike(sampling: Sampling) -> bool:
    """Whether no setting singles tokens out, by what was said before or by their ids: scores then need only logits."""
    return not has_penalties(sampling) and not sampling.logit_bias


def scores(
    logits: Tensor, sampling: Sampling, penalties: Penalties | None = None, into: Tensor | None = None
) -> Tensor:
    """Logits under the settings, ready for softmax; never written into `logits`.

    At temperature 0 these are the scores of temperature 1 under the other settings: their argmax is the greedy
    choice, and their softmax is what a greedy run records.

    Args:
        logits: (rows, vocab), any float dtype.
        penalties: what each row has seen; None when no penalty is set.
        into: (rows, vocab) float32 to write the result into; new memory otherwise.

    Returns:
        (rows, vocab) float32; removed tokens are at `REMOVED` or below. NaN stays NaN.
    """
    out = torch.empty(logits.shape, dtype=torch.float32, device=logits.device) if into is None else into
    out.copy_(logits)
    if penalties is not None:
        _penalise(out, sampling, penalties)
    if sampling.logit_bias:
        ids = torch.tensor(list(sampling.logit_bias), device=out.device)
        out[:, ids] += torch.tensor(list(sampling.logit_bias.values()), dtype=torch.float32, device=out.device)
    if sampling.temperature not in (0.0, 1.0):
        out /= sampling.temperature
    out.clamp_(min=REMOVED)
    if 0 < sampling.top_k < out.shape[-1]:
        floor = out.topk(sampling.top_k, dim=-1).values[:, -1:]
        out.masked_fill_(out < floor, REMOVED)
    if sampling.top_p < 1.0:
        out.copy_(_keep_top_p(out, sampling.top_p))
    if sampling.min_p > 0.0:
        floor = out.amax(dim=-1, keepdim=True) + math.log(sampling.min_p)
        out.masked_fill_(out < floor, REMOVED)
    return out


def distribution(logits: Tensor, sampling: Sampling, penalties: Penalties | None = None) -> Tensor:
    """(rows, vocab) float32 probabilities: the softmax of `scores`."""
    return torch.softmax(scores(logits, sampling, penalties), dim=-1)


def uniform_draws(count: int, generator: torch.Generator) -> Tensor:
    """(count,) draws on [0, 1) for `draw`, float64 where the device has it (Apple's has not).

    Kept two units of rounding below 1: multiplied by a sum they then stay below the sum.
    """
    dtype = torch.float32 if generator.device.type == "mps" else torch.float64
    drawn = torch.rand(count, generator=generator, device=generator.device, dtype=dtype)
    return drawn.clamp_(max=1.0 - torch.finfo(dtype).eps)


def draw(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """One token id a row, by inverting the cumulative sum; weights need not be normalised.

    A token of weight 0 is never drawn: its step in the cumulative sum has no width. The sum is float64, and so should
    be the uniforms, so that rare tokens keep their probability.

    Args:
        probabilities: (rows, vocab) float32, ≥ 0, each row's sum > 0.
        uniform: (rows,) float64 on [0, 1), as `uniform_draws` makes them.

    Returns:
        (rows,) int64.
    """
    cumulative = probabilities.cumsum(-1, dtype=uniform.dtype)
    threshold = (uniform[:, None] * cumulative[:, -1:]).contiguous()
    index = torch.searchsorted(cumulative, threshold, right=True).squeeze(-1)
    return index.clamp_(max=probabilities.shape[-1] - 1)


def _penalise(out: Tensor, sampling: Sampling, penalties: Penalties) -> None:
    if sampling.repetition_penalty != 1.0:
        factor = sampling.repetition_penalty
        out.copy_(torch.where(penalties.seen, torch.where(out > 0, out / factor, out * factor), out))
    if sampling.frequency_penalty != 0.0:
        out.sub_(penalties.counts * sampling.frequency_penalty)
    if sampling.presence_penalty != 0.0:
        out.sub_((penalties.counts > 0) * sampling.presence_penalty)


def _keep_top_p(out: Tensor, top_p: float) -> Tensor:
    """Keep, in each row, the smallest set of most probable tokens whose probability reaches `top_p`."""
    normaliser = torch.logsumexp(out, dim=-1, keepdim=True)
    vocab = out.shape[-1]
    # On an accelerator asking whether the head suffices would cost a synchronisation, and sorting is cheap there.
    heads = [k for k in _TOP_P_HEADS if k < vocab] if out.device.type == "cpu" else []
    for k in [*heads, vocab]:
        values, ids = out.topk(k, dim=-1, sorted=True) if k < vocab else out.sort(dim=-1, descending=True, stable=True)
        mass = torch.exp(values - normaliser)
        before = mass.cumsum(-1) - mass
        if k == vocab or bool((before[:, -1] + mass[:, -1] >= top_p).all()):
            break
    kept = torch.where(before < top_p, values, REMOVED)
    kept[:, 0] = values[:, 0]
    return torch.full_like(out, REMOVED).scatter_(-1, ids, kept)
