"""The thread that sums a whole run: a scan of every round, kept away from the feed so that no key waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from specview.errors import TraceError
from specview.metrics import Totals
from specview.trace.reader import TraceReader

REST = 8
"""A scan that took t is followed by at least REST × t without one: a growing run costs a ninth of a core at most."""
SHORTEST_REST_SECONDS = 0.4


class Sums(threading.Thread):
    """Delivers (run id, totals) of the run last asked for."""

    def __init__(self, path: Path, deliver: Callable[[int, Totals], None], fail: Callable[[Exception], None]) -> None:
        super().__init__(name="specview-sums", daemon=True)
        self._path = path
        self._deliver = deliver
        self._fail = fail
        self._changed = threading.Condition()
        self._wanted: int | None = None
        self._closed = False

    def ask(self, run_id: int) -> None:
        with self._changed:
            self._wanted = run_id
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # noqa: BLE001 - the app ends with whatever it is
            self._fail(error)

    def _serve(self) -> None:
        while True:
            with self._changed:
                while self._wanted is None and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                run_id, self._wanted = self._wanted, None
            assert run_id is not None
            began = time.monotonic()
            try:
                # Opened anew each time: an open connection would keep the writer from folding its side files.
                with TraceReader(self._path) as reader:
                    totals = reader.totals(run_id)
            except TraceError:
                continue  # the feed reads the same file, and says what is wrong with it
            self._deliver(run_id, totals)
            rest = max(SHORTEST_REST_SECONDS, REST * (time.monotonic() - began))
            with self._changed:
                if not self._closed:
                    self._changed.wait_for(lambda: self._closed, rest)
