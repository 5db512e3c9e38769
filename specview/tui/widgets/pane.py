"""A canvas with a title, that shows a `View`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from textual import events
from textual.strip import Strip

from specview.tui.ink import Ink, Line, over, spread
from specview.tui.model.view import View
from specview.tui.widgets.canvas import Canvas


class Pane(Canvas):
    """Panes are told the view; they never ask for it."""

    can_focus = False

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view: View | None = None

    def show(self, view: View) -> None:
        """Draw this view; only the lines that differ are painted."""
        self.view = view
        self.redraw()

    def draw(self, width: int, height: int) -> Sequence[Line | Strip]:
        self.hits = []
        return self.draw_view(self.view, width, height) if self.view is not None else []

    def draw_view(self, view: View, width: int, height: int) -> Sequence[Line | Strip]:
        raise NotImplementedError

    def title(self, left: str, right: Line, width: int) -> Line:
        """The first line of a pane; the focused pane's is bright."""
        style = self.ink.strong if self.has_focus else self.ink.muted
        return spread([(left, style)], right, width, self.base)

    def on_focus(self, event: events.Focus) -> None:
        self._focus_is(event, True)

    def on_blur(self, event: events.Blur) -> None:
        self._focus_is(event, False)

    def _focus_is(self, event: events.Focus | events.Blur, here: bool) -> None:
        # In place of Textual's own handlers, which repaint the whole widget where only the title changes.
        event.prevent_default()
        self.has_focus = here
        if self.parent is not None:
            self.parent.post_message(events.DescendantFocus(self) if here else events.DescendantBlur(self))
        self.redraw()

    def watch_has_focus(self, _has_focus: bool) -> None:
        """No style sheet of ours asks for the focus, so nothing is looked up in them."""


def on(raised: Style, ink: Ink) -> Ink:
    """The same ink on a raised background."""
    return ink[0], over(ink[1], raised)
