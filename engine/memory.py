"""The process's memory: keep what was freed, and know whether a second copy of a model's weights has room.

A round's temporaries are megabytes, and come back every round. glibc hands each allocation of that size to the kernel
and back, so that every round pays for fresh pages: measured at a vocabulary of 49,152, it more than doubles the time of
a round's bookkeeping.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
KEEP_BYTES = 1 << 30


def keep_freed_memory() -> bool:
    """Ask glibc to reuse freed blocks of up to a gigabyte; whether it agreed (elsewhere there is nothing to ask)."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library than glibc
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, KEEP_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, KEEP_BYTES))


def room_for(size: int) -> bool:
    """Whether `size` more bytes leave at least half of the memory that is available now."""
    return 2 * size <= available()


def available() -> int:
    """Bytes that can be had without swapping: what Linux says, elsewhere half of what is built in."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # not Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 if hasattr(os, "sysconf") else 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)
