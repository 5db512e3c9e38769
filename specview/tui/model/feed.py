"""The thread that reads the trace for the screen: a cursor goes in, a frozen snapshot comes out.

Cursors that arrive while another is being looked up replace one another: only the newest is worth an answer. A growing
file is noticed through SQLite's data version, and an answer for the newest cursor is sent again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from specview.errors import TraceError
from specview.trace.reader import TraceReader
from specview.tui.model.cursor import Cursor
from specview.tui.model.lens import Lens
from specview.tui.model.snapshot import Snapshot

POLL_SECONDS = 0.2
"""Five pictures a second are enough to watch by; each costs an engine on the same processor some of its speed."""
IDLE_POLL_SECONDS = 0.5


class Feed(threading.Thread):
    """Delivers snapshots, in its own thread, through `deliver`.

    Args:
        path: the trace; with `follow` it may not exist yet.
        fail: gets the exception that ended this thread, if it is none of those that a file can cause.
        follow: look for growth, and for the file itself.
    """

    def __init__(
        self, path: Path, deliver: Callable[[Snapshot], None], fail: Callable[[Exception], None], *, follow: bool
    ) -> None:
        super().__init__(name="specview-feed", daemon=True)
        self._path = path
        self._deliver = deliver
        self._fail = fail
        self._follow = follow
        self._changed = threading.Condition()
        self._cursor: Cursor | None = None
        self._closed = False
        self._reader: TraceReader | None = None
        self._lens: Lens | None = None
        self._last_data: float = 0.0
        self._identity: tuple[int, int] | None = None

    def ask(self, cursor: Cursor) -> None:
        """Look at `cursor`; the answer comes through `deliver`."""
        with self._changed:
            self._cursor = cursor
            self._changed.notify()

    def close(self) -> None:
        """Stop, and close the file. Returns at once."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # noqa: BLE001 - whatever it is, the app ends with it instead of waiting for ever
            self._fail(error)
        finally:
            self._drop()

    def _serve(self) -> None:
        last = Cursor()
        while True:
            cursor = self._next()
            if self._closed:
                return
            try:
                fresh = self._look_again()
                if cursor is None and not fresh:
                    continue
                last = cursor or last
                self._answer(last)
            except TraceError as error:
                last = cursor or last
                self._drop()
                self._deliver(Snapshot(last, trouble=str(error)))

    def _next(self) -> Cursor | None:
        """The newest cursor asked for, or None when it is time to look for growth."""
        with self._changed:
            if self._cursor is None and not self._closed:
                self._changed.wait(self._poll() if self._follow else None)
            cursor, self._cursor = self._cursor, None
            return cursor

    def _poll(self) -> float:
        busy = time.monotonic() - self._last_data < 5
        return POLL_SECONDS if busy or self._lens is None else IDLE_POLL_SECONDS / 2

    def _look_again(self) -> bool:
        """Open the file, or see whether it has grown. True when there is something new."""
        waiting = self._lens is not None and not self._lens.runs
        if self._follow and (waiting or self._replaced()):
            # A file that holds no run yet is still being made, perhaps under another name: look at it anew.
            self._drop()
        if self._lens is None or self._reader is None:
            if self._follow and not self._path.exists():
                return False
            self._reader = TraceReader(self._path)
            self._identity = self._file_identity()
            self._lens = Lens(self._reader)
            self._last_data = time.monotonic()
            return not waiting or bool(self._lens.runs)
        if not self._follow or not self._reader.changed():
            return False
        self._last_data = time.monotonic()
        self._lens.refresh()
        return True

    def _replaced(self) -> bool:
        """Whether another file stands at the path than the one that is open."""
        identity = self._file_identity()
        return self._lens is not None and identity is not None and identity != self._identity

    def _file_identity(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def _answer(self, cursor: Cursor) -> None:
        if self._lens is not None:
            snapshot = self._lens.look(cursor)
            warning = self._reader.warning if self._reader is not None else None
            self._deliver(replace(snapshot, warning=warning) if warning is not None else snapshot)
        else:
            self._deliver(Snapshot(cursor))

    def _drop(self) -> None:
        self._lens = None
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
