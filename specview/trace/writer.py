"""Writes a trace while the engine runs: the engine's thread only appends to a queue, a thread of its own does the rest.

The file is in WAL mode while it is written, and a commit is never more than about 100 ms behind, so that a killed run
keeps what it had. On a clean close it goes back to a rollback journal and leaves no side files beside it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.round import Cost, Round, RunInfo, Sequence, Status, StopReason, VocabEntry
from specview.errors import TraceError
from specview.trace.rows import RowWriter
from specview.trace.storage import TraceFile

GATHER_SECONDS = 0.03
"""How long a commit waits for company after its first row, unless the producer asks for fewer commits."""
OPERATIONS_PER_COMMIT = 1000
QUEUE_LIMIT = 20_000
"""Rounds that may wait. No engine comes near it; a producer of ready-made rounds is held back, so memory stays flat."""


class TraceWriter:
    """Writes one trace file. All methods are for one producer thread; none of them waits for the disk, but for
    `close` and `discard`.

    Raises:
        TraceError: from the constructor, the file exists (and neither `force` nor `append` was given) or cannot be
            written; from any later call, the writer thread has failed. What was committed before stays readable.
    """

    def __init__(
        self, path: Path, *, force: bool = False, append: bool = False, gather_seconds: float = GATHER_SECONDS
    ) -> None:
        self._path = path
        self._gather_seconds = gather_seconds
        self._file = TraceFile(path, force=force, append=append)
        self._rows = RowWriter(self._file.connection)
        self._ids = self._rows.last_ids()
        self._first_new_run = self._ids["runs"] + 1
        self._run: int | None = None
        self._vocab_seen: dict[int, set[int]] = {}
        self._failure: TraceError | None = None
        self._closed = False
        self._queue: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._settled = threading.Event()
        self._thread = threading.Thread(target=self._work, name="trace-writer", daemon=True)
        self._thread.start()

    def begin_run(self, info: RunInfo) -> int:
        """Open a run with status `loading`; returns its id. What is recorded goes to the run begun last, unless `run`
        names an earlier one."""
        self._run = run = self._new_id("runs")
        self._put(self._rows.insert_run, run, info, utc_now())
        return run

    def update_info(self, info: RunInfo) -> None:
        """Replace the run's facts, as far as they became known after loading."""
        self._put(self._rows.update_info, self._open_run(), info)

    def set_status(self, status: Status, message: str | None = None, *, run: int | None = None) -> None:
        """Say what the run is doing, or why it ended."""
        self._put(self._rows.update_status, self._open_run(run), status, message, utc_now())

    def set_baseline(self, ms_per_token: float, tokens: int, ids: tuple[int, ...], sequence: int | None = None) -> None:
        """The plain decoding measured in this run: median ms a step, its length, and its token ids, which are kept
        with `sequence`, the handle of the prompt it decoded."""
        self._put(self._rows.update_baseline, self._open_run(), ms_per_token, tokens, ids, sequence)

    def add_costs(self, costs: Iterable[Cost]) -> None:
        """The cost curve of clause C14."""
        self._put(self._rows.insert_costs, self._open_run(), tuple(costs))

    def begin_sequence(self, seq: Sequence, *, run: int | None = None) -> int:
        """Open a sequence and store its prompt; returns its handle. Several may be open at once."""
        sequence = self._new_id("sequences")
        self._put(self._rows.insert_sequence, sequence, self._open_run(run), seq)
        return sequence

    def add_round(self, sequence: int, round: Round) -> None:
        """Store a round with its positions and committed tokens."""
        if len(self._queue) > QUEUE_LIMIT:
            self._hold_back()
        self._put(self._rows.add_round, self._new_id("rounds"), sequence, round)

    def end_sequence(self, sequence: int, stop_reason: StopReason) -> None:
        """Say why a sequence ended."""
        self._put(self._rows.update_stop_reason, sequence, stop_reason)

    def add_vocab(self, entries: Iterable[VocabEntry], *, run: int | None = None) -> None:
        """What token ids of this run stand for; ids already known are ignored."""
        of_run = self._open_run(run)
        seen = self._vocab_seen.setdefault(of_run, set())
        new = [e for e in entries if e.token not in seen]
        if new:
            seen.update(e.token for e in new)
            self._put(self._rows.insert_vocab, of_run, new)

    def settle(self, seconds: float) -> None:
        """Write at once what waits, and wait for that, though not longer than `seconds`: for a producer that is about
        to take the processor's every core."""
        self._hurry.set()
        self._settled.wait(seconds)
        if not self._closed:
            self._hurry.clear()

    def close(self, status: Status, message: str | None = None) -> None:
        """End the run, fold the log into the file and leave no side files. Closing twice is no error.

        Raises:
            TraceError: what waited could not be written.
        """
        if self._closed:
            return
        if self._failure is None and self._run is not None:
            self._queue.append((self._rows.update_status, (self._run, status, message, utc_now())))
        self._stop()
        if self._failure is not None:
            self._file.abandon(self._run, str(self._failure))
            raise self._failure
        self._file.close()

    def discard(self) -> None:
        """Remove what this writer created, as if it had never been asked; a file that was forced away comes back."""
        if self._closed:
            return
        self._queue.clear()
        self._stop()
        self._file.discard(self._first_new_run)

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, exception: type[BaseException] | None, value: BaseException | None, trace: object) -> None:
        if exception is None:
            self.close("finished")
        elif self._failure is None:
            stopped = issubclass(exception, KeyboardInterrupt)
            self.close("interrupted" if stopped else "failed", None if stopped else str(value))
        elif not self._closed:
            self._stop()
            self._file.abandon(self._run, str(self._failure))

    def _new_id(self, table: str) -> int:
        self._ids[table] += 1
        return self._ids[table]

    def _open_run(self, run: int | None = None) -> int:
        if run is not None:
            return run
        if self._run is None:
            raise TraceError("A run must be begun before anything is recorded in it.")
        return self._run

    def _put(self, operation: Callable[..., None], *arguments: Any) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise TraceError(f"The trace {self._path} is closed; open it again to record more.")
        self._settled.clear()
        self._queue.append((operation, arguments))
        if not self._wake.is_set():
            self._wake.set()

    def _hold_back(self) -> None:
        self._hurry.set()
        while len(self._queue) > QUEUE_LIMIT // 2 and self._failure is None:
            time.sleep(0.002)
        self._hurry.clear()

    def _stop(self) -> None:
        self._closed = True
        self._hurry.set()
        self._wake.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            while True:
                self._wake.wait()
                self._hurry.wait(self._gather_seconds)
                last = self._closed  # read before the queue is emptied, so that nothing queued before it is missed
                self._wake.clear()
                while self._queue:
                    self._write_batch()
                self._settled.set()
                if last:
                    break
        except Exception as error:  # noqa: BLE001 - whatever it is, the producer is told at its next call
            failure = self._file.explain(error)
            failure.__cause__ = error
            self._failure = failure

    def _write_batch(self) -> None:
        connection = self._file.connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            for _ in range(min(len(self._queue), OPERATIONS_PER_COMMIT)):
                operation, arguments = self._queue.popleft()
                operation(*arguments)
            self._rows.flush()
            connection.execute("COMMIT")
        except BaseException:
            self._rows.drop()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._file.require_still_there()


def utc_now() -> str:
    """Now, as ISO 8601 in UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
