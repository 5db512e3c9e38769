"""Thin lines that separate, and the one sentence that stands where nothing else fits."""

from __future__ import annotations

from specview.tui.ink import Line, wrap
from specview.tui.widgets.canvas import Canvas


class HorizontalRule(Canvas):
    def draw(self, width: int, height: int) -> list[Line]:
        return [[("─" * width, self.ink.rule)]]


class VerticalRule(Canvas):
    def draw(self, width: int, height: int) -> list[Line]:
        return [[(" │ ", self.ink.rule)]] * height


class TooSmall(Canvas):
    """Says why there is nothing to see."""

    def draw(self, width: int, height: int) -> list[Line]:
        said = wrap([("Make the terminal larger (40×10).", self.ink.muted)], max(1, width))
        return [*([] for _ in range(max(0, height - len(said)) // 2)), *said]
