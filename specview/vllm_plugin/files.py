"""Which file an engine core writes: one each, never two in one."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specview.errors import TraceError

NAMES_TRIED = 1000


@dataclass(slots=True)
class Claim:
    """A file name that no other engine core of this machine uses while it is held."""

    path: Path
    _lock: int | None

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def rank_of(config: Any) -> int:
    """The data-parallel rank: each has an engine core, and requests, of its own. (vLLM renumbers the ranks of models
    that are no mixture of experts to 0, and keeps the index.)"""
    return int(config.parallel_config.data_parallel_index)


def ranked(path: Path, rank: int) -> Path:
    """run.db, run.dp1.db, run.dp2.db, …"""
    return path if rank == 0 else path.with_name(f"{path.stem}.dp{rank}{path.suffix}")


def claim(path: Path, rank: int) -> Claim:
    """Claim the rank's file; where another engine core writes it, the next free name (run-2.db, run-3.db, …).

    A claim is an advisory lock in the temporary folder, and ends with the process.

    Raises:
        TraceError: no name is free.
    """
    wanted = ranked(path.absolute(), rank)
    for number in range(1, NAMES_TRIED):
        name = wanted if number == 1 else wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}")
        lock = _lock(name)
        if lock is not None:
            return Claim(name, lock)
    raise TraceError(f"{NAMES_TRIED} engines already write {wanted} and its neighbours; choose another SPECVIEW_TRACE.")


def _lock(path: Path) -> int | None:
    digest = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:24]
    name = Path(tempfile.gettempdir()) / f"specview-{os.getuid()}-{digest}.lock"
    handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle
