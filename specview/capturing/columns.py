"""The scores of a round on the columns that matter.

transformers keeps 50 tokens (top-k) of a vocabulary unless told otherwise. Everything that a round records can then be
computed on the few columns that some distribution gives probability to, which is exact and costs a tenth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from specview.capturing.observation import Observation
from specview.capturing.passes import count_above, largest
from specview.capturing.settings import Asked

_LARGEST_TOP_K = 256
_SLACK = 8
"""Columns looked at beyond top-k, for tokens that tie with its last one."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """n + 1 rows of the target, n of the draft; all over the same columns."""

    target: Tensor
    draft: Tensor | None
    target_asked: Tensor | None
    """The target's raw logits under the settings asked for; `target` itself where there are none to apply."""
    draft_asked: Tensor | None
    ids: Tensor | None
    """Sorted token ids of the columns; None: column c is token c."""

    def column(self, tokens: Tensor) -> Tensor:
        return tokens if self.ids is None else torch.searchsorted(self.ids, tokens)

    def token(self, columns: Tensor) -> Tensor:
        return columns if self.ids is None else self.ids[columns]


def matrices(seen: Observation, asked: Asked | None, tokens: Tensor) -> Matrices:
    """The score matrices of an observation.

    Args:
        asked: the settings to apply once to the raw logits; None where that must not be done.
        tokens: ids whose columns are needed in any case.
    """
    target, vocab = seen.target_scores, seen.target_scores.shape[-1]
    draft = None if seen.draft_scores is None else _as_wide(seen.draft_scores.to(target.device), vocab)
    if asked is None:
        return Matrices(target, draft, None, None, None)
    raw_draft = None
    if seen.draft_logits is not None and draft is not None and draft.shape[0]:
        raw_draft = _as_wide(torch.stack([row.to(target.device) for row in seen.draft_logits]).float(), vocab)
    if asked.nothing:
        # No settings: the target's scores are its logits by construction, and are their own reference.
        return Matrices(target, draft, target, raw_draft, None)
    raw_target = None if seen.target_logits is None else seen.target_logits.to(target.device).float()
    alive = _alive(target, draft, raw_target, raw_draft, asked, tokens)
    if alive is not None:
        target = target.index_select(1, alive)
        draft, raw_target, raw_draft = (
            None if scores is None else scores.index_select(1, alive) for scores in (draft, raw_target, raw_draft)
        )
    sequence, t = seen.sequence.to(target.device), seen.committed_before
    return Matrices(
        target,
        draft,
        None if raw_target is None else asked.apply(raw_target, sequence, t),
        None if raw_draft is None else asked.apply(raw_draft, sequence, t),
        alive,
    )


def _alive(
    target: Tensor,
    draft: Tensor | None,
    raw_target: Tensor | None,
    raw_draft: Tensor | None,
    asked: Asked,
    tokens: Tensor,
) -> Tensor | None:
    """Sorted ids of every token that some distribution of the round gives probability; None where that is no short
    list, or not known to be one."""
    top_k = asked.sampling.top_k
    if not asked.only_sampling or not 0 < top_k <= _LARGEST_TOP_K or top_k + _SLACK >= target.shape[-1]:
        return None
    found = [tokens]
    for logits in (raw_target, raw_draft):
        if logits is not None:
            values, ids = largest(logits, top_k + _SLACK)
            if bool((values[:, -1] >= values[:, top_k - 1]).any()):
                return None  # more tokens tie with the last one than were looked at
            found.append(ids.flatten())
    columns = cast(Tensor, torch.unique(torch.cat(found)))
    # What was asked for is one thing; that the scores are alive nowhere else is looked up, not believed.
    for scores in (target, draft):
        if scores is not None:
            inside = count_above(scores.index_select(1, columns), -torch.inf)
            if not torch.equal(count_above(scores, -torch.inf), inside):
                return None
    return columns


def _as_wide(scores: Tensor, vocab: int) -> Tensor:
    """Models of one family pad their vocabularies differently; a token that one of them lacks has probability 0."""
    missing = vocab - scores.shape[-1]
    if missing > 0:
        return torch.nn.functional.pad(scores, (0, missing), value=-torch.inf)
    return scores[:, :vocab]
