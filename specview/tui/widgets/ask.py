"""The last line: the keys, or in their place one question (find, go to, a prompt, a file name)."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from specview.tui.widgets.keys import KeysLine

_PRINTABLE = r"[^\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]*"


class AskLine(Horizontal):
    """Shows the keys until `ask`; Enter answers, Escape drops the question.

    Both share one place of a fixed height, so that a question comes and goes without moving any other widget: Textual
    repaints the whole screen when the number of widgets in a container changes.
    """

    DEFAULT_CSS = """
    AskLine { height: 1; }
    AskLine KeysLine { height: 1; }
    AskLine Static { display: none; width: auto; padding: 0 1 0 0; text-style: bold; }
    AskLine Static { color: $foreground; background: $raised; }
    AskLine Input { display: none; width: 1fr; height: 1; border: none; padding: 0; background: $raised; }
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
        self._before: Widget | None = None
        """What had the focus before the question."""

    def compose(self) -> ComposeResult:
        yield KeysLine(id="keys")
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
        self._kind = kind
        self.query_one(Static).update(Content(label))
        field = self.query_one(Input)
        field.value = value
        field.placeholder = placeholder
        field.cursor_position = len(value)
        self._switch()
        field.focus()

    def close(self) -> None:
        """Drop the question; the focus goes back to where it was, unless the person gave it to something else."""
        if not self.asking:
            return
        self._kind = ""
        if self.screen.focused in (None, self.query_one(Input)):
            # Not Widget.focus, which repaints the whole widget.
            self.screen.set_focus(self._before)
        self._switch()

    def _switch(self) -> None:
        self.query_one(KeysLine).display = not self.asking
        self.query_one(Static).display = self.asking
        self.query_one(Input).display = self.asking

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        kind, text = self._kind, event.value
        self.close()
        self.post_message(self.Answered(kind, text))

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            self.close()

    def on_descendant_blur(self) -> None:
        self.close()
