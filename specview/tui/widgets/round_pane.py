"""The cursor's round: a row a position, the story in plain words, the alternatives of p and q as paired bars."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from engine.round import Position, Round
from specview.story import explain
from specview.tui.ink import Line, bar, crop, fit, merged, spread, wrap
from specview.tui.model.view import View
from specview.tui.numbers import count, prob, ratio
from specview.tui.widgets.canvas import Hit
from specview.tui.widgets.pane import Pane, on

GLYPHS = {
    "accepted": "✓",
    "rejected": "✗",
    "discarded": "·",
    "cut": "✂",
    "correction": "→",
    "bonus": "+",
    "target": "→",
}
_TIPS = {
    "draft": "draft: q(candidate), the draft's probability after the sampling settings",
    "target": "target: p(candidate), the target's probability after the same settings",
    "ratio": "ratio: p ÷ q; the candidate is kept when u is below it (always when it is 1 or more)",
    "u": "u: the uniform draw on [0, 1) of the acceptance test; – where none was drawn or the test was never made",
}


_BLANK = Style.null()
_NAME_IN_STORY = 30


class RoundPane(Pane):
    """`j`/`k` or a click select a position, whose alternatives are shown."""

    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "select(1)", "next position", show=False),
        Binding("k,up", "select(-1)", "previous position", show=False),
        Binding("g", "select(-1000)", "first position", show=False),
        Binding("G,shift+g", "select(1000)", "last position", show=False),
    ]

    class PositionPicked(Message):
        """A position was chosen, 1 … γ+1."""

        def __init__(self, position: int) -> None:
            super().__init__()
            self.position = position

    def draw_view(self, view: View, width: int, height: int) -> list[Line]:
        round_ = view.round
        if round_ is None or view.snapshot.round is None:
            return [self.title("Round", [], width)]
        out = [self.title(self._heading(view, round_), self._outcome(round_), width)]
        story = wrap([(self._story(view), self.ink.text)], width)
        rows = self._rows(view, round_, width)
        room = height - 3  # title, column heads, a line to breathe
        shown = max(1, min(len(rows), room - min(len(story), 3)))
        first = max(0, min(view.position - 1 - shown // 2, len(rows) - shown))
        out.append(self._heads(width))
        for offset, line in enumerate(rows[first : first + shown]):
            self.hits.append(Hit(len(out), 0, width, "position", first + offset + 1))
            out.append(line)
        # The table keeps the height of a full round, so that what stands below it does not jump.
        fullest = min((view.info.gamma or 0) + 2 if view.info is not None else 0, max(0, room - 8))
        out += [[] for _ in range(fullest - shown)]
        if len(story) < height - len(out):
            out.append([])
        out += self._told(story, height - len(out), len(out), width)
        left = height - len(out)
        alternatives = self._alternatives(view, round_, width, min(left - 1, 8))
        draws = self._draws(view, round_, width)
        if draws and left >= len(draws) + len(alternatives) + 2:
            out += [[], *draws]
            left = height - len(out)
        if alternatives and left > 2:
            out += [[] for _ in range(left - len(alternatives))]
            out += alternatives
        return out

    def _told(self, story: list[Line], room: int, y: int, width: int) -> list[Line]:
        """The lines that fit; a story that does not says so, and is told whole where the mouse points at it."""
        if len(story) <= room or room <= 0:
            return story[: max(0, room)]
        whole = " ".join("".join(text for text, _ in line) for line in story)
        self.hits += [Hit(y + row, 0, width, "story", 0, whole) for row in range(room)]
        return [*story[: room - 1], [*crop(story[room - 1], width - 2), (" …", self.ink.faint)]]

    def _draws(self, view: View, round_: Round, width: int) -> list[Line]:
        """The acceptance tests as one would draw them: u falls on a line from 0 to 1, and must hit its thick part."""
        ink = self.ink
        room = min(64, width - 18)
        judged = [p for p in round_.positions if p.u is not None and p.target_prob is not None and p.draft_prob]
        if room < 12 or not judged:
            return []
        lines: list[Line] = [[("   u  0" + "1".rjust(room - 1), ink.faint)]]
        for p in judged[:8]:
            assert p.u is not None
            assert p.target_prob is not None
            assert p.draft_prob is not None
            threshold = min(1.0, p.target_prob / p.draft_prob)
            kept = round(threshold * room)
            at = min(room - 1, int(p.u * room))
            sign = ("✗", ink.refused) if p.fate == "rejected" else ("●", ink.accepted)
            cells: Line = [("━" if x < kept else "╌", ink.target if x < kept else ink.faint) for x in range(room)]
            cells[at] = sign
            verdict = f"{prob(p.u, 5)} {'≥' if p.fate == 'rejected' else '<'} {prob(threshold, 0)}"
            line: Line = [(f"{p.position:>2}    ", ink.faint), *merged(cells), (verdict, ink.muted)]
            lines.append(line)
        return lines

    def _story(self, view: View) -> str:
        snapshot = view.snapshot
        assert snapshot.round is not None

        def name(token: int) -> str:
            text = snapshot.names(token)
            return text if cell_len(text) <= _NAME_IN_STORY else fit(text, _NAME_IN_STORY)

        return explain(snapshot.round, name, view.info, following=snapshot.following, phase=view.phase)

    def _heading(self, view: View, round_: Round) -> str:
        text = f"Round {count(round_.index + 1)} · {round_.proposed} proposed"
        if view.phase in ("accept", "correct"):
            text += f" · {round_.accepted} accepted"
        return text

    def _outcome(self, round_: Round) -> Line:
        kind = round_.correction_kind
        if kind is not None:
            return [(f"{GLYPHS[kind]} {kind}", self.ink.origin(kind))]
        return [(f"{GLYPHS['cut']} cut: {round_.cut}", self.ink.muted)] if round_.cut else []

    def _columns(self, width: int) -> tuple[int, bool, bool]:
        """Width of the token column, whether the ratio fits, whether the verdict is spelled out."""
        words = width >= 48
        ratios = width >= 40
        fixed = 3 + 6 + 7 + (8 if ratios else 0) + 6 + (14 if words else 3)
        return max(4, min(28, width - fixed)), ratios, words

    def _heads(self, width: int) -> Line:
        token, ratios, words = self._columns(width)
        y = 1
        x = 3 + token
        text = " i " + fit("token", token)
        for name, size in (("draft", 6), ("target", 7), *((("ratio", 8),) if ratios else ()), ("u", 6)):
            text += name.rjust(size)
            self.hits.append(Hit(y, x, size, "column", 0, _TIPS[name]))
            x += size
        return [(text + ("  verdict" if words else ""), self.ink.faint)]

    def _rows(self, view: View, round_: Round, width: int) -> list[Line]:
        rows = [
            self._candidate(view, p, width)
            for p in round_.positions[: round_.proposed]
            if p.position <= round_.proposed
        ]
        last = self._last(view, round_, width)
        if last:
            rows.append(last)
        elif view.phase in ("score", "accept"):
            rows.append(self._undrawn(view, round_, width))
        return rows

    def _candidate(self, view: View, p: Position, width: int) -> Line:
        token, ratios, words = self._columns(width)
        ink = self.ink
        fate = p.fate
        name = view.snapshot.names(p.candidate) if p.candidate is not None else "?"
        style = ink.origin(fate) if fate else ink.proposed
        judged = fate in ("accepted", "rejected", "cut") or fate is None
        number = ink.text if judged else ink.faint
        line: Line = [(f"{p.position:>2} ", ink.faint), *_cell(name, token, style)]
        line.append((prob(p.draft_prob, 6), ink.draft if judged else ink.faint))
        line.append((prob(p.target_prob, 7), ink.target if judged else ink.faint))
        if ratios:
            line.append((ratio(p.target_prob, p.draft_prob, 8), number))
        line.append((prob(p.u, 6), number))
        if fate is not None:
            plain = {"rejected": ink.refused, "discarded": ink.faint, "cut": ink.faint}.get(fate, style)
            line.append((f"  {GLYPHS[fate]}" + (f" {fate}" if words else ""), plain))
        return self._row(view, p.position, line, width)

    def _last(self, view: View, round_: Round, width: int) -> Line:
        """The token that the target drew: its probabilities, and what it was drawn from."""
        kind = round_.correction_kind
        if kind is None or round_.correction_token is None:
            return []
        token, ratios, words = self._columns(width)
        ink = self.ink
        style = ink.origin(kind)
        line: Line = [
            (f" {GLYPHS[kind]} ", style),
            (fit(view.snapshot.names(round_.correction_token), token), style),
            (prob(round_.correction_draft_prob, 6) if kind == "correction" else " " * 6, ink.draft),
            (prob(round_.correction_target_prob, 7), ink.target),
        ]
        label = "residual " if kind == "correction" and not round_.residual_fallback else ""
        chance = f"{label}{prob(round_.correction_prob, 0)}" if kind == "correction" else ""
        line.append((chance.rjust(14 if ratios else 6)[-14 if ratios else -6 :], style))
        line.append((f"  {GLYPHS[kind]}" + (f" {kind}" if words else ""), style))
        return self._row(view, round_.proposed + 1, line, width)

    def _undrawn(self, view: View, round_: Round, width: int) -> Line:
        text = "scored as well" if view.phase == "score" else "the target draws next"
        return self._row(view, round_.proposed + 1, [(f"{round_.proposed + 1:>2} {text}", self.ink.faint)], width)

    def _row(self, view: View, position: int, line: Line, width: int) -> Line:
        if position != view.position:
            return line
        used = sum(cell_len(text) for text, _ in line)
        line = [*line, (" " * max(0, width - used), self.ink.text)]
        return [on(self.ink.raised, ink) for ink in line]

    def _alternatives(self, view: View, round_: Round, width: int, room: int) -> list[Line]:
        """The most probable tokens of p and q at the selected position, as pairs of bars on one scale."""
        at = next((p for p in round_.positions if p.position == view.position), None)
        if at is None or not (at.draft_top or at.target_top) or room < 2:
            return []
        ink, names = self.ink, view.snapshot.names
        p, q = dict(at.target_top), dict(at.draft_top)
        if at.candidate is not None:
            if at.target_prob is not None:
                p.setdefault(at.candidate, at.target_prob)
            if at.draft_prob is not None:
                q.setdefault(at.candidate, at.draft_prob)
        order = sorted({*p, *q}, key=lambda t: -max(p.get(t, 0.0), q.get(t, 0.0)))[: room - 1]
        token = max(6, min(20, width // 4))
        half = max(2, (width - token - 3 - 13) // 2) if q else max(2, width - token - 2 - 7)
        scale = max((v for v in (*p.values(), *q.values()) if v == v), default=1.0) or 1.0
        head: Line = [(fit(f"at {at.position}", token + 1), ink.faint), (fit("target", half + 7), ink.target)]
        if q:
            overlap = f"{'overlap' if half > 12 else 'β'} {prob(at.overlap, 0)}" if at.overlap is not None else ""
            head += spread([("draft", ink.draft)], [(overlap, ink.faint)], half + 6, self.base)
        lines = [head]
        for t in order:
            line: Line = [*_cell(names(t), token, self._alternative_style(round_, at, t)), (" ", ink.text)]
            line += self._bar(p.get(t), half, scale, ink.target)
            if q:
                line += [(" ", ink.text), *self._bar(q.get(t), half, scale, ink.draft)]
            lines.append(line)
        return lines

    def _bar(self, value: float | None, width: int, scale: float, style: Style) -> Line:
        if value is None:
            return [(" " * (width + 6), style)]
        return [(bar(value / scale, width), style), (prob(value, 6), style)]

    def _alternative_style(self, round_: Round, at: Position, token: int) -> Style:
        """A token of the round keeps its meaning among the alternatives."""
        rejected = at.fate == "rejected" or at.position == round_.proposed + 1
        if token == round_.correction_token and rejected and round_.correction_kind:
            return self.ink.origin(round_.correction_kind)
        if token == at.candidate and at.fate:
            return self.ink.origin(at.fate)
        return self.ink.text

    def action_select(self, by: int) -> None:
        if self.view is not None:
            self.post_message(self.PositionPicked(self.view.position + by))

    def on_click(self, event: events.Click) -> None:
        hit = self.hit_at(event.x, event.y)
        if hit is not None and hit.name == "position":
            self.post_message(self.PositionPicked(hit.value))


def _cell(text: str, width: int, style: Style) -> Line:
    """A cell of a table whose style covers the text alone: a strike must not run on through the blanks."""
    shown = fit(text, width).rstrip(" ")
    return [(shown, style), (" " * (width - cell_len(shown)), _BLANK)]
