"""The viewer: it owns the state, asks the feed, and hands every pane the same frozen view."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal

from specview.text import showable
from specview.tui.bindings import BINDINGS
from specview.tui.layout import layout
from specview.tui.live_child import LiveChild
from specview.tui.model.playback import Pace
from specview.tui.model.snapshot import Snapshot
from specview.tui.model.view import View
from specview.tui.showing import Showing
from specview.tui.widgets.ask import AskLine
from specview.tui.widgets.counters import CountersPane
from specview.tui.widgets.header import HeaderLine
from specview.tui.widgets.kv import KvPane
from specview.tui.widgets.lines import HorizontalRule, TooSmall, VerticalRule
from specview.tui.widgets.log import LogPane
from specview.tui.widgets.output import OutputPane
from specview.tui.widgets.pane import Pane
from specview.tui.widgets.round_pane import RoundPane
from specview.tui.widgets.timeline import TimelinePane
from specview.tui.widgets.waiting import WaitingPane

CHILD_POLL_SECONDS = 0.2
WATCHER_NICENESS = 10
"""In live mode the engine goes first: watching must not slow what is watched."""
MAIN_ACTIONS = {b.action.partition("(")[0] for b in BINDINGS if isinstance(b, Binding)}


class SpecviewApp(Showing):
    """Replays a trace, or follows one that is being written.

    Args:
        path: the trace. With `follow` it may not exist yet.
        follow: look for growth, and stay on the newest round until a key moves away.
        child: the process that writes the trace, in live mode.
        speed: factor of the recorded pace.
        idle_limit: seconds that no round takes longer than at normal speed.
    """

    TITLE = "specview"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar = BINDINGS
    ENABLE_COMMAND_PALETTE = True

    def __init__(
        self,
        path: Path,
        *,
        follow: bool = False,
        child: LiveChild | None = None,
        speed: float = 1.0,
        idle_limit: float = 2.0,
    ) -> None:
        super().__init__(path, follow=follow, child=child, pace=Pace(speed, idle_limit))
        self._log_shown = False
        self._child_code: int | None = None
        self._resumed = False
        self._mourned: int | None = None

    def compose(self) -> ComposeResult:
        yield HeaderLine(id="header")
        with Horizontal(id="body"):
            yield OutputPane(id="output")
            yield VerticalRule(id="gap")
            yield RoundPane(id="round")
            yield WaitingPane(id="waiting")
        yield LogPane(id="log")
        yield HorizontalRule(id="rule")
        yield KvPane(id="kv")
        yield TimelinePane(id="timeline")
        yield CountersPane(id="counters")
        yield AskLine(id="ask")
        yield TooSmall(id="small")

    def on_mount(self) -> None:
        self.watch_signals()
        self.query_one(RoundPane).focus()
        self._arrange()
        self.load_marks()
        self.feed.start()
        self.sums.start()
        self.feed.ask(self.cursor)
        if self.child is not None:
            self.set_interval(CHILD_POLL_SECONDS, self._look_at_child)
            if not self.is_headless:
                os.nice(WATCHER_NICENESS)

    def on_unmount(self) -> None:
        self.feed.close()
        self.sums.close()

    def watch_view(self, before: View, view: View) -> None:
        self._show_waiting(view)
        with self.batch_update():
            for pane in self.query(Pane):
                if pane.display:
                    pane.show(view)
                else:
                    pane.view = view

    def after_snapshot(self, snapshot: Snapshot) -> None:
        if not self._resumed and snapshot.round is not None:
            self._resumed = True
            if self.resume(snapshot):
                return
        super().after_snapshot(snapshot)
        run = snapshot.run
        if run is not None and run.status == "failed" and run.id != self._mourned:
            self._mourned = run.id
            self.say(f"the run failed: {run.message or 'the trace does not say why'}", seconds=30)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The main screen's keys rest while another screen is open."""
        everywhere = ("quit", "next_theme", "picture", "command_palette", "change_theme")
        if action in MAIN_ACTIONS and action not in everywhere and len(self.screen_stack) > 1:
            return False
        if action == "next_pane" and self.query_one(AskLine).asking:
            return False
        return super().check_action(action, parameters)

    def action_next_pane(self) -> None:
        """The focus goes to the other pane; where only one fits, it is shown in place of the first."""
        name = "#output" if isinstance(self.focused, RoundPane) else "#round"
        pane = self.query_one(name, Pane)
        if self.view.snapshot.round is not None:
            self._place(name, True)
            pane.focus()

    def _show_waiting(self, view: View) -> None:
        waiting = view.snapshot.round is None
        pane = self.query_one(WaitingPane)
        if pane.display != waiting:
            self._arrange()

    # Where things stand

    def on_resize(self, event: events.Resize) -> None:
        self._arrange(event.size.width, event.size.height)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self._arrange()

    def _arrange(self, width: int | None = None, height: int | None = None) -> None:
        """Give each pane the rows that the size allows."""
        if not self.query("#small"):
            return
        plan = layout(width or self.size.width, height or self.size.height, log=self._log_shown)
        waiting = self.view.snapshot.round is None and not plan.too_small
        round_focused = isinstance(self.focused, RoundPane)
        one = not plan.both
        self._place("#small", plan.too_small)
        self._place("#header", not plan.too_small)
        self._place("#ask", not plan.too_small)
        self.query_one("#body").display = not plan.too_small
        self._place("#waiting", waiting)
        self._place("#output", not waiting and (not one or not round_focused))
        self._place("#gap", not waiting and not one)
        self._place("#round", not waiting and (not one or round_focused))
        self.query_one("#round").styles.width = plan.round_width if not one else "1fr"
        for name, rows in (
            ("#rule", plan.rule if not waiting else 0),
            ("#kv", plan.kv if not waiting else 0),
            ("#timeline", plan.timeline if not waiting else 0),
            ("#counters", plan.counters if not waiting else 0),
            ("#log", plan.log),
        ):
            self.query_one(name).styles.height = max(1, rows)
            self._place(name, rows > 0)

    def _place(self, name: str, shown: bool) -> None:
        widget = self.query_one(name)
        if widget.display != shown:
            widget.display = shown
            if shown and isinstance(widget, Pane):
                widget.show(self.view)

    # The child and the end

    def _look_at_child(self) -> None:
        if self.child is None:
            return
        lines = self.child.read_log()
        if lines:
            self.query_one(LogPane).add(lines)
            self.query_one(WaitingPane).log_lines.extend(lines)
            if self.query_one(WaitingPane).display:
                self.query_one(WaitingPane).redraw()
        code = self.child.poll()
        if code is not None and self._child_code is None:
            self._child_code = code
            if code:
                log = self.query_one(LogPane).lines
                last = showable(log[-1]) if log else f"the recording process ended with code {code}."
                sentence = last.removeprefix("specview: ")
                self.query_one(WaitingPane).failed(sentence)
                self.say(sentence, seconds=1e9)

    def action_toggle_log(self) -> None:
        self._log_shown = not self._log_shown
        self._arrange()

    async def action_quit(self) -> None:
        self.before_end()
        self.exit()

    def before_end(self) -> None:
        """The child is asked to end, and the place is remembered."""
        if self.child is not None:
            self.child.stop()
        self.remember_place()
