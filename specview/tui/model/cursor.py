"""Where a person looks: run, sequence, round and phase, and how keys move it. Pure, so that each rule can be tested."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specview.tui.model.phases import LAST, PHASES, Phase


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a trace. `round` may lie beyond the end; whoever fetches it clamps it."""

    run: int = 0
    sequence: int = 0
    round: int = 0
    phase: Phase = LAST
    at_end: bool = False
    """Stay on the last round while the sequence grows, and on the newest sequence while the run does."""

    def to_round(self, index: int, count: int) -> Cursor:
        """Round `index`, clamped to a sequence of `count` rounds, with everything about it known."""
        return replace(self, round=max(0, min(index, count - 1)), phase=LAST, at_end=False)

    def step_phase(self, by: int, count: int) -> Cursor:
        """One phase on or back, over the borders of rounds; at both ends of the sequence it stays."""
        place = self.round * len(PHASES) + PHASES.index(self.phase) + by
        last = max(0, count * len(PHASES) - 1)
        round_, phase = divmod(max(0, min(place, last)), len(PHASES))
        return replace(self, round=round_, phase=PHASES[phase], at_end=False)

    def to_sequence(self, index: int, count: int) -> Cursor:
        return replace(self, sequence=max(0, min(index, count - 1)), round=0, phase=LAST, at_end=False)

    def to_run(self, index: int, count: int) -> Cursor:
        return Cursor(run=max(0, min(index, count - 1)))

    def to_end(self) -> Cursor:
        return replace(self, phase=LAST, at_end=True)
