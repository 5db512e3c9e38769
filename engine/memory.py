"""Keep freed memory in the process: a round's temporaries are megabytes, and come back every round.

glibc hands each allocation of that size to the kernel and back, so that every round pays for fresh pages: measured at
a vocabulary of 49,152, it more than doubles the time of a round's bookkeeping.
"""

from __future__ import annotations

import ctypes
import sys

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
