"""What one round of a `generate` call left behind, before anything is computed from it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
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

    def on_host(self) -> Observation:
        """The observation in the processor's memory: itself, or a copy made with one transfer a matrix."""
        logits = self.draft_logits
        several = (self.sequence, self.output, self.target_scores, self.draft_scores, self.target_logits)
        if all(one is None or one.device.type == "cpu" for one in (*several, *(logits or ()))):
            return self
        return replace(
            self,
            sequence=self.sequence.cpu(),
            output=self.output.cpu(),
            target_scores=self.target_scores.cpu(),
            draft_scores=None if self.draft_scores is None else self.draft_scores.cpu(),
            target_logits=None if self.target_logits is None else self.target_logits.cpu(),
            draft_logits=tuple(torch.stack(logits).cpu()) if logits else logits,
        )

    @property
    def proposed(self) -> int:
        """n."""
        return int(self.sequence.shape[0]) - self.committed_before

    @property
    def nbytes(self) -> int:
        """Memory that the matrices hold on to."""
        several = (self.target_scores, self.draft_scores, self.target_logits, *(self.draft_logits or ()))
        return sum(one.nbytes for one in several if one is not None)
