"""The round that a `generate` call is in: filled in as it goes, handed over as an `Observation` when it is complete."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from engine.round import PhaseTimes
from specview.capturing.observation import KeyValues, Observation


class Mark(NamedTuple):
    """A moment, and what the instrument itself had cost the round until then; both in ns."""

    at: int = 0
    record: int = 0

    def since(self, earlier: Mark) -> int:
        """ns between two marks, the instrument's own time left out."""
        return max(0, self.at - earlier.at - (self.record - earlier.record))


_NEVER = Mark()


@dataclass(slots=True)
class OpenRound:
    """Lengths are those that the caches report; None where there is no cache. n: candidates, V: vocabulary."""

    start: int
    """perf_counter_ns at the request for candidates."""
    before: int
    """Committed tokens."""
    gamma: int | None
    target_kv: int | None
    stop: str | None = None
    sequence: Tensor | None = None
    """(before + n,) ids."""
    draft_scores: Tensor | None = None
    """(n, V)."""
    draft_logits: list[Tensor] = field(default_factory=list)
    """(1, …, V) of each draft forward, of which the last row is wanted: cut out when there is time."""
    draft_calls: int = 0
    draft_kv: int | None = None
    draft_kv_proposed: int | None = None
    target_logits: Tensor | None = None
    """(n + 1, V)."""
    target_calls: int = 0
    target_kv_scored: int | None = None
    target_kv_after: int | None = None
    matches: Tensor | int | None = None
    """Before any cut, where `generate` says so."""
    scores: Tensor | None = None
    """(n + 1, V)."""
    output: Tensor | None = None
    """(committed,) ids."""
    proposed_at: Mark = _NEVER
    score_begins: Mark | None = None
    score_ends: Mark | None = None
    crop_begins: Mark = _NEVER
    crop_ends: Mark = _NEVER
    record: int = 0
    """ns that the instrument itself has taken."""

    @property
    def proposed(self) -> int:
        """n."""
        return 0 if self.sequence is None else int(self.sequence.shape[0]) - self.before

    @property
    def complete(self) -> bool:
        """Whether the round went on to its end."""
        return self.sequence is not None and self.scores is not None and self.output is not None

    def mark(self) -> Mark:
        return Mark(time.perf_counter_ns(), self.record)

    def observation(
        self,
        index: int,
        *,
        clock_start: int,
        end: int,
        draft_after: int | None,
        same_positions: bool,
        point_mass: bool,
    ) -> Observation:
        """The round as it is handed over.

        Args:
            clock_start, end: perf_counter_ns of the capture's start and of the round's end.
            draft_after: positions in the draft's cache after its rollback.
            same_positions: the draft's cache counts the target's own tokens.
        """
        assert self.sequence is not None
        assert self.scores is not None
        assert self.output is not None
        n = self.proposed
        own = same_positions and 0 < n <= len(self.draft_logits)
        kv = KeyValues(
            target_before=self.target_kv,
            target_written=_less(self.target_kv_scored, self.target_kv),
            target_after=self.target_kv_after,
            draft_before=self.draft_kv if same_positions else None,
            draft_written=_less(self.draft_kv_proposed, self.draft_kv) if same_positions else None,
            draft_after=draft_after if same_positions else None,
        )
        return Observation(
            index=index,
            gamma=self.gamma,
            sequence=self.sequence,
            committed_before=self.before,
            output=self.output,
            target_scores=self.scores,
            draft_scores=self.draft_scores,
            target_logits=self.target_logits,
            draft_logits=tuple(logits[0, -1] for logits in self.draft_logits[-n:]) if own else None,
            matches=None if self.matches is None else int(self.matches),
            point_mass=point_mass,
            draft_stop=self.stop,
            kv=kv,
            times=self._times(clock_start, end),
            target_calls=self.target_calls,
            draft_calls=self.draft_calls,
        )

    def _times(self, clock_start: int, end: int) -> PhaseTimes:
        # A compiled forward cannot be listened to; its time then runs until the target's cache is cropped.
        score_ends = self.score_ends or self.crop_begins
        propose = self.proposed_at.since(Mark(self.start))
        score = score_ends.since(self.score_begins or self.proposed_at)
        accept = self.crop_begins.since(score_ends)
        rollback = self.crop_ends.since(self.crop_begins)
        return PhaseTimes(
            start_ns=self.start - clock_start,
            propose_ns=propose,
            score_ns=score,
            accept_ns=accept,
            rollback_ns=rollback,
            record_ns=self.record,
            round_ns=max(end - self.start, propose + score + accept + rollback + self.record),
        )


def _less(end: int | None, start: int | None) -> int | None:
    return None if end is None or start is None else end - start
