"""Pace: a slow round looks slow, scaled by the speed and shortened where nothing happened for long."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.round import Round

SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
UNTIMED_SECONDS = 0.3
"""Pace of a trace that records no times."""
LATEST_SECONDS = 0.5
"""A screen that is later than this (suspended, or starved) goes on from where it is instead of leaping."""
FASTEST_SECONDS = 1 / 60
"""No screen shows more than 60 rounds a second; faster playing skips rounds instead."""


@dataclass(frozen=True, slots=True)
class Pace:
    speed: float = 1.0
    idle_limit: float = 2.0
    """Seconds, at normal speed: no round takes longer."""

    def faster(self) -> Pace:
        return replace(self, speed=next((s for s in SPEEDS if s > self.speed * 1.001), SPEEDS[-1]))

    def slower(self) -> Pace:
        return replace(self, speed=next((s for s in reversed(SPEEDS) if s < self.speed * 0.999), SPEEDS[0]))

    def seconds(self, round_: Round, before: Round | None = None) -> float:
        """How long to wait until `round_` is over, counted from the end of the round `before`.

        Taken from the recorded clock where both rounds have one (it includes what happened between them), otherwise
        from the round's own wall time.
        """
        times = round_.times
        ns = times.round_ns
        if before is not None and times.start_ns is not None and times.round_ns is not None:
            earlier = before.times
            if earlier.start_ns is not None and earlier.round_ns is not None:
                ns = times.start_ns + times.round_ns - earlier.start_ns - earlier.round_ns
        seconds = UNTIMED_SECONDS if ns is None else max(0.0, ns / 1e9)
        return min(seconds, self.idle_limit) / self.speed


@dataclass(frozen=True, slots=True)
class Step:
    """How far to move now, and how long to wait before the next move."""

    rounds: int
    wait: float


def step(seconds: float, late: float = 0.0) -> Step:
    """One round after `seconds`; when that is more often than the screen can show, several rounds at once.

    A screen that is `late` by whole steps leaves out as many: it shows less rather than fall behind.
    """
    rounds, wait = 1, seconds
    if seconds < FASTEST_SECONDS:
        rounds, wait = max(1, min(1000, int(FASTEST_SECONDS / max(seconds, 1e-6)))), FASTEST_SECONDS
    steps = 1 + int(late / wait)
    return Step(rounds * steps, wait * steps)
