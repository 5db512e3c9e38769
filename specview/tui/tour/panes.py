"""The inspector's panes as the tour uses them: the guide speaks in place of the story, and nothing tells too early."""

from __future__ import annotations

from engine.round import Round
from specview.tui.ink import Line
from specview.tui.model.view import View
from specview.tui.numbers import count
from specview.tui.widgets.round_pane import RoundPane
from specview.tui.widgets.timeline import TimelinePane


class TourRound(RoundPane):
    """The round without its story: the guide asks about it first, and tells it afterwards."""

    hidden = True
    """The outcome is still to be predicted, so that the heading counts no verdicts."""

    def _story(self, view: View) -> str:
        return ""

    def _heading(self, view: View, round_: Round) -> str:
        if self.hidden:
            return f"Round {count(round_.index + 1)} · {round_.proposed} proposed"
        return super()._heading(view, round_)


class TourTimeline(TimelinePane):
    """Empty as long as its length or its bars would give an outcome away."""

    hidden = True

    def draw_view(self, view: View, width: int, height: int) -> list[Line]:
        return [] if self.hidden else super().draw_view(view, width, height)
