"""What the recording process wrote to stderr."""

from __future__ import annotations

from collections import deque

from specview.text import showable
from specview.tui.ink import Line
from specview.tui.model.view import View
from specview.tui.widgets.pane import Pane

KEPT_LINES = 2000


class LogPane(Pane):
    """The newest lines, at the bottom."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)

    def add(self, lines: list[str]) -> None:
        self.lines.extend(lines)
        self.redraw()

    def draw_view(self, view: View, width: int, height: int) -> list[Line]:
        out = [self.title("Log", [(f"{len(self.lines)} lines", self.ink.faint)], width)]
        room = height - 1
        shown = list(self.lines)[-room:] if room > 0 else []
        return out + [[(showable(text, limit=width), self.ink.muted)] for text in shown]
