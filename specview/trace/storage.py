"""The trace file as a file: created, taken over, folded back into one, taken away again."""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from contextlib import suppress
from pathlib import Path

from engine.round import FINAL_STATUSES
from specview.errors import TraceError
from specview.trace import encode, opening, process, schema

SIDE_FILES = ("-wal", "-shm", "-journal")
LOCK_SECONDS = 10.0
"""How long a locked database is waited for; the engine goes on meanwhile."""
SWITCH_SECONDS = 2.0
"""How long a close waits for followers to let go before it leaves the file in WAL mode."""
CHECKPOINT_PAGES = 2000
"""8 MB: a commit that folds the log into the file must not take long on a slow disk."""


def refuse_existing(path: Path, *, force: bool, append: bool) -> None:
    """Raise TraceError where a file stands that was not offered for overwriting or appending."""
    try:
        exists = path.exists() or path.is_symlink()
    except OSError as error:
        raise TraceError(f"{path} cannot be created ({_reason(error)}); choose another file with -o.") from error
    if exists:
        if not (force or append):
            raise TraceError(f"{path} already exists; choose another file with -o, or use --force to overwrite it.")
        if not path.is_file():
            raise TraceError(f"{path} is not a regular file; choose another file with -o.")


class TraceFile:
    """A trace opened for writing, with its connection (for one thread at a time).

    Raises:
        TraceError: the file exists and neither `force` nor `append` was given, another process writes it, or it
            cannot be created.
    """

    def __init__(self, path: Path, *, force: bool, append: bool) -> None:
        self.path = path
        self._backup: Path | None = None
        self._fresh = True
        refuse_existing(path, force=force, append=append)
        if path.exists() and path.stat().st_size:
            self._require_no_writer(must_be_trace=append)
            self._fresh = not append
            if self._fresh:
                self._set_aside()
        self.connection = self._connect()
        self._identity = self._inode()
        if self._identity is not None:
            opening.hold(self._identity)

    def _connect(self) -> sqlite3.Connection:
        parent = self.path.parent
        try:
            parent.mkdir(parents=True, exist_ok=True)
            if self._fresh:
                self._create()
            connection = sqlite3.connect(self.path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            self._restore()
            raise TraceError(
                f"{self.path} cannot be created ({_reason(error)}); choose another file with -o."
            ) from error
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        except sqlite3.Error as error:
            connection.close()
            if self._fresh:
                self._remove()
                self._restore()
            raise TraceError(
                f"{self.path} cannot be written ({_reason(error)}); choose another file with -o."
            ) from error
        return connection

    def _create(self) -> None:
        """Make the empty trace under another name first, so that a follower finds either no file or a trace."""
        new = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex[:8]}.new")
        try:
            connection = sqlite3.connect(new, isolation_level=None)
            try:
                schema.create(connection)
            finally:
                connection.close()
            new.rename(self.path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise

    def _require_no_writer(self, *, must_be_trace: bool) -> None:
        try:
            writer = _living_writer(self.path)
        except (TraceError, *opening.READING_ERRORS) as error:
            if must_be_trace:
                raise error if isinstance(error, TraceError) else opening.unreadable(self.path, error) from error
            return
        if writer is not None:
            raise TraceError(f"{self.path} is being written by process {writer}; choose another file with -o.")

    def _set_aside(self) -> None:
        """What --force replaces is kept until the new trace is there, for the case that nothing comes of it."""
        aside = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex[:8]}.replaced")
        try:
            self.path.rename(aside)
            for side in SIDE_FILES:
                beside = Path(f"{self.path}{side}")
                if beside.exists():
                    beside.rename(f"{aside}{side}")
        except OSError as error:
            raise TraceError(
                f"{self.path} cannot be replaced ({_reason(error)}); choose another file with -o."
            ) from error
        self._backup = aside

    def _restore(self) -> None:
        if self._backup is not None:
            for side in ("", *SIDE_FILES):
                kept = Path(f"{self._backup}{side}")
                if kept.exists():
                    kept.rename(f"{self.path}{side}")
            self._backup = None

    def _drop_backup(self) -> None:
        if self._backup is not None:
            for side in ("", *SIDE_FILES):
                Path(f"{self._backup}{side}").unlink(missing_ok=True)
            self._backup = None

    def _remove(self) -> None:
        for side in ("", *SIDE_FILES):
            Path(f"{self.path}{side}").unlink(missing_ok=True)

    def _let_go(self) -> None:
        self.connection.close()
        if self._identity is not None:
            opening.release(self._identity)

    def _inode(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self.path)  # noqa: PTH116 - called once a commit
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def require_still_there(self) -> None:
        """SQLite goes on writing to a file that was deleted; that must not pass for recording.

        Raises:
            FileNotFoundError: the path leads to no file, or to another one.
        """
        if self._inode() != self._identity:
            raise FileNotFoundError(f"{self.path} was deleted or replaced while it was written")

    def explain(self, error: Exception) -> TraceError:
        """One sentence about why the writer thread had to stop."""
        kept = "what was recorded before is kept"
        if isinstance(error, FileNotFoundError):
            return TraceError(
                f"The trace {self.path} was deleted or replaced while it was being written; record again."
            )
        code = getattr(error, "sqlite_errorname", "")
        if code.startswith("SQLITE_FULL"):
            return TraceError(
                f"The disk is full, so {self.path} could not grow; {kept}. Free some space and record again."
            )
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return TraceError(
                f"Another program kept {self.path} locked for {LOCK_SECONDS:.0f} s; {kept}. Close it and record again."
            )
        return TraceError(
            f"The trace {self.path} could not be written ({_reason(error)}); {kept}. Check the disk and record again."
        )

    def close(self) -> None:
        """Fold the log into the file and go back to a rollback journal. A follower that does not let go in time leaves
        the file in WAL mode with everything in it."""
        try:
            _switch_to_rollback_journal(self.connection)
        except sqlite3.Error as error:
            raise self.explain(error) from error
        finally:
            self._let_go()
            self._drop_backup()

    def abandon(self, run: int | None, message: str) -> None:
        """After a failure: say so in the file if it still takes that, and leave the rest as it is."""
        with suppress(sqlite3.Error, OSError):  # the failure itself is already on its way to the user
            self.connection.execute("PRAGMA busy_timeout = 200")
            self.connection.execute(
                "UPDATE runs SET status = 'failed', message = ? WHERE id = ?", (encode.text(message), run)
            )
            _switch_to_rollback_journal(self.connection)
        self._let_go()
        self._drop_backup()

    def discard(self, first_new_run: int) -> None:
        """Remove what was created here: the file, or in an older file the runs from `first_new_run` on."""
        if self._fresh:
            self._let_go()
            self._remove()
            self._restore()
            return
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            for statement in _DELETE_RUNS:
                self.connection.execute(statement, (first_new_run,))
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._let_go()
            raise self.explain(error) from error
        self.close()


