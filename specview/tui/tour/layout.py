"""Which panes stand beside the guide: pure rules of the terminal's size and of what the station is about."""

from __future__ import annotations

from dataclasses import dataclass

from specview.tour.exhibits import Bars, Exhibit, Histogram, Mask

SMALLEST = (64, 20)
ROUND_ROWS = 8
"""Beside an exhibit the round needs its title, its heads and a usual γ+1 rows."""


@dataclass(frozen=True, slots=True)
class TourLayout:
    """Cells and rows; 0 is folded away."""

    too_small: bool
    guide: int
    output: int
    exhibit: int
    round: bool
    kv: int
    timeline: int


def exhibit_rows(exhibit: Exhibit | None) -> int:
    """The rows that an exhibit needs, its title included."""
    if exhibit is None:
        return 0
    if isinstance(exhibit, Mask):
        return exhibit.rows + 2
    if isinstance(exhibit, Histogram):
        return len(exhibit.counts) + 1
    bars: Bars = exhibit
    return 1 + sum(len(group) + 1 for group in bars.groups) + (1 if bars.note else 0)


def tour_layout(width: int, height: int, exhibit: Exhibit | None, *, kv: bool, timeline: bool) -> TourLayout:
    """The panes of a terminal of this size; at 80×24 everything that the station is about is there."""
    if width < SMALLEST[0] or height < SMALLEST[1]:
        return TourLayout(True, 0, 0, 0, False, 0, 0)
    guide = 37 if width < 100 else min(56, width * 2 // 5)
    kv_rows = 4 if kv or height >= 36 else 2 if height >= 30 else 0
    bars = 3 if height >= 32 else 2 if timeline else 0
    body = height - 2 - kv_rows - bars - (1 if kv_rows or bars else 0)
    output = max(3, min(10, body // 4))
    wanted = exhibit_rows(exhibit)
    left = body - output - 1
    both = wanted == 0 or left - wanted >= ROUND_ROWS
    if wanted and left - wanted > ROUND_ROWS:
        wanted += 1  # a line to breathe
    return TourLayout(False, guide, output, (wanted if both else left) if wanted else 0, both, kv_rows, bars)
