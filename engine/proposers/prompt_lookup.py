"""Prompt lookup: the candidates are what followed the last earlier occurrence of the text's ending.

No model at all, so q is a point mass on each candidate: acceptance is p(candidate), and the residual is p without it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.proposers import Committed, Proposal


class PromptLookup:
    """Drafts by n-gram lookup, the longest n-gram first, in prompt and output.

    Args:
        longest: n of the longest n-gram tried, down to 1.
        vocab_size: width of the target's logits.
    """

    kind = "prompt-lookup"
    wants_hidden = False
    context_length: int | None = None

    def __init__(self, vocab_size: int, longest: int = 3) -> None:
        self.longest = longest
        self.calls = 0
        self._vocab_size = vocab_size

    def begin(self, ids: Tensor, capacity: int) -> None:
        """Nothing to prepare: the committed prefix comes with every call."""

    def propose(self, committed: Committed, gamma: int, uniforms: Tensor) -> Proposal:
        found = continuation(committed.host_ids, gamma, self.longest)
        device = committed.ids.device
        tokens = torch.tensor(found, dtype=torch.int64, device=device)
        q = torch.zeros(len(found), self._vocab_size, device=device)
        q.scatter_(1, tokens[:, None], 1.0)
        stop = None if len(found) == gamma else "nothing found" if not found else "end of the match"
        return Proposal(tokens, q, None, stop)

    def observe(self, hidden: Tensor) -> None:
        """Looks at tokens only."""

    def roll_back(self, length: int) -> None:
        """There is no cache."""

    def length(self) -> int | None:
        return None


def continuation(ids: list[int], gamma: int, longest: int) -> list[int]:
    """Up to γ tokens that followed the most recent earlier occurrence of the last n tokens, n = longest … 1.

    Among matches of one length the most recent one with γ tokens behind it wins, else the most recent.
    """
    for n in range(min(longest, len(ids) - 1), 0, -1):
        ending = ids[-n:]
        best: list[int] = []
        for start in range(len(ids) - n - 1, -1, -1):
            if ids[start : start + n] == ending:
                follows = ids[start + n : start + n + gamma]
                if len(follows) == gamma:
                    return follows
                best = best if len(best) >= len(follows) else follows
        if best:
            return best
    return []
