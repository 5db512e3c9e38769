"""Which process writes a run, and whether it still lives.

File locks cannot tell: closing any second descriptor of a file drops the process's POSIX locks on it. So a run carries
its writer's host, pid and start; the start tells the writer from a later process that was given the same pid.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessMark:
    host: str | None
    pid: int | None
    start: str | None
    """Boot id and start in clock ticks where the system tells them (Linux), else None."""


def current() -> ProcessMark:
    """The mark of the calling process."""
    return ProcessMark(socket.gethostname(), os.getpid(), _start(os.getpid()))


def alive(mark: ProcessMark) -> bool:
    """Whether the process that left this mark still runs on this machine."""
    if mark.host != socket.gethostname() or mark.pid is None or mark.pid <= 0:
        return False
    try:
        os.kill(mark.pid, 0)
    except PermissionError:
        pass  # it lives, under another user
    except (ProcessLookupError, OverflowError):
        return False
    return mark.start is None or _start(mark.pid) in (None, mark.start)


def _start(pid: int) -> str | None:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the command in parentheses, and may hold spaces and parentheses itself.
    fields = stat.rpartition(")")[2].split()
    return f"{boot}:{fields[19]}" if len(fields) > 19 else None
