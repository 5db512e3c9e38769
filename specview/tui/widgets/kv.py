"""The two KV caches as lanes of slots, slot under slot, with the numbers beside them."""

from __future__ import annotations

from rich.style import Style

from specview.tui.ink import Line, spread, width_of
from specview.tui.model.kv import GLYPHS, Lane, Span, State, lanes
from specview.tui.model.view import View
from specview.tui.numbers import count
from specview.tui.widgets.canvas import Hit
from specview.tui.widgets.pane import Pane

_LABEL = 14
_TIPS: dict[State, str] = {
    "committed": "committed: on the true path before this round",
    "kept": "kept this round: the token pending before, and the accepted candidates",
    "rejected": "rolled back: the KV of the rejected token",
    "off_path": "rolled back: scored behind the rejected token or the end of the text, a context that no longer exists",
    "pending": "pending: a committed token whose KV the next forward builds",
    "written": "written by this round's forward; its fate is not known yet",
    "missing": "missing: on the true path, but the draft has not fed it yet; it catches up next round",
}


class KvPane(Pane):
    """With room for it, each cache shows both what the forward wrote and what the rollback left."""

    def draw_view(self, view: View, width: int, height: int) -> list[Line]:
        round_ = view.round
        if round_ is None:
            return [self.title("KV cache", [], width)]
        pair = lanes(round_, view.phase)
        if view.phase in ("propose", "score", "accept") and view.snapshot.round is not None:
            # What a later phase writes is not known yet, but what the caches held before is.
            pair = lanes(view.snapshot.round, view.phase)
        double = height >= 4
        numbers = [self._numbers(lane, double, width < 96) for lane in pair]
        beside = max((width_of(line) for number in numbers for line in number), default=0)
        slots = max(8, width - _LABEL - beside - 2)
        shown = [(*lane.spans, *lane.result) if double else _both(lane) for lane in pair]
        end = max((s.start + s.length for spans in shown for s in spans), default=0)
        start = max(0, end + 1 - slots)
        out: list[Line] = []
        for index, (lane, number) in enumerate(zip(pair, numbers, strict=True)):
            label = f"KV {lane.name}" if index == 0 else f"   {lane.name}"
            if lane.before is None:
                out.append([(label.ljust(_LABEL), self.ink.muted), ("not recorded", self.ink.faint)])
                out += [[]] if double else []
                continue
            if double:
                for name, spans, side in (("written", lane.spans, number[0]), ("after", lane.result, number[1])):
                    text = f"{label:<10}" if name == "written" else " " * 10
                    cells = self._cells(spans, start, slots, len(out))
                    sign = "" if name == "written" else "→"
                    lead: Line = [(text, self.ink.muted), (f"{sign:>2}  ", self.ink.faint)]
                    out.append(spread([*lead, *cells], side, width, self.base))
            else:
                cells = self._cells(_both(lane), start, slots, len(out))
                out.append(spread([(label.ljust(_LABEL), self.ink.muted), *cells], number[0], width, self.base))
        return out

    def _cells(self, spans: tuple[Span, ...], start: int, slots: int, y: int) -> Line:
        """The slots from `start` on; what lies before is one ellipsis."""
        line: Line = []
        x = _LABEL
        if start > 0:
            line.append(("…", self.ink.faint))
            x, start, slots = x + 1, start + 1, slots - 1
        for span in spans:
            first, last = max(span.start, start), min(span.start + span.length, start + slots)
            if last <= first:
                continue
            line.append((GLYPHS[span.state] * (last - first), self._style(span.state)))
            where = f"slot {count(first)}" + (f" … {count(last - 1)}" if last - first > 1 else "")
            self.hits.append(Hit(y, x + first - start, last - first, "slots", first, f"{where} · {_TIPS[span.state]}"))
        return line

    def _style(self, state: State) -> Style:
        ink = self.ink
        styles: dict[State, Style] = {
            "committed": ink.faint,
            "kept": ink.accepted,
            "rejected": ink.refused,
            "off_path": ink.faint,
            "pending": ink.pending,
            "written": ink.draft,
            "missing": ink.faint,
        }
        return styles[state]

    def _numbers(self, lane: Lane, double: bool, short: bool) -> tuple[Line, Line]:
        """What happened to a cache: lengths, then slots by state."""
        ink = self.ink
        if lane.before is None:
            return [], []
        after = f" → {count(lane.after)}" if lane.after is not None else ""
        lengths: Line = [(f"{count(lane.before)}{after}", ink.text)]
        parts: Line = []
        states: tuple[tuple[int, str, State], ...] = (
            (lane.kept, "kept", "kept"),
            (lane.rejected, "rejected", "rejected"),
            (lane.off_path, "off-path", "off_path"),
            (lane.pending if lane.after is not None else 0, "pending", "pending"),
        )
        for amount, text, state in states:
            if amount and short:
                parts += [(" " if parts else "", ink.faint), (f"{amount}{GLYPHS[state]}", self._style(state))]
            elif amount:
                parts += [(" · " if parts else "", ink.faint), (f"{amount} {text}", self._style(state))]
        if lane.written and not parts:
            parts = [(f"{lane.written} written", ink.draft)]
        if double:
            return parts, lengths
        return [*parts, ("  " if parts else "", ink.faint), *lengths], []


def _both(lane: Lane) -> tuple[Span, ...]:
    """One row for what was written and what is pending: the pending slot stands behind the rolled-back ones, unless it
    is one of them."""
    if any(s.state == "pending" for s in lane.spans):
        return lane.spans
    end = max((s.start + s.length for s in lane.spans), default=0)
    pending = tuple(s for s in lane.result if s.state == "pending")
    missing = sum(s.length for s in lane.result if s.state == "missing")
    tail = tuple(Span("pending", end + 1 + missing, s.length) for s in pending) if lane.after is not None else ()
    gap = (Span("missing", end, missing),) if missing else ()
    return (*lane.spans, *gap, *tail)