_SEQUENCES = "SELECT id FROM sequences WHERE run_id >= ?"
_ROUNDS = f"SELECT id FROM rounds WHERE sequence_id IN ({_SEQUENCES})"
_DELETE_RUNS = (
    f"DELETE FROM positions WHERE round_id IN ({_ROUNDS})",
    f"DELETE FROM tokens WHERE sequence_id IN ({_SEQUENCES})",
    f"DELETE FROM rounds WHERE sequence_id IN ({_SEQUENCES})",
    "DELETE FROM sequences WHERE run_id >= ?",
    "DELETE FROM costs WHERE run_id >= ?",
    "DELETE FROM vocab WHERE run_id >= ?",
    "DELETE FROM runs WHERE id >= ?",
)


def _living_writer(path: Path) -> int | None:
    """The process that writes a run of the trace, if one does."""
    with opening.open_read_only(path) as opened:
        for host, pid, start, status in opened.connection.execute("SELECT host, pid, process_start, status FROM runs"):
            if status not in FINAL_STATUSES and process.alive(process.ProcessMark(host, pid, start)):
                return int(pid)
    return None


def fold(path: Path) -> bool:
    """Bring a trace that a follower kept in WAL mode back to one file; False when someone still holds or writes it, and
    when it is no trace. What is no trace is left alone.

    Raises:
        TraceError: the trace cannot be read, or not be opened for writing.
    """
    try:
        if _living_writer(path) is not None:
            return False
    except opening.NotATraceError:
        return False
    except opening.READING_ERRORS as error:
        raise opening.unreadable(path, error) from error
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=1.0, isolation_level=None)
        try:
            return _switch_to_rollback_journal(connection)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise opening.unreadable(path, error) from error


def _switch_to_rollback_journal(connection: sqlite3.Connection) -> bool:
    deadline = time.monotonic() + SWITCH_SECONDS
    connection.execute("PRAGMA busy_timeout = 0")
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode = DELETE").fetchone()[0]
        except sqlite3.OperationalError as error:
            if not getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise
            mode = "wal"
        if mode == "delete":
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)


def _reason(error: Exception) -> str:
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return "a part of the path is a file, not a folder"
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
