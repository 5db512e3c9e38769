"""What one round of a `generate` call left behind, before anything is computed from it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.round import PhaseTimes


@dataclass(frozen=True, slots=True)
class KeyValues:
    """Lengths read from the two caches, in positions; None where a cache is not there or counts other tokens."""

    target_before: int | None = None
    target_written: int | None = None
    target_after: int | None = None
    draft_before: int | None = None
    draft_written: int | None = None
    draft_after: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """One round as seen from outside: references to the generation's own tensors, so that seeing costs nothing.

    n is the number of candidates, t the committed length before the round, V the vocabulary.
    """

    index: int
    gamma: int | None
    sequence: Tensor
    """(t + n,) int64: the committed prefix and the candidates."""
    committed_before: int
    """t."""
    output: Tensor
    """(committed tokens,) int64: what the round added."""
    target_scores: Tensor
    """(n + 1, V) float32: the target's logits after the processors."""
    draft_scores: Tensor | None
    """(n, V) float32: the draft's logits after its processors; None where the proposer has no distribution."""
    target_logits: Tensor | None
    """(n + 1, V): as the target's forward returned them; None where they were not at hand."""
    draft_logits: tuple[Tensor, ...] | None
    """n × (V,): likewise for the draft."""
    matches: int | None
    """Accepted candidates before any cut, where the generation says so itself."""
    point_mass: bool
    """The proposer always proposes the same (prompt lookup): its q is one-hot."""
    draft_stop: str | None
    kv: KeyValues
    times: PhaseTimes
    target_calls: int
    draft_calls: int

    @property
    def proposed(self) -> int:
        """n."""
        return int(self.sequence.shape[0]) - self.committed_before

    @property
    def nbytes(self) -> int:
        """Memory that the matrices hold on to."""
        several = (self.target_scores, self.draft_scores, self.target_logits, *(self.draft_logits or ()))
        return sum(one.nbytes for one in several if one is not None)
