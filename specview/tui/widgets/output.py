"""The output: the text so far, coloured by origin, with the cursor's round boxed and its refused tokens in place."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from specview.tui.ink import Line
from specview.tui.model.flow import Lines
from specview.tui.model.output import OutputText
from specview.tui.model.view import View
from specview.tui.numbers import count
from specview.tui.widgets.canvas import Hit
from specview.tui.widgets.pane import Pane, on

_TIPS = {
    "prompt": "prompt",
    "special": "control token of the prompt or the text",
    "accepted": "accepted: proposed by the draft, kept by the target",
    "correction": "correction: drawn by the target where a candidate was refused",
    "bonus": "bonus: drawn by the target after a full acceptance",
    "target": "target: a plain step, nothing was proposed",
    "rejected": "rejected: the first refusal of the round",
    "discarded": "discarded: it stood behind the refusal, and was never judged",
    "cut": "cut: accepted, then dropped because the text ended before it",
    "proposed": "proposed: not judged yet",
}


class OutputPane(Pane):
    """Scrolls with the wheel or `j`/`k` when focused; a click on a token goes to its round."""

    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "scroll_text(1)", "scroll down", show=False),
        Binding("k,up", "scroll_text(-1)", "scroll up", show=False),
        Binding("g", "scroll_text(-1000000)", "start of the text", show=False),
        Binding("G,shift+g", "scroll_text(1000000)", "the cursor's round", show=False),
    ]

    class TokenPicked(Message):
        """A committed token was clicked."""

        def __init__(self, position: int) -> None:
            super().__init__()
            self.position = position

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._text = OutputText()
        self._back = 0  # lines scrolled up from where the round is
        self._most = 0
        self._place: tuple[object, ...] = ()

    def show(self, view: View) -> None:
        cursor = view.snapshot.cursor
        place = (cursor.run, cursor.sequence, cursor.round)
        if place != self._place:
            self._place, self._back = place, 0
        super().show(view)

    def draw_view(self, view: View, width: int, height: int) -> list[Line]:
        snapshot = view.snapshot
        right = [(f"{count(snapshot.window.end)} tokens", self.ink.faint)] if snapshot.sequence is not None else []
        out = [self.title("Output", right, width)]
        room = height - 1
        inner = max(1, width - 1)
        if room <= 0 or snapshot.sequence is None:
            return out
        lines = self._text.lines(snapshot, inner, view.phase)
        self._most = max(0, len(lines) - room)
        self._back = max(0, min(self._back, self._most))
        top = self._most - self._back
        return out + self._inked(lines[top : top + room], view)

    def _inked(self, lines: Lines, view: View) -> list[Line]:
        round_ = view.snapshot.round
        start = round_.committed_before if round_ is not None else 1 << 62
        out: list[Line] = []
        for y, runs in enumerate(lines, start=1):
            line: Line = []
            x = 0
            for run in runs:
                inside = run.owner >= start or run.owner < 0
                style = self._style(run.style)
                line.append(on(self.ink.raised, (run.text, style)) if inside else (run.text, style))
                if run.style != "box" and run.width:
                    tip = _TIPS.get(run.style, "")
                    self.hits.append(Hit(y, x, run.width, "token", run.owner, tip))
                x += run.width
            out.append(line)
        return out

    def _style(self, name: str) -> Style:
        ink = self.ink
        if name == "box":
            return ink.strong
        if name == "proposed":
            return ink.proposed
        if name == "special":
            return ink.faint
        return ink.origin(name)

    def action_scroll_text(self, by: int) -> None:
        self._back = max(0, min(self._back - by, self._most))
        self.redraw()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_scroll_text(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_scroll_text(3)

    def on_click(self, event: events.Click) -> None:
        hit = self.hit_at(event.x, event.y)
        if hit is not None and hit.value >= 0:
            self.post_message(self.TokenPicked(hit.value))
