"""The question line: one input at the bottom for find, go to, a prompt or a file name."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

_PRINTABLE = r"[^\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]*"


class AskLine(Horizontal):
    """Hidden until `ask`; Enter answers, Escape drops the question."""

    DEFAULT_CSS = """
    AskLine { height: 1; display: none; background: $raised; }
    AskLine Static { width: auto; padding: 0 1 0 0; color: $foreground; text-style: bold; background: $raised; }
    AskLine Input { width: 1fr; height: 1; border: none; padding: 0; background: $raised; }
    AskLine Input:focus { border: none; }
    """

    class Answered(Message):
        """The person pressed Enter."""

        def __init__(self, kind: str, text: str) -> None:
            super().__init__()
            self.kind = kind
            self.text = text

    class Opened(Message):
        """The question is there, and takes the place of the line with the keys."""

    class Closed(Message):
        """The question is gone, answered or not."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._kind = ""

    def compose(self) -> ComposeResult:
        yield Static(Content(""), markup=False)
        yield Input(restrict=_PRINTABLE, compact=True, select_on_focus=False)

    def ask(self, kind: str, label: str, value: str = "", placeholder: str = "") -> None:
        """Show the question, and take the keys until it is answered."""
        self._kind = kind
        self.query_one(Static).update(Content(label))
        field = self.query_one(Input)
        field.value = value
        field.placeholder = placeholder
        field.cursor_position = len(value)
        self.display = True
        self.post_message(self.Opened())
        field.focus()

    def close(self) -> None:
        if self.display:
            self.display = False
            self.post_message(self.Closed())

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
