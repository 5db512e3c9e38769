"""Opening a trace without writing to it, whatever state it and its folder are in.

| the file | how it is opened |
|---|---|
| closed cleanly (rollback journal) | `mode=ro` |
| in WAL mode with its `-wal` beside it: being written, killed, or held by a follower when it was closed | `mode=ro` |
| in WAL mode without a `-wal`: a copy that left it behind | `immutable=1`: `mode=ro` would create side files |
| needs a recovery that the folder's permissions forbid | a private copy of the file and its log, deleted on close |
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from engine.round import FINAL_STATUSES
from specview.errors import TraceError
from specview.text import showable
from specview.trace import schema

MAGIC = b"SQLite format 3\x00"
BUSY_SECONDS = 5.0
LONGEST_CELL = 2**18
"""Bytes of the longest text or blob that is read from a row of which there are many. SQLite's own limit would let a
damaged file ask for a gigabyte, and again for every row."""
LONGEST_VALUE = 50_000_000
"""The same for the rows of sequences, whose prompts may be long, and for the names of tokens."""
LONGEST_REASON = 200
READING_ERRORS = (sqlite3.Error, UnicodeDecodeError, OverflowError)
"""What sqlite3 raises over a damaged file: its error messages and texts need not be UTF-8."""
COPY_LIMIT = 2_000_000_000


class NotATraceError(TraceError):
    """The file is somebody else's: text, or another program's database."""


@dataclass(slots=True)
class Opened:
    """A read-only connection. `immutable` is a file whose log is missing; `warning` is a sentence about it."""

    path: Path
    connection: sqlite3.Connection
    immutable: bool = False
    warning: str | None = None
    _copy: Path | None = None
    _identity: tuple[int, int] | None = field(default=None)

    def close(self) -> None:
        self.connection.close()
        if self._identity is not None:
            release(self._identity)
            self._identity = None
        if self._copy is not None:
            shutil.rmtree(self._copy, ignore_errors=True)

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Closing any descriptor of a file drops the process's POSIX locks on it, SQLite's among them. So a file that this
# process has open already is not peeked into a second time.
_open_here: dict[tuple[int, int], int] = {}


def hold(identity: tuple[int, int]) -> None:
    """Note that this process has the file (device, inode) open."""
    _open_here[identity] = _open_here.get(identity, 0) + 1


def release(identity: tuple[int, int]) -> None:
    """Undo one `hold`."""
    _open_here[identity] -= 1
    if not _open_here[identity]:
        del _open_here[identity]


def side_file(path: Path, suffix: str) -> Path:
    """SQLite's own file beside a trace; of a link, beside what it leads to."""
    return Path(f"{os.path.realpath(path)}{suffix}")


def unreadable(path: Path, error: Exception) -> TraceError:
    """One sentence about why a trace cannot be read."""
    code = getattr(error, "sqlite_errorname", "")
    said = showable(str(error), limit=LONGEST_REASON)  # SQLite quotes what it stumbles over
    if code.startswith("SQLITE_NOTADB"):
        return NotATraceError(f"{path} is not a specview trace; record one with `specview record -o FILE`.")
    if isinstance(error, UnicodeDecodeError):
        said = "text that is no UTF-8"
    if code.startswith(("SQLITE_CORRUPT", "SQLITE_TOOBIG")) or "malformed" in said or "UTF-8" in said:
        return TraceError(f"{path} is damaged ({said}); `sqlite3 {path.name} .recover` may save what is left of it.")
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return TraceError(f"Another program keeps {path} locked; close it and try again.")
    return TraceError(f"{path} cannot be read ({said}); check that the file is whole and that you may read it.")


def open_read_only(path: Path) -> Opened:
    """Open a trace; never writes to the file.

    Raises:
        TraceError: there is no such file, it is no trace, it is from a newer specview, or it cannot be read.
    """
    path = Path(path)
    header = _peek(path)
    wal_mode = header is not None and header[18:20] == b"\x02\x02"
    # A follower may hold the file while its log was already folded and removed; then there is nothing to miss.
    immutable = wal_mode and not side_file(path, "-wal").exists()
    opened = _connect(path, "immutable=1" if immutable else "mode=ro")
    try:
        try:
            _require_trace(path, opened.connection)
            if immutable:
                opened.warning = _missing_log(opened.connection)
        except sqlite3.OperationalError as error:
            if not _needs_recovery(error):
                raise
            opened.close()
            opened = _open_copy(path)
            _require_trace(path, opened.connection)
    except READING_ERRORS as error:
        opened.close()
        raise unreadable(path, error) from error
    except BaseException:
        opened.close()
        raise
    return opened


