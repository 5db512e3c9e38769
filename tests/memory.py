"""How much memory this process takes, and took at most since it was last asked to forget.

`getrusage` cannot tell: its peak never goes down, and a process takes it over from the one that started it.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS, _FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def forget_peak() -> None:
    """Start a new peak from here, where the system can do that (Linux)."""
    if _FORGET.exists():
        _FORGET.write_text("5")


def resident_megabytes() -> float:
    """What the process holds now."""
    return _kilobytes("VmRSS:") / 1024


def peak_megabytes() -> float:
    """The most that it held since `forget_peak`."""
    return _kilobytes("VmHWM:") / 1024


def _kilobytes(field: str) -> float:
    if _STATUS.exists():
        return int(_STATUS.read_text().split(field)[1].split()[0])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform == "darwin" else peak
