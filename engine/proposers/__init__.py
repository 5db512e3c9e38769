"""Proposers: what drafts γ candidates. One protocol, one class a file.

A proposer may be anything, as long as each candidate is drawn from the very q that it hands back: then the output
follows the target's distribution whatever the proposer does (clause C12).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from engine.sampling import Penalties


@dataclass(frozen=True, slots=True)
class Proposal:
    """k ≤ γ candidates, each drawn from its own q."""

    tokens: Tensor
    """(k,) int64, on the target's device."""
    q: Tensor
    """(k, vocab) float32 over the target's vocabulary: what the candidates were drawn from (at temperature 0, the
    distribution of temperature 1 whose argmax they are)."""
    scores: Tensor | None = None
    """(k, vocab) float32 with softmax(scores) = q; None where q is a point mass."""
    stop: str | None = None
    """Why k < γ."""


@dataclass(frozen=True, slots=True)
class Room:
    """Memory for a round's distributions; the target's rows come to stand right behind the proposer's."""

    scores: Tensor
    """(2γ+1, vocab) float32."""
    probabilities: Tensor
    """(2γ+1, vocab) float32."""

    @classmethod
    def of(cls, gamma: int, vocab_size: int, device: torch.device) -> Room:
        """Room for rounds of up to γ candidates."""
        shape = (2 * gamma + 1, vocab_size)
        return cls(torch.empty(shape, device=device), torch.empty(shape, device=device))

    def holds(self, proposal: Proposal) -> bool:
        """Whether the proposer put both its scores and its q here, from the first row on."""
        return proposal.scores is not None and (
            proposal.scores.data_ptr() == self.scores.data_ptr()
            and proposal.q.data_ptr() == self.probabilities.data_ptr()
        )


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed prefix that a round starts from."""

    ids: Tensor
    """(t,) int64 on the target's device; the last one is pending: no cache holds it yet."""
    host_ids: list[int]
    """The same on the host."""
    penalties: Penalties | None
    """One row: what the prefix has seen; None when no penalty is set."""
    room: Room | None = None
    """Where a proposer may put its rows, so that they need no copying; free again when the round is over."""


@runtime_checkable
class Proposer(Protocol):
    """Drafts candidates for one sequence at a time."""

    @property
    def kind(self) -> str:
        """draft-model, prompt-lookup, self, …"""

    @property
    def taps(self) -> tuple[int, ...] | None:
        """The target's layers whose states `observe` is given besides the final ones; None: it is not to be called."""

    @property
    def context_length(self) -> int | None:
        """Positions it can hold; None for no limit."""

    @property
    def calls(self) -> int:
        """Forwards since the sequence began."""

    def begin(self, ids: Tensor, capacity: int) -> None:
        """Start a sequence: take in all but the last of the (t,) prompt ids; room for `capacity` positions."""

    def prepare(self, gamma: int) -> None:
        """Get ready for drafting up to γ candidates, outside of the round's time."""

    def propose(self, committed: Committed, gamma: int, uniforms: Tensor) -> Proposal:
        """Draft up to γ candidates; `uniforms`: (γ,) float64, one a draw (unused at temperature 0)."""

    def observe(self, hidden: Tensor) -> None:
        """The target's hidden states, (n, (taps + 1) · hidden), of the next n positions on the true path.

        Called after the prompt's prefill and after each round, in order and without gaps: position i's are the states
        after reading token i; the last ones, after the final norm, are those that predict token i + 1.
        """

    def roll_back(self, length: int) -> None:
        """Forget everything behind the first `length` committed positions."""

    def length(self) -> int | None:
        """Positions in its cache, read from the cache; None when it has none."""
