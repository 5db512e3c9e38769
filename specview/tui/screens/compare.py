"""Two runs side by side: their output up to where they part and beyond, and their counters with the difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from specview.text import join_pieces
from specview.tui.charts import side_by_side
from specview.tui.ink import Line, fit, wrap
from specview.tui.model.compare import Comparison, Side
from specview.tui.model.compare_table import LEGEND, counters, difference_text, value_text
from specview.tui.model.flow import Flow
from specview.tui.model.titles import draft_name, model_name, settings
from specview.tui.numbers import count, prob
from specview.tui.screens.closing import close
from specview.tui.widgets.scroll import ScrollCanvas

_MIN_SIDE = 36


class ComparePane(ScrollCanvas):
    """The two outputs beside each other, cut to what stands around the divergence; then the counters."""

    def __init__(self, comparison: Comparison | None = None) -> None:
        super().__init__()
        self.comparison = comparison

    def show(self, comparison: Comparison) -> None:
        self.comparison = comparison
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        c = self.comparison
        if c is None:
            return [[], [("  comparing …", self.ink.muted)]]
        half = max(1, (width - 3) // 2)
        other = max(1, width - 3 - half)
        lines = side_by_side(self._head(c.left, "A", half), self._head(c.right, "B", other), half, " │ ", self.ink.rule)
        lines.append([("─" * width, self.ink.rule)])
        lines += self._verdict(c, width)
        lines.append([])
        if width >= 2 * _MIN_SIDE:
            lines += side_by_side(
                self._text(c, c.left, half), self._text(c, c.right, other), half, " │ ", self.ink.rule
            )
        else:
            lines += [*self._text(c, c.left, width), [("─" * width, self.ink.rule)], *self._text(c, c.right, width)]
        lines += [[], *self._counters(c, width)]
        return lines

    def _head(self, side: Side, letter: str, width: int) -> list[Line]:
        ink, info = self.ink, side.summary.run.info
        name: Line = [
            (f"{letter}  ", ink.faint),
            (model_name(info.target) or "target", ink.strong),
            (" ◂ ", ink.faint),
            (draft_name(info), ink.draft),
        ]
        return [name, [(fit("   " + " · ".join(settings(info)), width), ink.muted)]]

    def _verdict(self, c: Comparison, width: int) -> list[Line]:
        ink = self.ink
        place = f"Prompt {c.sequence_index + 1} of {c.sequence_count}: " if c.sequence_count > 1 else ""
        outputs = "the outputs" if place else "The outputs"
        if not c.sequence_count:
            return [[("One of the two runs decoded nothing.", ink.text)]]
        other = "" if c.same_prompt else " The prompts are not the same text."
        if c.divergence is None:
            longer = c.left.output_tokens != c.right.output_tokens
            tail = "; one goes on where the other ends" if longer else ""
            text = f"{place}{outputs} agree on all {count(c.shared)} tokens that both have{tail}.{other}"
            return wrap([(text, ink.accepted)], width)
        agreed, parted = count(c.shared), count(c.divergence + 1)
        text = f"{place}{outputs} agree on {agreed} tokens and part at output token {parted}."
        lines = wrap([(f"{text}{other}", ink.strong)], width)
        for letter, side in (("A", c.left), ("B", c.right)):
            if side.margin is not None:
                (first, p1), (second, p2) = side.choices
                names = f"“{side.names(first)}” {prob(p1, 0)}, “{side.names(second)}” {prob(p2, 0)}"
                near = " – a near tie" if side.margin < 0.02 else ""
                round_ = f"round {count(side.at.index + 1)}, " if side.at is not None else ""
                sentence = f"{letter}: {round_}top-2 margin of the target {prob(side.margin, 0)} ({names}){near}."
                lines += wrap([(sentence, ink.muted)], width)
        return lines

    def _text(self, c: Comparison, side: Side, width: int) -> list[Line]:
        if side.sequence is None or not side.tokens:
            return [[("no output", self.ink.faint)]]
        flow = Flow(width)
        first = side.sequence.prompt_tokens
        if side.tokens[0].position > first:
            flow.add_sign("… ", -1, "prompt")
        pieces = join_pieces([side.names.data(t.token) for t in side.tokens])
        parts = c.divergence
        for token, piece in zip(side.tokens, pieces, strict=True):
            place = token.position - first
            if place == parts:
                flow.add_sign("▶", -1, "mark")
            style = "same" if parts is None or place < parts else "differs" if place == parts else token.origin
            flow.add(piece, token.position, style, visible=place == parts)
        ink = self.ink
        styles = {"same": ink.muted, "differs": ink.strong, "mark": ink.pending}
        return [[(run.text, styles.get(run.style) or ink.origin(run.style)) for run in line] for line in flow.lines]

    def _counters(self, c: Comparison, width: int) -> list[Line]:
        ink = self.ink
        name = min(28, max(12, width - 36))
        head = "counter".ljust(name) + "A".rjust(11) + "B".rjust(11) + "B − A".rjust(12)
        lines: list[Line] = [[(head, ink.faint)]]
        for counter in counters(c):
            lines.append(
                [
                    (fit(counter.name, name), ink.muted),
                    (value_text(counter, counter.left).rjust(11), ink.text),
                    (value_text(counter, counter.right).rjust(11), ink.text),
                    (difference_text(counter).rjust(12), ink.strong if counter.difference else ink.faint),
                ]
            )
        lines.append([(LEGEND, ink.faint)])
        return lines


class CompareScreen(Screen[None]):
    """`[` and `]` go through the prompts that both runs have."""

    DEFAULT_CSS = """
    CompareScreen { background: $background; }
    CompareScreen ComparePane { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,c", "close", "close", show=False),
        Binding("right_square_bracket", "prompt(1)", "next prompt", show=False),
        Binding("left_square_bracket", "prompt(-1)", "previous prompt", show=False),
    ]

    def __init__(self, load: Callable[[int], object]) -> None:
        """`load` is asked for a prompt's comparison, and calls `show` when it has it."""
        super().__init__()
        self.pane = ComparePane()
        self._load = load

    def compose(self) -> ComposeResult:
        yield self.pane

    def on_mount(self) -> None:
        self.pane.focus()
        self._load(0)

    def show(self, comparison: Comparison) -> None:
        self.pane.show(comparison)

    def action_prompt(self, by: int) -> None:
        if self.pane.comparison is not None:
            self._load(self.pane.comparison.sequence_index + by)

    def action_close(self) -> None:
        close(self)
