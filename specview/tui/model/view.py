"""What the panes draw from: the snapshot and the few things that the person, not the trace, decides."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.round import Round, RunInfo
from specview.metrics import Totals
from specview.story import decisive_position
from specview.tui.model.phases import Phase, known
from specview.tui.model.playback import Pace
from specview.tui.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class View:
    """One state of the screen."""

    snapshot: Snapshot
    totals: Totals | None = None
    """Of the whole run; None until they are summed."""
    selected: int | None = None
    """The position that a person picked; None follows the decisive one."""
    playing: bool = False
    pace: Pace = field(default_factory=Pace)
    live: bool = False
    """The trace is being followed."""
    notice: str = ""
    """What the viewer has to say right now: a search that found nothing, a run that failed."""
    bookmarks: frozenset[int] = frozenset()
    """Bookmarked rounds of this sequence."""
    matches: str = ""
    """The filter in force."""

    @property
    def phase(self) -> Phase:
        return self.snapshot.cursor.phase

    @property
    def round(self) -> Round | None:
        """The cursor's round, as far as it is known after the phase in view."""
        return known(self.snapshot.round, self.phase) if self.snapshot.round is not None else None

    @property
    def info(self) -> RunInfo | None:
        return self.snapshot.run.info if self.snapshot.run is not None else None

    @property
    def position(self) -> int:
        """The selected position, 1 … γ+1."""
        round_ = self.snapshot.round
        if round_ is None:
            return 1
        last = max(1, round_.proposed + (0 if self.phase == "propose" else 1))
        if self.selected is not None:
            return max(1, min(self.selected, last))
        return max(1, min(decisive_position(round_) if self.phase in ("accept", "correct") else 1, last))
