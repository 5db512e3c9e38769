"""The state of the viewer and the only ways to change it; what keys do with it stands in the classes built on this."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from textual.reactive import reactive

from specview.metrics import Totals
from specview.tui.base import BaseApp
from specview.tui.live_child import LiveChild
from specview.tui.messages import SnapshotReady, ThreadFailed, TotalsReady
from specview.tui.model.cursor import Cursor
from specview.tui.model.feed import Feed
from specview.tui.model.playback import Pace
from specview.tui.model.snapshot import Snapshot
from specview.tui.model.sums import Sums
from specview.tui.model.view import View


class ViewerCore(BaseApp):
    """Owns cursor, view and threads. Panes draw `view`; everybody else changes it through `set_view` and `go`."""

    view: reactive[View] = reactive(View(Snapshot(Cursor())), init=False, layout=False, repaint=False)

    def __init__(self, path: Path, *, follow: bool, child: LiveChild | None, pace: Pace) -> None:
        super().__init__()
        self.path = path
        self.child = child
        self.cursor = Cursor(at_end=follow)
        """Where the person wants to look; the view shows it as soon as the feed has it."""
        self._notice_until = 0.0
        self.set_reactive(ViewerCore.view, View(Snapshot(self.cursor), pace=pace, live=follow))
        self.feed = Feed(path, self._deliver, self._thread_failed, follow=follow)
        self.sums = Sums(path, self._deliver_totals, self._thread_failed)

    def _deliver(self, snapshot: Snapshot) -> None:
        self.post_message(SnapshotReady(snapshot))

    def _deliver_totals(self, run_id: int, totals: Totals) -> None:
        self.post_message(TotalsReady(run_id, totals))

    def _thread_failed(self, error: Exception) -> None:
        self.post_message(ThreadFailed(error))

    def on_thread_failed(self, message: ThreadFailed) -> None:
        raise message.error

    def on_snapshot_ready(self, message: SnapshotReady) -> None:
        if not self.is_running:  # it came while the screen is being taken down: there is no pane left to show it
            return
        snapshot = message.snapshot
        before = self.view.snapshot
        totals = self.view.totals
        if snapshot.run is not None:
            other = before.run is None or before.run.id != snapshot.run.id
            if other:
                totals = None
            if other or snapshot.round_count != before.round_count or snapshot.run != before.run:
                self.sums.ask(snapshot.run.id)
        if self.cursor.at_end or self.cursor.round >= snapshot.round_count:
            self.cursor = snapshot.cursor
        self.set_view(snapshot=snapshot, totals=totals, bookmarks=self.bookmarks_of(snapshot))
        self.after_snapshot(snapshot)

    def on_totals_ready(self, message: TotalsReady) -> None:
        run = self.view.snapshot.run
        if self.is_running and run is not None and run.id == message.run_id:
            self.set_view(totals=message.totals)

    def after_snapshot(self, snapshot: Snapshot) -> None:
        """Called when the view shows a new snapshot."""

    def bookmarks_of(self, snapshot: Snapshot) -> frozenset[int]:
        """The bookmarked rounds of the snapshot's sequence."""
        return frozenset()

    def set_view(self, **changes: object) -> None:
        """Change parts of the view, and let the panes draw what is different."""
        self.view = replace(self.view, **changes)  # type: ignore[arg-type]

    def set_quietly(self, **changes: object) -> None:
        """Change the view without drawing: a snapshot that draws it all is on its way."""
        self.set_reactive(ViewerCore.view, replace(self.view, **changes))  # type: ignore[arg-type]

    def say(self, notice: str, seconds: float = 4.0) -> None:
        """Put a sentence on the last line for a while."""
        self._notice_until = time.monotonic() + seconds
        self.set_view(notice=notice)
        self.set_timer(seconds, self._unsay)

    def _unsay(self) -> None:
        if self.view.notice and time.monotonic() >= self._notice_until - 0.05:
            self.set_view(notice="")

    def look(self, cursor: Cursor) -> None:
        """Ask the feed for another place."""
        here = self.cursor
        if (cursor.run, cursor.sequence, cursor.round) != (here.run, here.sequence, here.round):
            self.set_quietly(selected=None)
        self.cursor = cursor
        self.feed.ask(cursor)
