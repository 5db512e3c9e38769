"""Which panes fit: pure rules of the terminal's size, so that nothing ever overlaps at any size."""

from __future__ import annotations

from dataclasses import dataclass

SMALLEST = (40, 10)


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows of the panes; 0 is folded away."""

    too_small: bool
    both: bool
    """Output and Round stand side by side; otherwise the focused one has the width to itself."""
    round_width: int
    rule: int
    kv: int
    timeline: int
    counters: int
    log: int


def layout(width: int, height: int, *, log: bool = False) -> Layout:
    """The panes of a terminal of this size. Below 80×24 panes fold away one after the other."""
    if width < SMALLEST[0] or height < SMALLEST[1]:
        return Layout(True, False, width, 0, 0, 0, 0, 0)
    both = width >= 80
    round_width = max(46, min(84, width // 2)) if both else width
    if both and width < 100:
        round_width = 44
    kv = 4 if height >= 34 else 2 if height >= 20 else 0
    timeline = 5 if height >= 46 else 4 if height >= 40 else 3 if height >= 28 else 2 if height >= 16 else 0
    counters = 3 if height >= 24 else 0
    return Layout(
        too_small=False,
        both=both,
        round_width=round_width,
        rule=1 if kv or timeline else 0,
        kv=kv,
        timeline=timeline,
        counters=counters,
        log=min(8, height // 4) if log and height >= 20 else 0,
    )
