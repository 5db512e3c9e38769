"""Help: the keys that are really bound, and what the signs and colours mean."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from specview.tui.bindings import BINDINGS, GROUPS, key_name
from specview.tui.ink import Line, fit
from specview.tui.screens.closing import close
from specview.tui.widgets.scroll import ScrollCanvas


class HelpText(ScrollCanvas):
    """Every binding by group, then the legend."""

    DEFAULT_CSS = """
    HelpText { width: 84; max-width: 100%; height: auto; max-height: 90%; padding: 0 2; }
    """

    def draw(self, width: int, height: int) -> list[Line]:
        ink = self.ink
        lines: list[Line] = [
            [("specview replays what a draft and a target model did, round by round.", ink.strong)],
            [],
        ]
        for group, title in GROUPS.items():
            lines.append([(title, ink.faint)])
            for binding in BINDINGS:
                if isinstance(binding, Binding) and binding.id is not None and binding.id.startswith(f"{group}."):
                    keys = " ".join(key_name(k) for k in binding.key.split(","))
                    lines.append([("  ", ink.text), (fit(keys, 16), ink.key), (binding.description, ink.muted)])
            lines.append([])
        lines.append([("Signs", ink.faint)])
        for sign, style, text in (
            ("✓", ink.accepted, "accepted: the draft proposed it, and u was below target ÷ draft"),
            ("✗", ink.rejected, "rejected: the first refusal; it ends the round"),
            ("·", ink.discarded, "discarded: behind the refusal, never judged, never kept"),
            ("→", ink.correction, "correction: drawn from the residual in place of the rejected token"),
            ("+", ink.bonus, "bonus: drawn by the target after a full acceptance"),
            ("✂", ink.muted, "cut: accepted, then dropped because the text ended before it"),
            ("▪", ink.faint, "KV slot committed before this round"),
            ("█", ink.accepted, "KV slot kept this round"),
            ("◌", ink.pending, "pending: a committed token whose KV the next forward builds"),
            ("_", ink.faint, "missing: on the true path, but not yet fed to the draft"),
            ("◆", ink.pending, "bookmark on the timeline"),
        ):
            lines.append([("  ", ink.text), (fit(sign, 16), style), (text, ink.muted)])
        lines += [[], [("Point at a number, a slot or a column head: it says what it is.", ink.text)]]
        return lines


class HelpScreen(ModalScreen[None]):
    DEFAULT_CSS = """
    HelpScreen { align: center middle; background: $background 60%; }
    HelpScreen HelpText { border: round $rule; background: $background; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark", "close", "close", show=False)]

    def compose(self) -> ComposeResult:
        yield HelpText()

    def action_close(self) -> None:
        close(self)
