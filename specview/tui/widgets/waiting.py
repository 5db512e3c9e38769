"""What stands in place of the empty panes until the first round: what the run is doing, or why it ended."""

from __future__ import annotations

from specview.text import showable
from specview.tui.ink import Line, bar, wrap
from specview.tui.model.view import View
from specview.tui.widgets.pane import Pane

_SHARE = "%"


class WaitingPane(Pane):
    """Loading, converting, prefill: the words of the run itself, with a bar when they end in a percentage."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.log_lines: list[str] = []
        self._failure: str | None = None

    def failed(self, sentence: str) -> None:
        """The recording process ended without a round; this is its last sentence."""
        self._failure = sentence
        self.redraw()

    def draw_view(self, view: View, width: int, height: int) -> list[Line]:
        ink = self.ink
        run = view.snapshot.run
        margin: Line = [("   ", ink.text)]
        inner = max(1, width - 6)
        failed = self._failure is not None or (run is not None and run.status in ("failed", "interrupted"))
        out: list[Line] = [[] for _ in range(max(1, height // 3 - 2))]
        out.append([*margin, (self._heading(view), ink.warning if failed or view.snapshot.trouble else ink.strong)])
        out.append([])
        for line in wrap([(showable(self._detail(view)), ink.text)], inner):
            out.append([*margin, *line])
        share = _share(self._detail(view))
        if share is not None:
            out += [[], [*margin, (bar(share, min(40, inner)), ink.accepted)]]
        room = max(0, min(8, height - len(out) - 2))
        if self.log_lines and room and self._failure is None:
            out.append([])
            out += [[*margin, (showable(text, limit=inner), ink.faint)] for text in self.log_lines[-room:]]
        return out

    def _heading(self, view: View) -> str:
        snapshot = view.snapshot
        if self._failure is not None:
            return "The run failed"
        if snapshot.trouble:
            return "Nothing to show here" if snapshot.round_count else "This trace cannot be read"
        if snapshot.run is None:
            return "Starting"
        if snapshot.sequence is None:
            return {"loading": "Loading", "running": "Running", "finished": "Nothing was decoded"}.get(
                snapshot.run.status, snapshot.run.status.capitalize()
            )
        return {"loading": "Loading", "running": "Prefill"}.get(
            snapshot.run.status, f"{snapshot.run.status.capitalize()} without a round"
        )

    def _detail(self, view: View) -> str:
        snapshot = view.snapshot
        if self._failure is not None:
            return self._failure
        if snapshot.trouble:
            return snapshot.trouble
        if snapshot.run is None:
            return "waiting for the run to begin …" if view.live else "this trace holds no run"
        return snapshot.run.message or ("" if snapshot.run.status != "running" else "the models read the prompt …")


def _share(text: str) -> float | None:
    """The share that a message ends with, `converting weights 45 %`."""
    words = text.replace(_SHARE, f" {_SHARE}").split()
    if len(words) >= 2 and words[-1] == _SHARE:
        try:
            return float(words[-2]) / 100
        except ValueError:
            return None
    return None
