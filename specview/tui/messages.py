"""What threads and panes tell the app."""

from __future__ import annotations

from textual.message import Message

from specview.metrics import Totals
from specview.tui.model.snapshot import Snapshot


class SnapshotReady(Message):
    """The feed looked at a cursor; a newer answer replaces one that still waits."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, SnapshotReady)


class TotalsReady(Message):
    """A run was summed."""

    def __init__(self, run_id: int, totals: Totals) -> None:
        super().__init__()
        self.run_id = run_id
        self.totals = totals

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, TotalsReady)


class ThreadFailed(Message):
    """A thread ended with an exception that no file should cause."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
