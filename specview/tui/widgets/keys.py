"""The last line: the keys that matter, or what the viewer has to say, beside it what the file may lack."""

from __future__ import annotations

from specview.text import showable
from specview.tui.ink import Line, crop, spread, width_of
from specview.tui.model.view import View
from specview.tui.widgets.pane import Pane

_KEYS = (
    ("space", "play"),
    ("←→", "round"),
    ("⇧←→", "phase"),
    ("/", "find"),
    ("f", "filter"),
    ("s", "statistics"),
    ("c", "compare"),
    ("?", "help"),
    ("q", "quit"),
)
_LIVE_KEYS = (("i", "prompt"), ("l", "log"))


class KeysLine(Pane):
    """Shows as many keys as fit; help and quit are the last to go."""

    def draw_view(self, view: View, width: int, height: int) -> list[Line]:
        ink = self.ink
        if view.notice:
            return [[(showable(view.notice), ink.pending)]]
        warning: Line = []
        if view.snapshot.warning:
            warning = crop([("! ", ink.warning), (showable(view.snapshot.warning), ink.pending)], max(0, width - 20))
            width -= width_of(warning) + 2
        keys = list(_KEYS)
        if view.live:
            keys[3:3] = _LIVE_KEYS
        while len(keys) > 2 and width_of(self._line(keys, view)) > width:
            del keys[-3]
        line = self._line(keys, view)
        return [spread(line, warning, width + width_of(warning) + 2, self.base) if warning else line]

    def _line(self, keys: list[tuple[str, str]], view: View) -> Line:
        line: Line = []
        for key, name in keys:
            if name == "play" and view.playing:
                name = "pause"
            line += [("  " if line else "", self.ink.faint), (key, self.ink.key), (f" {name}", self.ink.muted)]
        return line
