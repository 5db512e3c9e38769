"""Reads a trace, by range and read-only: memory does not depend on how long the run was.

A reader is for one thread at a time (several threads may take turns). It follows a file that grows: `changed` says
when there is something new.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine.round import FINAL_STATUSES, Cost, Position, Round, VocabEntry
from specview.errors import TraceError
from specview.metrics import Totals
from specview.trace import aggregate, decode, encode, opening, process
from specview.trace.distribution import Percentiles, percentiles
from specview.trace.records import RunRecord, SequenceRecord, TokenRecord

IDS_PER_QUERY = 500
SEQUENCE_BYTES = 2**24
"""Prompts that are read at once, in characters."""
SMALLEST_ROUND_BYTES = 20
HAND_OVER_SECONDS = 1.0
"""How long a follower stays off a file whose writer has ended, so that it can fold its log."""

_ROUNDS = f"SELECT {', '.join(encode.ROUND_COLUMNS)} FROM rounds"
_POSITIONS = f"SELECT {', '.join(encode.POSITION_COLUMNS)} FROM positions"


class TraceReader:
    """A trace, opened without writing to it.

    Raises:
        TraceError: from the constructor and from every method, one sentence about a file that cannot be read or
            holds what no trace can.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._opened: opening.Opened | None = opening.open_read_only(self.path)
        self._version = -1
        self._stamp = self._file_stamp()

    @property
    def warning(self) -> str | None:
        """A sentence about what this file may lack, or None."""
        return self._opened.warning if self._opened is not None else None

    @property
    def connection(self) -> sqlite3.Connection:
        """The read-only connection, for aggregates and exports."""
        if self._opened is None:
            self._opened = opening.open_read_only(self.path)
        return self._opened.connection

    def runs(self) -> list[RunRecord]:
        """All runs, oldest first."""
        with self.reading(decode.LONGEST_JSON):  # a run's facts hold nothing longer than that
            cursor = self.connection.cursor()
            cursor.row_factory = sqlite3.Row
            return [_run_record(row) for row in cursor.execute("SELECT * FROM runs ORDER BY id")]

    def sequences(self, run_id: int, start: int = 0, stop: int | None = None) -> list[SequenceRecord]:
        """The sequences of a run, from the `start`-th to before the `stop`-th."""
        with self.reading(opening.LONGEST_VALUE):
            cursor = self.connection.cursor()
            cursor.row_factory = sqlite3.Row
            rows = cursor.execute(
                "SELECT * FROM sequences WHERE run_id = ? ORDER BY sequence_index LIMIT ? OFFSET ?",
                (run_id, -1 if stop is None else max(0, stop - start), start),
            ).fetchall()
            return [decode.sequence(row) for row in rows]

    def all_sequences(self, run_id: int) -> Iterator[SequenceRecord]:
        """Every sequence of a run in order; of long prompts few are in memory at once."""
        after = -1
        while chunk := self._sequences_behind(run_id, after):
            yield from chunk
            after = chunk[-1].index

    def _sequences_behind(self, run_id: int, index: int) -> list[SequenceRecord]:
        """The next sequences after number `index`: at least one, at most `IDS_PER_QUERY`, no more than fit."""
        found: list[SequenceRecord] = []
        room = SEQUENCE_BYTES
        with self.reading(opening.LONGEST_VALUE):
            cursor = self.connection.cursor()
            cursor.row_factory = sqlite3.Row
            for row in cursor.execute(
                "SELECT * FROM sequences WHERE run_id = ? AND sequence_index > ? ORDER BY sequence_index LIMIT ?",
                (run_id, index, IDS_PER_QUERY),
            ):
                record = decode.sequence(row)
                if record.index <= index:  # an index that contradicts its table must not lead round and round
                    raise decode.DamagedValueError("sequences.sequence_index is out of order")
                index = record.index
                found.append(record)
                room -= len(row["prompt"] or "") + len(row["baseline_ids"] or "")
                if room < 0:
                    break
            cursor.close()
        return found

    def sequence_count(self, run_id: int) -> int:
        """How many sequences a run has."""
        return self.number("SELECT count(*) FROM sequences WHERE run_id = ?", run_id)

    def run_round_count(self, run_id: int) -> int:
        """How many rounds a run has, over all its sequences."""
        return self.number(
            "SELECT count(*) FROM rounds r JOIN sequences s ON s.id = r.sequence_id WHERE s.run_id = ?", run_id
        )

    def round_count(self, sequence_id: int) -> int:
        """How many rounds a sequence has; by the index alone, whatever its size."""
        count = self.number("SELECT coalesce(max(round_index) + 1, 0) FROM rounds WHERE sequence_id = ?", sequence_id)
        pages = self.number("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        if count <= pages // SMALLEST_ROUND_BYTES:
            return count
        raise self._damaged("a round's number is larger than the file has room for")

    def rounds(self, sequence_id: int, start: int, stop: int, positions: bool = True) -> list[Round]:
        """Rounds `start` … `stop` − 1 of a sequence, in order; without their positions when those are not needed."""
        with self.reading():
            rows = self.connection.execute(
                f"{_ROUNDS} WHERE sequence_id = ? AND round_index >= ? AND round_index < ? ORDER BY round_index",
                (sequence_id, start, stop),
            ).fetchall()
            if not rows:
                return []
            ids = [decode.key(row[0], "rounds.id") for row in rows]
            scored = self._positions(ids) if positions else {}
            committed = self._committed(sequence_id, ids, rows)
            return [decode.round_(row, tuple(scored.get(row[0], ())), tuple(committed.get(row[0], ()))) for row in rows]

    def token_count(self, sequence_id: int) -> int:
        """Prompt and committed tokens of a sequence."""
        return self.number("SELECT coalesce(max(position) + 1, 0) FROM tokens WHERE sequence_id = ?", sequence_id)

    def tokens(self, sequence_id: int, start: int, stop: int) -> list[TokenRecord]:
        """Tokens at places `start` … `stop` − 1, prompt included."""
        with self.reading():
            rows = self.connection.execute(
                "SELECT t.position, t.token, t.origin, r.round_index FROM tokens t"
                " LEFT JOIN rounds r ON r.id = t.round_id"
                " WHERE t.sequence_id = ? AND t.position >= ? AND t.position < ? ORDER BY t.position",
                (sequence_id, start, stop),
            ).fetchall()
            return [TokenRecord(p, decode.token(t), decode.origin(o), r) for p, t, o, r in rows]

    def costs(self, run_id: int) -> list[Cost]:
        """The cost curve, smallest forward first."""
        with self.reading():
            rows = self.connection.execute(
                "SELECT positions, target_ns, draft_ns, context FROM costs WHERE run_id = ? ORDER BY positions",
                (run_id,),
            ).fetchall()
            return [decode.cost(row) for row in rows]

    def vocab(self, run_id: int, ids: Iterable[int]) -> dict[int, VocabEntry]:
        """What these token ids stand for; ids that the trace does not know are absent."""
        known: dict[int, VocabEntry] = {}
        with self.reading(opening.LONGEST_VALUE):  # a token of a megabyte is odd, and no damage
            for chunk in _chunks(sorted(set(ids))):
                marks = ", ".join("?" * len(chunk))
                rows = self.connection.execute(
                    f"SELECT token, bytes, special FROM vocab WHERE run_id = ? AND token IN ({marks})", (run_id, *chunk)
                )
                known.update((entry.token, entry) for entry in map(decode.vocab_entry, rows))
        return known

    def longest_token(self) -> int:
        """Bytes of the longest token."""
        with self.reading(opening.LONGEST_VALUE):
            return self.connection.execute("SELECT max(length(bytes)) FROM vocab").fetchone()[0] or 0

    def totals(self, run_id: int, sequence_id: int | None = None, *, overlap: bool = False) -> Totals:
        """The sums behind the metrics of a run or of one sequence; scans its rounds (`overlap`: its positions too)."""
        with self.reading():
            return aggregate.totals(self.connection, run_id, sequence_id, overlap=overlap)

    def percentiles(self, run_id: int, columns: Sequence[str]) -> dict[str, Percentiles | None]:
        """Median and 95th percentile of integer columns of the run's rounds; scans them."""
        with self.reading():
            return percentiles(self.connection, run_id, columns)

    def first_rounds(self, run_id: int) -> Iterator[tuple[int | None, int | None, int | None]]:
        """Per sequence: target prefill ns, draft prefill ns, ns of its first round."""
        with self.reading():
            yield from map(
                decode.durations,
                self.connection.execute(
                    "SELECT s.target_prefill_ns, s.draft_prefill_ns, r.round_ns FROM sequences s"
                    " JOIN rounds r ON r.sequence_id = s.id AND r.round_index = 0 WHERE s.run_id = ?",
                    (run_id,),
                ),
            )

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All that is read inside is of one moment, however the trace grows meanwhile."""
        with self.reading():
            connection = self.connection
            connection.execute("BEGIN")
        try:
            yield
        finally:
            connection.rollback()

    def changed(self) -> bool:
        """Whether the file has new content since this was last asked (true the first time).

        When the writer has ended, this lets go of the file for a moment, so that the writer can fold its log: an open
        connection would keep it from that.
        """
        with self.reading():
            if self._opened is not None and self._opened.immutable:
                return self._immutable_changed()
            (version,) = self.connection.execute("PRAGMA data_version").fetchone()
            if version == self._version:
                return False
            self._version = version
            self._hand_over()
            return True

    def close(self) -> None:
        """Let go of the file. A closed reader that is asked again opens the file again."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def __enter__(self) -> TraceReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _immutable_changed(self) -> bool:
        """A file read as immutable is not watched by SQLite: look whether someone began to write it."""
        stamp = self._file_stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            self.close()
            return True
        first, self._version = self._version == -1, 0
        return first

    def _file_stamp(self) -> tuple[object, ...]:
        try:
            status = self.path.stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino, opening.side_file(self.path, "-wal").exists()

    def _hand_over(self) -> None:
        connection = self.connection
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            return
        marks = connection.execute("SELECT status, host, pid, process_start FROM runs").fetchall()
        if not marks or any(status not in FINAL_STATUSES for status, *_ in marks):
            return
        if not any(process.alive(process.ProcessMark(*mark)) for _, *mark in marks):
            return
        self.close()
        self._version = -1
        log = opening.side_file(self.path, "-wal")
        deadline = time.monotonic() + HAND_OVER_SECONDS
        while log.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        (self._version,) = self.connection.execute("PRAGMA data_version").fetchone()

    def _positions(self, ids: list[int]) -> dict[int, list[Position]]:
        scored: dict[int, list[Position]] = {}
        for chunk in _chunks(ids):
            if chunk[-1] - chunk[0] == len(chunk) - 1:
                where, values = "round_id BETWEEN ? AND ?", [chunk[0], chunk[-1]]
            else:
                where, values = f"round_id IN ({', '.join('?' * len(chunk))})", chunk
            for row in self.connection.execute(f"{_POSITIONS} WHERE {where} ORDER BY round_id, position", values):
                scored.setdefault(row[0], []).append(decode.position(row))
        return scored

    def _committed(self, sequence_id: int, ids: list[int], rows: list[encode.Row]) -> dict[int, list[tuple[int, str]]]:
        before = encode.ROUND_COLUMNS.index("committed_before")
        after = encode.ROUND_COLUMNS.index("committed_after")
        # The places are those that the rounds claim; tokens that stand elsewhere belong to no round that can be shown.
        bounds = [v for row in rows for v in (row[before], row[after]) if isinstance(v, int)]
        committed: dict[int, list[tuple[int, str]]] = {}
        wanted = set(ids)
        for round_id, token, origin in self.connection.execute(
            "SELECT round_id, token, origin FROM tokens WHERE sequence_id = ? AND position >= ? AND position < ?"
            " ORDER BY position",
            (sequence_id, min(bounds, default=0), max(bounds, default=0)),
        ):
            if round_id in wanted:
                committed.setdefault(round_id, []).append((decode.token(token), decode.origin(origin)))
        return committed

    def number(self, sql: str, *values: object) -> int:
        """The one number, 0 or more, that a query gives."""
        with self.reading():
            (number,) = self.connection.execute(sql, values).fetchone()
        if type(number) is not int or number < 0:
            raise self._damaged("a row's number is no number")
        return number

    def _damaged(self, what: str) -> TraceError:
        return TraceError(
            f"{self.path} is damaged ({what}); `sqlite3 {self.path.name} .recover` may save what is left of it."
        )

    @contextmanager
    def reading(self, longest: int = opening.LONGEST_CELL) -> Iterator[None]:
        """What goes wrong inside becomes a TraceError; a text or blob of more than `longest` bytes is wrong too."""
        try:
            self.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
            yield
        except decode.DamagedValueError as error:
            raise self._damaged(str(error)) from error
        except opening.READING_ERRORS as error:
            raise opening.unreadable(self.path, error) from error


def _run_record(row: sqlite3.Row) -> RunRecord:
    info = decode.run_info(row)
    status, message = row["status"], row["message"]
    if status not in FINAL_STATUSES:
        mark = process.ProcessMark(row["host"], row["pid"], row["process_start"])
        if not process.alive(mark):
            status, message = "interrupted", "the process that wrote it is gone"
    return RunRecord(
        row["id"], info, status, message, row["created"], row["finished"], decode.real(row["baseline_ms_per_token"]),
        row["baseline_tokens"],
    )  # fmt: skip


def _chunks(ids: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(ids), IDS_PER_QUERY):
        yield ids[start : start + IDS_PER_QUERY]
