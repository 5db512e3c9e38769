"""Python's garbage collector, run when nobody waits: in the middle of a key press its pause is longer than painting."""

from __future__ import annotations

import gc

TICK_SECONDS = 1.0
QUIET = 300
"""Fewer new objects than this since the last tick: the screen rests."""
WORTH = 2_000
"""Fewer objects than this are not worth a look."""
OVERDUE = 400_000
"""So many objects are looked at even while the screen is busy."""


class Collector:
    """Takes the collector's automatic runs away while the app runs; `tick` decides when to look instead."""

    def __init__(self) -> None:
        self._count = 0
        self._was_enabled = gc.isenabled()
        gc.freeze()  # what the program itself is made of need not be looked at again
        gc.disable()

    def tick(self) -> bool:
        """Collect if there is something to collect and nothing else to do. True when it did."""
        count = gc.get_count()[0]
        grown, self._count = count - self._count, count
        if count > OVERDUE or (count > WORTH and grown < QUIET):
            gc.collect()
            self._count = gc.get_count()[0]
            return True
        return False

    def close(self) -> None:
        """Python's own rules again."""
        gc.unfreeze()
        if self._was_enabled:
            gc.enable()
