"""Charts as lines of ink: columns along the run, and rows of labelled bars."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.style import Style

from specview.tui.ink import LEVELS, Line, bar, fit


def columns(
    values: Sequence[float | None], width: int, height: int, style: Style, faint: Style, top: float | None = None
) -> list[Line]:
    """One column a value, from 0 to `top` (the largest by default); an unknown value leaves a dot at the bottom."""
    known = [v for v in values if v is not None]
    most = top if top is not None else max(known, default=0.0)
    wide = max(1, width // max(1, len(values)))
    lines: list[Line] = []
    for row in range(height):
        line: Line = []
        for value in values[: width // wide]:
            if value is None:
                line.append((("·" if row == height - 1 else " ") + " " * (wide - 1), faint))
                continue
            eighths = round(min(1.0, value / most) * height * 8) if most > 0 else 0
            part = max(0, min(8, max(1, eighths) - (height - 1 - row) * 8))
            line.append((LEVELS[part] * wide, style))
        lines.append(line)
    return lines


def bar_row(
    label: str,
    share: float | None,
    width: int,
    text: str,
    label_style: Style,
    bar_style: Style,
    *,
    label_width: int = 8,
) -> Line:
    """`label ▇▇▇▇ text`, the bar in what room the two leave."""
    room = max(0, width - label_width - 1 - len(text) - 1)
    drawn = bar(share, room) if share is not None else " " * room
    return [(fit(label, label_width) + " ", label_style), (drawn, bar_style), (" " + text, label_style)]


def side_by_side(left: list[Line], right: list[Line], left_width: int, gap: str, rule: Style) -> list[Line]:
    """Two blocks beside each other, the shorter one filled up with blanks."""
    rows = max(len(left), len(right))
    out: list[Line] = []
    for index in range(rows):
        first = left[index] if index < len(left) else []
        second = right[index] if index < len(right) else []
        used = sum(cell_len(text) for text, _ in first)
        out.append([*first, (" " * max(0, left_width - used), rule), (gap, rule), *second])
    return out