def _missing_log(connection: sqlite3.Connection) -> str | None:
    """A file in WAL mode whose log is gone may lack its end; one whose runs have all ended does not."""
    statuses = [status for (status,) in connection.execute("SELECT status FROM runs")]
    if statuses and all(status in FINAL_STATUSES for status in statuses):
        return None
    return "it was copied without its -wal file, so what was recorded last is missing"


def _peek(path: Path) -> bytes | None:
    """The first 100 bytes, or None when this process has the file open already."""
    try:
        status = path.stat()
        if not path.is_file():
            raise TraceError(f"{path} is not a file; name a trace, or a folder with `specview list`.")
        if (status.st_dev, status.st_ino) in _open_here:
            return None
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        raise TraceError(f"There is no file {path}; `specview list` shows the traces in a folder.") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read ({error.strerror}); check the path and its permissions.") from error
    if not header:
        raise TraceError(f"{path} is empty: nothing was recorded into it, or it was copied without its -wal.")
    if not header.startswith(MAGIC):
        raise NotATraceError(f"{path} is not a specview trace; record one with `specview record -o FILE`.")
    return header


def _connect(path: Path, mode: str) -> Opened:
    try:
        status = path.stat()
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?{mode}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
    except (OSError, sqlite3.Error) as error:
        raise unreadable(path, error) from error
    # An immutable file is read without locks, so the next reader here may peek into it too.
    immutable = mode == "immutable=1"
    identity = None if immutable else (status.st_dev, status.st_ino)
    if identity is not None:
        hold(identity)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_CELL)
    # A trace may come from anyone: no function or virtual table of its schema runs with our rights.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA query_only = ON")
    return Opened(path, connection, immutable, _identity=identity)


def _require_trace(path: Path, connection: sqlite3.Connection) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != schema.APPLICATION_ID:
        raise NotATraceError(
            f"{path} is a database, but not a specview trace; record one with `specview record -o FILE`."
        )
    if version > schema.VERSION:
        raise TraceError(
            f"{path} has trace format {version}, newer than this specview's {schema.VERSION}; "
            "upgrade specview to read it."
        )
    if version < 1:
        raise TraceError(f"{path} is damaged: its trace format is {version}, and there is none below 1.")
    kinds = dict(connection.execute("SELECT name, type FROM sqlite_master").fetchall())
    for table in schema.TABLES:
        if kinds.get(table) != "table":
            raise TraceError(f"{path} is damaged: it has no table {table}.")
        columns = {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}
        if missing := schema.columns_of(table) - columns:
            raise TraceError(f"{path} is damaged: its table {table} has no column {min(missing)}.")


def _needs_recovery(error: sqlite3.OperationalError) -> bool:
    code = getattr(error, "sqlite_errorname", "")
    return code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_IOERR"))


def _open_copy(path: Path) -> Opened:
    parts = {suffix: side_file(path, suffix) for suffix in ("", "-wal", "-journal")}
    size = sum(p.stat().st_size for p in parts.values() if p.exists())
    if size > COPY_LIMIT:
        raise TraceError(
            f"{path} was not closed, and its folder cannot be written to finish that; "
            "copy the file and its -wal elsewhere."
        )
    folder: Path | None = None
    try:
        folder = Path(tempfile.mkdtemp(prefix="specview-"))
        for suffix, part in parts.items():
            with suppress(FileNotFoundError):
                shutil.copy(part, folder / f"trace.db{suffix}")
        (folder / "trace.db").chmod(0o600)
        opened = _connect(folder / "trace.db", "mode=rw")
    except OSError as error:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise TraceError(
            f"{path} was not closed and needs a copy to be read, and none could be made ({error.strerror}); "
            "point TMPDIR to a folder with room."
        ) from error
    opened._copy = folder
    opened.path = path
    opened.warning = "read from a copy, because its folder cannot be written"
    return opened
