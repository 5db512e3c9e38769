"""The scores of a round on the columns that matter.

transformers keeps 50 tokens (top-k) of a vocabulary unless told otherwise. Everything that a round records can then be
computed on the few columns that some distribution gives probability to, which is exact and costs a tenth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from specview.capturing.observation import Observation
from specview.capturing.passes import count_above, count_below, largest
from specview.capturing.scratch import Scratch
from specview.capturing.settings import Asked

_LARGEST_TOP_K = 256
_SLACK = 8
"""Columns looked at beyond top-k, for tokens that tie with its last one."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """n + 1 rows of the target, n of the draft; all over the same columns."""

    target: Tensor
    draft: Tensor | None
    logits: Tensor | None
    """Rows of the raw logits, the target's before the draft's; None where none were at hand."""
    of: slice
    """Which of all rows (the target's, then the draft's) those are."""
    ids: Tensor | None
    """Sorted token ids of the columns; None: column c is token c."""

    def column(self, tokens: Tensor) -> Tensor:
        return tokens if self.ids is None else torch.searchsorted(self.ids, tokens)

    def token(self, columns: Tensor) -> Tensor:
        return columns if self.ids is None else self.ids[columns]


def matrices(seen: Observation, asked: Asked | None, tokens: Tensor, scratch: Scratch) -> Matrices:
    """The score matrices of an observation.

    Args:
        asked: the settings to apply once to the raw logits; None where that must not be done.
        tokens: ids whose columns are needed in any case.
    """
    target, vocab = seen.target_scores, seen.target_scores.shape[-1]
    draft = None if seen.draft_scores is None else _as_wide(seen.draft_scores.to(target.device, target.dtype), vocab)
    n, m = target.shape[0], 0 if draft is None else draft.shape[0]
    if asked is None:
        return Matrices(target, draft, None, slice(0), None)
    rows: list[Tensor] = []
    # No settings: the target's scores are its logits by construction.
    if seen.target_logits is not None and not asked.nothing:
        rows += seen.target_logits
    of = slice(0 if rows else n, n)
    if seen.draft_logits is not None and m:
        rows += seen.draft_logits
        of = slice(of.start, n + m)
    if not rows:
        return Matrices(target, draft, None, slice(0), None)
    logits = _gathered(rows, scratch.take("logits", (len(rows), vocab), target.device))
    alive = None if asked.nothing else _alive(target, draft, logits, asked, tokens, scratch)
    if alive is not None:
        target, logits = target.index_select(1, alive), logits.index_select(1, alive)
        draft = None if draft is None else draft.index_select(1, alive)
    return Matrices(target, draft, logits, of, alive)


def _gathered(rows: Iterable[Tensor], into: Tensor) -> Tensor:
    """`into`, filled with rows of a model's own width and dtype; a token that it lacks has probability 0."""
    for place, row in zip(into, rows, strict=True):
        if row.shape[-1] == place.shape[-1]:
            place.copy_(row)
        else:
            width = min(row.shape[-1], place.shape[-1])
            place[:width].copy_(row[:width])
            place[width:] = -torch.inf
    return into


def _alive(
    target: Tensor, draft: Tensor | None, logits: Tensor, asked: Asked, tokens: Tensor, scratch: Scratch
) -> Tensor | None:
    """Sorted ids of every token that some distribution of the round gives probability; None where that is no short
    list, or not known to be one."""
    top_k = asked.sampling.top_k
    if not asked.only_sampling or not 0 < top_k <= _LARGEST_TOP_K or top_k + _SLACK >= target.shape[-1]:
        return None
    if asked.sampling.top_p == 1.0 and asked.sampling.min_p == 0.0:
        # The scores themselves then show whom top-k kept; that nobody else belongs there is looked up.
        columns = _shown(target, draft, tokens)
        if top_k <= columns.shape[0] <= (top_k + _SLACK) * logits.shape[0]:
            inside = logits.index_select(1, columns)
            floor = inside.topk(top_k, dim=-1).values[:, -1:]
            outside = count_below(logits, floor, scratch) - count_below(inside, floor, Scratch())
            if bool((outside == logits.shape[1] - columns.shape[0]).all()):
                return columns
    values, ids = largest(logits, top_k + _SLACK)
    if bool((values[:, -1] >= values[:, top_k - 1]).any()):
        return None  # more tokens tie with the last one than were looked at
    columns = cast(Tensor, torch.unique(torch.cat([tokens, ids.flatten()])))
    # What was asked for is one thing; that the scores are alive nowhere else is looked up, not believed.
    for scores in (target, draft):
        if scores is not None:
            inside = (scores.index_select(1, columns) > -torch.inf).sum(-1)
            if not torch.equal(count_above(scores, -torch.inf, scratch), inside.float()):
                return None
    return columns


def _shown(target: Tensor, draft: Tensor | None, tokens: Tensor) -> Tensor:
    """Sorted ids of every token that some scores leave alive, and of `tokens`."""
    highest = target.amax(0)
    if draft is not None and draft.shape[0]:
        highest = torch.maximum(highest, draft.amax(0))
    alive = highest > -torch.inf
    alive[tokens] = True
    return alive.nonzero().squeeze(1)


def _as_wide(scores: Tensor, vocab: int) -> Tensor:
    """Models of one family pad their vocabularies differently; a token that one of them lacks has probability 0."""
    missing = vocab - scores.shape[-1]
    if missing > 0:
        return torch.nn.functional.pad(scores, (0, missing), value=-torch.inf)
    return scores[:, :vocab]
