"""One frozen picture of what the screen shows; a feed makes it in a thread, the app hands it to the panes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.round import Round
from specview.metrics import Totals
from specview.trace.records import RunRecord, SequenceRecord, TokenRecord
from specview.tui.model.cursor import Cursor
from specview.tui.model.names import Names

PAGE = 256
"""Rounds a page of the timeline."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A round as the timeline draws it."""

    accepted: int
    proposed: int
    outcome: str
    """correction, bonus, target or cut."""
    round_ns: int | None


@dataclass(frozen=True, slots=True)
class TokenWindow:
    """The committed tokens from `start` up to the end of the cursor's round."""

    start: int = 0
    tokens: tuple[TokenRecord, ...] = ()

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything at the cursor. Without a file or a run yet, `run` is None and `trouble` may say why."""

    cursor: Cursor
    runs: tuple[RunRecord, ...] = ()
    run: RunRecord | None = None
    sequence: SequenceRecord | None = None
    sequence_count: int = 0
    round_count: int = 0
    token_count: int = 0
    round: Round | None = None
    before: Round | None = None
    """The round before the cursor's."""
    after: Round | None = None
    """The round after it, which playing waits for."""
    following: int | None = None
    """The first token that the next round commits."""
    window: TokenWindow = TokenWindow()
    names: Names = field(default_factory=Names)
    marks: Mapping[int, tuple[Mark, ...]] = field(default_factory=dict)
    """Timeline pages around the cursor, by page number."""
    recent: Totals | None = None
    """The 16 rounds up to the cursor."""
    trouble: str | None = None
    warning: str | None = None
    """What the file may lack."""

    def mark_at(self, index: int) -> Mark | None:
        page = self.marks.get(index // PAGE)
        offset = index % PAGE
        return page[offset] if page is not None and offset < len(page) else None

    @property
    def growing(self) -> bool:
        """The run is still being written."""
        return self.run is not None and self.run.status in ("loading", "running")
