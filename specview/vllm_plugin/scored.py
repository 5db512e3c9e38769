"""The scored positions of a step, as views of what vLLM's sampler used, and the memory that measuring them needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor


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
    """(judged,) the draws of the acceptance test."""
    raw: Tensor | None = None
    """(n, vocab) logits before the temperature; None where they are not at hand."""
    raw_rows: Tensor | None = None
    """(n,) rows of `raw`, where that holds others too."""
    temperature: Tensor | None = None
    """(n,) of each row's own request; None when all are greedy."""
    top_k: Tensor | None = None
    top_p: Tensor | None = None
    judged: int = 0
    """So many of them, the first, are candidates: those have a rank, an overlap and a residual."""
    widest_k: int = 0
    """The largest top-k in use."""
    draft: Tensor | None = None
    """(judged, vocab) float32 q; None for a one-hot q."""
    draft_entropy: Tensor | None = None
    """(judged,) measured when q was made; None where it was not seen."""
    draft_deviation: Tensor | None = None
    """(judged,)"""

    def rows(self, start: int, stop: int) -> Scored:
        """These rows, as views; of positions that are candidates all, or none."""
        return self._each(lambda tensor: tensor[start:stop], stop - start)

    def select(self, index: Tensor) -> Scored:
        """The rows named by `index` (m,) on the same device; likewise."""
        return self._each(lambda tensor: tensor.index_select(0, index), len(index))

    def _each(self, part: Callable[[Tensor], Tensor], count: int) -> Scored:
        shared = () if self.raw_rows is None else ("raw",)
        changed: dict[str, Any] = {"judged": min(self.judged, count)}
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

    def rows(self, name: str, count: int, like: Tensor) -> Tensor:
        """An uninitialised float32 tensor (count, columns of `like`)."""
        return self.get(name, like[:1].expand(count, -1))


def join(candidates: Scored, last: Scored, scratch: Scratch) -> Scored | None:
    """Both as one, which halves the operations; None where one has what the other lacks."""
    optional = ("raw", "raw_rows", "temperature", "top_k", "top_p")
    if any((getattr(candidates, name) is None) != (getattr(last, name) is None) for name in optional):
        return None
    n, m = len(candidates.scores), len(last.scores)

    def both(name: str) -> Tensor | None:
        own = getattr(candidates, name)
        return None if own is None else torch.cat([own, getattr(last, name)])

    scores = scratch.rows("scores", n + m, last.scores)
    scores[:n].copy_(candidates.scores)
    scores[n:].copy_(last.scores)
    probs = scratch.rows("probs", n + m, last.scores)
    if candidates.probs is None:
        torch.softmax(scores, dim=-1, out=probs)
    else:
        probs[:n].copy_(candidates.probs)
        torch.softmax(last.scores, dim=-1, out=probs[n:])
    return replace(
        candidates,
        scores=scores,
        probs=probs,
        candidate=torch.cat([candidates.candidate, last.candidate]),
        token=torch.cat([candidates.token, last.token]),
        raw=candidates.raw if candidates.raw_rows is not None else both("raw"),
        raw_rows=both("raw_rows"),
        temperature=both("temperature"),
        top_k=both("top_k"),
        top_p=both("top_p"),
    )
