"""Rounds of a call that were seen and wait to be analysed, a few at a time.

The trace's writer then wakes up, and commits, once for all of them instead of once a round.
"""

from __future__ import annotations

import time

from specview.capturing.observation import Observation

ROUNDS = 6
BYTES = 64 << 20
PATIENCE_NS = 180_000_000
"""A round waits no longer than this, so that a trace being written stays less than 250 ms behind."""


class Backlog:
    """The rounds that wait; for one thread at a time."""

    def __init__(self) -> None:
        self._waiting: list[Observation] = []
        self._since = 0
        """perf_counter_ns when the first of them came."""
        self._bytes = 0

    def add(self, seen: Observation) -> bool:
        """Whether it is time to take them: the next round, as long as this one, would be too late, or too much."""
        now = time.perf_counter_ns()
        if not self._waiting:
            self._since, self._bytes = now, 0
        self._waiting.append(seen)
        size = seen.nbytes
        self._bytes += size
        late = now - self._since + (seen.times.round_ns or 0) > PATIENCE_NS
        return late or len(self._waiting) >= ROUNDS or self._bytes + size > BYTES

    def take(self) -> list[Observation]:
        """All of them, in order; none then waits."""
        taken, self._waiting = self._waiting, []
        return taken
