"""The first line: which pair, with which settings, and where in the trace the cursor stands."""

from __future__ import annotations

from engine.round import RunInfo
from specview.text import showable
from specview.tui.ink import Line, crop, spread, width_of
from specview.tui.model.titles import draft_name, model_name, settings
from specview.tui.model.view import View
from specview.tui.numbers import count
from specview.tui.widgets.canvas import Hit
from specview.tui.widgets.pane import Pane


class HeaderLine(Pane):
    """Gives up the settings first, then the models, when the line is narrow."""

    def draw_view(self, view: View, width: int, height: int) -> list[Line]:
        right = self._place(view)
        left = self._pair(view)
        settings = self._settings(view.info) if view.info is not None else []
        if width_of(left) + width_of(settings) + width_of(right) + 2 <= width:
            left += settings
        if width_of(right) + 12 > width:
            right = crop(right, width)
            return [right]
        self.hits.append(Hit(0, 0, max(1, width - width_of(right)), "run", 0, self._tip(view.info)))
        return [spread(left, right, width, self.base)]

    def _pair(self, view: View) -> Line:
        ink, info = self.ink, view.info
        if info is None:
            return [("specview", ink.strong)]
        return [
            (model_name(info.target) or "target", ink.strong),
            (" ◂ ", ink.faint),
            (draft_name(info), ink.draft),
        ]

    def _settings(self, info: RunInfo) -> Line:
        parts: Line = []
        for text in settings(info):
            parts += [(" · ", self.ink.faint), (text, self.ink.muted)]
        return parts

    def _tip(self, info: RunInfo | None) -> str:
        if info is None:
            return ""
        lines = [f"target {showable(info.target or '–')}", f"draft {showable(info.draft or info.proposer or '–')}"]
        lines += settings(info)
        if info.device_name:
            lines.append(showable(info.device_name))
        return "\n".join(lines)

    def _place(self, view: View) -> Line:
        ink, snapshot = self.ink, view.snapshot
        line: Line = []
        if len(snapshot.runs) > 1:
            line.append((f"run {snapshot.cursor.run + 1}/{len(snapshot.runs)} · ", ink.muted))
        if snapshot.sequence_count > 1:
            line.append((f"prompt {snapshot.cursor.sequence + 1}/{snapshot.sequence_count} · ", ink.muted))
        if snapshot.round_count:
            sign = "▶" if view.playing else "‖"
            line.append((f"{sign} ", ink.accepted if view.playing else ink.muted))
            place = f"round {count(snapshot.cursor.round + 1)}/{count(snapshot.round_count)}"
            line.append((place, ink.text))
            if view.phase != "correct":
                line.append((f" {view.phase}", ink.draft))
            line.append((f" · {view.pace.speed:g}×", ink.muted))
        if view.matches:
            line += [(" · ", ink.faint), (view.matches, ink.pending)]
        status = snapshot.run.status if snapshot.run is not None else None
        if view.live and snapshot.growing:
            following = snapshot.cursor.at_end
            line += [("  ", ink.faint), (" LIVE ", ink.badge if following else ink.muted)]
        elif status in ("failed", "interrupted"):
            line += [("  ", ink.faint), (status, ink.warning)]
        return line
