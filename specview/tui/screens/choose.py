"""One of many: filters, runs, sequences and traces are chosen from the same kind of list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static

from specview.tui.screens.closing import close


class ChooseScreen(ModalScreen[int | None]):
    """Returns the index of the chosen line, or None."""

    DEFAULT_CSS = """
    ChooseScreen { align: center middle; background: $background 60%; }
    ChooseScreen Vertical {
        width: auto; max-width: 90%; min-width: 36; height: auto; max-height: 80%;
        background: $background; border: round $rule; padding: 0 1;
    }
    ChooseScreen Static { width: auto; text-style: bold; padding: 0 0 1 0; }
    ChooseScreen OptionList {
        width: auto; min-width: 34; height: auto; max-height: 30; border: none; background: $background; padding: 0;
    }
    ChooseScreen OptionList:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss_none", "close", show=False),
        Binding("j", "cursor(1)", "next", show=False),
        Binding("k", "cursor(-1)", "previous", show=False),
    ]

    def __init__(self, title: str, lines: Sequence[str], chosen: int = 0) -> None:
        super().__init__()
        self._title = title
        self._lines = lines
        self._chosen = chosen

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content(self._title), markup=False)
            yield OptionList(*(Content(line) for line in self._lines), markup=False, compact=True)

    def on_mount(self) -> None:
        options = self.query_one(OptionList)
        options.highlighted = max(0, min(self._chosen, len(self._lines) - 1))
        options.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        close(self, event.option_index)

    def action_dismiss_none(self) -> None:
        close(self)

    def action_cursor(self, by: int) -> None:
        options = self.query_one(OptionList)
        if by > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()
