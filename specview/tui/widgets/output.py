"""The output: the text so far, coloured by origin, with the cursor's round boxed and its refused tokens in place."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from specview.tui.ink import Ink, Line, merged, over, strip, wrap
from specview.tui.model.flow import Lines, Run
from specview.tui.model.output import OutputText
from specview.tui.model.view import View
from specview.tui.numbers import count
from specview.tui.widgets.canvas import Hit
from specview.tui.widgets.pane import Pane

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
        self._shown: Lines = []
        self._kept: dict[int, Strip] = {}
        self._kept_for: tuple[object, ...] = ()
        self._styles: dict[tuple[str, bool], Style] = {}

    def show(self, view: View) -> None:
        cursor = view.snapshot.cursor
        place = (cursor.run, cursor.sequence, cursor.round)
        if place != self._place:
            self._place, self._back = place, 0
        super().show(view)

    def recolour(self) -> None:
        self._kept_for = ()  # a view that came between the new theme and this left lines in the old colours
        super().recolour()

    def draw_view(self, view: View, width: int, height: int) -> list[Line | Strip]:
        snapshot = view.snapshot
        unknown = snapshot.round is not None and not snapshot.token_count
        counted = snapshot.sequence is not None and not unknown
        right = [(f"{count(snapshot.window.end)} tokens", self.ink.faint)] if counted else []
        out: list[Line | Strip] = [self.title("Output", right, width)]
        room = height - 1
        self._shown = []
        if room <= 0 or snapshot.sequence is None:
            return out
        if unknown:
            told = wrap([("The trace records no tokens, only how many there were.", self.ink.faint)], width)
            return [*out, *told[:room]]
        lines = self._text.lines(snapshot, max(1, width - 1), view.phase)
        self._most = max(0, len(lines) - room)
        self._back = max(0, min(self._back, self._most))
        top = self._most - self._back
        self._shown = lines[top : top + room]
        return out + self._inked(top, view, width)

    def _inked(self, top: int, view: View, width: int) -> list[Line | Strip]:
        """Lines that only hold committed tokens never change, so their strips are kept."""
        round_ = view.snapshot.round
        start = round_.committed_before if round_ is not None else 1 << 62
        settled = self._text.first_line_of_round
        key = (self._text.key, width)
        if key != self._kept_for:
            self._kept, self._styles, self._kept_for = {}, {}, key
        out: list[Line | Strip] = []
        for index, runs in enumerate(self._shown, start=top):
            kept = self._kept.get(index) if index < settled else None
            if kept is None:
                line = merged(self._ink_of(run, start) for run in runs)
                kept = strip(line, width, self.base)
                if index < settled:
                    self._kept[index] = kept
            out.append(kept)
        return out

    def _ink_of(self, run: Run, start: int) -> Ink:
        key = run.style, run.owner >= start or run.owner < 0
        style = self._styles.get(key)
        if style is None:
            name, inside = key
            style = over(self._style(name), self.ink.raised) if inside else self._style(name)
            self._styles[key] = style
        return run.text, style

    def _style(self, name: str) -> Style:
        ink = self.ink
        if name == "box":
            return ink.strong
        if name == "proposed":
            return ink.proposed
        if name == "special":
            return ink.faint
        return ink.origin(name)

    def hit_at(self, x: int, y: int) -> Hit | None:
        """The token under the mouse, found when it is asked for: there are many, and most are never pointed at."""
        if not 1 <= y <= len(self._shown):
            return None
        left = 0
        for run in self._shown[y - 1]:
            if left <= x < left + run.width:
                tip = _TIPS.get(run.style, "")
                return Hit(y, left, run.width, "token", run.owner, tip) if run.style != "box" else None
            left += run.width
        return None

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
