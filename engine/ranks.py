"""Which of several processes this is, where a launcher such as torchrun started several. Standard library only."""

from __future__ import annotations

import os


def world_size() -> int:
    """Processes that run this program together; 1 unless a launcher started it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def records() -> bool:
    """Whether this process is the one that writes the trace."""
    return int(os.environ.get("RANK", "0")) == 0
