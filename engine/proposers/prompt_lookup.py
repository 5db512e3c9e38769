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
    taps = None
    context_length: int | None = None

    def __init__(self, vocab_size: int, longest: int = 3) -> None:
        self.longest = longest
        self.calls = 0
        self._vocab_size = vocab_size
        self._index = NgramIndex(longest)

    def begin(self, ids: Tensor, capacity: int) -> None:
        self._index = NgramIndex(self.longest)

    def prepare(self, gamma: int) -> None:
        """Looking tokens up needs nothing."""

    def propose(self, committed: Committed, gamma: int, uniforms: Tensor) -> Proposal:
        self._index.extend(committed.host_ids)
        found = self._index.continuation(gamma)
        device = committed.ids.device
        tokens = torch.tensor(found, dtype=torch.int64, device=device)
        q = torch.zeros(len(found), self._vocab_size, device=device)
        q.scatter_(1, tokens[:, None], 1.0)
        stop = None if len(found) == gamma else "nothing found" if not found else "end of the match"
        return Proposal(tokens, q, None, stop)

    def observe(self, hidden: Tensor) -> None:
        """Looks at tokens only."""

    def roll_back(self, length: int) -> None:
        """There is no cache; what is indexed was committed, and stays."""

    def length(self) -> int | None:
        return None


class NgramIndex:
    """Where each n-gram of a growing text ends, so that a round costs the new tokens and not the whole text."""

    def __init__(self, longest: int) -> None:
        self._ids: list[int] = []
        self._ends: list[dict[tuple[int, ...], list[int]]] = [{} for _ in range(longest)]

    def extend(self, ids: list[int]) -> None:
        """Take in what `ids` has beyond the text known so far."""
        for token in ids[len(self._ids) :]:
            self._ids.append(token)
            end = len(self._ids)
            for n, ends in enumerate(self._ends[:end], start=1):
                ends.setdefault(tuple(self._ids[end - n :]), []).append(end)

    def continuation(self, gamma: int) -> list[int]:
        """Up to γ tokens that followed an earlier occurrence of the last n tokens, n = longest … 1.

        Among the occurrences of the longest n-gram that has one, the most recent with γ tokens behind it wins, else
        the earliest, which has the most tokens behind it.
        """
        length = len(self._ids)
        for n in range(min(len(self._ends), length - 1), 0, -1):
            earlier = self._ends[n - 1][tuple(self._ids[length - n :])][:-1]
            if earlier:
                start = next((end for end in reversed(earlier) if end + gamma <= length), earlier[0])
                return self._ids[start : start + gamma]
        return []
