"""What takes a pass over every row's vocabulary: taken a few rows at a time, while a processor's cache holds them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specview.vllm_plugin.deviation import own_temperature
from specview.vllm_plugin.scored import Scored, Scratch, readable

BLOCK = 256
SWEEP_ELEMENTS = 1 << 19
"""Of a processor's cache: each core's share of the rows, and of one buffer, stays in its second level."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Sums and peaks of n rows."""

    mass: Tensor
    """(n,) Σ p"""
    weighted: Tensor | None
    """(n,) Σ p·score; None where a value may not be looked at, as 0·∞ then cannot be told."""
    peaks: Tensor
    """(n, vocab // BLOCK) the largest score of every whole block."""
    draft_peaks: Tensor | None
    """(judged, vocab // BLOCK) likewise of q."""
    overlap: Tensor | None
    """(judged,) Σ min(p, q); None without a q."""
    rank: Tensor | None
    """(judged,) place of each candidate, 1 = best; equal scores rank by id, as argmax does. None where a value may not
    be looked at."""
    exact: bool
    """The scores are the logits under the temperature to the last bit, and nothing was removed."""


def sweep_rows(s: Scored, probs: Tensor, scratch: Scratch) -> Sweep:
    """All of it for the rows of `s`, whose softmax is `probs`."""
    n, vocab = s.scores.shape
    on_host = readable(s.scores)
    at_once = max(1, SWEEP_ELEMENTS // vocab) if on_host else max(1, n)
    blocks = vocab // BLOCK
    mass, weighted, overlap = probs.new_empty(n), probs.new_empty(n), probs.new_empty(s.judged)
    peaks, draft_peaks = probs.new_empty(n, blocks), probs.new_empty(s.judged, blocks)
    exact = on_host and s.raw is not None and s.top_k is None and s.top_p is None
    temperature = own_temperature(s.temperature) if exact else None
    rank = probs.new_empty(s.judged)
    tokens: list[int] = s.candidate[: s.judged].tolist() if on_host else []
    for start in range(0, n, at_once):
        stop = min(n, start + at_once)
        p, scores = probs[start:stop], s.scores[start:stop]
        work = scratch.get("sweep", scores)
        exact = exact and _exact(s, start, stop, scores, temperature, work, scratch)
        torch.sum(p, -1, out=mass[start:stop])
        if on_host:
            torch.sum(torch.mul(p, scores, out=work), -1, out=weighted[start:stop])
        _peaks(scores, peaks[start:stop])
        judged = max(start, min(stop, s.judged))
        if on_host and judged > start:
            rank[start:judged] = _ranks(scores[: judged - start], tokens[start:judged], work)
        if s.draft is not None and judged > start:
            q = s.draft[start:judged]
            least = torch.minimum(p[: judged - start], q, out=work[: judged - start])
            torch.sum(least, -1, out=overlap[start:judged])
            _peaks(q, draft_peaks[start:judged])
    return Sweep(
        mass=mass,
        weighted=weighted if on_host else None,
        peaks=peaks,
        draft_peaks=None if s.draft is None else draft_peaks,
        overlap=None if s.draft is None else overlap,
        rank=rank if on_host else None,
        exact=exact,
    )


def _peaks(values: Tensor, out: Tensor) -> None:
    if out.shape[1]:
        whole = values[:, : out.shape[1] * BLOCK]
        torch.amax(whole.view(len(values), -1, BLOCK), -1, out=out)


def _ranks(scores: Tensor, tokens: list[int], work: Tensor) -> Tensor:
    """(n,) 1 + how many precede each row's token. Sums of ones in float32 are exact up to 2²⁴, above any vocabulary."""
    tokens = [min(max(token, 0), scores.shape[1] - 1) for token in tokens]
    own = scores.gather(1, torch.tensor(tokens)[:, None])
    before = torch.gt(scores, own, out=work[: len(tokens)])
    for row, (token, value) in enumerate(zip(tokens, own[:, 0].tolist(), strict=True)):
        torch.ge(scores[row, :token], value, out=before[row, :token])
    return 1 + before.sum(-1)


def _exact(
    s: Scored, start: int, stop: int, scores: Tensor, temperature: Tensor | None, work: Tensor, scratch: Scratch
) -> bool:
    """Whether these scores are the scaled logits."""
    assert s.raw is not None
    if s.raw_rows is None:
        raw = s.raw[start:stop]
    else:
        raw = torch.index_select(s.raw, 0, s.raw_rows[start:stop], out=scratch.get("some raw", scores, s.raw.dtype))
    work.copy_(raw)
    if temperature is not None:
        work.div_(temperature[start:stop, None])
    # Ones are counted, as a comparison into truth values takes four times as long.
    return int(torch.eq(work, scores, out=work).sum(-1).sum(dtype=torch.float64)) == scores.numel()
