"""The timeline: one column a round, as high as it accepted, coloured by how it ended; it scrubs by mouse."""

from __future__ import annotations

from rich.style import Style
from textual import events
from textual.message import Message

from specview.tui.ink import LEVELS, Line, merged, over
from specview.tui.model.snapshot import Snapshot
from specview.tui.model.view import View
from specview.tui.numbers import count
from specview.tui.widgets.canvas import Hit
from specview.tui.widgets.pane import Pane


class TimelinePane(Pane):
    """The window moves only when the cursor leaves it; below it, a line tells where in the sequence it stands."""

    class Scrubbed(Message):
        """A round was clicked or dragged to."""

        def __init__(self, round_: int) -> None:
            super().__init__()
            self.round = round_

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._start = 0
        self._dragging: int | None = None  # the row on which a drag began

    def draw_view(self, view: View, width: int, height: int) -> list[Line]:
        snapshot = view.snapshot
        if snapshot.round is None or snapshot.round_count == 0:
            return []
        self._follow(snapshot, width)
        bars = max(1, height - 1)
        fullest = self._fullest(view)
        columns = self._columns(view, min(width, snapshot.round_count - self._start), bars * 8 / fullest)
        lines = [_row(columns, (bars - 1 - row) * 8) for row in range(bars)]
        if height > 1:
            lines.append(self._ruler(view, width))
        return lines

    def _follow(self, snapshot: Snapshot, width: int) -> None:
        index = snapshot.cursor.round
        if snapshot.round_count <= width:
            self._start = 0
        elif not self._start <= index < self._start + width:
            # A third of the window ahead, so that the next steps stay inside.
            back = index < self._start
            self._start = index - (width * 2 // 3 if back else width // 3)
        self._start = max(0, min(self._start, max(0, snapshot.round_count - 1)))

    def _fullest(self, view: View) -> int:
        gamma = view.info.gamma if view.info is not None else None
        marks = [m.accepted for page in view.snapshot.marks.values() for m in page]
        return max([gamma or 1, *marks, 1])

    def _columns(self, view: View, count: int, scale: float) -> list[tuple[int, Style]]:
        """Height in eighths of a cell, and style, of each round in the window."""
        ink = self.ink
        styles = {name: ink.origin(name) for name in ("correction", "bonus", "target")} | {"cut": ink.muted}
        cursor = view.snapshot.cursor.round - self._start
        columns: list[tuple[int, Style]] = []
        for x in range(count):
            mark = view.snapshot.mark_at(self._start + x)
            if mark is None:
                columns.append((0, ink.faint))
                continue
            style = ink.refused if mark.accepted == 0 and mark.outcome == "correction" else styles[mark.outcome]
            if x == cursor:
                style = over(style, ink.raised)
            columns.append((max(1, round(mark.accepted * scale)), style))
        return columns

    def _ruler(self, view: View, width: int) -> Line:
        """The outcome under the cursor, and the window's place in the whole sequence."""
        snapshot = view.snapshot
        line = ["─"] * width
        styles = [self.ink.rule] * width
        if snapshot.round_count > width:
            first = self._start * width // snapshot.round_count
            last = max(first + 1, (self._start + width) * width // snapshot.round_count)
            for x in range(first, min(last, width)):
                line[x], styles[x] = "━", self.ink.muted
        for round_ in view.bookmarks:
            x = round_ - self._start
            if 0 <= x < width:
                line[x], styles[x] = "◆", self.ink.pending
        cursor = snapshot.cursor.round - self._start
        if 0 <= cursor < width:
            line[cursor], styles[cursor] = "▲", self.ink.strong
        label = f" {count(snapshot.cursor.round + 1)} of {count(snapshot.round_count)} rounds"
        if cursor < width - len(label) - 1:
            for offset, char in enumerate(label):
                line[width - len(label) + offset], styles[width - len(label) + offset] = char, self.ink.faint
        return merged(list(zip(line, styles, strict=True)))

    def _round_at(self, x: int) -> int | None:
        if self.view is None or self.view.snapshot.round_count == 0:
            return None
        snapshot = self.view.snapshot
        width = max(1, self.size.width)
        if self._dragging == self.size.height - 1 and snapshot.round_count > width:
            index = x * snapshot.round_count // width
        else:
            index = self._start + x
        return max(0, min(index, snapshot.round_count - 1))

    def _scrub(self, x: int) -> None:
        index = self._round_at(x)
        if index is not None:
            self.post_message(self.Scrubbed(index))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._dragging = event.y
        self.capture_mouse()
        self._scrub(event.x)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._dragging is not None:
            self._scrub(event.x)

    def hit_at(self, x: int, y: int) -> Hit | None:
        """The round of a column."""
        snapshot = self.view.snapshot if self.view is not None else None
        index = self._start + x
        mark = snapshot.mark_at(index) if snapshot is not None and index < snapshot.round_count else None
        if mark is None:
            return None
        tip = f"round {count(index + 1)} · {mark.accepted} of {mark.proposed} accepted · {mark.outcome}"
        return Hit(y, x, 1, "round", index, tip)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        self._dragging = None
        self.release_mouse()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._by(-1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._by(1)

    def _by(self, rounds: int) -> None:
        if self.view is not None:
            self.post_message(self.Scrubbed(self.view.snapshot.cursor.round + rounds))


def _row(columns: list[tuple[int, Style]], below: int) -> Line:
    """One row of all columns, `below` eighths of a cell above the bottom."""
    return merged((LEVELS[max(0, min(8, level - below))], style) for level, style in columns)
