"""Moving and playing: what the keys, the mouse and the clock do to the cursor."""

from __future__ import annotations

import time

from textual.timer import Timer

from specview.tui.core import ViewerCore
from specview.tui.model.cursor import Cursor
from specview.tui.model.playback import LATEST_SECONDS, step
from specview.tui.model.snapshot import Snapshot
from specview.tui.widgets.output import OutputPane
from specview.tui.widgets.round_pane import RoundPane
from specview.tui.widgets.timeline import TimelinePane


class Navigation(ViewerCore):
    """The part of the app that moves the cursor."""

    _timer: Timer | None = None
    _due = 0.0

    def go(self, cursor: Cursor, *, keep_playing: bool = False) -> None:
        """Look at another place."""
        if not keep_playing and self.view.playing:
            self.pause()
        self.look(cursor)

    def after_snapshot(self, snapshot: Snapshot) -> None:
        """While playing, each snapshot sets the clock for the next one."""
        if self.view.playing:
            self._schedule(snapshot)

    def action_step(self, by: int) -> None:
        self.go(self.cursor.to_round(self.cursor.round + by, self.view.snapshot.round_count))

    def action_step_phase(self, by: int) -> None:
        self.go(self.cursor.step_phase(by, self.view.snapshot.round_count))

    def action_first(self) -> None:
        self.go(self.cursor.to_round(0, self.view.snapshot.round_count))

    def action_last(self) -> None:
        count = self.view.snapshot.round_count
        if self.view.live and self.view.snapshot.growing:
            self.go(self.cursor.to_end())
        else:
            self.go(self.cursor.to_round(count - 1, count))

    def action_faster(self) -> None:
        self.set_view(pace=self.view.pace.faster())

    def action_slower(self) -> None:
        self.set_view(pace=self.view.pace.slower())

    def action_play(self) -> None:
        if self.view.playing:
            self.pause()
            return
        snapshot = self.view.snapshot
        if not snapshot.round_count:
            return
        self.set_view(playing=True)
        self._due = time.monotonic()
        at_end = snapshot.cursor.round >= snapshot.round_count - 1
        if at_end and not (self.view.live and snapshot.growing):
            self.go(self.cursor.to_round(0, snapshot.round_count), keep_playing=True)
        else:
            self._schedule(snapshot)

    def pause(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.set_view(playing=False)

    def _schedule(self, snapshot: Snapshot) -> None:
        if self._timer is not None or snapshot.round is None:
            return
        if snapshot.after is None:
            if not (self.view.live and snapshot.growing):
                self.pause()
            return
        now = time.monotonic()
        if now - self._due > LATEST_SECONDS:
            self._due = now
        # Waits are added to when the round was due, not to when it was drawn: drawing time must not slow the pace.
        move = step(self.view.pace.seconds(snapshot.after, snapshot.round), max(0.0, now - self._due))
        self._due += move.wait
        self._timer = self.set_timer(max(0.001, self._due - now), lambda: self._tick(move.rounds))

    def _tick(self, rounds: int) -> None:
        self._timer = None
        if not self.view.playing:
            return
        count = self.view.snapshot.round_count
        self.go(self.cursor.to_round(self.cursor.round + rounds, count), keep_playing=True)

    def on_timeline_pane_scrubbed(self, message: TimelinePane.Scrubbed) -> None:
        self.go(self.cursor.to_round(message.round, self.view.snapshot.round_count))

    def on_round_pane_position_picked(self, message: RoundPane.PositionPicked) -> None:
        round_ = self.view.snapshot.round
        if round_ is not None:
            self.set_view(selected=max(1, min(message.position, round_.proposed + 1)))

    def on_output_pane_token_picked(self, message: OutputPane.TokenPicked) -> None:
        window = self.view.snapshot.window
        offset = message.position - window.start
        index = window.tokens[offset].round_index if 0 <= offset < len(window.tokens) else None
        if index is not None:
            self.go(self.cursor.to_round(index, self.view.snapshot.round_count))
