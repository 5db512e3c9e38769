"""The last line: the keys, or in their place one question (find, go to, a prompt, a file name)."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from specview.tui.widgets.keys import KeysLine

_PRINTABLE = r"[^\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]*"


class AskLine(Container):
    """Shows the keys until `ask`; Enter answers, Escape drops the question, `close` brings back the keys.

    The question lies over the keys, so that it comes and goes without moving any other widget, and in one paint: for
    each widget that is shown or hidden, Textual lays out and paints anew.
    """

    DEFAULT_CSS = """
    AskLine { height: 1; layers: keys question; }
    AskLine KeysLine { height: 1; layer: keys; }
    AskLine Horizontal { display: none; height: 1; layer: question; background: $raised; }
    AskLine Static { width: auto; padding: 0 1 0 0; text-style: bold; color: $foreground; background: $raised; }
    AskLine Input { width: 1fr; height: 1; border: none; padding: 0; background: $raised; }
    AskLine Input:focus { border: none; }
    """

    class Answered(Message):
        """The person pressed Enter."""

        def __init__(self, kind: str, text: str) -> None:
            super().__init__()
            self.kind = kind
            self.text = text

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._kind = ""
        self.answered = False
        """Enter was pressed; the line stays until whoever got the answer closes it."""
        self._before: Widget | None = None
        """What had the focus before the question."""

    def compose(self) -> ComposeResult:
        yield KeysLine(id="keys")
        with Horizontal():
            yield Static(Content(""), markup=False)
            yield Input(restrict=_PRINTABLE, compact=True, select_on_focus=False)

    @property
    def asking(self) -> bool:
        """A question stands in the place of the keys."""
        return bool(self._kind)

    def ask(self, kind: str, label: str, value: str = "", placeholder: str = "") -> None:
        """Show the question, and take the keys until it is answered."""
        if not self.asking:
            self._before = self.screen.focused
        self._kind, self.answered = kind, False
        self.query_one(Static).update(Content(label))
        field = self.query_one(Input)
        field.value = value
        field.placeholder = placeholder
        field.cursor_position = len(value)
        self.query_one(Horizontal).display = True
        field.focus()

    def close(self) -> None:
        """Take the question away; the focus goes back to where it was, unless the person gave it to something else."""
        if not self.asking:
            return
        self._kind, self.answered = "", False
        # Before the focus goes: its messages would keep the question from asking for the new layout in the turn in
        # which the panes ask to be painted, and the line would go one paint later than what the answer changed.
        self.query_one(Horizontal).display = False
        if self.screen.focused in (None, self.query_one(Input)):
            # Not Widget.focus, which repaints the whole widget.
            self.screen.set_focus(self._before)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if not self.answered:
            self.answered = True
            self.post_message(self.Answered(self._kind, event.value))

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            self.close()

    def on_descendant_blur(self) -> None:
        self.close()
